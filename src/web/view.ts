import { daysOfInterest } from '../core/config/load.ts'
import { dayOf } from '../core/day.ts'
import { type OpenAlert, openAlerts } from '../ledger/alerts.ts'
import { closeAbandonedRuns } from '../ledger/locks.ts'
import { readStatus, type Status } from '../ledger/status.ts'
import { queueNameOf } from '../queue/queue-name.ts'
import { readBudgets } from '../queue/shared-budget.ts'
import { type QueueStatus, readQueueStatus } from '../queue/status.ts'
import type { BudgetView } from '../source/budget.ts'
import { streamsOf } from '../streams/registry.ts'
import type { Services, SyncedProject } from '../sync/context.ts'

/** What is looked at often is worked out once in so many milliseconds, however many look. */
const FRESH_MS = 1000
const LAST_RUNS = 20

/** The state of the warehouse as the server shows it. */
export interface View {
  services: Services
  projects: SyncedProject[]
  status(): Promise<Status | undefined>
  alerts(): Promise<OpenAlert[]>
  budgets(): Promise<Map<string, BudgetView>>
  /** Undefined where there never was a queue. */
  queue(): Promise<QueueStatus | undefined>
  now(): Date
}

export function createView(services: Services, projects: SyncedProject[]): View {
  const { warehouse, config, clock, client } = services
  const status = remembered(clock, async () => {
    const today = dayOf(clock())
    await closeAbandonedRuns(warehouse)
    return readStatus(warehouse, {
      interest: daysOfInterest(config, today),
      today,
      lookbackDays: config.lookback_days,
      projects: projects.map(({ id }) => id),
      streams: streamsOf(config),
      runs: LAST_RUNS,
    })
  })
  const ids = projects.map(({ id }) => id)
  const queue = queueNameOf({ config, sourceAddress: services.sourceAddress, projects: ids })
  return {
    services,
    projects,
    status,
    alerts: remembered(clock, () => openAlerts(warehouse)),
    async budgets() {
      const own = new Map(projects.map(({ id, caller }) => [id, client.budgetView(caller)]))
      // Where others read the same projects, what they were told last counts.
      return config.queue.mode === 'none' ? own : new Map([...own, ...(await readBudgets(warehouse))])
    },
    queue: remembered(clock, () => readQueueStatus(warehouse, queue)),
    now: clock,
  }
}

/** One question at a time to the database: those who ask meanwhile get the same answer. */
export function remembered<T>(clock: () => Date, read: () => Promise<T>): () => Promise<T> {
  let known: { at: number; value: Promise<T> } | undefined
  return () => {
    const now = clock().getTime()
    if (known === undefined || now - known.at >= FRESH_MS) {
      const value = read()
      value.catch(() => {
        known = undefined
      })
      known = { at: now, value }
    }
    return known.value
  }
}
