-- 11. Which countries lead or lag?
-- Shown as: bar country,series visibility
-- Filtered by: visibility_by_country_weekly project week brand
select coalesce(country_code, '(no country)') as country, series, visibility, visibility_low, visibility_high, rank, change, verdict,
  answers, week, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    coalesce(max(week) filter (where is_complete) over of_project, max(week) over of_project) as newest_week
  from visibility.visibility_by_country_weekly
  where is_own
    -- filters
  window same_name as (partition by project, brand), of_project as (partition by project_id)
) weeks
where week = newest_week
order by series, rank, country;
