-- The topics: those that rows mention and, if the service lists them, all of them with their names. Labels in the configuration override a name.
select
  project_id,
  topic_id,
  name,
  listed_at,
  removed_at
from {{ source('visibility', 'topics') }}
