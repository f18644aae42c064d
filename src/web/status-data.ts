import type { Day, Range } from '../core/day.ts'
import { clip } from '../core/text.ts'
import type { CalendarDay, DayDetail, YearDay } from '../ledger/calendar.ts'
import type { RunRow } from '../ledger/runs.ts'
import type { ServerOptions } from './server-options.ts'
import type { LedgerState } from './view.ts'

/** The viewer of a page: undefined if nobody can sign in. `csrf` proves that a form comes from a page of this session. */
export type Viewer = { csrf: string | undefined } | undefined

export interface Notice {
  kind: 'good' | 'bad'
  text: string
}

export interface PageData {
  version: string
  viewer: Viewer
  notice: Notice | undefined
  /** By the database, which dates what is in the ledger. */
  ledgerNow: Date
}

export interface ListFilters {
  project: string | undefined
  stream: string | undefined
  projects: { id: string; name: string }[]
  streams: readonly string[]
}

export interface CalendarData {
  project: string
  streams: string[]
  range: Range
  /** The first day of interest: those before it are not missing. */
  first: Day
  /** Where the weeks after these end. */
  later: Day | undefined
  yearRange: Range
  day: Day | undefined
  /** The coverage; undefined while the database is away. */
  known: { days: CalendarDay[]; year: YearDay[]; detail: DayDetail | undefined } | undefined
}

interface StatusView extends PageData {
  self: string
  search: string | undefined
  calendar: CalendarData
}

export type StatusData = ReturnType<typeof statusData>

export function statusData(options: ServerOptions, state: LedgerState | undefined, about: StatusView) {
  const { view, warehouse, maxStalenessMs, live, next, failedToStart, alerts } = options
  return {
    ...about,
    now: view.now(),
    source: view.services.source,
    warehouse,
    maxStalenessMs,
    database: view.database,
    status: state?.status,
    queue: state?.queue,
    /** How long ago the ledger was read; undefined if it never was. */
    ledgerAgeMs: state && view.ageMs(state),
    budgets: view.budgets(state),
    projects: view.names(state),
    live: live.runs,
    next: next(),
    failedToStart: failedToStart(),
    alerts: alerts(),
  }
}

/* The answer of /api/status. Its lists have a limit; `totals` has their full lengths. */

const MOST_STREAMS = 500
const MOST_TROUBLES = 100
const MOST_FAILURES = 10

/** @param project whose lists are shown; undefined for those of all projects */
export function statusDocument(
  { view, warehouse, live, next, alerts, failedToStart }: ServerOptions,
  state: LedgerState | undefined,
  project: string | undefined,
): object {
  const { database } = view
  const { sync, audit } = next()
  const queue = state?.queue
  return {
    warehouse,
    database: { up: database.up, for_seconds: Math.round(database.forMs / 1000), reason: database.reason ?? null },
    as_of: state === undefined ? null : new Date(view.ledgerNow().getTime() - view.ageMs(state)),
    synced: state?.status !== undefined,
    ...lists(state, project),
    running: live.runs[0] ?? null,
    failed_to_start: failedToStart() ?? null,
    next_sync: sync ?? null,
    next_audit: audit ?? null,
    alerts: alerts(),
    queue:
      queue === undefined
        ? null
        : { ...queue, dead: queue.dead.slice(0, MOST_TROUBLES), dead_total: queue.dead.length },
  }
}

function lists(state: LedgerState | undefined, project: string | undefined): object {
  if (state?.status === undefined) return {}
  const { status } = state
  const mine = <T extends { project_id: string }>(list: readonly T[]) =>
    project === undefined ? list : list.filter(({ project_id }) => project_id === project)
  const { streams, held, unreconciled, quarantine, drift, totals, lookback, runs } = status
  const found = { streams: mine(streams), held: mine(held), quarantine: mine(quarantine), drift: mine(drift) }
  // It is not known how many entries of a list that was cut are one project's.
  const total = (name: keyof typeof found) => (status[name].length === totals[name] ? found[name].length : null)
  const own = { streams: total('streams'), held: total('held'), quarantine: total('quarantine'), drift: total('drift') }
  return {
    streams: found.streams.slice(0, MOST_STREAMS),
    held: found.held.slice(0, MOST_TROUBLES),
    unreconciled: mine(unreconciled).slice(0, MOST_TROUBLES),
    quarantine: found.quarantine.slice(0, MOST_TROUBLES).map((row) => ({ ...row, example: clip(row.example) })),
    drift: found.drift.slice(0, MOST_TROUBLES),
    totals: project === undefined ? totals : own,
    lookback,
    runs: runs.map(shortRun),
  }
}

/** A run whose summary is short enough; `status --json` shows all of it. */
function shortRun(run: RunRow): object {
  if (!Array.isArray(run.summary)) return run
  const short = (entry: Record<string, unknown>) => {
    const lists = ['failed', 'held', 'unreconciled', 'differing'].map((name) => {
      const list = entry[name]
      return Array.isArray(list) ? { [name]: list.slice(0, MOST_FAILURES), [`${name}_total`]: list.length } : {}
    })
    return Object.assign({}, entry, ...lists)
  }
  return { ...run, summary: run.summary.map(short) }
}
