-- The topics that rows mention. Names come from labels in the configuration, or from creating them.
select
  project_id,
  topic_id,
  name
from {{ source('visibility', 'topics') }}
