import { sql } from 'kysely'
import { codeOf, messageOf, UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { runTexts } from '../database.ts'
import { inTransaction, type Transaction } from '../transaction.ts'
import { setRestriction } from './restrict-reader.ts'

interface ReaderRequest {
  role: string
  /** Undefined for all of them. */
  projects?: readonly string[] | undefined
  unused: readonly string[]
}

/**
 * A role that sees all projects also reads tables that others make later, and keeps what it could read before. Gives the
 * statements that it ran, without those of policies, and what it left out.
 */
export async function grantReader(
  warehouse: Warehouse,
  { role, projects, unused }: ReaderRequest,
): Promise<{ statements: string[]; leftOut: string[] }> {
  return inTransaction(warehouse, async (tx) => {
    await refuseRole(tx, role, projects !== undefined)
    const statements = [
      `grant usage on schema ${quote(tx.schema)} to ${quote(role)}`,
      // A role that sees some projects gets what has policies, and nothing else.
      ...(await accessStatements(tx, role, projects === undefined ? 'grant' : 'revoke')),
    ]
    const { rows } = await sql<{ name: string }>`
      select relname::text as name from pg_class
      where relnamespace = to_regnamespace(quote_ident(${tx.schema})) and relname = any(${unused})
        and pg_has_role(relowner, 'usage')
        and (${projects !== undefined} or not has_table_privilege(${role}, oid, 'select')) order by 1`.execute(tx.db)
    const leftOut = rows.map(({ name }) => name)
    const names = leftOut.map((name) => quote(tx.schema, name)).join(', ')
    if (projects === undefined && names !== '') statements.push(`revoke select on ${names} from ${quote(role)}`)
    await runTexts(tx.db, statements)
    await setRestriction(tx, role, projects, unused)
    return { statements, leftOut }
  })
}

export async function revokeReader(warehouse: Warehouse, role: string): Promise<string[]> {
  return inTransaction(warehouse, async (tx) => {
    await refuseRole(tx, role, false)
    const statements = [
      ...(await accessStatements(tx, role, 'revoke')),
      `revoke usage on schema ${quote(warehouse.schema)} from ${quote(role)}`,
    ]
    await runTexts(tx.db, statements)
    await setRestriction(tx, role, undefined)
    return statements
  })
}

async function refuseRole({ db }: Transaction, role: string, isRestricted: boolean): Promise<void> {
  const { rows } = await sql<{ there: boolean; privileged: boolean; bypasses: boolean }>`
    select count(*) > 0 as there, coalesce(bool_or(rolbypassrls), false) as bypasses,
      coalesce(bool_or(rolsuper or pg_has_role(oid, current_user, 'member')), false) as privileged
    from pg_roles where rolname = ${role}`.execute(db)
  const { there, privileged, bypasses } = rows[0]!
  if (!there)
    throw new UsageError(
      `--role: there is no role "${role}" in this database; make one first, as in: create role ${quote(role)} login password '…'`,
    )
  if (privileged)
    throw new UsageError(
      `--role: "${role}" owns the warehouse or is a superuser, so it can write whatever is granted; name a role for readers`,
    )
  if (isRestricted && bypasses)
    throw new UsageError(
      `--role: "${role}" bypasses row-level security, so it would see every project; run: alter role ${quote(role)} nobypassrls`,
    )
}

/** Read access to all tables, and to those that are made later, by us or by another role that makes tables there. */
async function accessStatements(tx: Transaction, role: string, verb: 'grant' | 'revoke'): Promise<string[]> {
  const schema = quote(tx.schema)
  const { rows: owners } = await sql<{ name: string }>`
    select distinct o.rolname::text as name from pg_class c join pg_roles o on o.oid = c.relowner
    where c.relnamespace = to_regnamespace(quote_ident(${tx.schema})) and c.relkind in ('r', 'p')
      and o.rolname <> current_user and pg_has_role(o.oid, 'usage') order by 1`.execute(tx.db)
  const whom = `${verb === 'grant' ? 'to' : 'from'} ${quote(role)}`
  return [
    `${verb} select on all tables in schema ${schema} ${whom}`,
    ...['', ...owners.map(({ name }) => ` for role ${quote(name)}`)].map(
      (owner) => `alter default privileges${owner} in schema ${schema} ${verb} select on tables ${whom}`,
    ),
  ]
}

export interface AppliedSetting {
  statement: string
  refused: string | undefined
}

/**
 * Settings of a reader's sessions in this database. UTC: BI tools truncate dates to weeks with date_trunc, which turns a date into
 * a time of the session's zone; read as UTC it is then a day early or late. Without JIT: Postgres would compile the plans of
 * views for seconds and run them for milliseconds.
 */
export const READER_SETTINGS = { timezone: `set timezone = 'UTC'`, jit: 'set jit = off' }

/** Changing a role takes a right that the owner of the tables may lack. */
export async function applySetting({ db }: Warehouse, role: string, change: string): Promise<AppliedSetting> {
  const { rows } = await sql<{ name: string }>`select current_database() as name`.execute(db)
  const statement = `alter role ${quote(role)} in database ${quote(rows[0]!.name)} ${change}`
  try {
    await sql.raw(statement).execute(db)
    return { statement, refused: undefined }
  } catch (error) {
    if (codeOf(error) !== '42501') throw error
    return { statement, refused: messageOf(error) }
  }
}
