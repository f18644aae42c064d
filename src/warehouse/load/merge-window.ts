import type { PoolClient } from 'pg'
import type { Day } from '../../core/day.ts'
import type { Warehouse } from '../connect.ts'
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

interface Merge {
  client: PoolClient
  sql: Stage
  /** A row whose key has no date may be stored under a day outside the window: then it moves. */
  keyHasDate: boolean
  /** $1 to $3: project, first and last day of the window. */
  window: unknown[]
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
  const merge: Merge = { client, sql, keyHasDate, window: [projectId, range.from, range.to], whereCompared }
  const robbed = keyHasDate ? new Set<Day>() : await dropSupersededRows(client, load, sql)
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

async function compareDays({ client, sql, keyHasDate, window, whereCompared }: Merge): Promise<ComparedDay[]> {
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
    window,
  )
  return rows
}

async function deleteVanished({ client, sql, window, whereCompared }: Merge, days: readonly Day[]): Promise<void> {
  await client.query(
    `delete from ${sql.table} t
     where ${whereCompared} and t.date = any($4::date[]) and not exists (select from ${sql.stage} s where ${sql.keysMatch})`,
    [...window, days],
  )
}

async function updateChanged(merge: Merge, kept: readonly Day[], isStamped: boolean): Promise<void> {
  const { client, sql, window } = merge
  await client.query(
    `update ${sql.table} t set ${sql.assignments}${isStamped ? ', changed_at = now()' : ''} from ${sql.stage} s
     where ${merge.keyHasDate ? merge.whereCompared : `t.project_id = $1 ${isOnDays(merge)}`} and ${IS_NOT_KEPT}
       and ${sql.keysMatch} and ${sql.valuesDiffer}`,
    [...window, kept],
  )
}

async function insertNew(merge: Merge, kept: readonly Day[]): Promise<void> {
  const { client, sql, window } = merge
  await client.query(
    `insert into ${sql.table} (${sql.names.join(', ')}) select ${sql.names.join(', ')} from ${sql.stage} s
     where ${IS_NOT_KEPT} and not exists (select from ${sql.table} t where t.project_id = $1 ${isOnDays(merge)} and ${sql.keysMatch})`,
    [...window, kept],
  )
}

/** A kept day is left exactly as it was: new rows beside the old ones might be the same rows under other keys. */
const IS_NOT_KEPT = 's.date <> all ($4::date[])'

/**
 * Rows of the table that an update or insert looks at. Without a date in the key, those of all days: then the condition is
 * always true, and is there because Postgres refuses parameters that are not used.
 */
function isOnDays({ keyHasDate }: Merge): string {
  return keyHasDate ? 'and t.date between $2 and $3' : 'and $2::date <= $3::date'
}

/** Rows of the answer that are stored under days outside the window now. */
async function countMoved({ client, sql, window }: Merge, kept: readonly Day[]): Promise<Map<Day, number>> {
  const { rows } = await client.query<{ date: Day; count: number }>(
    `select t.date, count(*) as count from ${sql.table} t join ${sql.stage} s on ${sql.keysMatch}
     where t.project_id = $1 and t.date not between $2 and $3 and ${IS_NOT_KEPT} group by 1`,
    [...window, kept],
  )
  return new Map(rows.map(({ date, count }) => [date, count]))
}

/** Rows that are stored under a day which was read after this answer was asked for: that read wins. Returns their days. */
async function dropSupersededRows(client: PoolClient, load: WindowLoad, sql: Stage): Promise<Set<Day>> {
  const { rows } = await client.query<{ date: Day }>(
    `delete from ${sql.stage} s using ${sql.table} t
     where ${sql.keysMatch} and t.date not between $1 and $2 and t.date in (${load.newerDays}) returning s.date`,
    [load.range.from, load.range.to],
  )
  return new Set(rows.map(({ date }) => date))
}
