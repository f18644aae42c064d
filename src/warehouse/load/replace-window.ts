import type { PoolClient } from 'pg'
import type { Day, Range } from '../../core/day.ts'
import { codeOf } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import type { DayStream } from '../../streams/stream.ts'
import { type Transaction, tableName, type Warehouse } from '../connect.ts'
import { literal, type Statement } from '../statement.ts'
import { copyRows } from './copy-rows.ts'
import { canDigest, digestOf, digestSql } from './row-digest.ts'
import { type Stage, stageRows } from './stage.ts'

export interface Change {
  inserted: number
  updated: number
  deleted: number
}

export interface Effect extends Change {
  unchanged: number
  /** Set where so much would have vanished that the answer was held for review on these days. */
  held: { present: number; vanishing: number; days: Set<Day> } | undefined
  /** Rows that are no longer in the answer and were kept, because a rejected row may be one of them. */
  kept: number
  /** What changed on each day. */
  byDay: Map<Day, Change>
  /** How many rows the table has on each day of the window afterwards. */
  rowsByDay: ReadonlyMap<Day, number>
  /** Rows that stood under days outside the window before, and left them. */
  movedFrom: ReadonlyMap<Day, number>
}

export interface Window {
  projectId: string
  stream: DayStream
  range: Range
}

export interface WindowLoad extends Window {
  rows: PackedRows
  rowsByDay: ReadonlyMap<Day, number>
  /** False keeps rows that vanished: the answer had rejects, so one of them may be the missing row. */
  mayDelete: boolean
  /** True obeys the answer however much would vanish. */
  acceptDeletes: boolean
  /** Days that were held before: they stay held until their rows are back, whatever else the window holds. */
  heldBefore: ReadonlySet<Day>
  /** The number of this read; rows that a newer read put on other days are left alone. */
  fencingToken: number
}

/**
 * Makes the rows of a window equal to the answer, touching only rows that differ. An empty window is copied straight
 * into the table, and one with the same digest is left as it is; any other is compared with a temporary table first,
 * because a comparison writes nothing where nothing changed, while an upsert would lock, and so write, every row.
 */
export async function replaceWindow(
  { client }: Transaction,
  warehouse: Warehouse,
  there: WindowSnapshot,
  load: WindowLoad,
): Promise<Effect> {
  if (there.count === 0) {
    if (load.rows.length === 0) return effectOf(load, new Map())
    const table = tableName(warehouse, load.stream.table)
    if (await copyStraight(client, table, load)) return effectOf(load, insertedByDay(load))
  } else if (there.count === load.rows.length && there.digest !== undefined && there.digest === digestOf(load.rows)) {
    return effectOf(load, new Map())
  }
  return merge(client, warehouse, load)
}

/** The rows of a window as they are: how many, and their digest where it was asked for and there is one. */
export interface WindowSnapshot {
  count: number
  digest: bigint | undefined
}

export function windowSnapshot(
  warehouse: Warehouse,
  { projectId, stream, range }: Window,
  withDigest = true,
): Statement<WindowSnapshot> {
  const digest = withDigest && canDigest(stream.columns) ? `${digestSql('t', stream.columns)}::text` : 'null'
  const sql = `select count(*) as count, ${digest} as digest from ${tableName(warehouse, stream.table)} t
    where project_id = ${literal(projectId)} and date between ${literal(range.from)} and ${literal(range.to)}`
  return {
    sql,
    read: ([row]) => {
      const { count, digest: text } = row as unknown as { count: number; digest: string | null }
      return { count, digest: text === null ? undefined : BigInt(text) }
    },
  }
}

/** False where a row exists already under another day: then only a comparison can tell what to do. */
async function copyStraight(client: PoolClient, table: string, load: WindowLoad): Promise<boolean> {
  const keyHasDate = load.stream.key.includes('date')
  if (!keyHasDate) await client.query('savepoint straight')
  try {
    // In the order of the index each row goes where the one before it went.
    load.rows.arrange()
    await copyRows(client, table, load.rows)
    return true
  } catch (error) {
    if (keyHasDate || codeOf(error) !== '23505') throw error
    await client.query('rollback to savepoint straight')
    return false
  }
}

function insertedByDay({ rowsByDay }: WindowLoad): Map<Day, Change> {
  return new Map([...rowsByDay].map(([day, rows]) => [day, { inserted: rows, updated: 0, deleted: 0 }]))
}

async function merge(client: PoolClient, warehouse: Warehouse, load: WindowLoad): Promise<Effect> {
  const { projectId, range, stream } = load
  const sql = await stageRows(client, warehouse, stream, load.rows)
  const window = [projectId, range.from, range.to]
  const keyHasDate = stream.key.includes('date')
  if (!keyHasDate) await dropOutrunRows(client, warehouse, load, sql)
  // A row whose key has no date may stand under another day by now: then it moves.
  const inWindow = 't.project_id = $1 and t.date between $2 and $3'
  const mine = keyHasDate
    ? inWindow
    : `t.project_id = $1 and (t.date between $2 and $3 or exists (select from ${sql.stage} s where ${sql.matches}))`
  const { rows: days } = await client.query<ComparedDay>(
    `select coalesce(s.date, t.date) as date,
       count(t.project_id) filter (where t.date between $2 and $3) as present,
       count(s.project_id) as staged,
       count(*) filter (where t.project_id is null) as inserted,
       count(*) filter (where s.project_id is null) as deleted,
       count(*) filter (where t.project_id is not null and s.project_id is not null and ${sql.differs}) as updated,
       count(*) filter (where s.project_id is not null and t.date not between $2 and $3) as moved
     from (select * from ${sql.table} t where ${mine}) t full join ${sql.stage} s on ${sql.matches}
     group by 1`,
    window,
  )
  const held = heldDays(days, load)
  const free = days.filter(({ date }) => !held?.days.has(date))
  const vanishing = free.reduce((total, day) => total + day.deleted, 0)
  const deletes = vanishing > 0 && load.mayDelete
  // A held day is left exactly as it was: new rows beside the old ones might be the same rows under other keys.
  const skip = [...(held?.days ?? [])]
  const unless = (alias: string, at: number) => (skip.length === 0 ? '' : `and ${alias}.date <> all ($${at}::date[])`)
  const values = [...window, ...(skip.length === 0 ? [] : [skip])]

  if (deletes) {
    await client.query(
      `delete from ${sql.table} t where ${inWindow} ${unless('t', 4)} and not exists (select from ${sql.stage} s where ${sql.matches})`,
      values,
    )
  }
  const movedFrom = free.some((day) => day.moved > 0)
    ? await countMoved(client, sql, { values, skip: unless('s', 4) })
    : new Map<Day, number>()
  const ownDays = keyHasDate ? 'and t.date between $2 and $3' : 'and $2::date <= $3::date'
  if (free.some((day) => day.updated > 0)) {
    const stamp = stream.stamped ? ', changed_at = now()' : ''
    await client.query(
      `update ${sql.table} t set ${sql.assignments}${stamp} from ${sql.stage} s
       where t.project_id = $1 ${ownDays} ${unless('s', 4)} and ${sql.matches} and ${sql.differs}`,
      values,
    )
  }
  if (free.some((day) => day.inserted > 0)) {
    await client.query(
      `insert into ${sql.table} (${sql.names.join(', ')}) select ${sql.names.join(', ')} from ${sql.stage} s
       where true ${unless('s', 4)} and not exists (select from ${sql.table} t where t.project_id = $1 ${ownDays} and ${sql.matches})`,
      values,
    )
  }
  const byDay = new Map<Day, Change>()
  for (const { date, inserted, updated, deleted } of free) {
    const change = { inserted, updated, deleted: deletes ? deleted : 0 }
    if (change.inserted + change.updated + change.deleted > 0) byDay.set(date, change)
  }
  const rowsByDay = new Map(
    days.map((day) => [day.date, held?.days.has(day.date) ? day.present : day.staged + (deletes ? 0 : day.deleted)]),
  )
  const effect = effectOf(load, byDay)
  // Rows of a held day were not written, and may be others than those that are there.
  const unchanged = effect.unchanged - (load.rows.length - free.reduce((total, day) => total + day.staged, 0))
  return { ...effect, unchanged, rowsByDay, movedFrom, held, kept: deletes ? 0 : vanishing }
}

/** Rows of the answer that stand under days outside the window now. */
async function countMoved(
  client: PoolClient,
  sql: Stage,
  { values, skip }: { values: unknown[]; skip: string },
): Promise<Map<Day, number>> {
  const { rows } = await client.query<{ date: Day; count: number }>(
    `select t.date, count(*) as count from ${sql.table} t join ${sql.stage} s on ${sql.matches}
     where t.project_id = $1 and t.date not between $2 and $3 ${skip} group by 1`,
    values,
  )
  return new Map(rows.map(({ date, count }) => [date, count]))
}

interface ComparedDay extends Change {
  date: Day
  present: number
  staged: number
  moved: number
}

/** The days on which the answer is held for review: where more than half of the window would vanish, those that lose rows. */
function heldDays(days: readonly ComparedDay[], load: WindowLoad): Effect['held'] {
  if (load.acceptDeletes) return undefined
  const total = (pick: (day: ComparedDay) => number, of = days) => of.reduce((sum, day) => sum + pick(day), 0)
  const present = (day: ComparedDay) => day.present
  const vanishing = (day: ComparedDay) => day.deleted
  const all = total(vanishing) * 2 > total(present)
  const held = days.filter((day) => vanishing(day) > 0 && (all || stillHeld(day, load)))
  if (held.length === 0) return undefined
  return {
    present: total(present, held),
    vanishing: total(vanishing, held),
    days: new Set(held.map(({ date }) => date)),
  }
}

/** A day that was held stays so while most of its rows are missing: a longer window must not let it through. */
function stillHeld(day: ComparedDay, load: WindowLoad): boolean {
  return load.heldBefore.has(day.date) && day.deleted * 2 > day.present
}

/** Rows that stand under a day which was read after this answer was asked for: that read knows better. */
async function dropOutrunRows(client: PoolClient, warehouse: Warehouse, load: WindowLoad, sql: Stage): Promise<void> {
  await client.query(
    `delete from ${sql.stage} s using ${sql.table} t, ${quote(warehouse.opsSchema, 'coverage')} c
     where ${sql.matches} and t.date not between $2 and $3
       and c.project_id = $1 and c.stream = $4 and c.date = t.date and c.read_order > $5`,
    [load.projectId, load.range.from, load.range.to, load.stream.name, load.fencingToken],
  )
}

function effectOf({ rows, rowsByDay }: WindowLoad, byDay: Map<Day, Change>): Effect {
  const total = { inserted: 0, updated: 0, deleted: 0 }
  for (const change of byDay.values()) {
    total.inserted += change.inserted
    total.updated += change.updated
    total.deleted += change.deleted
  }
  const unchanged = rows.length - total.inserted - total.updated
  return { ...total, unchanged, held: undefined, kept: 0, byDay, rowsByDay, movedFrom: new Map() }
}
