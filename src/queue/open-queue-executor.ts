import type { Log } from '../core/logger.ts'
import type { Executor } from '../sync/run/execute-here.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { openQueue, type Queue } from './boss.ts'
import { QueueExecutor } from './queue-executor.ts'

/** Does the work of runs through a queue, which is opened with the first of them. */
export function openQueueExecutor(
  warehouse: Warehouse,
  queueName: string,
  log: Log,
): { execute: Executor; close(): Promise<void> } {
  let opening: Promise<Queue> | undefined
  return {
    async execute(run, tasks) {
      opening ??= openQueue(warehouse, queueName, log, run.signal)
      const queue = await opening.catch((error: unknown) => {
        opening = undefined
        throw error
      })
      await new QueueExecutor(run, tasks, queue).execute()
    },
    close: async () => (await opening?.catch(() => undefined))?.close(),
  }
}
