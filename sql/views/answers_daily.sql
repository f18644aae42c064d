-- Question 12: Can I trust it: did every prompt and model run, is the sample large enough? By day, without brands: made to be added up.
-- Needs the report by: date
create or replace view {schema}.answers_daily as
select
  s.project_id,
  s.project,
  s.date,
  s.answers,
  h.usual as usual_answers,
  -- A day that was read before it was over is not compared with whole days.
  case
    when not exists (
      select from {ops}.days_read d
      where d.project_id = s.project_id and d.stream = {stream} and d.date = s.date and (d.read_at at time zone 'UTC')::date <= d.date
    ) then abs(s.answers - h.usual) > 3 * 1.4826 * m.deviation
  end as is_unusual
from (
  -- Each brand's row of the day has it, so take the largest, not the sum.
  select r.project_id, coalesce(p.name, p.project_id) as project, r.date, max(r.visibility_total) as answers
  from {schema}.projects p join {report date} r on r.project_id = p.project_id
  group by r.project_id, p.project_id, r.date
) s
-- The same weekday of the eight weeks before, where at least five of them were read.
left join lateral (
  select percentile_cont(0.5) within group (order by e.value) as usual, array_agg(e.value) as values
  from (
    select max(r.visibility_total) as value
    from {report date} r
    where r.project_id = s.project_id and r.date = any({schema}.weekdays_before(s.date))
    group by r.date
  ) e
  having count(*) >= 5
) h on true
left join lateral (
  select percentile_cont(0.5) within group (order by abs(value - h.usual)) as deviation from unnest(h.values) value
) m on true;
