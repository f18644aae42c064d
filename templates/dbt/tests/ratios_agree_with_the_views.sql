-- The sums of the package, divided, are what the views of the warehouse show for a week.
with weeks as (
  select project_id, date_trunc('week', date::timestamp)::date as week, brand_id,
    sum(visibility_count) / nullif(sum(answers), 0) as visibility,
    sum(mention_count) / nullif(sum(all_mentions), 0) as share_of_voice
  from {{ ref('brand_days') }}
  group by 1, 2, 3
)
select weeks.*
from weeks
left join {{ source('visibility', 'visibility_weekly') }} as seen using (project_id, week, brand_id)
left join {{ source('visibility', 'share_of_voice_weekly') }} as heard using (project_id, week, brand_id)
where abs(weeks.visibility - seen.visibility) > 1e-9
  or abs(weeks.share_of_voice - heard.share_of_voice) > 1e-9
  or seen.project_id is null
  or heard.project_id is null
