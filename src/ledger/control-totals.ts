import type { Day, Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { Filter, ProjectStream } from '../core/vocabulary.ts'
import { answersOf, type BrandTotals, type ControlDay, type ControlTotals, digestOf } from '../rows/day-totals.ts'
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
  return { sql, read: (rows: { date: Day }[]) => rows.map(({ date }) => date) }
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
  const read = (rows: ControlRow[]) => {
    const control = new Map<Day, ControlDay>()
    for (const { date, totals, counts, answers } of rows) {
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

/** A measure that cannot be compared: `counts`, nothing of the stream adds up; `answers`, only its numbers of answers do not. */
export type Measure = 'counts' | 'answers'

export function notAdditive({ opsSchema }: Warehouse, { projectId, stream }: ProjectStream): Statement<Set<Measure>> {
  const sql = `select measure from ${quote(opsSchema, 'not_additive')}
    where project_id = ${literal(projectId)} and stream = ${literal(stream)}`
  return { sql, read: (rows: { measure: Measure }[]) => new Set(rows.map(({ measure }) => measure)) }
}

/** The effect on reports of which `answers` do not add up. */
export const OMITS_ROWS =
  'the service leaves out rows without mentions, so shares over several groups or days are too high, and prompts without mentions are not found'

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

/* Which days were compared with the control totals, and which have to be compared or read again. */

/** Days that were read and never compared, as in a warehouse that an older version filled. */
export async function uncomparedDays(
  { pool, opsSchema }: Warehouse,
  { projectId, stream }: { projectId: string; stream: DayStream },
  { from, to }: Range,
): Promise<Day[]> {
  const { rows } = await pool.query<{ date: Day }>(
    `select date from ${quote(opsSchema, 'coverage')}
     where project_id = $1 and stream = $2 and date between $3 and $4 and state = 'read' and reconciled_at is null`,
    [projectId, stream.name, from, to],
  )
  return rows.map(({ date }) => date)
}

/** Writes down that these days add up to the stored control totals, if the stream can be compared with any. */
export async function markReconciled(
  { pool, opsSchema }: Warehouse,
  { projectId, stream, days }: { projectId: string; stream: DayStream; days: readonly Day[] },
): Promise<void> {
  await pool.query(
    `update ${quote(opsSchema, 'coverage')} c
     set reconciled_at = now(), counts_digest = t.counts_digest, answers_digest = t.answers_digest
     from unnest($3::date[]) d(date) left join ${quote(opsSchema, 'control_totals')} t
       on t.project_id = $1 and t.filters = $4 and t.date = d.date
     where c.project_id = $1 and c.stream = $2 and c.date = d.date and c.state = 'read' and c.reconciled_at is null`,
    [projectId, stream.name, days, filtersText(stream.filters)],
  )
}

interface Differing {
  projectId: string
  streams: readonly DayStream[]
  days: readonly Day[]
}

/**
 * Marks the days of streams that no longer add up to the stored control totals as stale, so that they are read again. Reports
 * that cannot be compared are marked on all of these days.
 */
export async function markDiffering(tx: Transaction, { projectId, streams, days }: Differing): Promise<void> {
  if (days.length === 0) return
  for (const stream of streams) {
    await tx.client.query(
      `update ${quote(tx.opsSchema, 'coverage')} c set state = 'stale'
       where c.project_id = $1 and c.stream = $2 and c.date = any($3::date[]) and c.state = 'read'
         and $4::text is not null and ${stream.control === undefined ? 'true' : differs(tx, stream)}`,
      [projectId, stream.name, days, filtersText(stream.filters)],
    )
  }
}

/**
 * Finds final days that a run read, or showed to be stale, and that differ from the control totals at its end: these changed after
 * the days were compared. Nothing shows which totals were right, so the days are marked as unreconciled.
 */
export async function markOvertaken(
  { pool, opsSchema }: Warehouse,
  { projectId, stream, runId, before }: { projectId: string; stream: DayStream; runId: number; before: Day },
): Promise<{ date: Day; difference: string }[]> {
  const { rows } = await pool.query<{ date: Day; difference: string }>(
    `update ${quote(opsSchema, 'coverage')} c set state = 'unreconciled', reconciled_at = null, difference = case c.state
       when 'stale' then 'the totals of the service changed, and the day was not read again'
       else 'the service answered with other totals after the day was compared' end
     where c.project_id = $1 and c.stream = $2 and c.date < $3 and ${differs({ opsSchema }, stream)}
       and (c.state = 'read' and c.run_id = $5 or c.state = 'stale')
       and exists (select from ${quote(opsSchema, 'control_totals')} r
         where r.project_id = c.project_id and r.filters = $4 and r.date = c.date and r.run_id = $5)
     returning date, difference`,
    [projectId, stream.name, before, filtersText(stream.filters), runId],
  )
  return rows
}

const SHARED = 'the service gave another project the same rows'

/**
 * Marks days as unreconciled on which two projects of a run have the same control report: the service answered one of them with the
 * rows of the other.
 */
export async function markShared(
  { pool, opsSchema }: Warehouse,
  { streams, runId }: { streams: readonly string[]; runId: number },
): Promise<{ project_id: string; stream: string; date: Day; difference: string }[]> {
  const { rows } = await pool.query<{ project_id: string; stream: string; date: Day; difference: string }>(
    `update ${quote(opsSchema, 'coverage')} c set state = 'unreconciled', reconciled_at = null, difference = $3
     from (
       select distinct project_id, date from (
         select project_id, date, count(*) over (partition by filters, date, rows_digest) as projects
         from ${quote(opsSchema, 'control_totals')} where run_id = $1 and totals <> '{}'
       ) t where projects > 1
     ) s
     where c.project_id = s.project_id and c.date = s.date and c.stream = any($2) and c.run_id = $1
       and (c.state = 'read' or c.difference = $3)
     returning c.project_id, c.stream, c.date, c.difference`,
    [runId, streams, SHARED],
  )
  return rows
}

/** Days that a run loaded though they do not add up, because the service may still write them. */
export async function differingProvisionalDays(
  { pool, opsSchema }: Warehouse,
  { projectIds, streams, runId, from }: { projectIds: string[]; streams: string[]; runId: number; from: Day },
): Promise<{ stream: string; date: Day; difference: string }[]> {
  const { rows } = await pool.query<{ stream: string; date: Day; difference: string }>(
    `select stream, date, difference from ${quote(opsSchema, 'coverage')}
     where project_id = any($1) and stream = any($2) and date >= $4 and run_id = $3 and state = 'read'
       and difference is not null order by date, stream`,
    [projectIds, streams, runId, from],
  )
  return rows
}

/**
 * True in SQL if the coverage `c` of a day differs from the control totals of its project under the filters $4. A day of chats
 * with rejected rows has fewer rows than the totals say, so it differs only if the totals changed since it was compared.
 */
function differs({ opsSchema }: Pick<Warehouse, 'opsSchema'>, { control, name }: DayStream): string {
  const isAdditive = (measure: string) =>
    `not exists (select from ${quote(opsSchema, 'not_additive')} n
       where n.project_id = c.project_id and n.stream = '${name}' and n.measure in ('counts', '${measure}'))`
  const condition =
    control === 'answers'
      ? `c.rows <> t.answers and c.answers_digest is distinct from t.answers_digest and ${isAdditive('answers')}`
      : `(c.counts_digest is distinct from t.counts_digest and ${isAdditive('counts')}
          or c.answers_digest is distinct from t.answers_digest and ${isAdditive('answers')})`
  return `exists (select from ${quote(opsSchema, 'control_totals')} t
    where t.project_id = c.project_id and t.filters = $4 and t.date = c.date and t.counts_digest is not null and ${condition})`
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
