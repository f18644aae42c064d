-- What is usual for a brand on a day, by the same weekday of the eight weeks before: the views of days show it beside each
-- value. Working it out for every row that is shown took most of their time. Triggers on the report by day keep it, in the
-- transaction that changes the rows.

create table {ops}.usual_days (
  project_id text collate "C" not null,
  date date not null,
  brand_id text collate "C" not null,
  -- Medians, where at least five of the eight days have a value, and the medians of the distances from them.
  visibility double precision,
  visibility_deviation double precision,
  share_of_voice double precision,
  share_of_voice_deviation double precision,
  primary key (project_id, date, brand_id)
);

-- Made anew once the report by day is configured: its table has the name that the configuration gives it.
create function {ops}.usual_of(project text, days date[]) returns setof {ops}.usual_days
language sql stable parallel safe security definer set search_path = pg_catalog
as 'select * from {ops}.usual_days where false';

create function {ops}.renew_usual(project text, days date[]) returns void
language sql security definer set search_path = pg_catalog
begin atomic
  delete from {ops}.usual_days where project_id = project and date = any(days);
  insert into {ops}.usual_days select u.* from {ops}.usual_of(project, days) u order by u.date, u.brand_id;
end;

-- A day that changes is compared with others, and others up to eight weeks later with it. With the rights of its owner: whoever
-- may change rows of a report need not be able to write here.
create function {ops}.learn_usual() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
begin
  if tg_op = 'TRUNCATE' then
    perform {ops}.renew_usual(d.project_id, d.days)
    from (select project_id, array_agg(distinct date) as days from {ops}.usual_days group by 1) d;
  else
    perform {ops}.renew_usual(d.project_id, d.days)
    from (
      select c.project_id, array_agg(distinct c.date + 7 * week) as days
      from (select distinct project_id, date from changed) c cross join generate_series(0, 8) week
      group by 1
    ) d;
  end if;
  return null;
end $$;

-- The two halves of prompt_sums_now: sums that are kept, which can be looked up row by row, and sums of open periods, which are
-- worked out once for a query.
create view {ops}.kept_sums as
select s.* from {ops}.prompt_sums s
where not exists (
  select from {ops}.open_periods o where o.project_id = s.project_id and o.unit = s.unit and o.start = s.start
);

create view {ops}.open_sums as
select g.*, coalesce(p.name, p.project_id) as project
from {schema}.projects p
join (select distinct project_id, unit, start from {ops}.open_periods) o on o.project_id = p.project_id
cross join lateral {ops}.sums_of(o.project_id, o.unit, o.start) g;

-- A view of some weeks or months looks up their days, and those of the periods before, instead of reading the whole calendar.
create index calendar_by_week on {schema}.calendar (week);
create index calendar_by_next_week on {schema}.calendar ((week + 7));
create index calendar_by_month on {schema}.calendar (month);
create index calendar_by_next_month on {schema}.calendar (((month + interval '1 month')::date));
