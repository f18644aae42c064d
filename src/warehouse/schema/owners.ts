import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import { listSome } from '../../core/text.ts'
import { BI_VIEWS } from '../../core/vocabulary.ts'
import type { Warehouse } from '../connect.ts'
import { HELPER_VIEWS, TABLES } from './catalogue.ts'
import { madeBy, readMigrations } from './migrations.ts'

/*
 * Who owns a table can put a trigger on it, which then runs with the rights of this role. So schemas, tables, views and functions
 * that we use, and functions that triggers, rules, defaults and constraints of these tables call, have to belong to this role, to a
 * role that it is a member of, or to a superuser, who needs no such trick.
 */

// For pg_has_role, a superuser is a member of every role. A role that made others is their member without their rights.
const FOREIGN = `
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
  order by 1`

/** Objects that we use and that belong to somebody else, each with its owner. */
export async function foreignObjects(
  client: Pick<PoolClient, 'query'>,
  { schema, opsSchema }: Warehouse,
  { reports, custom_streams }: Config,
): Promise<string[]> {
  const names = [
    ...Object.keys({ ...TABLES, ...HELPER_VIEWS }),
    ...[...reports, ...custom_streams].map(({ name }) => name),
    ...BI_VIEWS,
    ...madeBy(readMigrations()).flatMap(({ kind, name }) => (kind === 'function' ? [name] : [])),
  ]
  const { rows } = await client.query<{ what: string; owner: string }>(FOREIGN, [
    schema,
    [opsSchema, `${schema}_queue`],
    names,
  ])
  return rows.map(({ what, owner }) => `${what} (of ${owner})`)
}

export async function refuseForeignObjects(client: PoolClient, warehouse: Warehouse, config: Config): Promise<void> {
  if (config.warehouse.allow_foreign_owner) return
  const found = await foreignObjects(client, warehouse, config)
  if (found.length > 0) throw new UsageError(foreignOwnerMessage(found))
}

export function foreignOwnerMessage(found: readonly string[]): string {
  return (
    `these belong to roles that this role is not a member of: ${listSome(found)}. Their owners could run code with the rights of this role. ` +
    'Give them to this role ("alter … owner to"), drop them, or set warehouse.allow_foreign_owner: true if you trust the owners'
  )
}
