-- Objects that we use and that belong to a role which is neither ours, nor one that ours is a member of, nor a superuser.
-- $1 the schema for people, $2 our other schemas, $3 the names of what we use in the first.
-- For pg_has_role, a superuser is a member of every role. A role that made others is their member without their rights.
with recursive mine as (
  select oid from pg_roles where rolname = current_user
  union
  select m.roleid from pg_auth_members m join mine on m.member = mine.oid
  where coalesce((to_jsonb(m) ->> 'inherit_option')::boolean or (to_jsonb(m) ->> 'set_option')::boolean, true)
), trusted as (
  select oid from mine union select oid from pg_roles where rolsuper
  union select r.oid from pg_roles r join pg_database d on d.datdba in (select oid from mine)
    where r.rolname = 'pg_database_owner' and d.datname = current_database()
), spaces as (
  select oid, nspname, nspowner, nspname = $1 as for_people from pg_namespace where nspname = $1 or nspname = any($2)
), relations as (
  select c.oid, c.relowner, format('%s.%s', s.nspname, c.relname) as name from pg_class c join spaces s on s.oid = c.relnamespace
  where c.relkind <> 'i' and (not s.for_people or c.relname = any($3))
), functions as (
  select p.oid, p.proowner, format('%s.%s', s.nspname, p.proname) as name from pg_proc p join spaces s on s.oid = p.pronamespace
  where not s.for_people or p.proname = any($3)
), parts as (
  select 'pg_trigger'::regclass as class, oid, tgrelid as relation from pg_trigger
  union all select 'pg_rewrite'::regclass, oid, ev_class from pg_rewrite
  union all select 'pg_attrdef'::regclass, oid, adrelid from pg_attrdef
  union all select 'pg_constraint'::regclass, oid, conrelid from pg_constraint
  union all select 'pg_policy'::regclass, oid, polrelid from pg_policy
  union all select 'pg_class'::regclass, indexrelid, indrelid from pg_index
)
select format('the schema %s', nspname) as what, nspowner::regrole::text as owner from spaces where nspowner not in (select oid from trusted)
union all select name, relowner::regrole::text from relations where relowner not in (select oid from trusted)
union all select name || '()', proowner::regrole::text from functions where proowner not in (select oid from trusted)
union all
select distinct format('%s(), which %s calls', f.oid::regproc, r.name), f.proowner::regrole::text
from pg_proc f
join pg_depend d on d.refclassid = 'pg_proc'::regclass and d.refobjid = f.oid
join parts p on p.class = d.classid and p.oid = d.objid
join relations r on r.oid = p.relation
where f.proowner not in (select oid from trusted)
order by 1
