-- The statements that give tables and views what restricted readers need. The policies of the table of projects are the model for
-- those of all other tables. $1: what is unused; null if that is not known, and then nobody gets the right to read more.
with reader as (
  select p.polname as policy, r.rolname as role, pg_get_expr(p.polqual, p.polrelid) as condition
  from pg_policy p join pg_roles r on r.oid = any(p.polroles)
  where p.polrelid = to_regclass('{schema}.projects') and starts_with(p.polname, 'visibility_sync_reader_')
), relation as materialized (
  select r.*, has_project and not is_view as has_policies from ({part restricted_relations}) r where exists (select from reader)
), hidden as materialized (
  {part hidden_texts}
)
select format('alter view %s set (security_invoker = true)', name) as statement from relation where is_view and not is_invoker
union all
select format('create policy visibility_sync_every_row on %s using (true) with check (true)', name) from relation r
where has_policies and not exists (select from pg_policy where polrelid = r.oid and polname = 'visibility_sync_every_row')
union all
select format('create policy %I on %s as restrictive for select to %I using (%s)', policy, name, role, condition)
from relation r cross join reader
where has_policies and not exists (select from pg_policy where polrelid = r.oid and polname = policy)
union all
select format('alter table %s enable row level security', name) from relation where has_policies and not is_secured
union all
-- Our views need these with the rights of their reader, who cannot name them without the right to use the schema.
select format('grant select on %s to public', name) from relation where is_ops and not has_table_privilege('public', oid, 'select')
union all
select format('grant select on %s to %I', name, role) from relation cross join reader
where not is_ops and relname <> all($1::text[]) and not has_table_privilege(role, oid, 'select')
union all
select statement from hidden where not is_hidden
union all
-- What was collected before. Postgres before version 18 lets only a superuser remove it.
select case when current_setting('server_version_num')::int >= 180000
  then format('select pg_clear_attribute_stats(%L, %L, %L, %L)', h.nspname, h.relname, h.attname, s.inherited)
  else format('delete from pg_statistic where starelid = %s and staattnum = %s', attrelid, attnum) end
from hidden h join pg_stats s on (s.schemaname, s.tablename, s.attname) = (h.nspname, h.relname, h.attname)
where current_setting('server_version_num')::int >= 180000 or current_setting('is_superuser')::boolean
