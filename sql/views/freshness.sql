-- Question 12: Can I trust it? By stream: when it was last read, and what is missing, held or rejected.
create or replace view {schema}.freshness as
select
  t.project_id,
  coalesce(p.name, t.project_id) as project,
  t.stream,
  m.last_read_at,
  case when t.by_day then m.first_day end as first_day,
  case when t.by_day then m.last_day end as last_day,
  case when t.by_day then greatest(0, i.last - t.first_day + 1 - m.days - e.days)::integer end as missing_days,
  u.held_days,
  q.quarantined_rows,
  coalesce(m.last_read_at < now() - t.max_staleness, true) as is_stale,
  u.unreconciled_days,
  u.stale_days
from {ops}.stream_settings t
left join {schema}.projects p on p.project_id = t.project_id
-- The days of interest end today at the latest.
cross join lateral (
  select least(coalesce(t.last_day, day), day) as last from (select (now() at time zone 'UTC')::date as day) today
) i
-- From the sums by month; only the months at both ends of the days of interest are looked at day by day.
cross join lateral (
  select max(c.last_read_at) as last_read_at, min(c.first_day) as first_day, max(c.last_day) as last_day,
    coalesce(sum(c.days) filter (where c.first_day >= t.first_day and c.last_day <= i.last), 0) as days
  from {ops}.coverage_months c
  where c.project_id = t.project_id and c.stream = t.stream
) m
cross join lateral (
  select count(*) filter (where d.state = 'held')::integer as held_days,
    count(*) filter (where d.state = 'unreconciled')::integer as unreconciled_days,
    count(*) filter (where d.state = 'stale')::integer as stale_days
  from {ops}.coverage d where d.project_id = t.project_id and d.stream = t.stream and d.state <> 'read'
) u
cross join lateral (
  select count(d.date) as days
  from {ops}.coverage_months c
  join {ops}.coverage d on d.project_id = c.project_id and d.stream = c.stream
    and d.date >= c.first_day and d.date <= c.last_day and d.date between t.first_day and i.last
  where c.project_id = t.project_id and c.stream = t.stream and not (c.first_day >= t.first_day and c.last_day <= i.last)
    and c.last_day >= t.first_day and c.first_day <= i.last
) e
cross join lateral (
  select coalesce(sum(r.occurrences), 0)::integer as quarantined_rows
  from {ops}.quarantine r
  where r.project_id = t.project_id and r.stream = t.stream and r.resolved_at is null
) q;
