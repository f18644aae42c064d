-- 2. Share of voice over time, against each competitor?
-- Shown as: line date,series share_of_voice
-- Filtered by: share_of_voice_daily project date brand
select date, series, share_of_voice, is_own, mention_count, all_mentions, answers, enough_answers, is_unusual, project, brand
from (
  select *,
    case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
      || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
        then ' (' || project_id || '/' || brand_id || ')' else '' end as series,
    count(*) over (order by date desc) as rows_so_far, dense_rank() over (order by date desc) as place
  from visibility.share_of_voice_daily
  where true
    -- filters
  window same_name as (partition by project, brand)
) days
where rows_so_far <= 2000 or place = 1
order by date desc, share_of_voice desc;
