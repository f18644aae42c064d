import { dayOf } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import { type Monotonic, sleep } from '../core/waiting.ts'
import { closeAbandonedRuns } from '../ledger/run-lock.ts'
import { readLookback, readStatus, type Status } from '../ledger/status.ts'
import { queueNameOf } from '../queue/boss.ts'
import { type QueueStatus, readQueueStatus } from '../queue/dead-windows.ts'
import { readBudgets } from '../queue/shared-budget.ts'
import type { DatabaseWatch } from '../schedule/database-watch.ts'
import type { BudgetView } from '../source/budget.ts'
import { streamKinds } from '../streams/registry.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import type { DatabaseState, Warehouse } from '../warehouse/connect.ts'
import type { SidePool } from '../warehouse/side-pool.ts'
import { Cache } from './cache.ts'
import { readLastRuns } from './run-summaries.ts'

interface ViewOptions {
  services: Services
  projects: SyncedProject[]
  pool: SidePool
  watch: DatabaseWatch
  monotonic: Monotonic
}

/** The state of the ledger at one time. */
export interface LedgerState {
  /** Undefined if nothing was ever synced. */
  status: Status | undefined
  /** Undefined if there never was a queue. */
  queue: QueueStatus | undefined
  /** Budgets that the service reported to the processes that share a queue. */
  budgets: Map<string, BudgetView>
  names: Map<string, string>
  /** By the monotonic clock. */
  at: number
}

const STATE_TTL_MS = 1000
const LAST_RUNS = 20
const MOST_HELD = 1000
const REFRESH_MS = 5000
// A large ledger is read less often: reading takes at most this share of the time.
const REFRESH_SHARE = 0.1
// Reading the lookback of a large ledger takes seconds, and the result hardly changes from hour to hour.
const LOOKBACK_TTL_MS = 600_000
const LOOKBACK_LIMIT_MS = 60_000

/** The data that the server shows. It reads over a few connections of its own. */
export class View {
  readonly services: Services
  readonly projects: SyncedProject[]
  /** Values that are valid until an action or the end of a run changes them. */
  readonly cache: Cache
  /** The state that was read last, however long ago. Probes and metrics are answered from it. */
  latest: LedgerState | undefined
  /** Values that no run changes. */
  private readonly lasting: Cache
  private readonly streams: ReturnType<typeof streamKinds>
  private lookback: Status['lookback']
  private closing: Promise<unknown> | undefined

  constructor(private readonly options: ViewOptions) {
    this.services = options.services
    this.projects = options.projects
    this.cache = new Cache(options.monotonic)
    this.lasting = new Cache(options.monotonic)
    const { config } = this.services
    this.streams = streamKinds(config)
    this.lookback = { configured_days: config.lookback_days, needed_days: null, too_short: false }
  }

  get database(): DatabaseState {
    return this.options.watch.state
  }

  /** Asks the database whether it answers. */
  lookAgain(): Promise<DatabaseState> {
    return this.options.watch.look()
  }

  now(): Date {
    return this.services.clock()
  }

  /** The database's time, to compare with times in the ledger. */
  ledgerNow(): Date {
    return this.options.watch.now()
  }

  ageMs({ at }: LedgerState): number {
    return this.options.monotonic() - at
  }

  /** One transaction: everything in it sees the same state. */
  read<T>(work: (warehouse: Warehouse) => Promise<T>): Promise<T> {
    return this.options.pool.read(work)
  }

  state(): Promise<LedgerState> {
    return this.cache.get('state', STATE_TTL_MS, () => this.readState())
  }

  /** Requests left of the present period. A period that has ended since it was reported says nothing. */
  budgets(state: LedgerState | undefined): Map<string, BudgetView> {
    const own = this.projects.map(({ id, caller }) => [id, this.services.client.budgetView(caller)] as const)
    // If other processes read the same projects, the latest report counts.
    const shared = [...(state?.budgets ?? [])].filter(([, { resetsInMs }]) => resetsInMs > this.ageMs(state!))
    return new Map([...own, ...shared])
  }

  names(state: LedgerState | undefined): { id: string; name: string }[] {
    return this.projects.map(({ id }) => ({ id, name: state?.names.get(id) ?? id }))
  }

  /** Reads the ledger now, however recently it was read. */
  async refresh(): Promise<void> {
    // Nobody waits for this: it may have to wait for the lock on the leases.
    this.closing ??= closeAbandonedRuns(this.services.warehouse)
      .catch(() => {})
      .finally(() => {
        this.closing = undefined
      })
    const { pool, services } = this.options
    const { config, clock } = services
    const options = { config, today: dayOf(clock()) }
    const read = () => pool.read((warehouse) => readLookback(warehouse, options), LOOKBACK_LIMIT_MS)
    // If this takes too long, the rest is read all the same.
    this.lookback = await this.lasting.get('lookback', LOOKBACK_TTL_MS, read).catch(() => this.lookback)
    await this.readState()
  }

  /** Refreshes `latest` until the signal is aborted. */
  async refreshUntil(signal: AbortSignal): Promise<void> {
    const { monotonic, services } = this.options
    while (!signal.aborted) {
      const begun = monotonic()
      if (this.database.up) {
        await this.refresh().catch((error: unknown) => {
          // The watch reports a database that is away.
          if (!signal.aborted && this.database.up)
            services.log.warn({ reason: messageOf(error) }, 'the ledger could not be read')
        })
      }
      const pause = Math.max(REFRESH_MS, (monotonic() - begun) / REFRESH_SHARE)
      await sleep(pause, signal).catch(() => {})
    }
  }

  private readState(): Promise<LedgerState> {
    const { config, clock, sourceAddress, streams } = this.services
    const projects = this.projects.map(({ id }) => id)
    return this.read(async (warehouse) => {
      const at = this.options.monotonic()
      const status = await readStatus(warehouse, {
        config,
        today: dayOf(clock()),
        projects,
        streams: this.streams,
        runs: LAST_RUNS,
        most: MOST_HELD,
        kept: { runs: (bound) => readLastRuns(bound, LAST_RUNS, this.lasting), lookback: () => this.lookback },
      })
      const queue = await readQueueStatus(warehouse, queueNameOf({ config, streams, sourceAddress, projects }))
      const budgets = config.queue.mode === 'none' ? new Map<string, BudgetView>() : await readBudgets(warehouse)
      const named = status && (await warehouse.db.selectFrom('data.projects').select(['project_id', 'name']).execute())
      const names = new Map(named?.map(({ project_id, name }) => [project_id, name ?? project_id]))
      const state = { status, queue, budgets, names, at }
      if (this.latest === undefined || this.latest.at <= at) this.latest = state
      return state
    })
  }
}
