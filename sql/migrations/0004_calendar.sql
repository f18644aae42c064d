-- A calendar for BI: weeks and months of days, and which days a week or month is compared with. Views join it, so that a
-- filter on a week becomes a range of days, which the indexes of report tables answer.

create table {schema}.calendar (
  date date primary key,
  week date not null,
  month date not null,
  quarter date not null,
  year integer not null,
  -- 1 is Monday.
  weekday integer not null,
  -- As 2026-W07.
  iso_week text collate "C" not null
);

-- Up to next week, and every migration goes on from there: with days far in the future, "since last month" would look to
-- the planner like most of the calendar, and it would read whole tables.
insert into {schema}.calendar
select day, day - (extract(isodow from day)::integer - 1), date_trunc('month', day::timestamp)::date,
  date_trunc('quarter', day::timestamp)::date, extract(year from day)::integer, extract(isodow from day)::integer,
  to_char(day, 'IYYY-"W"IW')
from (select date '2015-01-01' + number as day from generate_series(0, current_date + 7 - date '2015-01-01') number) days;

-- Every day counts in its own week (ago = 0) and, for comparison, in the week after (ago = 1). One pass over the rows
-- then gives a week and the one before it.
create view {schema}.weeks_compared as
select date, week, 0 as ago from {schema}.calendar
union all
select date, week + 7, 1 from {schema}.calendar;

create view {schema}.months_compared as
select date, month, 0 as ago from {schema}.calendar
union all
select date, (month + interval '1 month')::date, 1 from {schema}.calendar;

-- What was made of each view, so that a view is replaced only when its text changed.
create table {ops}.views (
  name text collate "C" primary key,
  fingerprint text not null,
  made_at timestamptz not null default now()
);
