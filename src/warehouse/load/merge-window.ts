import type { PoolClient } from 'pg'
import type { Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { differingRows } from './differing-rows.ts'
import type { RowHashes } from './row-digest.ts'
import { type Stage, stageRows } from './stage.ts'
import { type Change, type Effect, effectOf, type WindowLoad } from './window-effect.ts'

/** One day of the window: rows of the table, rows of the answer, and how they differ. */
interface ComparedDay extends Change {
  date: Day
  present: number
  staged: number
  moved: number
}

interface Merge {
  client: PoolClient
  sql: Stage
  /** A row whose key has no date may be stored under a day outside the window: then it moves. */
  keyHasDate: boolean
  /** $1 to $3: project, first and last day of the window; $4, if any day is held: the held days. */
  values: unknown[]
  hasHeldDays: boolean
  /** The rows of the table that may differ from the answer: those of the window, or fewer. */
  whereCompared: string
}

/**
 * Copies the answer to a temporary table, compares it with the window, and writes only differences. With the hashes of
 * the answer, only rows whose hashes differ are copied and compared.
 */
export async function mergeWindow(
  client: PoolClient,
  warehouse: Warehouse,
  load: WindowLoad,
  hashes: RowHashes | undefined,
): Promise<Effect> {
  const { projectId, range, stream } = load
  const keyHasDate = stream.key.includes('date')
  // A row of another day cannot be known by the hashes of this window.
  const differing = hashes && keyHasDate ? await differingRows(client, warehouse, load, hashes) : undefined
  const sql = await stageRows(client, warehouse, stream, differing?.rows ?? load.rows)
  const whereCompared = differing === undefined ? IN_WINDOW : `${IN_WINDOW} and ${differing.whereDifferent}`
  const window = [projectId, range.from, range.to]
  if (!keyHasDate) await dropSupersededRows(client, warehouse, load, sql)
  const compared = await compareDays({ client, sql, keyHasDate, values: window, hasHeldDays: false, whereCompared })
  const days = differing === undefined ? compared : wholeDays(compared, load)
  const held = heldDays(days, load)
  const notHeld = days.filter(({ date }) => !held?.days.has(date))
  const hasDeletes = load.mayDelete && notHeld.some(({ deleted }) => deleted > 0)
  const values = held === undefined ? window : [...window, [...held.days]]
  const merge: Merge = { client, sql, keyHasDate, values, hasHeldDays: held !== undefined, whereCompared }

  if (hasDeletes) await deleteVanished(merge)
  const movedFrom = notHeld.some(({ moved }) => moved > 0) ? await countMoved(merge) : new Map<Day, number>()
  if (notHeld.some(({ updated }) => updated > 0)) await updateChanged(merge, stream.hasChangedAt ?? false)
  if (notHeld.some(({ inserted }) => inserted > 0)) await insertNew(merge)

  const effect = effectOf(load, changesByDay(notHeld, hasDeletes))
  // Rows of a held day were not written, and may be others than those that are there.
  const unchanged = effect.unchanged - (load.rows.length - notHeld.reduce((total, day) => total + day.staged, 0))
  const rowsByDay = new Map(
    days.map((day) => [day.date, held?.days.has(day.date) ? day.present : day.staged + (hasDeletes ? 0 : day.deleted)]),
  )
  return { ...effect, unchanged, rowsByDay, movedFrom, held }
}

const IN_WINDOW = 't.project_id = $1 and t.date between $2 and $3'

/** The days of the window with the rows that were not compared, because they are the same on both sides. */
function wholeDays(compared: readonly ComparedDay[], { rowsByDay }: WindowLoad): ComparedDay[] {
  const byDay = new Map(compared.map((day) => [day.date, day]))
  return [...new Set([...rowsByDay.keys(), ...byDay.keys()])].map((date) => {
    const { inserted = 0, updated = 0, deleted = 0 } = byDay.get(date) ?? {}
    const staged = rowsByDay.get(date) ?? 0
    return { date, inserted, updated, deleted, staged, present: staged - inserted + deleted, moved: 0 }
  })
}

async function compareDays({ client, sql, keyHasDate, values, whereCompared }: Merge): Promise<ComparedDay[]> {
  const isInReach = keyHasDate
    ? whereCompared
    : `t.project_id = $1 and (t.date between $2 and $3 or exists (select from ${sql.stage} s where ${sql.keysMatch}))`
  const { rows } = await client.query<ComparedDay>(
    `select coalesce(s.date, t.date) as date,
       count(t.project_id) filter (where t.date between $2 and $3) as present,
       count(s.project_id) as staged,
       count(*) filter (where t.project_id is null) as inserted,
       count(*) filter (where s.project_id is null) as deleted,
       count(*) filter (where t.project_id is not null and s.project_id is not null and ${sql.valuesDiffer}) as updated,
       count(*) filter (where s.project_id is not null and t.date not between $2 and $3) as moved
     from (select * from ${sql.table} t where ${isInReach}) t full join ${sql.stage} s on ${sql.keysMatch}
     group by 1`,
    values,
  )
  return rows
}

async function deleteVanished(merge: Merge): Promise<void> {
  const { client, sql, values } = merge
  await client.query(
    `delete from ${sql.table} t
     where ${merge.whereCompared} ${isNotHeld(merge, 't')} and not exists (select from ${sql.stage} s where ${sql.keysMatch})`,
    values,
  )
}

async function updateChanged(merge: Merge, isStamped: boolean): Promise<void> {
  const { client, sql, values } = merge
  await client.query(
    `update ${sql.table} t set ${sql.assignments}${isStamped ? ', changed_at = now()' : ''} from ${sql.stage} s
     where ${merge.keyHasDate ? merge.whereCompared : `t.project_id = $1 ${isOnDays(merge)}`} ${isNotHeld(merge, 's')}
       and ${sql.keysMatch} and ${sql.valuesDiffer}`,
    values,
  )
}

async function insertNew(merge: Merge): Promise<void> {
  const { client, sql, values } = merge
  await client.query(
    `insert into ${sql.table} (${sql.names.join(', ')}) select ${sql.names.join(', ')} from ${sql.stage} s
     where true ${isNotHeld(merge, 's')}
       and not exists (select from ${sql.table} t where t.project_id = $1 ${isOnDays(merge)} and ${sql.keysMatch})`,
    values,
  )
}

/** A held day is left exactly as it was: new rows beside the old ones might be the same rows under other keys. */
function isNotHeld({ hasHeldDays }: Merge, alias: string): string {
  return hasHeldDays ? `and ${alias}.date <> all ($4::date[])` : ''
}

/**
 * Rows of the table that an update or insert looks at. Without a date in the key, those of all days: then the condition is
 * always true, and is there because Postgres refuses parameters that are not used.
 */
function isOnDays({ keyHasDate }: Merge): string {
  return keyHasDate ? 'and t.date between $2 and $3' : 'and $2::date <= $3::date'
}

function changesByDay(days: readonly ComparedDay[], hasDeletes: boolean): Map<Day, Change> {
  const changes = new Map<Day, Change>()
  for (const { date, inserted, updated, deleted } of days) {
    const change = { inserted, updated, deleted: hasDeletes ? deleted : 0 }
    if (change.inserted + change.updated + change.deleted > 0) changes.set(date, change)
  }
  return changes
}

/** Rows of the answer that are stored under days outside the window now. */
async function countMoved(merge: Merge): Promise<Map<Day, number>> {
  const { client, sql, values } = merge
  const { rows } = await client.query<{ date: Day; count: number }>(
    `select t.date, count(*) as count from ${sql.table} t join ${sql.stage} s on ${sql.keysMatch}
     where t.project_id = $1 and t.date not between $2 and $3 ${isNotHeld(merge, 's')} group by 1`,
    values,
  )
  return new Map(rows.map(({ date, count }) => [date, count]))
}

/** The days that are held for review: those that lose all rows and, if more than half of the window would vanish, all that lose any. */
function heldDays(compared: readonly ComparedDay[], load: WindowLoad): Effect['held'] {
  if (load.acceptDeletes) return undefined
  const sum = (days: readonly ComparedDay[], column: 'present' | 'deleted') =>
    days.reduce((total, day) => total + day[column], 0)
  const unproven = compared.filter(({ date }) => !load.proven.has(date))
  const losesMost = sum(unproven, 'deleted') * 2 > sum(compared, 'present')
  const isEmptied = (day: ComparedDay) => load.mayDelete && day.staged === 0
  const held = unproven.filter((day) => day.deleted > 0 && (losesMost || isEmptied(day) || stillHeld(day, load)))
  if (held.length === 0) return undefined
  return { present: sum(held, 'present'), vanishing: sum(held, 'deleted'), days: new Set(held.map(({ date }) => date)) }
}

/** A day that was held stays so while most of its rows are missing: a longer window must not let it through. */
function stillHeld(day: ComparedDay, load: WindowLoad): boolean {
  return load.heldBefore.has(day.date) && day.deleted * 2 > day.present
}

/** Rows that are stored under a day which was read after this answer was asked for: that read wins. */
async function dropSupersededRows(
  client: PoolClient,
  warehouse: Warehouse,
  load: WindowLoad,
  sql: Stage,
): Promise<void> {
  await client.query(
    `delete from ${sql.stage} s using ${sql.table} t, ${quote(warehouse.opsSchema, 'coverage')} c
     where ${sql.keysMatch} and t.date not between $2 and $3
       and c.project_id = $1 and c.stream = $4 and c.date = t.date and c.read_order > $5`,
    [load.projectId, load.range.from, load.range.to, load.stream.name, load.fencingToken],
  )
}
