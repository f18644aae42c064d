import { sql } from 'kysely'
import { DownError, messageOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { monotonic } from '../core/waiting.ts'
import { type BudgetStore, type BudgetView, createBudget, type RequestBudget } from '../source/budget.ts'
import { advanceAndWait, type BudgetState, limitOf, newBudgetState } from '../source/budget-state.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import type { Warehouse } from '../warehouse/connect.ts'

const MOST_CONFLICTS = 200
const BLOCK_SIZE = 10

interface Change {
  work: (state: BudgetState, now: number) => unknown
  resolve(result: unknown): void
  reject(error: unknown): void
}

/**
 * The state of one project's budget as a row of the warehouse, by the database's clock. A change is two round trips:
 * read, and write where nobody else wrote meanwhile. Concurrent changes of this process are combined.
 */
export class WarehouseBudgetStore implements BudgetStore {
  private waiting: Change[] = []
  private isRunning = false

  constructor(
    private readonly warehouse: Warehouse,
    private readonly projectId: string,
    private readonly perMinute: number,
  ) {}

  change<T>(work: (state: BudgetState, now: number) => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.waiting.push({ work, resolve: resolve as (result: unknown) => void, reject })
      if (!this.isRunning) void this.applyAll()
    })
  }

  async read(): Promise<{ state: BudgetState; version: number; now: number }> {
    const { rows } = await sql<{ state: BudgetState | null; version: number; now: number }>`
      select b.state, coalesce(b.version, 0)::int as version,
        (extract(epoch from clock_timestamp()) * 1000)::float8 as now
      from (select) one left join ops.request_budgets b on b.project_id = ${this.projectId}`.execute(this.warehouse.db)
    const { state, version, now } = rows[0]!
    // An older version wrote fewer fields.
    return { state: { ...newBudgetState(), ...state }, version, now }
  }

  private async applyAll(): Promise<void> {
    this.isRunning = true
    while (this.waiting.length > 0) {
      const batch = this.waiting.splice(0)
      try {
        const results = await this.apply(batch)
        for (const [index, { resolve }] of batch.entries()) resolve(results[index])
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.isRunning = false
  }

  private async apply(batch: readonly Change[]): Promise<unknown[]> {
    for (let conflicts = 0; ; conflicts++) {
      const { state, version, now } = await this.read()
      const before = JSON.stringify(state)
      const results = batch.map(({ work }) => work(state, now))
      const after = JSON.stringify(state)
      if (before === after || (await this.write(after, version))) return results
      if (conflicts >= MOST_CONFLICTS) throw new Error('the shared request budget is changed too often by others')
      await new Promise((next) => setTimeout(next, Math.random() * Math.min(20, 2 + conflicts)))
    }
  }

  /** False if somebody else wrote since the version was read. */
  private async write(state: string, version: number): Promise<boolean> {
    const values = { project_id: this.projectId, state, version: version + 1, per_minute: this.perMinute }
    const { numInsertedOrUpdatedRows } = await this.warehouse.db
      .insertInto('ops.request_budgets')
      .values(values)
      .onConflict((conflict) =>
        conflict.column('project_id').doUpdateSet(values).where('ops.request_budgets.version', '=', version),
      )
      .executeTakeFirstOrThrow()
    return numInsertedOrUpdatedRows === 1n
  }
}

/**
 * The request budget of one project, shared by every process that reads the project: all of them learn from the answers
 * that any of them gets. If the database cannot be asked, the process keeps to a budget of its own until it can.
 */
export function createSharedBudget(
  warehouse: Warehouse,
  projectId: string,
  { perMinute, owner, log }: { perMinute: number; owner: string; log: Log },
): RequestBudget {
  const alone = createBudget(perMinute)
  const store = new WarehouseBudgetStore(warehouse, projectId, perMinute)
  const shared = createBudget(perMinute, store, { owner, blockSize: BLOCK_SIZE })
  return {
    async acquire(wait) {
      try {
        return await shared.acquire(wait)
      } catch (error) {
        if (wait?.signal?.aborted || error instanceof DownError) throw error
        log.debug({ reason: messageOf(error) }, 'the shared budget cannot be asked; this process keeps to its own')
        return alone.acquire(wait)
      }
    },
    view: () => shared.view(),
  }
}

/** Requests of dead processes no longer count as in flight. */
export async function voidRequestsOf({ db }: Warehouse, owner: string): Promise<void> {
  await sql`
    update ops.request_budgets set state = state #- array['underWay', ${owner}], version = version + 1
    where state->'underWay' ? ${owner}`.execute(db)
}

/** As the service last reported to any process. */
export async function readBudgets({ db }: Warehouse): Promise<Map<string, BudgetView>> {
  const now = sql<number>`(extract(epoch from clock_timestamp()) * 1000)::float8`.as('now')
  const rows = await db.selectFrom('ops.request_budgets').select(['project_id', 'state', 'per_minute', now]).execute()
  return new Map(
    rows.map(({ project_id, state: stored, per_minute, now }) => {
      const state = { ...newBudgetState(), ...(stored as Partial<BudgetState>) }
      const resetsInMs = Math.max(0, state.resetBy - now)
      const remaining = state.remaining !== null && resetsInMs > 0 ? Math.max(0, state.remaining) : undefined
      return [project_id, { limit: limitOf(state, now, per_minute), remaining, resetsInMs, waits: 0 }]
    }),
  )
}

// If a project's requests are spent for longer, windows of others go first.
const PATIENCE_MS = 3000
const PLENTY = 20
const ASK_MS = 1000

/** Asked before a window is begun. */
export class BudgetWatch {
  private readonly askedAt = new Map<string, number>()

  constructor(
    private readonly services: Services,
    /** If there is only one project, nothing can go first. */
    private readonly hasOthers: boolean,
  ) {}

  /** Zero if the next request of the project goes soon. */
  async spentForMs({ id, caller }: SyncedProject): Promise<number> {
    if (!this.hasOthers) return 0
    const { client, warehouse, config } = this.services
    const { remaining, waits } = client.budgetView(caller)
    // While answers leave enough, what others spend is looked at once in a while only.
    const isPlenty = remaining === undefined ? waits === 0 : remaining > PLENTY
    const now = monotonic()
    if (isPlenty && now - (this.askedAt.get(id) ?? -ASK_MS) < ASK_MS) return 0
    this.askedAt.set(id, now)
    const perMinute = config.source.requests_per_minute
    const { state, now: at } = await new WarehouseBudgetStore(warehouse, id, perMinute).read()
    const waitMs = advanceAndWait(state, at, perMinute)
    return waitMs > PATIENCE_MS ? waitMs : 0
  }
}
