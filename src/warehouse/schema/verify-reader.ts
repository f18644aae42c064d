import { listSome } from '../../core/text.ts'
import type { Warehouse } from '../connect.ts'
import { verifyRestriction } from './restrict-reader.ts'

export interface ReaderVerdict {
  /** How many tables and views there are to read. */
  relations: number
  /** The schemas that are closed to the role, of those that exist. */
  closed: string[]
  /** What the role may not do and should, or may do and should not. */
  problems: string[]
  /** False if the database could not be asked as a restricted role. */
  wasAsked?: boolean
}

interface Verified {
  closedSchemas: readonly string[]
  projects?: readonly string[] | undefined
  /** Tables and views that it need not read. */
  unused: readonly string[]
}

interface Found {
  name: string
  via: string | null
}

const WRITES = 'insert, update, delete, truncate, trigger'
const ANYTHING = `select, ${WRITES}`
const RELATIONS = "relkind in ('r', 'p', 'v', 'm', 'f')"
const SET_OPTION = 160_000

/**
 * Asks the database what a reader's role may do, by its own grants, by those of PUBLIC and by those of every role that it
 * is a member of. Grants show only what was added; this shows what holds.
 */
export async function verifyReader(
  warehouse: Warehouse,
  role: string,
  { closedSchemas, projects, unused }: Verified,
): Promise<ReaderVerdict> {
  const { pool, schema } = warehouse
  const ask = async <T extends object>(sql: string, ...values: unknown[]) =>
    (await pool.query<T>(sql, [role, ...values])).rows
  const [basics] = await ask<{
    connect: boolean
    usage: boolean
    relations: number
    version: number
    closed: string[]
  }>(
    `select has_database_privilege($1, current_database(), 'connect') as connect, has_schema_privilege($1, $2, 'usage') as usage,
       (select count(*)::int from pg_class where relnamespace = to_regnamespace(quote_ident($2)) and ${RELATIONS}
          and (relname <> all($4) or has_table_privilege($1, oid, 'select'))) as relations,
       current_setting('server_version_num')::int as version,
       array(select nspname::text from pg_namespace where nspname = any($3) order by 1) as closed`,
    schema,
    closedSchemas,
    unused,
  )
  const { connect, usage, relations, closed } = basics!
  const roles = rolesOf(basics!.version)
  const problems = [
    ...(connect ? [] : [`${role} may not connect to this database: grant connect on it`]),
    ...(usage ? [] : [`${role} may not use the schema ${schema}`]),
  ]
  const list = (found: readonly Found[]) => listSome(found.map(({ name }) => name))
  const restricted = projects && (await verifyRestriction(warehouse, { role, projects: [...projects] }, unused))
  if (restricted !== undefined) problems.push(...restricted.problems)
  else {
    const unreadable = await ask<Found>(UNREADABLE, schema, unused)
    if (unreadable.length > 0) problems.push(`${role} cannot read ${list(unreadable)}`)
    const owners = await ask<Found>(OWNERS_WITHOUT_DEFAULTS, schema)
    if (owners.length > 0)
      problems.push(
        `tables that ${list(owners)} makes in ${schema} later will not be readable: run the command as that role`,
      )
  }
  const writable = await ask<Found>(reached(roles, WRITES), schema)
  if (writable.length > 0) problems.push(`${role} can write to ${list(writable)}${through(writable)}`)
  const makes = await ask<Found>(usable(roles, 'create'), [schema, ...closed])
  if (makes.length > 0) problems.push(`${role} can make tables in ${list(makes)}${through(makes)}`)
  const open = await ask<Found>(usable(roles, 'usage'), closed)
  for (const found of open) {
    const seen = await ask<Found>(reached(roles, ANYTHING), found.name)
    const what = seen.length === 0 ? `can look into ${found.name}` : `can read or write ${list(seen)}`
    problems.push(`${role} ${what}, which should be closed to it${through(seen.length === 0 ? [found] : seen)}`)
  }
  return { relations, closed, ...restricted, problems }
}

/** Whose rights the role has at once, or can take on: itself, and those that it is a member of. */
function rolesOf(version: number): string {
  const takesOn = version >= SET_OPTION ? 'set' : 'member'
  return `(select oid, rolname from pg_roles where pg_has_role($1, oid, 'usage') or pg_has_role($1, oid, '${takesOn}'))`
}

/** Through whom the right comes: PUBLIC, another role, or null for the role itself. */
function viaOf(everybody: string): string {
  return `case when ${everybody} then 'PUBLIC' else min(r.rolname) filter (where r.rolname <> $1) end as via`
}

function reached(roles: string, privileges: string): string {
  const may = (who: string) =>
    `(has_table_privilege(${who}, c.oid, '${privileges}') or has_any_column_privilege(${who}, c.oid, '${columnwise(privileges)}'))`
  return `select format('%s.%s', $2::text, c.relname) as name, ${viaOf(may("'public'"))}
    from pg_class c join ${roles} r on ${may('r.oid')}
    where c.relnamespace = to_regnamespace(quote_ident($2)) and ${RELATIONS} group by c.oid, c.relname order by 1`
}

/** Of these, single columns can be granted. */
function columnwise(privileges: string): string {
  return privileges
    .split(', ')
    .filter((name) => ['select', 'insert', 'update'].includes(name))
    .join(', ')
}

function usable(roles: string, privilege: 'usage' | 'create'): string {
  const may = (who: string) => `has_schema_privilege(${who}, n.oid, '${privilege}')`
  return `select n.nspname::text as name, ${viaOf(may("'public'"))}
    from pg_namespace n join ${roles} r on ${may('r.oid')} where n.nspname = any($2) group by n.oid, n.nspname order by 1`
}

/** A view is read with the rights of its owner, or of who asks if it says so: what it reads must be open to that one. */
const UNREADABLE = `
  select c.relname::text as name, null as via from pg_class c
  where c.relnamespace = to_regnamespace(quote_ident($2)) and ${RELATIONS} and c.relname <> all($3) and (
    not has_table_privilege($1, c.oid, 'select') or exists (
      select from pg_rewrite w
      join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
      join pg_class t on t.oid = d.refobjid and t.oid <> c.oid and t.${RELATIONS}
      where w.ev_class = c.oid and c.relkind = 'v' and not has_any_column_privilege(
        case when exists (select from pg_options_to_table(c.reloptions) where option_name = 'security_invoker' and option_value::boolean)
          then (select oid from pg_roles where rolname = $1) else c.relowner end, t.oid, 'select')))
  order by 1`

/** Roles that own tables of the schema, or run this command, without default privileges for later tables. */
const OWNERS_WITHOUT_DEFAULTS = `
  select o.rolname::text as name, null as via from pg_roles o
  where (o.rolname = current_user or exists (
      select from pg_class c where c.relowner = o.oid and c.relnamespace = to_regnamespace(quote_ident($2)) and c.relkind in ('r', 'p')))
    and not exists (
      select from pg_default_acl d cross join lateral aclexplode(d.defaclacl) a
      where d.defaclrole = o.oid and d.defaclobjtype = 'r' and d.defaclnamespace in (0, to_regnamespace(quote_ident($2)))
        and a.privilege_type = 'SELECT' and case when a.grantee = 0 then true else pg_has_role($1, a.grantee, 'usage') end)
  order by 1`

function through(found: readonly Found[]): string {
  const ways = [...new Set(found.flatMap(({ via }) => via ?? []))]
  return ways.length === 0 ? '' : `, through ${listSome(ways)}`
}
