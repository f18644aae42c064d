import { type RawBuilder, type SqlBool, sql } from 'kysely'
import type { Day } from '../../core/day.ts'
import { anyOf } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { differingRows } from './differing-rows.ts'
import type { RowHashes } from './row-digest.ts'
import { type Stage, stageRows } from './stage.ts'
import { type Action, type Change, type Effect, effectOf, type WindowLoad } from './window-effect.ts'

/** One day of the window: rows of the table, rows of the answer, and how they differ. */
interface ComparedDay extends Change {
  date: Day
  present: number
  staged: number
  moved: number
}

interface Merge extends Stage {
  tx: Transaction
  /** A row whose key has no date may be stored under a day outside the window: then it moves. */
  keyHasDate: boolean
  projectId: string
  isInWindow: RawBuilder<SqlBool>
  /** The rows of the table that may differ from the answer: those of the window, or fewer. */
  isCompared: RawBuilder<SqlBool>
}

/** With the hashes of the answer, only rows whose hashes differ are copied and compared. */
export async function mergeWindow(tx: Transaction, load: WindowLoad, hashes: RowHashes | undefined): Promise<Effect> {
  const { projectId, range, stream } = load
  const keyHasDate = stream.key.includes('date')
  // A row of another day cannot be known by the hashes of this window.
  const differing = hashes && keyHasDate ? await differingRows(tx, load, hashes) : undefined
  const staged = await stageRows(tx, stream, differing?.rows ?? load.rows)
  const isInWindow = sql<SqlBool>`t.date between ${range.from} and ${range.to}`
  const isOfWindow = sql<SqlBool>`t.project_id = ${projectId} and ${isInWindow}`
  const isCompared = differing === undefined ? isOfWindow : sql<SqlBool>`${isOfWindow} and ${differing.whereDifferent}`
  const merge: Merge = { ...staged, tx, keyHasDate, projectId, isInWindow, isCompared }
  const robbed = keyHasDate ? new Set<Day>() : await dropSupersededRows(merge, load)
  const compared = await compareDays(merge)
  const days = (differing === undefined ? compared : wholeDays(compared, load)).map((day) => {
    return { ...day, action: load.actionOf({ date: day.date, present: day.present, vanishing: day.deleted }) }
  })
  const written = days.filter(({ action }) => action !== 'keep')
  const kept = days.flatMap(({ action, date }) => (action === 'keep' ? [date] : []))
  const replaced = days.flatMap(({ action, date, deleted }) => (action === 'replace' && deleted > 0 ? [date] : []))
  const sum = (column: 'moved' | 'updated' | 'inserted' | 'staged') =>
    written.reduce((total, day) => total + day[column], 0)

  if (replaced.length > 0) await deleteVanished(merge, replaced)
  const movedFrom = sum('moved') > 0 ? await countMoved(merge, kept) : new Map<Day, number>()
  if (sum('updated') > 0) await updateChanged(merge, kept, stream.hasChangedAt ?? false)
  if (sum('inserted') > 0) await insertNew(merge, kept)

  const { changes, rowsByDay } = countByDay(days)
  const effect = effectOf(load, changes)
  // Rows of a kept day were not written, and may be others than those that are there.
  return { ...effect, unchanged: effect.unchanged - (load.rows.length - sum('staged')), rowsByDay, movedFrom, robbed }
}

function countByDay(days: readonly (ComparedDay & { action: Action })[]) {
  const changes = new Map<Day, Change>()
  const rowsByDay = new Map<Day, number>()
  for (const { date, action, inserted, updated, deleted, present, staged } of days) {
    const change = { inserted, updated, deleted: action === 'replace' ? deleted : 0 }
    rowsByDay.set(date, action === 'keep' ? present : staged + deleted - change.deleted)
    if (action !== 'keep' && inserted + updated + change.deleted > 0) changes.set(date, change)
  }
  return { changes, rowsByDay }
}

/** The days of the window with the rows that were not compared, because they are the same on both sides. */
function wholeDays(compared: readonly ComparedDay[], { rowsByDay }: WindowLoad): ComparedDay[] {
  const byDay = new Map(compared.map((day) => [day.date, day]))
  return [...new Set([...rowsByDay.keys(), ...byDay.keys()])].map((date) => {
    const { inserted = 0, updated = 0, deleted = 0 } = byDay.get(date) ?? {}
    const staged = rowsByDay.get(date) ?? 0
    return { date, inserted, updated, deleted, staged, present: staged - inserted + deleted, moved: 0 }
  })
}

async function compareDays(merge: Merge): Promise<ComparedDay[]> {
  const { table, stage, keysMatch, isInWindow } = merge
  const isInReach = merge.keyHasDate
    ? merge.isCompared
    : sql`t.project_id = ${merge.projectId} and (${isInWindow} or exists (select from ${stage} s where ${keysMatch}))`
  const { rows } = await sql<ComparedDay>`
    select coalesce(s.date, t.date) as date,
      count(t.project_id) filter (where ${isInWindow}) as present,
      count(s.project_id) as staged,
      count(*) filter (where t.project_id is null) as inserted,
      count(*) filter (where s.project_id is null) as deleted,
      count(*) filter (where t.project_id is not null and s.project_id is not null and ${merge.valuesDiffer}) as updated,
      count(*) filter (where s.project_id is not null and not ${isInWindow}) as moved
    from (select * from ${table} t where ${isInReach}) t full join ${stage} s on ${keysMatch}
    group by 1`.execute(merge.tx.db)
  return rows
}

async function deleteVanished(merge: Merge, days: readonly Day[]): Promise<void> {
  const { table, stage, keysMatch, isCompared } = merge
  await sql`
    delete from ${table} t
    where ${isCompared} and ${anyOf('t.date', days)}
      and not exists (select from ${stage} s where ${keysMatch})`.execute(merge.tx.db)
}

async function updateChanged(merge: Merge, kept: readonly Day[], isStamped: boolean): Promise<void> {
  const { table, stage, keysMatch, valuesDiffer, assignments } = merge
  const isInReach = merge.keyHasDate ? merge.isCompared : sql`t.project_id = ${merge.projectId}`
  await sql`
    update ${table} t set ${sql.join(isStamped ? [...assignments, sql`changed_at = now()`] : assignments)}
    from ${stage} s
    where ${isInReach} and ${isNotKept(kept)} and ${keysMatch} and ${valuesDiffer}`.execute(merge.tx.db)
}

async function insertNew(merge: Merge, kept: readonly Day[]): Promise<void> {
  const { table, stage, names, keysMatch, isInWindow } = merge
  const isInReach = merge.keyHasDate ? sql`${keysMatch} and ${isInWindow}` : keysMatch
  await sql`
    insert into ${table} (${names})
    select ${names} from ${stage} s
    where ${isNotKept(kept)}
      and not exists (select from ${table} t where t.project_id = ${merge.projectId} and ${isInReach})`.execute(
    merge.tx.db,
  )
}

/** A kept day is left exactly as it was: new rows beside the old ones might be the same rows under other keys. */
function isNotKept(kept: readonly Day[]): RawBuilder<SqlBool> {
  return sql`s.date <> all (${kept}::date[])`
}

/** Rows of the answer that are stored under days outside the window now. */
async function countMoved(merge: Merge, kept: readonly Day[]): Promise<Map<Day, number>> {
  const { table, stage, keysMatch, isInWindow, projectId } = merge
  const { rows } = await sql<{ date: Day; count: number }>`
    select t.date, count(*) as count from ${table} t join ${stage} s on ${keysMatch}
    where t.project_id = ${projectId} and not ${isInWindow} and ${isNotKept(kept)} group by 1`.execute(merge.tx.db)
  return new Map(rows.map(({ date, count }) => [date, count]))
}

/** Rows that are stored under a day which was read after this answer was asked for: that read wins. Returns their days. */
async function dropSupersededRows(merge: Merge, { newerDays }: WindowLoad): Promise<Set<Day>> {
  const { table, stage, keysMatch, isInWindow } = merge
  const { rows } = await sql<{ date: Day }>`
    delete from ${stage} s using ${table} t
    where ${keysMatch} and not ${isInWindow} and t.date in (${newerDays}) returning s.date`.execute(merge.tx.db)
  return new Set(rows.map(({ date }) => date))
}
