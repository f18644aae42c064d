import { sql } from 'kysely'
import { type Config, daysOfInterest } from '../core/config/load.ts'
import type { Day } from '../core/day.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { type DifferingRange, hasLedger, type ReviewedRange, readDiffering, readReviewed } from './days.ts'
import { runReason } from './run-reason.ts'
import { lastRuns, type RunRow } from './runs.ts'

/* The state of the warehouse as data: what `status` prints. */

const MOST_DRIFT = 100

type Counts = 'days_read' | 'days_held' | 'days_quarantined' | 'days_stale' | 'days_unreconciled' | 'rows'

export interface StreamStatus extends Record<Counts, number> {
  project_id: string
  stream: string
  last_read_at: Date | null
  /** Dated streams only: coverage of the days of interest. */
  first_day: Day | null
  last_day: Day | null
  days_missing: number | null
  /** Somebody dropped its table after it was read. The next run makes it again and reads everything. */
  is_table_missing: boolean
}

export interface HeldStatus extends ReviewedRange {
  /** The command that lets it through, with all that is held of its project on the same days. */
  accept: string
}

/** The rows of a stream that are in quarantine. */
export interface QuarantineStatus {
  project_id: string
  stream: string
  open: number
  /** How many of them have no readable day, and the days of the answers in which they came. */
  undated: number
  undated_from: Day | null
  undated_to: Day | null
  oldest: Date
  example: string
}

export interface Status {
  streams: StreamStatus[]
  held: HeldStatus[]
  unreconciled: DifferingRange[]
  /** Days that are loaded although they do not add up, because the service leaves rows out. */
  not_additive: DifferingRange[]
  quarantine: QuarantineStatus[]
  drift: { project_id: string; stream: string; kind: string; name: string; example: string; first_seen_at: Date }[]
  lookback: { configured_days: number; needed_days: number | null; too_short: boolean }
  /** The last runs; `reason` is a sentence if a run was not complete. */
  runs: (RunRow & { reason: string | null })[]
  /** How long the lists are in full: those of what is held and of drift may be cut. */
  totals: { streams: number; held: number; quarantine: number; drift: number }
}

interface StatusOptions {
  config: Config
  today: Day
  projects: string[]
  streams: { name: string; table: string; by: 'day' | 'list' }[]
  runs: number
  /** The most held ranges to list; without it, all. */
  most?: number
  /** Values that a long-running process caches instead of reading them each time. */
  kept?: { runs(warehouse: Warehouse): Promise<RunRow[]>; lookback(): Status['lookback'] }
}

/** Undefined if nothing was ever synced into this database. */
export async function readStatus(warehouse: Warehouse, options: StatusOptions): Promise<Status | undefined> {
  if (!(await hasLedger(warehouse))) return undefined
  const { kept } = options
  const [streams, held, unreconciled, not_additive, quarantine, drift, lookback, runs] = await Promise.all([
    streamStatus(warehouse, options),
    readHeld(warehouse, options.most),
    readDiffering(warehouse, 'differs'),
    readDiffering(warehouse, 'settled'),
    openQuarantine(warehouse),
    readDrift(warehouse),
    kept?.lookback() ?? readLookback(warehouse, options),
    kept?.runs(warehouse) ?? lastRuns(warehouse, options.runs),
  ])
  return {
    ...{ streams, held: held.ranges, unreconciled, not_additive, quarantine, drift: drift.notes, lookback },
    runs: runs.map((run) => ({ ...run, reason: runReason(run) ?? null })),
    totals: { streams: streams.length, held: held.total, quarantine: quarantine.length, drift: drift.total },
  }
}

const COVERAGE_MONTHS = sql.table('ops.coverage_months')

async function streamStatus(
  warehouse: Warehouse,
  { config, today, projects, streams }: StatusOptions,
): Promise<StreamStatus[]> {
  const { from, to: last } = daysOfInterest(config, today)
  const to = last < today ? last : today
  // Months are counted by their sums, and those that lie across an end of the range day by day. Of a list, the length counts
  // when it was last read. Nobody waits for what the service does not have.
  const names = streams.map(({ name }) => name)
  const tables = streams.map(({ table }) => table)
  const isDated = streams.map(({ by }) => by === 'day')
  const { rows } = await sql<StreamStatus>`
    with summed as (
      select project_id, stream, max(last_read_at) as last_read_at, min(first_day) as first_day, max(last_day) as last_day,
        sum(days)::int as days, sum(rows)::bigint as rows, sum(days) filter (where first_day >= ${from} and last_day <= ${to})::int as days_inside
      from ${COVERAGE_MONTHS} group by 1, 2
    ), unsettled as (
      select project_id, stream, count(*) filter (where state = 'held')::int as days_held,
        count(*) filter (where state = 'quarantined')::int as days_quarantined,
        count(*) filter (where state = 'stale')::int as days_stale,
        count(*) filter (where state = 'unreconciled')::int as days_unreconciled
      from ${sql.table('ops.coverage')} where state <> 'read' group by 1, 2
    ), across as (
      select m.project_id, m.stream, count(*)::int as days_inside
      from ${COVERAGE_MONTHS} m join ${sql.table('ops.coverage')} c on c.project_id = m.project_id and c.stream = m.stream
        and c.date >= m.month and c.date < m.month + interval '1 month'
      where not (m.first_day >= ${from} and m.last_day <= ${to}) and c.date between ${from} and ${to}
        and m.month in (date_trunc('month', ${from}::date)::date, date_trunc('month', ${to}::date)::date)
      group by 1, 2
    )
    select p.project_id, s.stream, t.last_read_at, case when s.dated then t.first_day end as first_day,
      case when s.dated then t.last_day end as last_day, case when s.dated then coalesce(t.days, 0) else 0 end as days_read,
      case when s.dated then
        greatest(0, ${to}::date - ${from}::date + 1) - coalesce(t.days_inside, 0) - coalesce(a.days_inside, 0) end as days_missing,
      coalesce(u.days_held, 0) as days_held, coalesce(u.days_quarantined, 0) as days_quarantined,
      coalesce(u.days_stale, 0) as days_stale, coalesce(u.days_unreconciled, 0) as days_unreconciled,
      coalesce(case when s.dated then t.rows else l.rows end, 0) as rows,
      not s.has_table and exists (select from ${COVERAGE_MONTHS} m
        where m.project_id = p.project_id collate "C" and m.stream = s.stream collate "C") as is_table_missing
    from unnest(${projects}::text[]) with ordinality p(project_id, position)
    cross join (
      select stream, dated, position, to_regclass(format('%I.%I', ${warehouse.schema}::text, name)) is not null as has_table
      from unnest(${names}::text[], ${isDated}::boolean[], ${tables}::text[]) with ordinality s(stream, dated, name, position)
    ) s
    left join summed t on s.has_table and t.project_id = p.project_id collate "C" and t.stream = s.stream collate "C"
    left join unsettled u on s.has_table and u.project_id = p.project_id collate "C" and u.stream = s.stream collate "C"
    left join across a on s.has_table and a.project_id = p.project_id collate "C" and a.stream = s.stream collate "C"
    left join lateral (
      select rows from ${sql.table('ops.coverage')} c where not s.dated and s.has_table and c.project_id = p.project_id collate "C"
        and c.stream = s.stream collate "C" order by date desc limit 1
    ) l on true
    where t.stream is not null or not exists (
      select from ${sql.table('ops.not_offered')} n where n.project_id = p.project_id collate "C" and n.stream = s.stream collate "C")
    order by p.position, s.position`.execute(warehouse.db)
  return rows
}

/** The held days as ranges, and how many ranges there are in all. */
export async function readHeld(warehouse: Warehouse, most?: number): Promise<{ ranges: HeldStatus[]; total: number }> {
  const { ranges, total } = await readReviewed(warehouse, most)
  return { ranges: ranges.map((range) => ({ ...range, accept: acceptCommand(range, ranges) })), total }
}

/** Names the streams, unless there are several and all that is held of the project is held on the same days. */
function acceptCommand({ project_id, from, to }: ReviewedRange, all: readonly ReviewedRange[]): string {
  const ofProject = all.filter((other) => other.project_id === project_id)
  const sameDays = ofProject.filter((other) => other.from === from && other.to === to)
  const isAll = sameDays.length > 1 && sameDays.length === ofProject.length
  const streams = isAll ? [] : sameDays.map(({ stream }) => ` --stream ${stream}`)
  return `visibility-sync backfill --from ${from} --to ${to}${streams.join('')} --project ${project_id} --accept-deletes`
}

/** What is held, by the command that lets it through. */
export function byAccept(held: readonly HeldStatus[]): [HeldStatus, ...HeldStatus[]][] {
  const groups = new Map<string, [HeldStatus, ...HeldStatus[]]>()
  for (const range of held) {
    const group = groups.get(range.accept)
    if (group === undefined) groups.set(range.accept, [range])
    else group.push(range)
  }
  return [...groups.values()]
}

async function readDrift({ db }: Warehouse): Promise<{ notes: Status['drift']; total: number }> {
  const columns = ['project_id', 'stream', 'kind', 'name', 'example', 'first_seen_at'] as const
  const drift = db.selectFrom('ops.drift')
  const notes = await drift.select(columns).orderBy('first_seen_at', 'desc').limit(MOST_DRIFT).execute()
  const { total } = await drift.select(({ fn }) => fn.countAll<number>().as('total')).executeTakeFirstOrThrow()
  return { notes, total }
}

async function openQuarantine({ db }: Warehouse): Promise<Status['quarantine']> {
  const { rows } = await sql<QuarantineStatus>`
    select project_id, stream, sum(occurrences)::int as open,
      coalesce(sum(occurrences) filter (where from_date <> to_date), 0)::int as undated,
      min(from_date) filter (where from_date <> to_date) as undated_from,
      max(to_date) filter (where from_date <> to_date) as undated_to,
      min(first_seen_at) as oldest, min(reason) as example
    from ${sql.table('ops.quarantine')} where resolved_at is null group by 1, 2 order by 1, 2`.execute(db)
  return rows
}

/**
 * How old days were when a re-read still changed them, over the last 60 days, counted from the last day of interest as the
 * lookback is. Changes that reach far back come from history being rewritten, which no lookback catches and the audit does, so
 * the oldest twentieth is left out.
 */
export async function readLookback(
  { db }: Warehouse,
  { config, today }: Pick<StatusOptions, 'config' | 'today'>,
): Promise<Status['lookback']> {
  const { rows } = await sql<{ age: number | null }>`
    select percentile_disc(0.95) within group (order by least((seen_at at time zone 'UTC')::date, ${daysOfInterest(config, today).to}::date) - date) as age
    from ${sql.table('ops.restatements')} where seen_at > now() - interval '60 days' and date <= ${daysOfInterest(config, today).to}::date`.execute(
    db,
  )
  const { age } = rows[0]!
  const needed_days = age === null ? null : Number(age) + 1
  const configured_days = config.lookback_days
  return { configured_days, needed_days, too_short: needed_days !== null && needed_days > configured_days }
}
