import { codeOf } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { literal, type Transaction } from '../transaction.ts'

/*
 * Readers that see some projects only, by row-level security. Each table has a policy that shows every row to everybody, and a
 * restrictive policy for each restricted role. The policies of the table `projects` are the model for those of all other tables.
 * Views read with the rights of the role that asks, so that the policies apply to them, too. Nothing of this is set up before the
 * first role is restricted.
 */

const EVERY_ROW = 'visibility_sync_every_row'
const READER = 'visibility_sync_reader_'

/** It lists days only, so every reader may see it. */
const WITHOUT_PROJECT = 'calendar'

export interface Restriction {
  role: string
  projects: string[]
}

/** The policies of restricted roles. Their conditions are ours: project_id = …, or = ANY (ARRAY[…]). */
async function readPolicies({ pool, schema }: Warehouse) {
  const { rows } = await pool.query<{ policy: string; role: string; condition: string }>(
    `select p.polname as policy, r.rolname::text as role, pg_get_expr(p.polqual, p.polrelid) as condition
     from pg_policy p join pg_roles r on r.oid = any(p.polroles)
     where p.polrelid = to_regclass($1) and starts_with(p.polname, $2) order by 2`,
    [quote(schema, 'projects'), READER],
  )
  return rows
}

/** The restricted roles, with the projects that they see. */
export async function listRestrictions(warehouse: Warehouse): Promise<Restriction[]> {
  const restrictions: Restriction[] = []
  for (const { role, condition } of await readPolicies(warehouse)) {
    const list = /ANY \((.*)\)\)$/s.exec(condition)?.[1] ?? `array[${/ = (.*)\)$/s.exec(condition)?.[1]}]`
    const { rows } = await warehouse.pool.query<{ projects: string[] }>(`select ${list} as projects`)
    restrictions.push({ role, projects: rows[0]!.projects })
  }
  return restrictions
}

/** Other roles that were granted access to the tables, by us or by hand. They see every project, before and after a restriction. */
export async function listUnrestricted({ pool, schema }: Warehouse): Promise<string[]> {
  const { rows } = await pool.query<{ role: string }>(
    `select case when a.grantee = 0 then 'PUBLIC' else a.grantee::regrole::text end as role
     from pg_class c, aclexplode(c.relacl) a
     where c.oid = to_regclass($1) and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
       and not exists (select from pg_policy p where p.polrelid = c.oid and starts_with(p.polname, $2) and a.grantee = any(p.polroles))
     order by 1`,
    [quote(schema, 'projects'), READER],
  )
  return rows.map(({ role }) => role)
}

/** Lets a role see these projects only, or all of them again if none are named. */
export async function setRestriction(
  tx: Transaction,
  role: string,
  projects: readonly string[] | undefined,
  unused?: readonly string[],
): Promise<void> {
  const { client } = tx
  const { rows } = await client.query<{ policy: string; table: string }>(
    `select quote_ident(p.polname) as policy, p.polrelid::regclass::text as table from pg_policy p
     where p.polname = $1 || to_regrole(quote_ident($2))::oid`,
    [READER, role],
  )
  for (const { policy, table } of rows) await client.query(`drop policy ${policy} on ${table}`)
  if (projects === undefined) return applyRestrictions(tx, unused)
  const { rows: found } = await client.query<{ oid: number }>('select oid::int from pg_roles where rolname = $1', [
    role,
  ])
  // The planner carries an equal sign over to all joined tables, and no list.
  const [only] = projects
  const isSeen = projects.length === 1 ? `= ${literal(only!)}` : `= any (array[${projects.map(literal).join(', ')}])`
  await client.query(
    `create policy ${READER}${found[0]!.oid} on ${quote(tx.schema, 'projects')} as restrictive for select
     to ${quote(role)} using (project_id ${isSeen})`,
  )
  await applyRestrictions(tx, unused)
}

interface Found {
  name: string
  relation: string
  isOps: boolean
  isView: boolean
  hasProject: boolean
  isInvoker: boolean
  isSecured: boolean
  isPublic: boolean
  policies: string[]
  /** Restricted roles that cannot read it. */
  blind: string[]
}

/**
 * Gives new tables and views what the restrictions need. Every migration ends with it, so that what it made is never readable
 * without its policies. If it is known what is unused, restricted roles get the right to read the rest.
 */
export async function applyRestrictions(tx: Transaction, unused?: readonly string[]): Promise<void> {
  const { client, schema, opsSchema } = tx
  const readers = await readPolicies(tx)
  if (readers.length === 0) return
  const roles = readers.map(({ role }) => quote(role))
  const { rows: relations } = await client.query<Found>(relationsRead(tx), [schema, opsSchema, roles])
  const statements: string[] = []
  for (const relation of relations) {
    const { name, isOps, isView, hasProject, policies, blind } = relation
    if (isView && !relation.isInvoker) statements.push(`alter view ${name} set (security_invoker = true)`)
    if (!isView && hasProject) {
      const wanted = readers.filter(({ policy }) => !policies.includes(policy))
      if (!policies.includes(EVERY_ROW))
        statements.push(`create policy ${EVERY_ROW} on ${name} using (true) with check (true)`)
      for (const { policy, role, condition } of wanted)
        statements.push(
          `create policy ${policy} on ${name} as restrictive for select to ${quote(role)} using (${condition})`,
        )
      if (!relation.isSecured) statements.push(`alter table ${name} enable row level security`)
    }
    // Our views need these with the rights of their reader, who cannot name them without the right to use the schema.
    if (isOps && !relation.isPublic) statements.push(`grant select on ${name} to public`)
    if (!isOps && blind.length > 0 && unused?.includes(relation.relation) === false)
      statements.push(`grant select on ${name} to ${blind.join(', ')}`)
  }
  for (const statement of statements) await client.query(statement)
}

/** Our tables and views, and what the views read in the ops schema. Views that other people made are not among them. */
function relationsRead({ opsSchema }: Warehouse): string {
  return `with recursive read(oid) as (
      select c.oid from pg_class c where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relkind = 'v'
        and c.relname in (select name from ${quote(opsSchema, 'views')})
      union
      select d.refobjid from read r join pg_rewrite w on w.ev_class = r.oid
      join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
    ), relation as (
      select c.*, exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'project_id' and not a.attisdropped) as has_project
      from pg_class c where c.relkind in ('r', 'p', 'v') and (c.oid in (select oid from read)
        or c.relnamespace = to_regnamespace(quote_ident($1)) and c.relkind <> 'v')
    )
    select format('%I.%I', n.nspname, c.relname) as name, c.relname::text as relation, n.nspname = $2 as "isOps", c.relkind = 'v' as "isView",
      c.has_project as "hasProject", c.relrowsecurity as "isSecured",
      coalesce((select bool_or(option_value::boolean) from pg_options_to_table(c.reloptions) where option_name = 'security_invoker'), false) as "isInvoker",
      has_table_privilege('public', c.oid, 'select') as "isPublic",
      array(select p.polname::text from pg_policy p where p.polrelid = c.oid) as policies,
      array(select role from unnest($3::text[]) role where not has_table_privilege(to_regrole(role), c.oid, 'select')) as blind
    from relation c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ($1, $2) and (c.relkind = 'v' or c.has_project or c.relname = ${literal(WITHOUT_PROJECT)})`
}

/** Takes our policies off a table that is about to be replaced. */
export async function dropPolicies({ client }: Transaction, table: string): Promise<void> {
  const { rows } = await client.query<{ policy: string }>(
    "select polname::text as policy from pg_policy where polrelid = to_regclass($1) and starts_with(polname, 'visibility_sync_')",
    [table],
  )
  for (const { policy } of rows) await client.query(`drop policy ${quote(policy)} on ${table}`)
  if (rows.length > 0) await client.query(`alter table ${table} disable row level security`)
}

/** Asks the database whether a role sees only its projects. `wasAsked` is false if it could not be asked as that role. */
export async function verifyRestriction(
  warehouse: Warehouse,
  { role, projects }: Restriction,
  unused: readonly string[],
) {
  const { pool, schema, opsSchema } = warehouse
  const { rows } = await pool.query<Found & { isReadable: boolean }>(
    `select f.*, has_table_privilege(to_regrole(($3::text[])[1]), f.name::regclass, 'select') as "isReadable" from (${relationsRead(warehouse)}) f`,
    [schema, opsSchema, [quote(role)]],
  )
  const ours = rows.filter(({ isOps }) => !isOps)
  const used = ours.filter(({ relation, isReadable }) => isReadable || !unused.includes(relation))
  const problems = used.filter(({ isReadable }) => !isReadable).map(({ name }) => `${role} cannot read ${name}`)
  const { rows: others } = await pool.query<{ name: string }>(
    `select format('%I.%I', n.nspname, c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 and c.relkind in ('r', 'p', 'v', 'm', 'f') and has_table_privilege($2, c.oid, 'select')
       and format('%I.%I', n.nspname, c.relname) <> all($3) order by 1`,
    [schema, role, ours.map(({ name }) => name)],
  )
  for (const { name } of others) problems.push(`${role} can read ${name}, which is not restricted to its projects`)
  const { rows: takes } = await pool.query<{ name: string }>(
    `select r.rolname::text as name from pg_roles r where r.rolname <> $2 and pg_has_role($2, r.oid, 'member')
       and has_table_privilege(r.oid, to_regclass($1), 'select') order by 1`,
    [quote(schema, 'projects'), role],
  )
  for (const { name } of takes)
    problems.push(`${role} can take on the role ${name}, which is not restricted: revoke that membership`)
  const tables = used.filter(({ isView, hasProject }) => !isView && hasProject).map(({ name }) => name)
  const seen = await askAs(warehouse, { role, projects }, tables)
  for (const name of seen ?? []) problems.push(`${role} sees rows of other projects in ${name}`)
  return { relations: used.length, problems, wasAsked: seen !== undefined }
}

/** The tables in which the role sees other projects; undefined if we may not take on the role. */
async function askAs(
  { pool }: Warehouse,
  { role, projects }: Restriction,
  tables: readonly string[],
): Promise<string[] | undefined> {
  const client = await pool.connect()
  try {
    await client.query('begin; savepoint direct')
    await client.query(`set local role ${quote(role)}`).catch(async () => {
      // A role that may give the membership to itself does so until the end of this transaction.
      await client.query('rollback to savepoint direct')
      const { rows } = await client.query<{ hasOptions: boolean }>(
        `select current_setting('server_version_num')::int >= 160000 as "hasOptions"`,
      )
      await client.query(
        `grant ${quote(role)} to current_user${rows[0]!.hasOptions ? ' with inherit false, set true' : ''}`,
      )
      await client.query(`set local role ${quote(role)}`)
    })
    const open: string[] = []
    for (const name of tables) {
      const found = await client.query(`select from ${name} where project_id <> all($1) limit 1`, [projects])
      if (found.rowCount !== 0) open.push(name)
    }
    return open
  } catch (error) {
    if (codeOf(error) !== '42501') throw error
    return undefined
  } finally {
    await client.query('rollback')
    client.release()
  }
}
