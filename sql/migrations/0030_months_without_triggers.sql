-- The program counts the months of the days that it writes. Days that are not settled are counted from their index.

drop trigger summarize_inserts on {ops}.coverage;
drop trigger summarize_updates on {ops}.coverage;
drop trigger summarize_deletes on {ops}.coverage;
drop function {ops}.summarize_coverage();

-- A day that does not add up counts as read too early.
update {ops}.coverage_months set youngest = 0 where days_uncompared > 0;
alter table {ops}.coverage_months
  alter column days_held drop not null,
  alter column days_quarantined drop not null,
  alter column days_stale drop not null;

do $$
begin
  -- The view of earlier versions reads the columns. It is replaced when all migrations are done.
  if to_regclass('{schema}.freshness') is not null then
    create or replace view {schema}.freshness as
    select t.project_id, coalesce(p.name, t.project_id) as project, t.stream, now() as last_read_at, t.first_day,
      t.last_day, 0 as missing_days, 0 as held_days, 0 as quarantined_rows, false as is_stale, 0 as unreconciled_days
    from {ops}.stream_settings t left join {schema}.projects p on p.project_id = t.project_id where false;
  end if;
  alter table {ops}.coverage_months
    drop column days_held, drop column days_quarantined, drop column days_stale,
    drop column days_unreconciled, drop column days_uncompared;
exception when dependent_objects_still_exist then
  -- Somebody made a view of these.
  null;
end $$;
