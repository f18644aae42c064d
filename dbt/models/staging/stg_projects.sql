-- The projects that are synced.
select
  project_id,
  name
from {{ source('visibility', 'projects') }}
