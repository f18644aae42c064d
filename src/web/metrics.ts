import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { BudgetView } from '../source/budget.ts'
import { isTriedAgain } from '../source/retry-delay.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { Observer } from '../sync/run/run-sync.ts'
import type { DatabaseState } from '../warehouse/database-state.ts'
import type { LedgerState } from './view.ts'

export interface Metrics {
  observer: Observer
  finished(report: Pick<RunReport, 'command' | 'seconds'> & { outcome: RunEnd }): void
  /** The text for Prometheus, with the state of the ledger as it was last read. */
  text(state: State): Promise<string>
  contentType: string
}

/** How a run ended; `locked` where another one held the lock, so that it never began. */
export type RunEnd = RunReport['outcome'] | 'locked'

/** What the gauges show. */
export interface State {
  database: DatabaseState
  /** Undefined where the ledger was never read. */
  ledger: LedgerState | undefined
  ledgerAgeMs: number
  budgets: Map<string, BudgetView>
  /** By the database's clock. */
  now: Date
}

const COMMANDS = ['sync', 'audit', 'backfill']
const ENDS: RunEnd[] = ['complete', 'partial', 'failed', 'interrupted', 'locked']

/** What an operator watches. docs/operations.md says what to do about each. */
export function createMetrics(): Metrics {
  const registry = new Registry()
  const named = <L extends string>(name: string, help: string, labelNames: L[]) => ({
    name: `visibility_sync_${name}`,
    help,
    labelNames,
    registers: [registry],
  })
  const runs = new Counter(named('runs_total', 'Runs by command and outcome', ['command', 'outcome']))
  const windows = new Counter(named('windows_total', 'Windows and lists that were loaded', ['stream']))
  const rows = new Counter(named('rows_total', 'Rows by what became of them', ['stream', 'effect']))
  const requests = new Counter(named('requests_total', 'Attempts of requests by HTTP status', ['status']))
  const retries = new Counter(named('retries_total', 'Attempts that failed in a way that is tried again', []))
  const databaseUp = new Gauge(named('database_up', 'Whether the database answers: 1 or 0', []))
  const ledgerAge = new Gauge(
    named('ledger_age_seconds', 'Time since the ledger was read for the gauges of streams, queue and workers', []),
  )
  const budget = new Gauge(named('budget_remaining', 'Requests left in this minute, as the service says', ['project']))
  const quarantined = new Gauge(named('quarantined_rows', 'Rows that wait in quarantine', ['project', 'stream']))
  const held = new Gauge(named('held_days', 'Days whose answer is held for review', ['project', 'stream']))
  const missing = new Gauge(named('missing_days', 'Days of interest that were never read', ['project', 'stream']))
  const staleness = new Gauge(named('staleness_seconds', 'Time since a stream was last read', ['project', 'stream']))
  const queued = new Gauge(named('queue_windows', 'Windows in the shared queue', ['state']))
  const queueAge = new Gauge(named('queue_oldest_seconds', 'Age of the oldest window that waits in the queue', []))
  const workers = new Gauge(named('workers', 'Workers that gave a sign of life lately', []))
  const runSeconds = new Histogram({
    ...named('run_seconds', 'How long runs took', ['command']),
    buckets: [1, 5, 15, 60, 300, 900, 3600, 14_400],
  })
  const windowSeconds = new Histogram({
    ...named('window_seconds', 'How long windows and lists took, from asking to commit', ['stream']),
    buckets: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300],
  })

  // A rate sees the first failure only where there was a zero before it.
  for (const command of COMMANDS) for (const outcome of ENDS) runs.inc({ command, outcome }, 0)

  return {
    observer: {
      advanced({ stream, effect, quarantined: bad, seconds }) {
        windows.inc({ stream })
        for (const [name, number] of Object.entries({ ...effect, quarantined: bad })) {
          if (number > 0) rows.inc({ stream, effect: name }, number)
        }
        windowSeconds.observe({ stream }, seconds)
      },
      asked(status) {
        requests.inc({ status: String(status ?? 'none') })
        if (isTriedAgain(status)) retries.inc()
      },
    },
    finished({ command, outcome, seconds }) {
      runs.inc({ command, outcome })
      runSeconds.observe({ command }, seconds)
    },
    async text({ database, ledger, ledgerAgeMs, budgets, now }) {
      // What a look at the ledger found stays until the next one, with its age: where the database is away, gauges that
      // vanish would end the alerts on them.
      for (const gauge of [budget, quarantined, held, missing, staleness]) gauge.reset()
      databaseUp.set(database.up ? 1 : 0)
      ledgerAge.set(ledger === undefined ? Number.POSITIVE_INFINITY : ledgerAgeMs / 1000)
      for (const [project, view] of budgets) {
        if (view.remaining !== undefined) budget.set({ project }, view.remaining)
      }
      for (const row of ledger?.status?.streams ?? []) {
        const labels = { project: row.project_id, stream: row.stream }
        held.set(labels, row.days_held)
        missing.set(labels, row.days_missing ?? 0)
        if (row.last_read_at !== null) staleness.set(labels, (now.getTime() - row.last_read_at.getTime()) / 1000)
      }
      for (const row of ledger?.status?.quarantine ?? [])
        quarantined.set({ project: row.project_id, stream: row.stream }, row.open)
      const queue = ledger?.queue
      if (queue !== undefined) {
        queued.set({ state: 'waiting' }, queue.waiting)
        queued.set({ state: 'active' }, queue.active)
        queued.set({ state: 'dead' }, queue.dead.length)
        queueAge.set(queue.oldest === null ? 0 : (now.getTime() - queue.oldest.getTime()) / 1000)
        workers.set(queue.workers.length)
      }
      return registry.metrics()
    },
    contentType: registry.contentType,
  }
}
