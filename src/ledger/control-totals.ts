import type { Day, Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { Filter, ProjectStream } from '../core/vocabulary.ts'
import { answersOf, type BrandTotals, type ControlDay, type ControlTotals, digestOf } from '../rows/day-totals.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { literal, type Statement } from '../warehouse/transaction.ts'

/* The control totals: the report by date alone, as the service gave it last. Days of other streams must add up to them. */

/** Which control totals: those of a project, under some filters. */
export interface ControlKey {
  projectId: string
  filters: readonly Filter[]
}

export function filtersText(filters: readonly Filter[] = []): string {
  return filters.length === 0 ? '' : JSON.stringify(filters)
}

/** The control totals of some days, and a digest of all columns of their rows: any change of it is a restatement. */
export type ControlDays = ReadonlyMap<Day, ControlDay & { rowsDigest: bigint }>

/** Stores the totals of days, and returns the days that had other rows before. */
export function controlEntry(
  { opsSchema }: Warehouse,
  { projectId, filters }: ControlKey,
  control: ControlDays,
  runId: number,
): Statement<Day[]> {
  const table = quote(opsSchema, 'control_totals')
  const days = [...control].map(([date, { brands, isWhole, rowsDigest }]) => {
    // Digests as texts: numbers of JSON lose digits.
    const day = { date, totals: Object.fromEntries(brands), rows_digest: String(rowsDigest) }
    if (!isWhole) return day
    const { counts, answers } = digestOf(brands)
    return { ...day, answers: answersOf(brands), counts_digest: String(counts), answers_digest: String(answers) }
  })
  const [project, filter] = [projectId, filtersText(filters)].map(literal)
  const sql = `with new as (
      select * from json_to_recordset(${literal(JSON.stringify(days))}::json) as n(date date, totals jsonb,
        answers double precision, counts_digest bigint, answers_digest bigint, rows_digest bigint)
    ), old as (
      select date, rows_digest from ${table} where project_id = ${project} and filters = ${filter}
        and date in (select date from new)
    ), saved as (
      insert into ${table} as t select ${project}, ${filter}, n.*, now(), ${runId} from new n
      on conflict (project_id, filters, date) do update set totals = excluded.totals, answers = excluded.answers,
        counts_digest = excluded.counts_digest, answers_digest = excluded.answers_digest,
        rows_digest = excluded.rows_digest, read_at = excluded.read_at, run_id = excluded.run_id
    )
    select date from old join new using (date) where old.rows_digest <> new.rows_digest order by date`
  return { sql, read: (rows) => (rows as { date: Day }[]).map(({ date }) => date) }
}

/** The totals of a range that one run read, by day, with the digests that were computed then. A day that the run did not read is missing. */
export function controlOf(
  { opsSchema }: Warehouse,
  { projectId, filters }: ControlKey,
  range: Range,
  runId: number,
): Statement<ControlTotals> {
  const sql = `select date, totals, counts_digest::text as counts, answers_digest::text as answers from ${quote(opsSchema, 'control_totals')}
    where project_id = ${literal(projectId)} and filters = ${literal(filtersText(filters))} and run_id = ${runId}
      and date between ${literal(range.from)} and ${literal(range.to)}`
  const read = (rows: Record<string, unknown>[]) => {
    const control = new Map<Day, ControlDay>()
    for (const { date, totals, counts, answers } of rows as unknown as ControlRow[]) {
      const brands = new Map(Object.entries(totals ?? {}))
      if (counts === null) control.set(date, { brands, isWhole: false })
      else control.set(date, { brands, isWhole: true, digest: { counts: BigInt(counts), answers: BigInt(answers) } })
    }
    return control
  }
  return { sql, read }
}

interface ControlRow {
  date: Day
  totals: Record<string, BrandTotals> | null
  counts: string | null
  answers: string
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

/** What cannot be compared: `counts`, nothing of the stream adds up; `answers`, only its numbers of answers do not. */
export type Measure = 'counts' | 'answers'

export function notAdditive({ opsSchema }: Warehouse, { projectId, stream }: ProjectStream): Statement<Set<Measure>> {
  const sql = `select measure from ${quote(opsSchema, 'not_additive')}
    where project_id = ${literal(projectId)} and stream = ${literal(stream)}`
  return { sql, read: (rows) => new Set((rows as { measure: Measure }[]).map(({ measure }) => measure)) }
}

export interface NotAdditive extends ProjectStream {
  measure: Measure
  /** A sentence for each day that shows it. */
  evidence: string[]
}

export async function saveNotAdditive({ pool, opsSchema }: Warehouse, found: NotAdditive): Promise<void> {
  await pool.query(
    `insert into ${quote(opsSchema, 'not_additive')} (project_id, stream, measure, evidence) values ($1, $2, $3, $4)
     on conflict do nothing`,
    [found.projectId, found.stream, found.measure, JSON.stringify(found.evidence)],
  )
}

/** Days that were read meanwhile may lack rows. */
export async function forgetNotAdditive(
  { pool, opsSchema }: Warehouse,
  { projectId, stream }: ProjectStream,
): Promise<void> {
  const ofStream = 'where project_id = $1 and stream = $2'
  await pool.query(
    `with forgotten as (delete from ${quote(opsSchema, 'not_additive')} ${ofStream})
     update ${quote(opsSchema, 'coverage')} set state = case state when 'read' then 'stale' else state end, reconciled_at = null ${ofStream}`,
    [projectId, stream],
  )
}

export async function listNotAdditive({ pool, opsSchema }: Warehouse): Promise<NotAdditive[]> {
  const { rows } = await pool.query<{ project_id: string } & Omit<NotAdditive, 'projectId'>>(
    `select project_id, stream, measure, evidence from ${quote(opsSchema, 'not_additive')} order by 1, 2, 3`,
  )
  return rows.map(({ project_id, ...found }) => ({ projectId: project_id, ...found }))
}

/** When the totals of the whole history were last compared; undefined if they never were. */
export async function historyCheckedAt({ pool, opsSchema }: Warehouse, projectId: string): Promise<Date | undefined> {
  const { rows } = await pool.query<{ checked_at: Date }>(
    `select checked_at from ${quote(opsSchema, 'history_checks')} where project_id = $1`,
    [projectId],
  )
  return rows[0]?.checked_at
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
