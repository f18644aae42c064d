import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { hasQueue } from './boss.ts'
import { type DeadWindow, readDeadWindows } from './dead-windows.ts'
import { liveWorkers, type WorkerState } from './workers.ts'

/** The shared queue at a glance. */
export interface QueueStatus {
  /** The queue of the present configuration. */
  queue: string
  /** `is_current` is false for workers of another configuration: they do nothing for the runs of this one. */
  workers: (WorkerState & { is_current: boolean })[]
  /** Windows that nobody has begun, and those being worked at. */
  waiting: number
  active: number
  /** When the oldest window that waits was put in. */
  oldest: Date | null
  /** Windows that were given up after several attempts. */
  dead: DeadWindow[]
}

/** Undefined if this warehouse never had a queue. */
export async function readQueueStatus(warehouse: Warehouse, queue: string): Promise<QueueStatus | undefined> {
  if (!(await hasQueue(warehouse))) return undefined
  const [workers, counts, dead] = await Promise.all([
    liveWorkers(warehouse),
    warehouse.pool.query<{ waiting: number; active: number; oldest: Date | null }>(
      `select count(*) filter (where state = 'queued') as waiting, count(*) filter (where state = 'taken') as active,
         min(queued_at) filter (where state = 'queued') as oldest
       from ${quote(warehouse.opsSchema, 'run_windows')}`,
    ),
    readDeadWindows(warehouse),
  ])
  const known = workers.map((worker) => ({ ...worker, is_current: worker.queue === queue }))
  return { queue, workers: known, ...counts.rows[0]!, dead }
}
