-- Coverage by month, kept in step by the database itself: planning and status look at months, and only at the days of
-- those months that are not settled. Ten million days are a third of a million months.

create table {ops}.coverage_months (
  project_id text collate "C" not null,
  stream text collate "C" not null,
  -- The first day of the month.
  month date not null,
  days integer not null,
  first_day date not null,
  last_day date not null,
  rows bigint not null,
  last_read_at timestamptz not null,
  days_held integer not null,
  days_quarantined integer not null,
  days_stale integer not null,
  -- The lowest age, in days, that a day of this month had when it was last read.
  youngest integer not null,
  primary key (project_id, stream, month)
) with (fillfactor = 80);

create function {ops}.summarize_coverage() returns trigger language plpgsql as $$
begin
  -- The rows are locked first: a second transaction then counts after the first one has committed.
  insert into {ops}.coverage_months
  select distinct on (1, 2, 3) project_id, stream, date_trunc('month', date)::date, 0, date, date, 0, read_at, 0, 0, 0, 0
  from changed order by 1, 2, 3
  on conflict do nothing;
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
  delete from {ops}.coverage_months m
  where (m.project_id, m.stream, m.month) in (select project_id, stream, date_trunc('month', date)::date from changed)
    and not exists (
      select from {ops}.coverage c where c.project_id = m.project_id and c.stream = m.stream
        and c.date >= m.month and c.date < m.month + interval '1 month'
    );
  return null;
end $$;

create trigger summarize_inserts after insert on {ops}.coverage
  referencing new table as changed for each statement execute function {ops}.summarize_coverage();
create trigger summarize_updates after update on {ops}.coverage
  referencing new table as changed for each statement execute function {ops}.summarize_coverage();
create trigger summarize_deletes after delete on {ops}.coverage
  referencing old table as changed for each statement execute function {ops}.summarize_coverage();

insert into {ops}.coverage_months
select project_id, stream, date_trunc('month', date)::date, count(*), min(date), max(date), sum(rows), max(read_at),
  count(*) filter (where state = 'held'), count(*) filter (where state = 'quarantined'),
  count(*) filter (where state = 'stale'), min((read_at at time zone 'UTC')::date - date)
from {ops}.coverage group by 1, 2, 3;
