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
  s.position_count,
  case when s.sentiment_count > 0 then s.sentiment end as sentiment,
  s.sentiment_count,
  {schema}.wilson_low(s.visibility_count, s.visibility_total) as visibility_low,
  {schema}.wilson_high(s.visibility_count, s.visibility_total) as visibility_high,
  s.visibility_total >= 30 as enough_answers,
  s.position * s.position_count as position_points,
  s.sentiment * s.sentiment_count as sentiment_points,
  h.usual as usual_visibility,
  abs(s.value - h.usual) > 3 * 1.4826 * m.deviation as is_unusual
from (
  select r.*, coalesce(p.name, p.project_id) as project, r.visibility_count / nullif(r.visibility_total, 0) as value
  from {schema}.projects p join {report date} r on r.project_id = p.project_id
) s
left join {schema}.brands b on b.project_id = s.project_id and b.brand_id = s.brand_id
-- The same weekday of the eight weeks before, where at least five of them were read.
left join lateral (
  select percentile_cont(0.5) within group (order by e.value) as usual, array_agg(e.value) as values
  from (
    select r.visibility_count / r.visibility_total as value
    from {report date} r
    where r.project_id = s.project_id and r.brand_id = s.brand_id and r.visibility_total > 0
      and r.date = any({schema}.weekdays_before(s.date))
  ) e
  having count(*) >= 5
) h on true
left join lateral (
  select percentile_cont(0.5) within group (order by abs(value - h.usual)) as deviation from unnest(h.values) value
) m on true;
