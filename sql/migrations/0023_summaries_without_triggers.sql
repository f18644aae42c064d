-- Loads note the days that they change, and each run computes sums and usual values of those days before it ends. The triggers
-- on report tables that did this before are dropped.

do $$
declare
  trigger record;
begin
  for trigger in
    select t.tgname as name, t.tgrelid::regclass as relation
    from pg_trigger t join pg_proc f on f.oid = t.tgfoid
    where f.oid in ('{ops}.open_periods()'::regprocedure, '{ops}.follow_days()'::regprocedure) and not t.tgisinternal
  loop
    execute format('drop trigger %I on %s', trigger.name, trigger.relation);
  end loop;
end $$;

drop function {ops}.open_periods();
drop function {ops}.follow_days();
drop function {ops}.lock_usual(text);

-- Days of the report by day whose rows changed since usual_days was computed.
alter table {ops}.usual_projects add column due_days date[] not null default '{}';
