import { type Config, daysOfInterest } from '../core/config/load.ts'
import { countDays, type Day, type Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import { streamKey } from '../core/vocabulary.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { listNotAdditive, type NotAdditive } from './control-totals.ts'
import { hasLedger } from './coverage.ts'
import { runReason } from './run-reason.ts'
import { lastRuns, type RunRow } from './runs.ts'

/* The state of the warehouse as data: what `status` prints. */

const MOST_DRIFT = 100

export interface StreamStatus {
  project_id: string
  stream: string
  last_read_at: Date | null
  /** Dated streams only: coverage of the days of interest. */
  first_day: Day | null
  last_day: Day | null
  days_read: number
  days_missing: number | null
  days_held: number
  days_quarantined: number
  days_stale: number
  days_unreconciled: number
  rows: number
}

export interface HeldStatus {
  project_id: string
  stream: string
  from: Day
  to: Day
  since: Date
  /** The command that lets it through. */
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

/** Days that do not add up to the totals of the service. */
export interface UnreconciledStatus {
  project_id: string
  stream: string
  days: number
  first_day: Day
  last_day: Day
  /** How the last of them differs. */
  difference: string
}

export interface Status {
  streams: StreamStatus[]
  held: HeldStatus[]
  unreconciled: UnreconciledStatus[]
  /** Streams that were shown not to add up to the totals of the service, and the days that show it. */
  not_additive: NotAdditive[]
  quarantine: QuarantineStatus[]
  drift: { project_id: string; stream: string; kind: string; name: string; example: string; first_seen_at: Date }[]
  lookback: { configured_days: number; needed_days: number | null; too_short: boolean }
  /** The last runs; `reason` is a sentence if a run was not complete. */
  runs: (RunRow & { reason: string | null })[]
  /** How long the lists are in full: those of what is held and of drift may be cut. */
  totals: { streams: number; held: number; quarantine: number; drift: number }
}

export interface StatusOptions {
  config: Config
  today: Day
  projects: string[]
  streams: { name: string; by: 'day' | 'list' }[]
  runs: number
  /** The most held ranges to list; without it, all. */
  most?: number
  /** What a process that looks often keeps from one look to the next, instead of reading it anew. */
  kept?: { runs(warehouse: Warehouse): Promise<RunRow[]>; lookback(): Status['lookback'] }
}

/** Undefined if nothing was ever synced into this database. */
export async function readStatus(warehouse: Warehouse, options: StatusOptions): Promise<Status | undefined> {
  if (!(await hasLedger(warehouse))) return undefined
  const { kept } = options
  const [streams, held, unreconciled, not_additive, quarantine, drift, lookback, runs] = await Promise.all([
    streamStatus(warehouse, options),
    readHeld(warehouse, options.most),
    readUnreconciled(warehouse),
    listNotAdditive(warehouse),
    openQuarantine(warehouse),
    readDrift(warehouse),
    kept?.lookback() ?? readLookback(warehouse, options),
    kept?.runs(warehouse) ?? lastRuns(warehouse, options.runs),
  ])
  const withReasons = runs.map((run) => ({ ...run, reason: runReason(run) ?? null }))
  const totals = { streams: streams.length, held: held.total, quarantine: quarantine.length, drift: drift.total }
  const found = { streams, held: held.ranges, unreconciled, not_additive, quarantine, drift: drift.notes }
  return { ...found, lookback, runs: withReasons, totals }
}

async function streamStatus(warehouse: Warehouse, options: StatusOptions): Promise<StreamStatus[]> {
  const { from, to: last } = daysOfInterest(options.config, options.today)
  const to = last < options.today ? last : options.today
  const { rows: found } = await warehouse.pool.query<SummedStream>(
    `select project_id, stream, max(last_read_at) as last_read_at, min(first_day) as first_day, max(last_day) as last_day,
       sum(days)::int as days, sum(rows)::bigint as rows, sum(days_held)::int as days_held,
       sum(days_quarantined)::int as days_quarantined, sum(days_stale)::int as days_stale,
       sum(days_unreconciled)::int as days_unreconciled,
       sum(days) filter (where first_day >= $1 and last_day <= $2)::int as days_inside
     from ${quote(warehouse.opsSchema, 'coverage_months')} group by 1, 2`,
    [from, to],
  )
  const byName = new Map(found.map((row) => [streamKey(row.project_id, row.stream), row]))
  const lastRows = await lastListRows(warehouse, options)
  const partly = await daysAcross(warehouse, { from, to })
  const wanted = countDays({ from, to })
  const notOffered = await streamsNotOffered(warehouse)
  return options.projects.flatMap((projectId) =>
    options.streams.flatMap(({ name, by }) => {
      const key = streamKey(projectId, name)
      const row = byName.get(key)
      // Nobody waits for what the service does not have.
      if (row === undefined && notOffered.has(key)) return []
      const dated = by === 'day'
      const inside = (row?.days_inside ?? 0) + (partly.get(key) ?? 0)
      return {
        project_id: projectId,
        stream: name,
        last_read_at: row?.last_read_at ?? null,
        first_day: dated ? (row?.first_day ?? null) : null,
        last_day: dated ? (row?.last_day ?? null) : null,
        days_read: dated ? (row?.days ?? 0) : 0,
        days_missing: dated ? wanted - inside : null,
        days_held: row?.days_held ?? 0,
        days_quarantined: row?.days_quarantined ?? 0,
        days_stale: row?.days_stale ?? 0,
        days_unreconciled: row?.days_unreconciled ?? 0,
        rows: Number((dated ? row?.rows : lastRows.get(key)) ?? 0),
      }
    }),
  )
}

async function streamsNotOffered({ pool, opsSchema }: Warehouse): Promise<Set<string>> {
  const { rows } = await pool.query<{ project_id: string; stream: string }>(
    `select project_id, stream from ${quote(opsSchema, 'not_offered')}`,
  )
  return new Set(rows.map(({ project_id, stream }) => streamKey(project_id, stream)))
}

type SummedStream = Omit<StreamStatus, 'days_read' | 'days_missing'> & { days: number; days_inside: number | null }

/** Of months that lie across an end of the range, the days inside it. */
async function daysAcross(warehouse: Warehouse, { from, to }: Range): Promise<Map<string, number>> {
  const { rows } = await warehouse.pool.query<{ project_id: string; stream: string; days: number }>(
    `select m.project_id, m.stream, count(*)::int as days
     from ${quote(warehouse.opsSchema, 'coverage_months')} m
     join ${quote(warehouse.opsSchema, 'coverage')} c on c.project_id = m.project_id and c.stream = m.stream
       and c.date >= m.month and c.date < m.month + interval '1 month'
     where not (m.first_day >= $1 and m.last_day <= $2) and c.date between $1 and $2
       and m.month in (date_trunc('month', $1::date)::date, date_trunc('month', $2::date)::date)
     group by 1, 2`,
    [from, to],
  )
  return new Map(rows.map((row) => [streamKey(row.project_id, row.stream), row.days]))
}

/** The length of each list when it was last read. */
async function lastListRows(warehouse: Warehouse, { projects, streams }: StatusOptions): Promise<Map<string, number>> {
  const lists = streams.flatMap(({ by, name }) => (by === 'list' ? [name] : []))
  const { rows } = await warehouse.pool.query<{ project_id: string; stream: string; rows: number }>(
    `select p.project_id, s.stream, c.rows from unnest($1::text[]) p(project_id) cross join unnest($2::text[]) s(stream)
     cross join lateral (
       select rows from ${quote(warehouse.opsSchema, 'coverage')} c
       where c.project_id = p.project_id collate "C" and c.stream = s.stream collate "C" order by date desc limit 1
     ) c`,
    [projects, lists],
  )
  return new Map(rows.map((row) => [streamKey(row.project_id, row.stream), row.rows]))
}

/** The held days as ranges, and how many ranges there are in all. */
export async function readHeld(warehouse: Warehouse, most?: number): Promise<{ ranges: HeldStatus[]; total: number }> {
  const { rows } = await warehouse.pool.query<Omit<HeldStatus, 'accept'> & { total: number }>(
    `select project_id, stream, min(date) as "from", max(date) as "to", min(since) as since, count(*) over () as total
     from (
       select project_id, stream, date, coalesce(held_since, read_at) as since,
         date - row_number() over (partition by project_id, stream order by date)::int as stretch
       from ${quote(warehouse.opsSchema, 'coverage')} where state = 'held'
     ) days
     group by project_id, stream, stretch order by project_id, stream, min(date) limit $1`,
    [most ?? null],
  )
  const ranges = rows.map((found) => {
    const { total: _, ...row } = found
    const { project_id, stream, from, to } = row
    const range = `--from ${from} --to ${to} --stream ${stream} --project ${project_id}`
    return { ...row, accept: `visibility-sync backfill ${range} --accept-deletes` }
  })
  return { ranges, total: rows[0]?.total ?? 0 }
}

/** Whether every day of a range is held, as it must be before its deletions are let through. */
export async function isHeld(
  { ops }: Warehouse,
  { project_id, stream, from, to }: Pick<HeldStatus, 'project_id' | 'stream' | 'from' | 'to'>,
): Promise<boolean> {
  const { held } = await ops
    .selectFrom('coverage')
    .select(({ fn }) => fn.countAll<number>().as('held'))
    .where('project_id', '=', project_id)
    .where('stream', '=', stream)
    .where('date', '>=', from)
    .where('date', '<=', to)
    .where('state', '=', 'held')
    .executeTakeFirstOrThrow()
  return held > 0 && held === countDays({ from, to })
}

async function readDrift({ ops }: Warehouse): Promise<{ notes: Status['drift']; total: number }> {
  const rows = await ops
    .selectFrom('drift')
    .select(['project_id', 'stream', 'kind', 'name', 'example', 'first_seen_at'])
    .select(({ fn }) => fn.countAll<number>().over().as('total'))
    .orderBy('first_seen_at', 'desc')
    .limit(MOST_DRIFT)
    .execute()
  return { notes: rows.map(({ total: _total, ...note }) => note), total: rows[0]?.total ?? 0 }
}

export async function readUnreconciled({ pool, opsSchema }: Warehouse): Promise<UnreconciledStatus[]> {
  const { rows } = await pool.query<UnreconciledStatus>(
    `select project_id, stream, count(*)::int as days, min(date) as first_day, max(date) as last_day,
       (array_agg(difference order by date desc))[1] as difference
     from ${quote(opsSchema, 'coverage')} where state = 'unreconciled' group by 1, 2 order by 1, 2`,
  )
  return rows
}

async function openQuarantine({ pool, opsSchema }: Warehouse): Promise<Status['quarantine']> {
  const { rows } = await pool.query<QuarantineStatus>(
    `select project_id, stream, sum(occurrences)::int as open,
       coalesce(sum(occurrences) filter (where from_date <> to_date), 0)::int as undated,
       min(from_date) filter (where from_date <> to_date) as undated_from,
       max(to_date) filter (where from_date <> to_date) as undated_to,
       min(first_seen_at) as oldest, min(reason) as example
     from ${quote(opsSchema, 'quarantine')} where resolved_at is null group by 1, 2 order by 1, 2`,
  )
  return rows
}

/**
 * How old days were when a re-read still changed them, over the last 60 days, counted from the last day of interest as the
 * lookback is. Changes that reach far back come from history being rewritten, which no lookback catches and the audit does, so
 * the oldest twentieth is left out.
 */
export async function readLookback(
  { pool, opsSchema }: Warehouse,
  { config, today }: Pick<StatusOptions, 'config' | 'today'>,
): Promise<Status['lookback']> {
  const { rows } = await pool.query<{ age: number | null }>(
    `select percentile_disc(0.95) within group (order by least((seen_at at time zone 'UTC')::date, $1::date) - date) as age
     from ${quote(opsSchema, 'restatements')} where seen_at > now() - interval '60 days' and date <= $1::date`,
    [daysOfInterest(config, today).to],
  )
  const age = rows[0]!.age
  const needed = age === null ? null : Number(age) + 1
  const configured = config.lookback_days
  return { configured_days: configured, needed_days: needed, too_short: needed !== null && needed > configured }
}
