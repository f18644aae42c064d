-- The brands that reports mention, own and competing.
select
  project_id,
  brand_id,
  name,
  is_own
from {{ source('visibility', 'brands') }}
