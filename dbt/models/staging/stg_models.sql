-- The models that rows mention.
select
  project_id,
  model_id
from {{ source('visibility', 'models') }}
