-- The tags that rows mention. Names come from labels in the configuration, or from creating them.
select
  project_id,
  tag_id,
  name
from {{ source('visibility', 'tags') }}
