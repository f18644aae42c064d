import { type RawBuilder, sql } from 'kysely'
import { codeOf } from '../../core/errors.ts'
import { listSome } from '../../core/text.ts'
import type { Warehouse } from '../connect.ts'
import { batch, Db, oneConnection } from '../database.ts'
import type { Restriction } from './restrict-reader.ts'
import { fillIn } from './sql-files.ts'

export type ReaderVerdict = Awaited<ReturnType<typeof verifyReader>>

interface Verified {
  closedSchemas: readonly string[]
  projects?: readonly string[] | undefined
  unused: readonly string[]
}

interface Found {
  name: string
}

/** Something that the role has or can take on, and through whom: PUBLIC, another role, or null for the role itself. */
interface Held extends Found {
  schema: string
  right: 'create' | 'usage' | 'table'
  via: string | null
}

/** By grants of the role, of PUBLIC and of every role that it is a member of: grants show only what was added, this shows what holds. */
export async function verifyReader(warehouse: Warehouse, role: string, { closedSchemas, projects, unused }: Verified) {
  const { db, schema } = warehouse
  const basics = await sql<{ connect: boolean; usage: boolean; relations: number; closed: string[] }>`
    select has_database_privilege(${role}, current_database(), 'connect') as connect,
      has_schema_privilege(${role}, ${schema}, 'usage') as usage,
      (select count(*)::int from pg_class where relnamespace = to_regnamespace(quote_ident(${schema})) and ${RELATIONS}
         and (relname <> all(${unused}) or has_table_privilege(${role}, oid, 'select'))) as relations,
      array(select nspname::text from pg_namespace where nspname = any(${closedSchemas}) order by 1) as closed`.execute(
    db,
  )
  const { connect, usage, relations, closed } = basics.rows[0]!
  const problems = [
    ...(connect ? [] : [`${role} may not connect to this database: grant connect on it`]),
    ...(usage ? [] : [`${role} may not use the schema ${schema}`]),
  ]
  const list = (found: readonly Found[]) => listSome(found.map(({ name }) => name))
  const restricted = projects && (await verifyRestriction(warehouse, { role, projects: [...projects] }, unused))
  if (restricted !== undefined) problems.push(...restricted.problems)
  else {
    const { rows: unreadable } = await findUnreadable(role, schema, unused).execute(db)
    if (unreadable.length > 0) problems.push(`${role} cannot read ${list(unreadable)}`)
    const { rows: owners } = await ownersWithoutDefaults(role, schema).execute(db)
    if (owners.length > 0)
      problems.push(
        `tables that ${list(owners)} makes in ${schema} later will not be readable: run the command as that role`,
      )
  }
  const { rows: held } = await heldRights(role, schema, closed).execute(db)
  const complain = (what: string, found: readonly Held[], why = '') => {
    if (found.length > 0) problems.push(`${role} ${what} ${list(found)}${why}${through(found)}`)
  }
  const tablesIn = (place: string) => held.filter((one) => one.schema === place && one.right === 'table')
  complain('can write to', tablesIn(schema))
  complain(
    'can make tables in',
    held.filter(({ right }) => right === 'create'),
  )
  for (const open of held.filter(({ right }) => right === 'usage')) {
    const tables = tablesIn(open.name)
    const what = tables.length === 0 ? 'can look into' : 'can read or write'
    complain(what, tables.length === 0 ? [open] : tables, ', which should be closed to it')
  }
  return { relations, closed, ...restricted, problems }
}

function through(found: readonly Held[]): string {
  const ways = [...new Set(found.flatMap(({ via }) => via ?? []))]
  return ways.length === 0 ? '' : `, through ${listSome(ways)}`
}

const RELATIONS = sql`relkind in ('r', 'p', 'v', 'm', 'f')`

/** Write rights of the role in the schema, and all its rights in closed schemas: its own, or those of roles that it can set. */
function heldRights(role: string, schema: string, closed: readonly string[]): RawBuilder<Held> {
  return sql`
    with reached as (
      select oid, rolname::text as name from pg_roles where pg_has_role(${role}, oid, 'usage')
        or pg_has_role(${role}, oid, case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end)
      union all select 0, 'PUBLIC'
    ), held as (
      select n.nspname as schema, n.nspname::text as name, privilege as right, r.oid as role, r.name as role_name
      from pg_namespace n cross join unnest('{create,usage}'::text[]) privilege cross join reached r
      where (n.nspname = any(${closed}) or n.nspname = ${schema} and privilege = 'create') and has_schema_privilege(r.oid, n.oid, privilege)
      union all
      select n.nspname, format('%s.%s', n.nspname, c.relname), 'table', r.oid, r.name
      from pg_class c join pg_namespace n on n.oid = c.relnamespace cross join reached r
      where (n.nspname = ${schema} or n.nspname = any(${closed})) and ${RELATIONS} and (
        has_table_privilege(r.oid, c.oid, 'insert, update, delete, truncate, trigger') or has_any_column_privilege(r.oid, c.oid, 'insert, update')
        or n.nspname <> ${schema} and (has_table_privilege(r.oid, c.oid, 'select') or has_any_column_privilege(r.oid, c.oid, 'select')))
    )
    select schema::text, name, "right", case when bool_or(role = 0) then 'PUBLIC' else min(role_name) filter (where role_name <> ${role}) end as via
    from held group by 1, 2, 3 order by 2`
}

/** A view uses the rights of its owner, or of the caller if `security_invoker` is set. That role must be able to read its tables. */
function findUnreadable(role: string, schema: string, unused: readonly string[]): RawBuilder<Found> {
  return sql`
    select c.relname::text as name from pg_class c
    where c.relnamespace = to_regnamespace(quote_ident(${schema})) and ${RELATIONS} and c.relname <> all(${unused}) and (
      not has_table_privilege(${role}, c.oid, 'select') or exists (
        select from pg_rewrite w
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
        join pg_class t on t.oid = d.refobjid and t.oid <> c.oid and t.${RELATIONS}
        where w.ev_class = c.oid and c.relkind = 'v' and not has_any_column_privilege(
          case when exists (select from pg_options_to_table(c.reloptions) where option_name = 'security_invoker' and option_value::boolean)
            then (select oid from pg_roles where rolname = ${role}) else c.relowner end, t.oid, 'select')))
    order by 1`
}

/** Roles that own tables of the schema, or run this command, without default privileges for later tables. */
function ownersWithoutDefaults(role: string, schema: string): RawBuilder<Found> {
  return sql`
    select o.rolname::text as name from pg_roles o
    where (o.rolname = current_user or exists (
        select from pg_class c where c.relowner = o.oid and c.relnamespace = to_regnamespace(quote_ident(${schema})) and c.relkind in ('r', 'p')))
      and not exists (
        select from pg_default_acl d cross join lateral aclexplode(d.defaclacl) a
        where d.defaclrole = o.oid and d.defaclobjtype = 'r' and d.defaclnamespace in (0, to_regnamespace(quote_ident(${schema})))
          and a.privilege_type = 'SELECT' and case when a.grantee = 0 then true else pg_has_role(${role}, a.grantee, 'usage') end)
    order by 1`
}

/** `wasAsked` is false if the database could not be asked as that role. */
async function verifyRestriction(warehouse: Warehouse, { role, projects }: Restriction, unused: readonly string[]) {
  const { db, schema } = warehouse
  const part = (name: string) => sql.raw(fillIn(`{part ${name}}`, warehouse))
  const { rows: used } = await sql<{ name: string; hasPolicies: boolean; isReadable: boolean }>`
    select * from (
      select name, relname, has_project and not is_view as "hasPolicies", has_table_privilege(${role}, oid, 'select') as "isReadable"
      from (${part('restricted_relations')}) r where not is_ops
    ) r where "isReadable" or relname <> all(${unused})`.execute(db)
  const { rows: others } = await sql<{ problem: string }>`
    select ${role} || format(' can read %I.%I, which is not restricted to its projects', n.nspname, c.relname) as problem
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = ${schema} and ${RELATIONS} and has_table_privilege(${role}, c.oid, 'select')
      and format('%I.%I', n.nspname, c.relname) <> all(${used.map(({ name }) => name)})
    union all
    select format('%s can take on the role %s, which is not restricted: revoke that membership', ${role}::text, r.rolname)
    from pg_roles r where r.rolname <> ${role} and pg_has_role(${role}, r.oid, 'member')
      and has_table_privilege(r.oid, to_regclass(quote_ident(${schema}) || '.projects'), 'select')
    order by 1`.execute(db)
  const { rows: collected } = await sql<Found>`
    with relation as (select r.*, has_project and not is_view as has_policies from (${part('restricted_relations')}) r),
      hidden as (${part('hidden_texts')})
    select distinct format('%I.%I.%I', nspname, relname, hidden.attname) as name from hidden
    join pg_stats on (schemaname, tablename, pg_stats.attname) = (nspname, relname, hidden.attname) order by 1`.execute(
    db,
  )
  const tables = used.filter(({ hasPolicies }) => hasPolicies).map(({ name }) => name)
  const seen = await askAs(warehouse, { role, projects }, tables)
  const problems = [
    ...used.filter(({ isReadable }) => !isReadable).map(({ name }) => `${role} cannot read ${name}`),
    ...others.map(({ problem }) => problem),
    ...(seen ?? []).map((name) => `${role} sees rows of other projects in ${name}`),
    ...(collected.length === 0 ? [] : [collectedBefore(role, collected)]),
  ]
  return { relations: used.length, problems, wasAsked: seen !== undefined }
}

function collectedBefore(role: string, columns: readonly Found[]): string {
  const names = listSome(columns.map(({ name }) => name))
  return (
    `${role} can find values of other projects by "explain", because the planner has statistics of ${names}; run as a superuser: ` +
    'delete from pg_statistic s using pg_attribute a where (a.attrelid, a.attnum, a.attstattarget) = (s.starelid, s.staattnum, 0)'
  )
}

/** The tables in which the role sees other projects; undefined if we may not take on the role. */
async function askAs(
  warehouse: Warehouse,
  { role, projects }: Restriction,
  tables: readonly string[],
): Promise<string[] | undefined> {
  const client = await warehouse.pool.connect()
  const db = new Db(warehouse, oneConnection(client))
  const takeOn = sql`set local role ${sql.id(role)}`
  try {
    await batch<unknown[]>(db, sql`begin`, sql`savepoint direct`)
    await takeOn.execute(db).catch(async () => {
      // A role that may give the membership to itself does so until the end of this transaction.
      await sql`rollback to savepoint direct`.execute(db)
      const { rows } = await sql<{ options: string }>`
        select case when current_setting('server_version_num')::int < 160000 then ''
          else 'with inherit false, set true' end as options`.execute(db)
      await sql`grant ${sql.id(role)} to current_user ${sql.raw(rows[0]!.options)}`.execute(db)
      await takeOn.execute(db)
    })
    const open: string[] = []
    for (const name of tables) {
      const found = await sql`select from ${sql.raw(name)} where project_id <> all(${projects}) limit 1`.execute(db)
      if (found.rows.length > 0) open.push(name)
    }
    return open
  } catch (error) {
    if (codeOf(error) !== '42501') throw error
    return undefined
  } finally {
    await sql`rollback`.execute(db)
    client.release()
  }
}
