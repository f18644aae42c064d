import type { Day, Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { Filter } from '../core/vocabulary.ts'
import type { BrandTotals, ControlDay } from '../rows/day-totals.ts'
import type { DayStream } from '../streams/stream.ts'
import { slowQuery, tableName, type Warehouse } from '../warehouse/connect.ts'
import { literal, type Statement, type Transaction } from '../warehouse/transaction.ts'

/* The control totals: the report by date alone, as the service gave it last. Days of other streams must add up to them. */

/** Which control totals: those of a project, under some filters. */
export interface ControlKey {
  projectId: string
  filters: readonly Filter[]
}

export function filtersText(filters: readonly Filter[] = []): string {
  return filters.length === 0 ? '' : JSON.stringify(filters)
}

/** A day of the control totals as it was read. */
export interface ReadControlDay extends ControlDay {
  /** A digest of all columns of its rows: any change of it is a change by the service. */
  rowsDigest: bigint
}

export interface StoredControlDay extends ReadControlDay {
  /** True if the last answer dropped most of the day: the totals are those from before, and a person decides. */
  isInReview: boolean
}

export type ControlDays = ReadonlyMap<Day, StoredControlDay>

/** The stored totals of a range, by day; with a run, only those of days that the run has read. */
export function controlOf(
  { opsSchema }: Warehouse,
  { projectId, filters }: ControlKey,
  range: Range,
  runId?: number,
): Statement<ControlDays> {
  const sql = `select date, totals, is_whole, rows_digest::text as digest, in_review from ${quote(opsSchema, 'control_totals')}
    where project_id = ${literal(projectId)} and filters = ${literal(filtersText(filters))}
      and date between ${literal(range.from)} and ${literal(range.to)}${runId === undefined ? '' : ` and run_id = ${runId}`}`
  const dayOf = ({ totals, is_whole, digest, in_review }: ControlRow): StoredControlDay => {
    const brands = new Map(Object.entries(totals ?? {}))
    return { brands, isWhole: is_whole, rowsDigest: BigInt(digest), isInReview: in_review }
  }
  return { sql, read: (rows: ControlRow[]) => new Map(rows.map((row) => [row.date, dayOf(row)])) }
}

interface ControlRow {
  date: Day
  totals: Record<string, BrandTotals> | null
  is_whole: boolean
  digest: string
  in_review: boolean
}

/** Stores the totals of days. Those of a day in review stay what they were. */
export async function storeControl(
  { client, opsSchema }: Transaction,
  { projectId, filters }: ControlKey,
  control: ControlDays,
  runId: number,
): Promise<void> {
  const days = [...control].map(([date, { brands, isWhole, rowsDigest, isInReview }]) => {
    // Digests as texts: numbers of JSON lose digits.
    const totals = Object.fromEntries(brands)
    return { date, totals, is_whole: isWhole, rows_digest: String(rowsDigest), in_review: isInReview }
  })
  await client.query(
    `insert into ${quote(opsSchema, 'control_totals')} as t
       (project_id, filters, date, totals, is_whole, rows_digest, in_review, read_at, run_id)
     select $1, $2, n.*, now(), $3::bigint from json_to_recordset($4::json)
       as n(date date, totals jsonb, is_whole boolean, rows_digest bigint, in_review boolean)
     on conflict (project_id, filters, date) do update set totals = excluded.totals, is_whole = excluded.is_whole,
       rows_digest = excluded.rows_digest, in_review = excluded.in_review, read_at = excluded.read_at, run_id = excluded.run_id`,
    [projectId, filtersText(filters), runId, JSON.stringify(days)],
  )
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
export function controlVersions(
  { opsSchema }: Warehouse,
  { projectId, filters }: ControlKey,
  range: Range,
): Statement<ControlVersions> {
  const sql = `select date, concat(rows_digest, case when in_review then ' true' else ' false' end) as version
    from ${quote(opsSchema, 'control_totals')}
    where project_id = ${literal(projectId)} and filters = ${literal(filtersText(filters))}
      and date between ${literal(range.from)} and ${literal(range.to)} order by date for share`
  return {
    sql,
    read: (rows: { date: Day; version: string }[]) => new Map(rows.map(({ date, version }) => [date, version])),
  }
}

/** How many brands each day had when the totals were last read, to size the next requests. */
export async function controlSizes(
  { pool, opsSchema }: Warehouse,
  { projectId, filters }: ControlKey,
): Promise<{ date: Day; rows: number }[]> {
  const { rows } = await pool.query<{ date: Day; rows: number }>(
    `select date, (select count(*) from jsonb_object_keys(totals))::int as rows from ${quote(opsSchema, 'control_totals')}
     where project_id = $1 and filters = $2 and totals is not null order by date`,
    [projectId, filtersText(filters)],
  )
  return rows
}

/** When the totals of the whole history were last compared, if they ever were, and whether anything of the project was ever read. */
export async function historyState(
  { pool, opsSchema }: Warehouse,
  projectId: string,
): Promise<{ checkedAt: Date | null; isRead: boolean }> {
  const { rows } = await pool.query<{ checkedAt: Date | null; isRead: boolean }>(
    `select (select checked_at from ${quote(opsSchema, 'history_checks')} where project_id = $1) as "checkedAt",
       exists (select from ${quote(opsSchema, 'coverage')} where project_id = $1) as "isRead"`,
    [projectId],
  )
  return rows[0]!
}

/** A project without any row is checked by every run: the service may have answered with nothing by mistake. */
export async function saveHistoryCheck({ pool, opsSchema }: Warehouse, projectId: string, at: Date): Promise<void> {
  await pool.query(
    `insert into ${quote(opsSchema, 'history_checks')} select $1, $2
     where exists (select from ${quote(opsSchema, 'control_totals')} where project_id = $1 and totals <> '{}')
     on conflict (project_id) do update set checked_at = excluded.checked_at`,
    [projectId, at],
  )
}

/** Has the next run check the history of projects in which something did not add up, whatever the hour. */
export async function forgetHistoryChecks(
  { pool, opsSchema }: Warehouse,
  projectIds: readonly string[],
): Promise<void> {
  await pool.query(`delete from ${quote(opsSchema, 'history_checks')} where project_id = any($1)`, [projectIds])
}

/** The days on which a prompt has another number of chats than a report by prompt has answers. */
export async function daysWithOtherPrompts(
  warehouse: Warehouse,
  of: { projectId: string; chats: DayStream; report: DayStream; days: readonly Day[] },
): Promise<Day[]> {
  const group = ['date', ...of.report.dimensions!].map((name) => quote(name)).join(', ')
  const query = `with answers as (
      select date, coalesce(prompt_id, '') as prompt_id, sum(answers) as answers from (
        select ${group}, max(visibility_total) as answers from ${tableName(warehouse, of.report.table)}
        where project_id = $1 and date = any($2::date[]) group by ${group}
      ) g group by 1, 2
    ), chats as (
      select date, coalesce(prompt_id, '') as prompt_id, count(*) as chats from ${tableName(warehouse, of.chats.table)}
      where project_id = $1 and date = any($2::date[]) group by 1, 2
    )
    select date from answers a full join chats c using (date, prompt_id)
    group by date having bool_or(coalesce(a.answers, 0) <> coalesce(c.chats, 0))`
  const { rows } = await warehouse.pool.query<{ date: Day }>(slowQuery(query, [of.projectId, of.days]))
  return rows.map(({ date }) => date)
}
