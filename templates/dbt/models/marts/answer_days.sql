-- The number of answers by project and day, without brands: it may be summed.
select
  project_id || '/' || date as answer_day_id,
  project_id,
  project,
  date,
  answers
from {{ source('visibility', 'answers_daily') }}
where {{ visibility_sync.in_visibility_projects() }}
