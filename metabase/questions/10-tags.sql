-- 10. Branded or not, or by funnel stage?
-- Shown as: bar tag,series visibility
-- Filtered by: visibility_by_tag_weekly project week brand
select tag || case when min(tag_id) over same_tag <> max(tag_id) over same_tag then ' (' || tag_id || ')' else '' end as tag,
  series, visibility, visibility_low, visibility_high, previous_visibility, change, verdict, answers, week, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    coalesce(max(week) filter (where is_complete) over of_project, max(week) over of_project) as newest_week
  from visibility.visibility_by_tag_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand), of_project as (partition by project_id)
) weeks
where week = newest_week
window same_tag as (partition by project_id, tag)
order by 1, series;
