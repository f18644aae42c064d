-- Question 2: Share of voice over time, against each competitor? Day by day.
-- Needs the report by: date
create or replace view {schema}.share_of_voice_daily as
select
  s.project_id,
  s.project,
  s.date,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.mention_count / nullif(s.all_mentions, 0) as share_of_voice,
  s.mention_count,
  s.all_mentions,
  s.answers,
  s.answers >= 30 as enough_answers,
  u.usual_share_of_voice,
  abs(s.mention_count / nullif(s.all_mentions, 0) - u.usual_share_of_voice) > 3 * 1.4826 * u.share_of_voice_deviation as is_unusual
from (
  -- All brands of the day are the whole; a filter on the brand stays outside.
  select r.project_id, coalesce(p.name, p.project_id) as project, r.date, r.brand_id, r.mention_count,
    sum(r.mention_count) over (partition by r.project_id, coalesce(p.name, p.project_id), r.date) as all_mentions,
    r.visibility_total as answers
  from {schema}.projects p join {report date} r on r.project_id = p.project_id
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {ops}.usual_days u on u.project_id = s.project_id and u.date = s.date and u.brand_id = s.brand_id;
