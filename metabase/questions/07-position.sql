-- 7. Is our average position improving?
-- Shown as: line week,series position
-- Filtered by: position_by_model_weekly project week brand
select week, series || ', ' || coalesce(model_id, '(no model)') as series, position, previous_position, change, is_improving,
  position_count, comparison_is_complete, project, brand, model_id
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    count(*) over (order by week desc) as rows_so_far, dense_rank() over (order by week desc) as place
  from visibility.position_by_model_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand)
) weeks
where rows_so_far <= 2000 or place = 1
order by week desc, change nulls last;
