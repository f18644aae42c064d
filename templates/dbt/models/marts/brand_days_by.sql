-- Every brand day by day and <<column>>, with names.
select
  days.project_id || '/' || days.date || '/' || days.brand_id || '/' || coalesce(days.<<column>>, '') as brand_day_id,
  days.project_id,
  coalesce(projects.name, days.project_id) as project,
  days.date,
  days.brand_id,
  coalesce(brands.name, days.brand_id) as brand,
  coalesce(brands.is_own, false) as is_own,
  days.<<column>>,
  days.visibility_count,
  days.answers,
  days.mention_count,
  days.all_mentions
from {{ ref('stg_<<report>>') }} as days
left join {{ ref('stg_projects') }} as projects on projects.project_id = days.project_id
left join {{ ref('stg_brands') }} as brands on brands.project_id = days.project_id and brands.brand_id = days.brand_id
