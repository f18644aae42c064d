-- Question 2: Share of voice over time, against each competitor? Day by day.
-- Needs the report by: date
create or replace view {schema}.share_of_voice_daily as
select
  s.project_id,
  coalesce(p.name, s.project_id) as project,
  s.date,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.mention_count / nullif(s.all_mentions, 0) as share_of_voice,
  s.mention_count,
  s.all_mentions,
  s.answers
from (
  -- All brands of the day are the whole; a filter on the brand stays outside.
  select r.project_id, r.date, r.brand_id, r.mention_count,
    sum(r.mention_count) over (partition by r.project_id, r.date) as all_mentions,
    r.visibility_total as answers
  from {report date} r
) s
left join {schema}.projects p on p.project_id = s.project_id
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id;
