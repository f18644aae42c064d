-- 3. Which models are strongest and weakest for us?
-- Shown as: bar model,series visibility
-- Filtered by: visibility_by_model_weekly project week brand
select coalesce(model_id, '(no model)') as model, series, visibility, visibility_low, visibility_high, rank, change, verdict,
  answers, week, is_complete, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    coalesce(max(week) filter (where is_complete) over of_project, max(week) over of_project) as newest_week
  from visibility.visibility_by_model_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand), of_project as (partition by project_id)
) weeks
where week = newest_week
order by series, rank, model;
