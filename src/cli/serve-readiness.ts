import { messageOf } from '../core/errors.ts'
import { readLastEnds } from '../ledger/runs.ts'
import { claimSource } from '../ledger/source.ts'
import { ENDED } from '../observe/findings.ts'
import { COMMANDS } from '../observe/metrics.ts'
import type { DatabaseState } from '../warehouse/connect.ts'
import { applyLabels, applyOwnBrands } from '../warehouse/load/own-brands.ts'
import { isTransient } from '../warehouse/retry.ts'
import { migrate } from '../warehouse/schema/migrate.ts'
import type { ServeParts } from './serve-runs.ts'

// Somebody has to repair a database that answers but cannot be used.
const TRY_AGAIN_MS = 30_000

/** Makes the database ready, at the start of `serve` and whenever it is back. */
export class Readiness {
  /** False from when the database goes away until its tables were checked again. */
  isReady = false
  private making: Promise<void> | undefined
  private notBefore = 0

  constructor(private readonly parts: ServeParts) {}

  /** Makes the database ready; false if it is away, so that waiting may help. Anything else ends the command. */
  async begin(): Promise<boolean> {
    const { up, mayPass } = await this.parts.watch.look()
    if (!up && mayPass) return false
    try {
      await this.make()
      return true
    } catch (error) {
      if (isTransient(error)) return false
      throw error
    }
  }

  /** Makes a database that came back ready, and then calls `onReady`. */
  databaseSeen({ up }: DatabaseState, onReady: () => Promise<void>): void {
    const { log, monotonic } = this.parts.session
    if (!up) this.isReady = false
    if (!up || this.isReady || this.making !== undefined || monotonic() < this.notBefore) return
    this.making = this.make()
      .then(onReady)
      .catch((error: unknown) => {
        this.notBefore = monotonic() + TRY_AGAIN_MS
        log.error({ reason: messageOf(error) }, 'the database cannot be used yet')
      })
      .finally(() => {
        this.making = undefined
      })
  }

  private async make(): Promise<void> {
    const { session, open, view, alerts, metrics } = this.parts
    const { config } = session
    const ids = open.projects.map(({ id }) => id)
    // A database that answers but refuses us is reported with its reason.
    await open.warehouse.check()
    await migrate(open.warehouse, config)
    await claimSource(open.warehouse, open.sourceAddress)
    await applyLabels(open.warehouse, ids, config.labels)
    await applyOwnBrands(open.warehouse, ids, config.labels)
    metrics.began(await readLastEnds(open.warehouse, COMMANDS))
    this.isReady = true
    await view.refresh().catch(() => {})
    await alerts.update({ database: ENDED })
    await alerts.reconcile()
  }
}
