import { monotonic } from '../core/monotonic.ts'
import { streamsOf } from '../streams/registry.ts'
import type { Services, SyncedProject } from '../sync/context.ts'
import type { SharedQueue } from '../sync/shared-queue.ts'
import { withRetries } from '../warehouse/retry.ts'
import { type Boss, openBoss } from './boss.ts'
import { Drain } from './drain.ts'
import { QueueWorker } from './worker.ts'
import { projectsInHand } from './workers.ts'

const LOOK_MS = 2000

/** Opens the queue for runs of this process: they put their windows in, and wait for what becomes of them. */
export function sharedQueue(services: Services, projects: readonly SyncedProject[]): SharedQueue & Closable {
  let opening: Promise<Boss> | undefined
  // Runs side by side share one worker, which does what nobody else can, and all where others do not get on.
  const drains = new Set<Drain>()
  let worker: QueueWorker | undefined
  const streams = streamsOf(services.config).map(({ name }) => name)
  let lookedAt = Number.NEGATIVE_INFINITY
  let left = projects
  const projectsLeft = async () => {
    if ([...drains].some((drain) => drain.needsHelp())) return projects
    if (monotonic() - lookedAt < LOOK_MS) return left
    const inHand = await projectsInHand(services.warehouse, services.source, streams)
    lookedAt = monotonic()
    left = projects.filter(({ id }) => !inHand.has(id))
    return left
  }
  return {
    async drain(run, tasks) {
      opening ??= withRetries(run.warehouse, run.signal, () => openBoss(services.warehouse, services.log))
      const boss = await opening.catch((error: unknown) => {
        opening = undefined
        throw error
      })
      const drain = new Drain(run, tasks, boss)
      drains.add(drain)
      if (worker === undefined) {
        const { concurrency } = services.config.source
        worker = new QueueWorker(services, boss, { concurrency, projects, projectsLeft, hasLastWord: true })
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
