import { codeOf, messageOf } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'

export interface TimeZoneResult {
  statement: string
  /** Why it could not be run; undefined if it was. */
  refused: string | undefined
}

/**
 * Lets a role read this database in UTC. BI tools truncate dates to weeks with date_trunc, which turns a date into a
 * time of the session's zone; read as UTC it is then a day early or late. Changing a role takes a right that the owner of
 * the tables may lack.
 */
export async function readInUtc({ pool }: Warehouse, role: string): Promise<TimeZoneResult> {
  const { rows } = await pool.query<{ name: string }>('select current_database() as name')
  const statement = `alter role ${quote(role)} in database ${quote(rows[0]!.name)} set timezone = 'UTC'`
  try {
    await pool.query(statement)
    return { statement, refused: undefined }
  } catch (error) {
    if (codeOf(error) !== '42501') throw error
    return { statement, refused: messageOf(error) }
  }
}
