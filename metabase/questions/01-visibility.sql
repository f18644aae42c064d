-- 1. How visible are we, against the previous equal period?
-- Shown as: line week,series visibility
-- Filtered by: visibility_weekly project week brand
select week, series, visibility, visibility_low, visibility_high, previous_visibility, change, change_low, change_high, verdict,
  change_same_prompts, answers, previous_answers, is_complete, is_provisional, comparison_is_complete, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    count(*) over (order by week desc) as rows_so_far, dense_rank() over (order by week desc) as place
  from visibility.visibility_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand)
) weeks
where rows_so_far <= 2000 or place = 1
order by week desc, series;
