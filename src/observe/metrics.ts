import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { LastEnd } from '../ledger/runs.ts'
import type { Status } from '../ledger/status.ts'
import type { QueueStatus } from '../queue/dead-windows.ts'
import type { BudgetView } from '../source/budget.ts'
import { isTriedAgain } from '../source/retry-policy.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { Observer } from '../sync/run/task.ts'
import type { DatabaseState } from '../warehouse/connect.ts'

export interface Metrics {
  observer: Observer
  began(ends: readonly LastEnd[]): void
  finished(report: Pick<RunReport, 'command' | 'seconds'> & { outcome: RunEnd }, at: Date): void
  text(state: State): Promise<string>
  contentType: string
}

/** How a run ended; `locked` if another one held the lock, so that it never began. */
export type RunEnd = RunReport['outcome'] | 'locked'

interface State {
  database: Pick<DatabaseState, 'up'>
  ledger: { status: LedgerStatus | undefined; queue: QueueStatus | undefined } | undefined
  ledgerAgeMs: number
  budgets: Map<string, BudgetView>
  /** By the database's clock. */
  now: Date
}

export const COMMANDS = ['sync', 'audit', 'backfill']
const ENDS: RunEnd[] = ['complete', 'partial', 'failed', 'interrupted', 'locked']
const EFFECTS = ['inserted', 'updated', 'deleted', 'unchanged', 'quarantined'] as const

type LedgerStatus = Pick<Status, 'streams' | 'quarantine'>

function namesIn(registry: Registry) {
  return <L extends string>(name: string, help: string, labelNames: L[]) => ({
    name: `visibility_sync_${name}`,
    help,
    labelNames,
    registers: [registry],
  })
}

/** Metrics that a server and a command both report. */
function lastingGauges(registry: Registry) {
  const named = namesIn(registry)
  const lastRun = new Gauge(named('last_run_timestamp_seconds', 'When a command last ended', ['command']))
  const lastRunSuccess = new Gauge(
    named('last_run_success', 'Whether the last run of a command was complete: 1 or 0', ['command']),
  )
  const lastSuccess = new Gauge(
    named('last_success_timestamp_seconds', 'When a run of a command was last complete', ['command']),
  )
  const lastRead = new Gauge(named('last_read_timestamp_seconds', 'When a stream was last read', ['project', 'stream']))
  const databaseUp = new Gauge(named('database_up', 'Whether the database answers: 1 or 0', []))
  const quarantined = new Gauge(named('quarantined_rows', 'Rows that wait in quarantine', ['project', 'stream']))
  const held = new Gauge(named('held_dates', 'Days whose answer is held for review', ['project', 'stream']))
  const unreconciled = new Gauge(
    named('unreconciled_dates', 'Days that do not add up to the totals of the service', ['project', 'stream']),
  )
  const missing = new Gauge(named('missing_dates', 'Days of interest that were never read', ['project', 'stream']))
  return {
    databaseUp,
    ofStreams: [quarantined, held, unreconciled, missing, lastRead],
    showEnd({ command, ended_at, outcome, completed_at }: Omit<LastEnd, 'outcome'> & { outcome: RunEnd }): void {
      lastRun.set({ command }, secondsOf(ended_at))
      lastRunSuccess.set({ command }, outcome === 'complete' ? 1 : 0)
      if (completed_at !== null) lastSuccess.set({ command }, secondsOf(completed_at))
    },
    showStatus({ streams, quarantine }: LedgerStatus): void {
      for (const { project_id: project, stream, last_read_at, ...days } of streams) {
        held.set({ project, stream }, days.days_held)
        unreconciled.set({ project, stream }, days.days_unreconciled)
        missing.set({ project, stream }, days.days_missing ?? 0)
        // A stream without bad rows is at 0, not absent.
        quarantined.set({ project, stream }, 0)
        if (last_read_at !== null) lastRead.set({ project, stream }, secondsOf(last_read_at))
      }
      for (const { project_id, stream, open } of quarantine) quarantined.set({ project: project_id, stream }, open)
    },
  }
}

export interface LastRun extends Pick<RunReport, 'command' | 'seconds' | 'streams'> {
  end: RunEnd
  endedAt: Date
}

export interface LedgerFigures {
  status: LedgerStatus
  ends: readonly LastEnd[]
}

export function lastRunText(run: LastRun, ledger: LedgerFigures | undefined): Promise<string> {
  const registry = new Registry()
  const named = namesIn(registry)
  const gauges = lastingGauges(registry)
  gauges.databaseUp.set(ledger === undefined ? 0 : 1)
  if (ledger !== undefined) gauges.showStatus(ledger.status)
  for (const end of ledger?.ends ?? []) gauges.showEnd(end)
  const { command, seconds, streams, end, endedAt } = run
  // Another run was at work, and reports its own end.
  if (end === 'locked') return registry.metrics()
  // This process knows better than the ledger: the run may have failed before it was in there.
  const known = ledger?.ends.find((other) => other.command === command)?.completed_at
  const completedAt = known ?? (end === 'complete' ? endedAt : null)
  gauges.showEnd({ command, ended_at: endedAt, outcome: end, completed_at: completedAt })
  new Gauge(named('last_run_seconds', 'How long the last run took', ['command'])).set({ command }, seconds)
  const rows = new Gauge(named('last_run_rows', 'Rows of the last run by what became of them', ['stream', 'effect']))
  const requests = new Gauge(named('last_run_requests', 'Requests of the last run, with those tried again', ['stream']))
  for (const report of streams) {
    const { stream } = report
    for (const effect of EFFECTS) rows.inc({ stream, effect }, report[effect])
    requests.inc({ stream }, report.requests)
  }
  return registry.metrics()
}

export function createMetrics(streams: readonly string[]): Metrics {
  const registry = new Registry()
  const named = namesIn(registry)
  const lasting = lastingGauges(registry)
  const runs = new Counter(named('runs_total', 'Runs by command and outcome', ['command', 'outcome']))
  const windows = new Counter(named('windows_total', 'Windows and lists that were loaded', ['stream']))
  const rows = new Counter(named('rows_total', 'Rows by what became of them', ['stream', 'effect']))
  const requests = new Counter(named('requests_total', 'Attempts of requests by HTTP status', ['status']))
  const retries = new Counter(named('retries_total', 'Failed attempts that are retried', []))
  const ledgerAge = new Gauge(
    named('ledger_age_seconds', 'Time since the ledger was read for the gauges of streams, queue and workers', []),
  )
  const budget = new Gauge(named('budget_remaining', 'Requests left in this minute, as the service says', ['project']))
  const staleness = new Gauge(named('staleness_seconds', 'Time since a stream was last read', ['project', 'stream']))
  const queued = new Gauge(named('queue_windows', 'Windows in the shared queue', ['state']))
  const queueAge = new Gauge(named('queue_oldest_seconds', 'Age of the oldest window that waits in the queue', []))
  const workers = new Gauge(named('workers', 'Workers with a recent heartbeat', []))
  const runSeconds = new Histogram({
    ...named('run_seconds', 'How long runs took', ['command']),
    buckets: [1, 5, 15, 60, 300, 900, 3600, 14_400],
  })
  const windowSeconds = new Histogram({
    ...named('window_seconds', 'How long windows and lists took, from asking to commit', ['stream']),
    buckets: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300],
  })

  // A rate sees the first failure only if there was a zero before it.
  for (const command of COMMANDS) for (const outcome of ENDS) runs.inc({ command, outcome }, 0)
  for (const stream of streams) {
    windows.inc({ stream }, 0)
    for (const effect of EFFECTS) rows.inc({ stream, effect }, 0)
  }

  const ended = new Set<string>()

  function showQueue({ waiting, active, dead, oldest, workers: alive }: QueueStatus, now: Date): void {
    queued.set({ state: 'waiting' }, waiting)
    queued.set({ state: 'active' }, active)
    queued.set({ state: 'dead' }, dead.length)
    queueAge.set(oldest === null ? 0 : secondsOf(now) - secondsOf(oldest))
    workers.set(alive.length)
  }

  return {
    observer: {
      advanced({ stream, effect, quarantined: bad, seconds }) {
        windows.inc({ stream })
        for (const [name, number] of Object.entries({ ...effect, quarantined: bad })) {
          if (number > 0) rows.inc({ stream, effect: name }, number)
        }
        windowSeconds.observe({ stream }, seconds)
      },
      onRequest(status) {
        requests.inc({ status: String(status ?? 'none') })
        if (isTriedAgain(status)) retries.inc()
      },
    },
    began(ends) {
      for (const end of ends) if (!ended.has(end.command)) lasting.showEnd(end)
    },
    finished({ command, outcome, seconds }, at) {
      runs.inc({ command, outcome })
      if (outcome === 'locked') return
      ended.add(command)
      runSeconds.observe({ command }, seconds)
      lasting.showEnd({ command, ended_at: at, outcome, completed_at: outcome === 'complete' ? at : null })
    },
    async text({ database, ledger, ledgerAgeMs, budgets, now }) {
      // What a look at the ledger found stays until the next one, with its age: if the database is away, gauges that
      // vanish would end the alerts on them.
      for (const gauge of [budget, staleness, ...lasting.ofStreams]) gauge.reset()
      lasting.databaseUp.set(database.up ? 1 : 0)
      ledgerAge.set(ledger === undefined ? Number.POSITIVE_INFINITY : ledgerAgeMs / 1000)
      for (const [project, view] of budgets) {
        if (view.remaining !== undefined) budget.set({ project }, view.remaining)
      }
      if (ledger?.status !== undefined) lasting.showStatus(ledger.status)
      for (const { project_id: project, stream, last_read_at } of ledger?.status?.streams ?? []) {
        if (last_read_at !== null) staleness.set({ project, stream }, secondsOf(now) - secondsOf(last_read_at))
      }
      if (ledger?.queue !== undefined) showQueue(ledger.queue, now)
      return registry.metrics()
    },
    contentType: registry.contentType,
  }
}

function secondsOf(date: Date): number {
  return date.getTime() / 1000
}
