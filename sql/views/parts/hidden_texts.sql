-- Names, texts and addresses in tables with policies, their partitions and the expressions of their indexes. The planner must have no
-- statistics of them: by its estimates, everybody who may explain a query can find their values. Joins and groups need those of ids and codes.
select format('alter %s %I.%I alter column %s set statistics 0', case when i.indexrelid is null then 'table' else 'index' end,
    n.nspname, c.relname, case when i.indexrelid is null then quote_ident(a.attname) else a.attnum::text end) as statement,
  coalesce(a.attstattarget, -1) = 0 as is_hidden, n.nspname, c.relname, a.attname, a.attrelid, a.attnum
from relation r
cross join lateral (select r.oid union all select inhrelid from pg_inherits where inhparent = r.oid) t(oid)
cross join lateral (select t.oid union all select indexrelid from pg_index where indrelid = t.oid) o(oid)
join pg_class c on c.oid = o.oid join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.atttypid = 'text'::regtype and a.attname !~ '_(id|code)$'
left join pg_index i on i.indexrelid = c.oid
where r.has_policies and not r.is_ops and (i.indexrelid is null or i.indkey[a.attnum - 1] = 0)
