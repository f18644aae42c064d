-- The projects that are synced.
select
  project_id,
  name,
  status,
  created_at,
  listed_at,
  removed_at
from {{ source('visibility', 'projects') }}
