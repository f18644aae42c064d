import type { PoolClient } from 'pg'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'

/*
 * Triggers that keep what views need beside the rows: in the transaction that changes rows of a table, a function is called
 * with the rows that changed, as the table `changed`. Rows may move to another day, so both days count.
 */

const EVENTS = {
  inserted: 'after insert on %s referencing new table as changed',
  updated: 'after update on %s referencing new table as changed',
  left: 'after update on %s referencing old table as changed',
  deleted: 'after delete on %s referencing old table as changed',
  truncated: 'after truncate on %s',
}

/** What is called, and how its triggers begin. */
const WATCHERS = {
  open: 'open_periods',
  usual: 'learn_usual',
}

type Watcher = keyof typeof WATCHERS

const triggersOf = (watcher: Watcher) => Object.keys(EVENTS).map((event) => `${watcher}_${event}`)

/** The names of our triggers, to distinguish them from those of users. */
export const TRIGGER_NAMES: readonly string[] = (Object.keys(WATCHERS) as Watcher[]).flatMap(triggersOf)

/** True if a trigger was missing: rows may have changed unseen. */
export async function watchTable(
  client: PoolClient,
  warehouse: Warehouse,
  table: string,
  watcher: Watcher,
): Promise<boolean> {
  const name = quote(warehouse.schema, table)
  const { rows } = await client.query<{ name: string }>(
    'select tgname as name from pg_trigger where tgrelid = to_regclass($1) and not tgisinternal',
    [name],
  )
  const known = new Set(rows.map((row) => row.name))
  const missing = Object.entries(EVENTS).filter(([event]) => !known.has(`${watcher}_${event}`))
  for (const [event, when] of missing) {
    await client.query(
      `create trigger ${watcher}_${event} ${when.replace('%s', () => name)}
       for each statement execute function ${quote(warehouse.opsSchema, WATCHERS[watcher])}()`,
    )
  }
  return missing.length > 0
}

/** Takes the triggers off a table that is no longer the one people read. */
export async function unwatchTable(client: PoolClient, table: string): Promise<void> {
  for (const trigger of TRIGGER_NAMES) await client.query(`drop trigger if exists ${trigger} on ${table}`)
}
