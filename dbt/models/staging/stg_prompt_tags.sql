-- The tags of prompts, one row for each pair.
select
  project_id,
  prompt_id,
  tag_id
from {{ source('visibility', 'prompt_tags') }}
