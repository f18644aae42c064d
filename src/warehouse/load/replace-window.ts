import { type RawBuilder, sql } from 'kysely'
import type { Day } from '../../core/day.ts'
import { codeOf } from '../../core/errors.ts'
import { dataTable } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { mergeWindow } from './merge-window.ts'
import { RowHashes, type Snapshot, type SnapshotRow, snapshotOf } from './row-digest.ts'
import { copyRows } from './stage.ts'
import { type Change, type Effect, effectOf, type Window, type WindowLoad } from './window-effect.ts'

/**
 * Makes the rows of a window equal to the answer, touching only rows that differ. An empty window is copied straight
 * into the table, and one with the same digest is left as it is. Any other is copied into a temporary table and compared, and
 * only differences are written: an upsert would lock, and so write, every row, even if nothing changed.
 */
export async function replaceWindow(tx: Transaction, snapshot: Snapshot, load: WindowLoad): Promise<Effect> {
  if (snapshot.count === 0) {
    if (load.rows.length === 0) return effectOf(load, new Map())
    const actions = [...load.rowsByDay.keys()].map((date) => load.actionOf({ date, present: 0, vanishing: 0 }))
    if (!actions.includes('keep') && (await copyStraight(tx, load))) return effectOf(load, insertedByDay(load))
  }
  const isAsMany = snapshot.count === load.rows.length
  // Hashes show whether all rows are the same and, if the key has a date, which rows differ.
  const needsHashes = snapshot.digest !== undefined && (isAsMany || load.stream.key.includes('date'))
  const hashes = needsHashes ? new RowHashes(load.rows) : undefined
  if (hashes !== undefined && isAsMany && hashes.digest() === snapshot.digest) {
    for (const [date, present] of load.rowsByDay) load.actionOf({ date, present, vanishing: 0 })
    return effectOf(load, new Map())
  }
  return mergeWindow(tx, load, hashes)
}

export function windowSnapshot({ projectId, stream, range }: Window, withDigest = true): RawBuilder<SnapshotRow> {
  const rows = sql`${dataTable(stream.table)} t
    where t.project_id = ${projectId} and t.date between ${range.from} and ${range.to}`
  return snapshotOf(withDigest ? stream.columns : undefined, rows)
}

/** False if a row exists already under another day: then only a comparison shows what to do. */
async function copyStraight(tx: Transaction, load: WindowLoad): Promise<boolean> {
  const keyHasDate = load.stream.key.includes('date')
  if (!keyHasDate) await sql`savepoint straight`.execute(tx.db)
  try {
    await copyRows(tx, `data.${load.stream.table}`, load.rows)
    return true
  } catch (error) {
    if (keyHasDate || codeOf(error) !== '23505') throw error
    await sql`rollback to savepoint straight`.execute(tx.db)
    return false
  }
}

function insertedByDay({ rowsByDay }: WindowLoad): Map<Day, Change> {
  return new Map([...rowsByDay].map(([day, rows]) => [day, { inserted: rows, updated: 0, deleted: 0 }]))
}
