import { isDeepStrictEqual } from 'node:util'
import { type RawBuilder, type SqlBool, sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import type { Filter } from '../core/vocabulary.ts'
import type { BrandTotals, ControlDay } from '../rows/day-totals.ts'
import type { DayStream } from '../streams/stream.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { anyOf, dataTable } from '../warehouse/database.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/* The control totals: the report by date alone, as the service gave it last. Days of other streams must add up to them. */

export interface ControlKey {
  projectId: string
  filters: readonly Filter[]
}

export function filtersText(filters: readonly Filter[] = []): string {
  return filters.length === 0 ? '' : JSON.stringify(filters)
}

export interface ReadControlDay extends ControlDay {
  /** A digest of all columns of its rows: any change of it is a change by the service. */
  rowsDigest: bigint
}

export interface StoredControlDay extends ReadControlDay {
  /** True if the last answer dropped most of the day: the totals are those from before, and a person decides. */
  isInReview: boolean
}

export type ControlDays = ReadonlyMap<Day, StoredControlDay>

/** The stored totals of a range; with a run, only those that were read since it began, by whichever run. */
export function controlRows(key: ControlKey, range: Range, runId?: number): RawBuilder<ControlRow> {
  return sql`
    select date, totals, is_whole, rows_digest::text as digest, in_review from ops.control_totals
    where ${isOfRange(key, range)} ${runId === undefined ? sql`` : sql`and read_at >= (select started_at from ops.runs where run_id = ${runId})`}`
}

export function controlOf(rows: readonly ControlRow[]): ControlDays {
  return new Map(
    rows.map(({ date, totals, is_whole, digest, in_review }) => {
      const brands = new Map(Object.entries(totals ?? {}))
      return [date, { brands, isWhole: is_whole, rowsDigest: BigInt(digest), isInReview: in_review }]
    }),
  )
}

function isOfRange({ projectId, filters }: ControlKey, { from, to }: Range): RawBuilder<SqlBool> {
  return sql`project_id = ${projectId} and filters = ${filtersText(filters)} and date between ${from} and ${to}`
}

export interface ControlRow {
  date: Day
  totals: Record<string, BrandTotals> | null
  is_whole: boolean
  digest: string
  in_review: boolean
}

/** Stores the totals of days. Those of a day in review stay what they were. */
export async function storeControl(
  { db }: Transaction,
  { projectId, filters }: ControlKey,
  control: ControlDays,
  runId: number,
): Promise<void> {
  const days = [...control].map(([date, { brands, isWhole, rowsDigest, isInReview }]) => {
    // Digests as texts: numbers of JSON lose digits.
    const totals = Object.fromEntries(brands)
    return { date, totals, is_whole: isWhole, rows_digest: String(rowsDigest), in_review: isInReview }
  })
  await sql`
    insert into ops.control_totals as t
      (project_id, filters, date, totals, is_whole, rows_digest, in_review, read_at, run_id)
    select ${projectId}, ${filtersText(filters)}, n.*, now(), ${runId}::bigint from json_to_recordset(${JSON.stringify(days)}::json)
      as n(date date, totals jsonb, is_whole boolean, rows_digest bigint, in_review boolean)
    on conflict (project_id, filters, date) do update set totals = excluded.totals, is_whole = excluded.is_whole,
      rows_digest = excluded.rows_digest, in_review = excluded.in_review, read_at = excluded.read_at, run_id = excluded.run_id`.execute(
    db,
  )
}

// Of a day that an older version stored.
const UNKNOWN_DIGEST = 0n

/** True if the service did not change a day since its totals were stored. */
export function isSameControl(stored: StoredControlDay, read: StoredControlDay): boolean {
  if (stored.isInReview !== read.isInReview) return false
  if (stored.rowsDigest !== UNKNOWN_DIGEST) return stored.rowsDigest === read.rowsDigest
  return isDeepStrictEqual(stored.brands, read.brands)
}

/** What tells two readings of a day's totals apart. */
export type ControlVersions = ReadonlyMap<Day, string>

export function versionOf({ rowsDigest, isInReview }: StoredControlDay): string {
  return `${rowsDigest} ${isInReview}`
}

/**
 * The versions of the totals that are stored now, to find days whose totals changed after they were compared. Others change only
 * after the transaction, and then make the days due that it settled.
 */
export function controlVersions(key: ControlKey, range: Range): RawBuilder<VersionRow> {
  return sql`
    select date, concat(rows_digest, case when in_review then ' true' else ' false' end) as version
    from ops.control_totals where ${isOfRange(key, range)} order by date for share`
}

export interface VersionRow {
  date: Day
  version: string
}

/** How many brands each day had when the totals were last read, to size the next requests. */
export async function controlSizes(
  { db }: Warehouse,
  { projectId, filters }: ControlKey,
): Promise<{ date: Day; rows: number }[]> {
  const { rows } = await sql<{ date: Day; rows: number }>`
    select date, (select count(*) from jsonb_object_keys(totals))::int as rows from ops.control_totals
    where project_id = ${projectId} and filters = ${filtersText(filters)} and totals is not null order by date`.execute(
    db,
  )
  return rows
}

/** When the totals of the whole history were last compared, if they ever were, and whether anything was read before this run. */
export async function historyState(
  { db }: Warehouse,
  projectId: string,
  runId: number,
): Promise<{ checkedAt: Date | null; isRead: boolean }> {
  const { rows } = await sql<{ checkedAt: Date | null; isRead: boolean }>`
    select (select checked_at from ops.history_checks where project_id = ${projectId}) as "checkedAt",
    exists (select from ops.coverage where project_id = ${projectId} and run_id <> ${runId}) as "isRead"`.execute(db)
  return rows[0]!
}

/** A project without any row is checked by every run: the service may have answered with nothing by mistake. */
export async function saveHistoryCheck({ db }: Warehouse, projectId: string, at: Date): Promise<void> {
  await sql`
    insert into ops.history_checks select ${projectId}, ${at}
    where exists (select from ops.control_totals where project_id = ${projectId} and totals <> '{}')
    on conflict (project_id) do update set checked_at = excluded.checked_at`.execute(db)
}

/** Has the next run check the history of projects in which something did not add up, whatever the hour. */
export async function forgetHistoryChecks({ db }: Warehouse, projectIds: readonly string[]): Promise<void> {
  if (projectIds.length > 0) await sql`delete from ops.history_checks where project_id = any(${projectIds})`.execute(db)
}

/** The days on which a prompt has another number of chats than a report by prompt has answers. */
export async function daysWithOtherPrompts(
  warehouse: Warehouse,
  of: { projectId: string; chats: DayStream; report: DayStream; days: readonly Day[] },
): Promise<Day[]> {
  const { projectId, chats, report, days } = of
  const group = sql.join(['date', ...report.dimensions!].map((name) => sql.id(name)))
  const { rows } = await sql<{ date: Day }>`
    with answers as (
      select date, coalesce(prompt_id, '') as prompt_id, sum(answers) as answers from (
        select ${group}, max(visibility_total) as answers from ${dataTable(report.table)}
        where project_id = ${projectId} and ${anyOf('date', days)} group by ${group}
      ) g group by 1, 2
    ), chats as (
      select date, coalesce(prompt_id, '') as prompt_id, count(*) as chats from ${dataTable(chats.table)}
      where project_id = ${projectId} and ${anyOf('date', days)} group by 1, 2
    )
    select date from answers a full join chats c using (date, prompt_id)
    group by date having bool_or(coalesce(a.answers, 0) <> coalesce(c.chats, 0))`.execute(warehouse.slowDb)
  return rows.map(({ date }) => date)
}
