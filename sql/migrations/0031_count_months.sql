-- Counts the months of days that were written. The caller has the lock of loads. A function, because its plan is cached.
-- `youngest` is the lowest age at which a day was read, and 0 if one does not add up.

create function {ops}.count_months(of_project text, of_stream text, first_day date, last_day date) returns void
language plpgsql as $$
begin
  insert into {ops}.coverage_months as m
    (project_id, stream, month, days, first_day, last_day, rows, last_read_at, youngest)
  select c.project_id, c.stream, date_trunc('month', c.date::timestamp)::date, count(*), min(c.date), max(c.date),
    sum(c.rows), max(c.read_at),
    min(case when c.reconciled_at is null then 0 else (c.read_at at time zone 'UTC')::date - c.date end)
  from {ops}.coverage c
  where c.project_id = of_project and c.stream = of_stream
    and c.date >= date_trunc('month', count_months.first_day::timestamp)::date
    and c.date < (date_trunc('month', count_months.last_day::timestamp) + interval '1 month')::date
  group by 1, 2, 3
  on conflict on constraint coverage_months_pkey do update set days = excluded.days, first_day = excluded.first_day,
    last_day = excluded.last_day, rows = excluded.rows, last_read_at = excluded.last_read_at,
    youngest = excluded.youngest;
end $$;

-- Deleted days are no longer known, whoever deletes them: what is counted must not claim that they were read.
create function {ops}.forget_months() returns trigger language plpgsql as $$
declare
  gone record;
begin
  for gone in select project_id, stream, min(date) as first, max(date) as last from deleted group by 1, 2 loop
    delete from {ops}.coverage_months
    where project_id = gone.project_id and stream = gone.stream
      and month between date_trunc('month', gone.first::timestamp) and gone.last;
    perform {ops}.count_months(gone.project_id, gone.stream, gone.first, gone.last);
  end loop;
  return null;
end $$;

create trigger forget_months after delete on {ops}.coverage
  referencing old table as deleted for each statement execute function {ops}.forget_months();
