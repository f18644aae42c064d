import type { Services, SyncedProject } from '../sync/context.ts'
import type { SharedQueue } from '../sync/shared-queue.ts'
import { withRetries } from '../warehouse/retry.ts'
import { type Boss, openBoss } from './boss.ts'
import { Drain } from './drain.ts'
import { QueueWorker } from './worker.ts'
import { areWorkersAbout } from './workers.ts'

/** Opens the queue for runs of this process: they put their windows in, and wait for what becomes of them. */
export function sharedQueue(services: Services, projects: readonly SyncedProject[]): SharedQueue & Closable {
  let opening: Promise<Boss> | undefined
  // Runs side by side share one worker, which works where nobody else does, or where others do not get on.
  const drains = new Set<Drain>()
  let worker: QueueWorker | undefined
  const mayWork = async () =>
    [...drains].some((drain) => drain.needsHelp()) || !(await areWorkersAbout(services.warehouse))
  return {
    async drain(run, tasks) {
      opening ??= withRetries(run.signal, () => openBoss(services.warehouse, services.log))
      const boss = await opening.catch((error: unknown) => {
        opening = undefined
        throw error
      })
      const drain = new Drain(run, tasks, boss)
      drains.add(drain)
      if (worker === undefined) {
        const { concurrency } = services.config.source
        worker = new QueueWorker(services, boss, { concurrency, projects, mayWork, hasLastWord: true })
        worker.start()
      }
      try {
        await drain.finish()
      } finally {
        drains.delete(drain)
        if (drains.size === 0) {
          const last = worker
          worker = undefined
          await last.stop()
        }
        await drain.leave()
      }
    },
    close: async () => (await opening?.catch(() => undefined))?.close(),
  }
}

interface Closable {
  close(): Promise<void>
}
