import { daysOfInterest } from '../core/config/load.ts'
import { type Day, dayOf, type Range } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import type { Monotonic } from '../core/monotonic.ts'
import { sleep } from '../core/sleep.ts'
import type { OpenAlert } from '../ledger/alert-policy.ts'
import { type CalendarDay, readCalendar, readYear, type YearDay } from '../ledger/calendar.ts'
import { type DayDetail, readDay } from '../ledger/day-detail.ts'
import {
  groupQuarantine,
  listQuarantine,
  type QuarantineEntry,
  type QuarantineFilter,
  type QuarantineGroup,
} from '../ledger/quarantine.ts'
import {
  changesOfRun,
  type RestatementFilter,
  type RestatementReport,
  type RunChange,
  readRestatements,
} from '../ledger/restatement-report.ts'
import { closeAbandonedRuns } from '../ledger/run-lock.ts'
import { findRun, type RunDetail } from '../ledger/runs.ts'
import { type HeldStatus, isHeld, readLookback, readStatus, type Status } from '../ledger/status.ts'
import type { Alerts } from '../observe/alerts.ts'
import { queueNameOf } from '../queue/queue-name.ts'
import { readBudgets } from '../queue/shared-budget.ts'
import { type QueueStatus, readQueueStatus } from '../queue/status.ts'
import type { DatabaseWatch } from '../schedule/database-watch.ts'
import type { BudgetView } from '../source/budget.ts'
import { streamKinds } from '../streams/registry.ts'
import type { Services, SyncedProject } from '../sync/run/run-types.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { DatabaseState } from '../warehouse/database-state.ts'
import type { SidePool } from '../warehouse/side-pool.ts'
import { Cached } from './cached.ts'
import { RunMemory } from './run-memory.ts'

export interface ViewOptions {
  services: Services
  projects: SyncedProject[]
  pool: SidePool
  watch: DatabaseWatch
  alerts: Alerts
  monotonic: Monotonic
}

/** The state of the ledger at one moment. */
export interface LedgerState {
  /** Undefined if nothing was ever synced. */
  status: Status | undefined
  /** Undefined if there never was a queue. */
  queue: QueueStatus | undefined
  /** What the service reported to the processes that share a queue. */
  budgets: Map<string, BudgetView>
  names: Map<string, string>
  /** By the monotonic clock. */
  at: number
}

const FRESH_MS = 1000
const CALENDARS = 64
// A year of twelve streams is more than four thousand days.
const YEAR_FRESH_MS = 5000
const MOST_CHANGES = 60
const LAST_RUNS = 20
const MOST_HELD = 1000
// Probes and metrics are answered from what was read last; what takes long to read is read less often.
const REFRESH_MS = 5000
const REFRESH_SHARE = 20
const LONGEST_REFRESH_MS = 60_000
// How old days were when they still changed differs little from one hour to the next, and takes long to find out.
const LOOKBACK_MS = 600_000
const LOOKBACK_SHARE = 100
const LOOKBACK_LIMIT_MS = 60_000
const CLOSE_ABANDONED_MS = 10_000

/** What the server shows. Everything is read over a few connections of its own, and once for all who look. */
export class View {
  readonly services: Services
  readonly projects: SyncedProject[]
  /** As it was last read, however long ago. */
  latest: LedgerState | undefined
  /** Higher after each time that what was read before counts no more. */
  generation = 0
  private readonly states: Cached<LedgerState>
  private readonly calendars: Cached<CalendarDay[]>
  private readonly years: Cached<YearDay[]>
  private readonly days: Cached<DayDetail>
  private readonly runs = new RunMemory(LAST_RUNS)
  private readonly streams: { name: string; by: 'day' | 'list' }[]
  private lookback: Status['lookback']
  private lookbackDueAt = 0
  private closing = false
  private closeDueAt = 0

  constructor(private readonly options: ViewOptions) {
    this.services = options.services
    this.projects = options.projects
    const { monotonic } = options
    this.streams = streamKinds(this.services.config)
    this.states = new Cached({ monotonic, freshMs: FRESH_MS, most: 1 })
    this.calendars = new Cached({ monotonic, freshMs: FRESH_MS, most: CALENDARS })
    this.years = new Cached({ monotonic, freshMs: YEAR_FRESH_MS, most: CALENDARS })
    this.days = new Cached({ monotonic, freshMs: FRESH_MS, most: CALENDARS })
    this.lookback = { configured_days: this.services.config.lookback_days, needed_days: null, too_short: false }
  }

  get database(): DatabaseState {
    return this.options.watch.state
  }

  /** Whether the database answers now, if there is a doubt. */
  lookAgain(): Promise<DatabaseState> {
    return this.options.watch.look()
  }

  get alerts(): OpenAlert[] {
    return this.options.alerts.open
  }

  now(): Date {
    return this.services.clock()
  }

  /** To compare with what the ledger wrote down. */
  ledgerNow(): Date {
    return this.options.watch.now()
  }

  ageMs({ at }: LedgerState): number {
    return this.options.monotonic() - at
  }

  /** The state of the ledger, not older than a second. */
  state(): Promise<LedgerState> {
    return this.states.get('', () => this.readState())
  }

  calendar(project: string, streams: readonly string[], range: Range): Promise<CalendarDay[]> {
    return this.calendars.get(`${project} ${range.to}`, () =>
      this.options.pool.read((warehouse) => readCalendar(warehouse, project, streams, range)),
    )
  }

  /** For the insights, which have their own cache. */
  insights<T>(read: (warehouse: Warehouse) => Promise<T>): Promise<T> {
    return this.options.pool.read(read)
  }

  year(project: string, streams: readonly string[], range: Range): Promise<YearDay[]> {
    return this.years.get(`${project} ${range.to}`, () =>
      this.options.pool.read((warehouse) => readYear(warehouse, project, streams, range)),
    )
  }

  day(project: string, streams: readonly string[], day: Day): Promise<DayDetail> {
    return this.days.get(`${project} ${day}`, () =>
      this.options.pool.read((warehouse) => readDay(warehouse, project, streams, day)),
    )
  }

  run(id: number): Promise<RunDetail | undefined> {
    return this.options.pool.read((warehouse) => findRun(warehouse, id))
  }

  /** A run, and what it found changed. */
  runWithChanges(id: number): Promise<{ run: RunDetail; changes: { days: RunChange[]; total: number } } | undefined> {
    return this.options.pool.read(async (warehouse) => {
      const run = await findRun(warehouse, id)
      return run && { run, changes: await changesOfRun(warehouse, run, MOST_CHANGES) }
    })
  }

  /** What waits in quarantine by reason, and one entry of each. */
  quarantine(filter: QuarantineFilter): Promise<{ groups: QuarantineGroup[]; examples: QuarantineEntry[] }> {
    return this.options.pool.read(async (warehouse) => {
      const groups = await groupQuarantine(warehouse, filter)
      const ids = groups.map(({ example_id }) => example_id)
      const examples = ids.length === 0 ? [] : await listQuarantine(warehouse, { ids, state: 'all' })
      return { groups, examples }
    })
  }

  async quarantineEntry(id: number): Promise<QuarantineEntry | undefined> {
    const [entry] = await this.options.pool.read((warehouse) => listQuarantine(warehouse, { ids: [id], state: 'all' }))
    return entry
  }

  restatements(filter: RestatementFilter): Promise<RestatementReport> {
    return this.options.pool.read((warehouse) => readRestatements(warehouse, filter))
  }

  isHeld(range: Pick<HeldStatus, 'project_id' | 'stream' | 'from' | 'to'>): Promise<boolean> {
    return this.options.pool.read((warehouse) => isHeld(warehouse, range))
  }

  /** After an action or a run, so that the next look sees what it came to. */
  forget(): void {
    this.generation++
    for (const cache of [this.states, this.calendars, this.years, this.days]) cache.forget()
  }

  budgets(shared: LedgerState | undefined): Map<string, BudgetView> {
    const { client } = this.services
    const own = this.projects.map(({ id, caller }) => [id, client.budgetView(caller)] as const)
    // If others read the same projects, the latest report counts.
    return new Map([...own, ...(shared?.budgets ?? [])])
  }

  names({ names }: LedgerState): { id: string; name: string }[] {
    return this.projects.map(({ id }) => ({ id, name: names.get(id) ?? id }))
  }

  /** Reads the ledger now, however recently it was read. */
  async refresh(): Promise<void> {
    this.closeAbandoned()
    // It may take too long; the rest is read all the same.
    await this.readLookback().catch(() => {})
    await this.readState()
  }

  /** Keeps what is known of the ledger current, for those who cannot wait. */
  async follow(signal: AbortSignal): Promise<void> {
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
      const took = monotonic() - begun
      const pause = Math.min(Math.max(REFRESH_MS, took * REFRESH_SHARE), LONGEST_REFRESH_MS)
      await sleep(pause, signal).catch(() => {})
    }
  }

  /** Runs whose process died show as such a little later. Nobody waits for it: it may have to wait for the lock on the leases. */
  private closeAbandoned(): void {
    const { monotonic, services } = this.options
    if (this.closing || monotonic() < this.closeDueAt) return
    this.closing = true
    this.closeDueAt = monotonic() + CLOSE_ABANDONED_MS
    void closeAbandonedRuns(services.warehouse)
      .catch(() => {})
      .finally(() => {
        this.closing = false
      })
  }

  private readState(): Promise<LedgerState> {
    const { config, clock, sourceAddress } = this.services
    const { monotonic, pool } = this.options
    return pool.read(async (warehouse) => {
      const at = monotonic()
      const today = dayOf(clock())
      const status = await readStatus(warehouse, {
        interest: daysOfInterest(config, today),
        today,
        lookbackDays: config.lookback_days,
        projects: this.projects.map(({ id }) => id),
        streams: this.streams,
        runs: LAST_RUNS,
        most: MOST_HELD,
        kept: { runs: (bound) => this.runs.read(bound), lookback: () => this.lookback },
      })
      const ids = this.projects.map(({ id }) => id)
      const queue = await readQueueStatus(
        warehouse,
        queueNameOf({ config, streams: this.services.streams, sourceAddress, projects: ids }),
      )
      const budgets = config.queue.mode === 'none' ? new Map<string, BudgetView>() : await readBudgets(warehouse)
      const named =
        status === undefined
          ? []
          : await warehouse.tables.selectFrom('projects').select(['project_id', 'name']).execute()
      const names = new Map(named.map(({ project_id, name }) => [project_id, name ?? project_id]))
      const state = { status, queue, budgets, names, at }
      if (this.latest === undefined || this.latest.at <= at) this.latest = state
      return state
    })
  }

  private async readLookback(): Promise<void> {
    const { pool, monotonic, services } = this.options
    if (monotonic() < this.lookbackDueAt) return
    const begun = monotonic()
    const read = pool.read((warehouse) => readLookback(warehouse, services.config.lookback_days), LOOKBACK_LIMIT_MS)
    try {
      this.lookback = await read
    } finally {
      this.lookbackDueAt = monotonic() + Math.max(LOOKBACK_MS, LOOKBACK_SHARE * (monotonic() - begun))
    }
  }
}
