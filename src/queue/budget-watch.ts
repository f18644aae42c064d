import { monotonic } from '../core/monotonic.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import { budgetWaitMs } from './shared-budget.ts'

// If a project's requests are spent for longer, windows of others go first.
const PATIENCE_MS = 3000
const PLENTY = 20
const ASK_MS = 1000

/** Tells, before a window is begun, whether its project has requests left. */
export class BudgetWatch {
  private readonly askedAt = new Map<string, number>()

  constructor(
    private readonly services: Services,
    /** If there is only one project, nothing can go first. */
    private readonly hasOthers: boolean,
  ) {}

  /** For how long the project should be left alone; zero where its next request goes soon. */
  async spentForMs({ id, caller }: SyncedProject): Promise<number> {
    if (!this.hasOthers) return 0
    const { client, warehouse, config } = this.services
    const { remaining, waits } = client.budgetView(caller)
    // While answers leave enough, what others spend is looked at once in a while only.
    const isPlenty = remaining === undefined ? waits === 0 : remaining > PLENTY
    const now = monotonic()
    if (isPlenty && now - (this.askedAt.get(id) ?? -ASK_MS) < ASK_MS) return 0
    this.askedAt.set(id, now)
    const waitMs = await budgetWaitMs(warehouse, id, config.source.requests_per_minute)
    return waitMs > PATIENCE_MS ? waitMs : 0
  }
}
