import { sql } from 'kysely'
import { type Config, daysOfInterest } from '../core/config/load.ts'
import type { Day } from '../core/day.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { runQuery } from '../warehouse/schema/sql-files.ts'
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

function streamStatus(
  warehouse: Warehouse,
  { config, today, projects, streams }: StatusOptions,
): Promise<StreamStatus[]> {
  const { from, to } = daysOfInterest(config, today)
  const [names, tables] = [streams.map(({ name }) => name), streams.map(({ table }) => table)]
  const isDated = streams.map(({ by }) => by === 'day')
  const values = [from, to < today ? to : today, projects, names, isDated, tables, warehouse.schema]
  return runQuery(warehouse, 'stream_status', values)
}

export async function readHeld(warehouse: Warehouse, most?: number): Promise<{ ranges: HeldStatus[]; total: number }> {
  const { ranges, total } = await readReviewed(warehouse, most)
  return { ranges: ranges.map((range) => ({ ...range, accept: acceptCommand(range, ranges) })), total }
}

const PROGRAM = 'npx visibility-sync '

/** A command without the name of the program. */
export function wordsOf(command: string): string {
  return command.replace(PROGRAM, '')
}

/** Names the streams, unless there are several and all that is held of the project is held on the same days. */
function acceptCommand({ project_id, from, to }: ReviewedRange, all: readonly ReviewedRange[]): string {
  const ofProject = all.filter((other) => other.project_id === project_id)
  const sameDays = ofProject.filter((other) => other.from === from && other.to === to)
  const isAll = sameDays.length > 1 && sameDays.length === ofProject.length
  const streams = isAll ? [] : sameDays.map(({ stream }) => ` --stream ${stream}`)
  return `${PROGRAM}backfill --from ${from} --to ${to}${streams.join('')} --project ${project_id} --accept-deletes`
}

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
    from ops.quarantine where resolved_at is null group by 1, 2 order by 1, 2`.execute(db)
  return rows
}

/** Changes of older days come from history being rewritten: no lookback catches them, and the history check does. */
const OLDEST_CHANGE = 30

/**
 * How old days were when a re-read still changed them, over the last 60 days, counted from the last day of interest as the
 * lookback is. The oldest twentieth is left out.
 */
export async function readLookback(
  { db }: Warehouse,
  { config, today }: Pick<StatusOptions, 'config' | 'today'>,
): Promise<Status['lookback']> {
  const last = daysOfInterest(config, today).to
  const { rows } = await sql<{ age: number | null }>`
    select percentile_disc(0.95) within group (order by age) as age
    from (
      select least((seen_at at time zone 'UTC')::date, ${last}::date) - date as age
      from ops.restatements where seen_at > now() - interval '60 days' and date <= ${last}::date
    ) changes
    where age <= ${OLDEST_CHANGE}`.execute(db)
  const { age } = rows[0]!
  const needed_days = age === null ? null : Number(age) + 1
  const configured_days = config.lookback_days
  return { configured_days, needed_days, too_short: needed_days !== null && needed_days > configured_days }
}
