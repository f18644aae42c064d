import { codeOf, messageOf, UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { inTransaction } from '../transaction.ts'

/** Lets a role read the data schema, tables made later too, and nothing else. Gives the statements that it ran. */
export async function grantReader(warehouse: Warehouse, role: string): Promise<string[]> {
  return inTransaction(warehouse, async ({ client }) => {
    const { rows } = await client.query<{ there: boolean; privileged: boolean }>(
      `select count(*) > 0 as there, coalesce(bool_or(rolsuper or pg_has_role(oid, current_user, 'member')), false) as privileged
       from pg_roles where rolname = $1`,
      [role],
    )
    const { there, privileged } = rows[0]!
    if (!there) {
      throw new UsageError(
        `--role: there is no role "${role}" in this database; make one first, as in: create role ${quote(role)} login password '…'`,
      )
    }
    if (privileged) {
      throw new UsageError(
        `--role: "${role}" owns the warehouse or is a superuser, so it can write whatever is granted; name a role for readers`,
      )
    }
    const schema = quote(warehouse.schema)
    const statements = [
      `grant usage on schema ${schema} to ${quote(role)}`,
      `grant select on all tables in schema ${schema} to ${quote(role)}`,
      `alter default privileges in schema ${schema} grant select on tables to ${quote(role)}`,
    ]
    // Another role that makes tables there, such as one for migrations, has default privileges of its own.
    const { rows: owners } = await client.query<{ name: string }>(
      `select distinct o.rolname::text as name from pg_class c join pg_roles o on o.oid = c.relowner
       where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relkind in ('r', 'p')
         and o.rolname <> current_user and pg_has_role(o.oid, 'usage') order by 1`,
      [warehouse.schema],
    )
    for (const { name } of owners) {
      statements.push(
        `alter default privileges for role ${quote(name)} in schema ${schema} grant select on tables to ${quote(role)}`,
      )
    }
    for (const statement of statements) await client.query(statement)
    return statements
  })
}

export interface AppliedSetting {
  statement: string
  /** Why it could not be run; undefined if it was. */
  refused: string | undefined
}

/**
 * What a reader's sessions need in this database. UTC: BI tools truncate dates to weeks with date_trunc, which turns a date into
 * a time of the session's zone; read as UTC it is then a day early or late. Without JIT: Postgres would compile the plans of
 * views for seconds and run them for milliseconds.
 */
export const READER_SETTINGS = { timezone: `timezone = 'UTC'`, jit: 'jit = off' }

/** Applies a setting to the role in this database. Changing a role takes a right that the owner of the tables may lack. */
export async function applySetting({ pool }: Warehouse, role: string, setting: string): Promise<AppliedSetting> {
  const { rows } = await pool.query<{ name: string }>('select current_database() as name')
  const statement = `alter role ${quote(role)} in database ${quote(rows[0]!.name)} set ${setting}`
  try {
    await pool.query(statement)
    return { statement, refused: undefined }
  } catch (error) {
    if (codeOf(error) !== '42501') throw error
    return { statement, refused: messageOf(error) }
  }
}
