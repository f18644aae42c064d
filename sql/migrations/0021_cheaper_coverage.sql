-- The days of a month are counted by a trigger. Reading days again updates their rows and inserts none, but Postgres calls the
-- triggers of both, and each counted the month. Now nothing is counted for no rows, and months are removed only by days that
-- are deleted.

create or replace function {ops}.summarize_coverage() returns trigger language plpgsql as $$
begin
  if not exists (select from changed) then
    return null;
  end if;
  -- The rows are locked first: a second transaction then counts after the first one has committed.
  if tg_op <> 'DELETE' then
    insert into {ops}.coverage_months
    select distinct on (1, 2, 3) project_id, stream, date_trunc('month', date)::date, 0, date, date, 0, read_at, 0, 0, 0, 0
    from changed order by 1, 2, 3
    on conflict do nothing;
  end if;
  perform from {ops}.coverage_months m
  where (m.project_id, m.stream, m.month) in (select project_id, stream, date_trunc('month', date)::date from changed)
  order by m.project_id, m.stream, m.month for update;
  update {ops}.coverage_months m set
    days = s.days, first_day = s.first_day, last_day = s.last_day, rows = s.rows, last_read_at = s.last_read_at,
    days_held = s.days_held, days_quarantined = s.days_quarantined, days_stale = s.days_stale, youngest = s.youngest
  from (
    select k.project_id, k.stream, k.month, count(*) as days, min(c.date) as first_day, max(c.date) as last_day,
      sum(c.rows) as rows, max(c.read_at) as last_read_at,
      count(*) filter (where c.state = 'held') as days_held,
      count(*) filter (where c.state = 'quarantined') as days_quarantined,
      count(*) filter (where c.state = 'stale') as days_stale,
      min((c.read_at at time zone 'UTC')::date - c.date) as youngest
    from (select distinct project_id, stream, date_trunc('month', date)::date as month from changed) k
    join {ops}.coverage c on c.project_id = k.project_id and c.stream = k.stream
      and c.date >= k.month and c.date < k.month + interval '1 month'
    group by 1, 2, 3
  ) s
  where m.project_id = s.project_id and m.stream = s.stream and m.month = s.month;
  if tg_op = 'DELETE' then
    delete from {ops}.coverage_months m
    where (m.project_id, m.stream, m.month) in (select project_id, stream, date_trunc('month', date)::date from changed)
      and not exists (
        select from {ops}.coverage c where c.project_id = m.project_id and c.stream = m.stream
          and c.date >= m.month and c.date < m.month + interval '1 month'
      );
  end if;
  return null;
end $$;
