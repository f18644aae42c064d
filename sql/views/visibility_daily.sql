-- Question 1: How visible are we, against the previous equal period? Day by day, with every ratio ready to read.
-- Needs the report by: date
create or replace view {schema}.visibility_daily as
select
  s.project_id,
  s.project,
  s.date,
  s.brand_id,
  coalesce(b.name, s.brand_id) as brand,
  coalesce(b.is_own, false) as is_own,
  s.value as visibility,
  s.visibility_count,
  s.visibility_total as answers,
  s.mention_count,
  -- The service's own numbers, on whatever scale it has.
  case when s.position_count > 0 then s.position end as position,
  case when s.position is null then 0 else s.position_count end as position_count,
  case when s.sentiment_count > 0 then s.sentiment end as sentiment,
  case when s.sentiment is null then 0 else s.sentiment_count end as sentiment_count,
  {schema}.wilson_low(s.visibility_count, s.visibility_total) as visibility_low,
  {schema}.wilson_high(s.visibility_count, s.visibility_total) as visibility_high,
  s.visibility_total >= 30 as enough_answers,
  s.position * s.position_count as position_points,
  s.sentiment * s.sentiment_count as sentiment_points,
  u.usual_visibility,
  abs(s.value - u.usual_visibility) > 3 * 1.4826 * u.visibility_deviation as is_unusual
from (
  select r.*, coalesce(p.name, p.project_id) as project, r.visibility_count / nullif(r.visibility_total, 0) as value
  from {schema}.projects p join {report date} r on r.project_id = p.project_id
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
left join {ops}.usual_days u on u.project_id = s.project_id and u.date = s.date and u.brand_id = s.brand_id;
