-- The prompts of each project. Those that the service no longer lists keep their row and have removed_at.
select
  project_id,
  prompt_id,
  text,
  messages,
  topic_id,
  user_location,
  country_code,
  volume,
  volume_number,
  first_seen_at,
  removed_at
from {{ source('visibility', 'prompts') }}
