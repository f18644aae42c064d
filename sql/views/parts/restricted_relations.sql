-- Our tables and views, and what the views read in the ops schema. Views that other people made are not among them.
with recursive read(oid) as (
  select c.oid from pg_class c
  where c.relnamespace = '{schema}'::regnamespace and c.relkind = 'v' and c.relname in (select name from {ops}.views)
  union
  select d.refobjid from read r join pg_rewrite w on w.ev_class = r.oid
  join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
)
select c.oid, format('%I.%I', n.nspname, c.relname) as name, c.relname::text, n.oid = '{ops}'::regnamespace as is_ops,
  c.relkind = 'v' as is_view, p.has_project, c.relrowsecurity as is_secured,
  exists (select from pg_options_to_table(c.reloptions) where option_name = 'security_invoker' and option_value::boolean) as is_invoker
from pg_class c join pg_namespace n on n.oid = c.relnamespace cross join lateral (
  select exists (select from pg_attribute where attrelid = c.oid and attname = 'project_id' and not attisdropped) as has_project
) p
where n.oid in ('{schema}'::regnamespace, '{ops}'::regnamespace) and c.relkind in ('r', 'p', 'v')
  and (c.oid in (select oid from read) or n.oid = '{schema}'::regnamespace and c.relkind <> 'v')
  -- The calendar lists days only, so every reader may see it.
  and (c.relkind = 'v' or p.has_project or c.relname = 'calendar')
