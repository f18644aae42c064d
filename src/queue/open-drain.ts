import type { Log } from '../core/logger.ts'
import type { Drain } from '../sync/run/tasks.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { openQueue, type Queue } from './boss.ts'
import { QueueDrain } from './queue-drain.ts'

/** Draining runs of this process through a queue, which is opened with the first of them. */
export function openDrain(warehouse: Warehouse, queueName: string, log: Log): { drain: Drain; close(): Promise<void> } {
  let opening: Promise<Queue> | undefined
  return {
    async drain(run, tasks) {
      opening ??= openQueue(warehouse, queueName, log, run.signal)
      const queue = await opening.catch((error: unknown) => {
        opening = undefined
        throw error
      })
      await new QueueDrain(run, tasks, queue).finish()
    },
    close: async () => (await opening?.catch(() => undefined))?.close(),
  }
}
