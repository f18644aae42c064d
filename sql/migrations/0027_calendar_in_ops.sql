-- The calendar and its views help other views, and mean little to a reader. Views that people made on them go on working.

alter table {schema}.calendar set schema {ops};
alter statistics {schema}.calendar_next_week set schema {ops};
alter statistics {schema}.calendar_next_month set schema {ops};
alter view {schema}.weeks_compared set schema {ops};
alter view {schema}.months_compared set schema {ops};

create or replace view {ops}.weeks_compared as
select date, week, 0 as ago from {ops}.calendar
union all
select date, week + 7, 1 from {ops}.calendar;

create or replace view {ops}.months_compared as
select date, month, 0 as ago from {ops}.calendar
union all
select date, (month + interval '1 month')::date, 1 from {ops}.calendar;

-- BI tools show relations to tables that a reader sees.
do $$
declare
  relation record;
begin
  for relation in
    select conrelid::regclass as table, conname from pg_constraint
    where confrelid = '{ops}.calendar'::regclass and contype = 'f' and conparentid = 0
  loop
    execute format('alter table %s drop constraint %I', relation.table, relation.conname);
  end loop;
end
$$;
