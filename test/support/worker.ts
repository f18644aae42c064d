import { randomUUID } from 'node:crypto'
import { openQueue } from '../../src/queue/boss.ts'
import { openQueueExecutor } from '../../src/queue/queue-executor.ts'
import { QueueWorker } from '../../src/queue/worker.ts'
import type { Executor } from '../../src/sync/run/execute.ts'
import type { Setup } from './setup.ts'

/** Does work whose windows are done by a worker, in this process. */
export async function withWorker<T>(
  { services, projects }: Setup,
  work: (execute: Executor) => Promise<T>,
): Promise<T> {
  const queue = await openQueue(services.warehouse, 'windows_test', services.log)
  const self = { id: randomUUID(), version: '', concurrency: 2, source: '', queue: queue.name }
  const worker = new QueueWorker(services, queue, self, projects)
  await worker.start()
  const { execute, close } = openQueueExecutor(services.warehouse, queue.name, services.log)
  try {
    return await work(execute)
  } finally {
    await close()
    await worker.stop()
    await queue.close()
  }
}
