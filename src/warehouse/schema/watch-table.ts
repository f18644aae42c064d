import type { PoolClient } from 'pg'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import type { Database } from './report-table.ts'
import { applyText, fillIn, readSql } from './views.ts'

/*
 * Triggers that keep what views need beside the rows: in the transaction that changes rows of a table, a function is called
 * with the rows that changed, as the table `changed`.
 */

interface Watcher {
  /** The function that is called. */
  calls: string
  /** Its triggers, by name: when it is called, and with what. */
  triggers: Record<string, string>
}

const WATCHERS = {
  /** Opens the weeks and months of rows. An update opens those that a row leaves, too. */
  periods: {
    calls: 'open_periods',
    triggers: {
      open_inserted: 'after insert on %s referencing new table as changed',
      open_updated: 'after update on %s referencing new table as changed',
      open_left: 'after update on %s referencing old table as changed',
      open_deleted: 'after delete on %s referencing old table as changed',
      open_truncated: 'after truncate on %s',
    },
  },
  /** Keeps what is usual on a day. */
  usualDays: {
    calls: 'follow_days',
    triggers: {
      usual_inserted: 'after insert on %s referencing new table as changed',
      usual_updated: 'after update on %s referencing old table as before new table as changed',
      usual_deleted: 'after delete on %s referencing old table as changed',
      usual_truncated: 'after truncate on %s',
    },
  },
} satisfies Record<string, Watcher>

/** The names of our triggers, to distinguish them from those of users. */
export const TRIGGER_NAMES: readonly string[] = Object.values(WATCHERS).flatMap(({ triggers }) => Object.keys(triggers))

interface Followed {
  watcher: keyof typeof WATCHERS
  tables: readonly string[]
  /** Texts in sql/functions that read the report. */
  functions: readonly string[]
  report: string
}

/** Brings triggers and functions in line with the configuration. True if one is new: rows may have changed unseen. */
export async function follow(
  database: Database,
  warehouse: Warehouse,
  { watcher, tables, functions, report }: Followed,
): Promise<boolean> {
  let isNew = false
  for (const table of tables) isNew = (await watchTable(database.client, warehouse, table, watcher)) || isNew
  for (const name of functions) {
    const text = fillIn(readSql(`functions/${name}`), warehouse, report)
    isNew = (await applyText(database, name, text)) || isNew
  }
  return isNew
}

/** True if a trigger was missing. */
async function watchTable(
  client: PoolClient,
  warehouse: Warehouse,
  table: string,
  watcher: keyof typeof WATCHERS,
): Promise<boolean> {
  const { calls, triggers } = WATCHERS[watcher]
  const name = quote(warehouse.schema, table)
  const { rows } = await client.query<{ name: string }>(
    "select tgname as name from pg_trigger where tgrelid = to_regclass($1) and not tgisinternal and tgenabled in ('O', 'A')",
    [name],
  )
  const known = new Set(rows.map((row) => row.name))
  const missing = Object.entries(triggers).filter(([trigger]) => !known.has(trigger))
  for (const [trigger, when] of missing) {
    // One that is disabled is made anew.
    await client.query(
      `create or replace trigger ${trigger} ${when.replace('%s', () => name)}
       for each statement execute function ${quote(warehouse.opsSchema, calls)}()`,
    )
  }
  return missing.length > 0
}

/** Takes the triggers off a table that is no longer the one people read. */
export async function unwatchTable(client: PoolClient, table: string): Promise<void> {
  for (const trigger of TRIGGER_NAMES) await client.query(`drop trigger if exists ${trigger} on ${table}`)
}
