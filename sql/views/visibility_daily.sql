-- Question 1: How visible are we, against the previous equal period? Day by day, with every ratio ready to read.
-- Needs the report by: date
create or replace view {schema}.visibility_daily as
select
  r.project_id,
  coalesce(p.name, r.project_id) as project,
  r.date,
  r.brand_id,
  coalesce(b.name, r.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  r.visibility_count / nullif(r.visibility_total, 0) as visibility,
  r.visibility_count,
  r.visibility_total as answers,
  r.mention_count,
  r.position_sum / nullif(r.position_count, 0) as position,
  r.position_count,
  (r.sentiment_sum / nullif(r.sentiment_count, 0) / 2 + 0.5) * 100 as sentiment,
  r.sentiment_count
from {report date} r
left join {schema}.projects p on p.project_id = r.project_id
left join {schema}.brands b on b.project_id = r.project_id and b.brand_id = r.brand_id;
