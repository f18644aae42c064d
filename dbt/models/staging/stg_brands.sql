-- The brands that reports mention or the service lists, own and competing.
select
  project_id,
  brand_id,
  name,
  domains,
  listed_own,
  is_own,
  listed_at,
  removed_at
from {{ source('visibility', 'brands') }}
