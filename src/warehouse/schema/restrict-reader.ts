import { sql } from 'kysely'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { type Db, runTexts } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { runQuery } from './sql-files.ts'

/*
 * Readers that see some projects only, by row-level security. Each table has a policy that shows every row to everybody, and a
 * restrictive policy for each restricted role. Views read with the rights of the role that asks, so that the policies apply to
 * them, too. Nothing of this is set up before the first role is restricted.
 */

const READER = 'visibility_sync_reader_'

export interface Restriction {
  role: string
  projects: string[]
}

/** The restricted roles, with the projects that they see. The conditions of policies are ours, and ids have no quotes. */
export async function listRestrictions({ db, schema }: Warehouse): Promise<Restriction[]> {
  const { rows } = await sql<Restriction>`
    select r.rolname::text as role,
      array(select m[1] from regexp_matches(pg_get_expr(p.polqual, p.polrelid), '''([^'']*)''', 'g') m) as projects
    from pg_policy p join pg_roles r on r.oid = any(p.polroles)
    where p.polrelid = to_regclass(${quote(schema, 'projects')}) and starts_with(p.polname, ${READER}) order by 1`.execute(
    db,
  )
  return rows
}

/** Other roles that were granted access to the tables, by us or by hand. They see every project, before and after a restriction. */
export async function listUnrestricted({ db, schema }: Warehouse): Promise<string[]> {
  const { rows } = await sql<{ role: string }>`
    select case when a.grantee = 0 then 'PUBLIC' else a.grantee::regrole::text end as role
    from pg_class c, aclexplode(c.relacl) a
    where c.oid = to_regclass(${quote(schema, 'projects')}) and a.privilege_type = 'SELECT' and a.grantee <> c.relowner
      and not exists (select from pg_policy p where p.polrelid = c.oid and starts_with(p.polname, ${READER}) and a.grantee = any(p.polroles))
    order by 1`.execute(db)
  return rows.map(({ role }) => role)
}

/** All of them again if none are named. */
export async function setRestriction(
  tx: Transaction,
  role: string,
  projects: readonly string[] | undefined,
  unused?: readonly string[],
): Promise<void> {
  const drop = sql<Given>`
    select format('drop policy %I on %s', polname, polrelid::regclass) as statement from pg_policy
    where polname = ${READER} || to_regrole(quote_ident(${role}))::oid`
  await runGiven(tx.db, (await drop.execute(tx.db)).rows)
  if (projects !== undefined) {
    // The planner carries an equal sign over to all joined tables, and no list.
    const create = sql<Given>`
      select format('create policy %I on %s as restrictive for select to %I using (project_id ' ||
          case count(*) when 1 then '= %s)' else '= any (array[%s]))' end,
        ${READER} || to_regrole(quote_ident(${role}))::oid, ${quote(tx.schema, 'projects')}::text, ${role}::text,
        string_agg(quote_literal(id), ', ')) as statement
      from unnest(${projects}::text[]) id`
    await runGiven(tx.db, (await create.execute(tx.db)).rows)
  }
  await applyRestrictions(tx, unused)
}

/**
 * Gives new tables and views what the restrictions need. Every migration ends with it, so that what it made is never readable
 * without its policies. If it is known what is unused, restricted roles get the right to read the rest.
 */
export async function applyRestrictions(tx: Transaction, unused?: readonly string[]): Promise<void> {
  await runGiven(tx.db, await runQuery(tx, 'restrict_readers', [unused ?? null]))
}

export async function dropPolicies({ db }: Transaction, table: string): Promise<void> {
  const { rows } = await sql<Given>`
    select format('drop policy %I on %s', polname, ${table}::text) as statement from pg_policy
    where polrelid = to_regclass(${table}) and starts_with(polname, 'visibility_sync_')`.execute(db)
  await runGiven(db, rows)
  if (rows.length > 0) await sql`alter table ${sql.raw(table)} disable row level security`.execute(db)
}

interface Given {
  statement: string
}

export function runGiven(db: Db, given: readonly Given[]): Promise<void> {
  return runTexts(
    db,
    given.map(({ statement }) => statement),
  )
}
