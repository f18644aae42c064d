import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { hasQueue, queueSchema, WINDOWS } from './boss.ts'
import { type DeadWindow, deadWindows } from './jobs.ts'
import { presentWorkers, type WorkerState } from './workers.ts'

/** The shared queue at a glance. */
export interface QueueStatus {
  workers: WorkerState[]
  /** Windows that nobody has begun, and those being worked at. */
  waiting: number
  active: number
  /** When the oldest window that waits was put in. */
  oldest: Date | null
  /** Windows that were given up after several attempts. */
  dead: DeadWindow[]
}

/** Undefined where this warehouse never had a queue. */
export async function readQueueStatus(warehouse: Warehouse): Promise<QueueStatus | undefined> {
  if (!(await hasQueue(warehouse))) return undefined
  const jobs = quote(queueSchema(warehouse), 'job')
  const [workers, counts, dead] = await Promise.all([
    presentWorkers(warehouse),
    warehouse.pool.query<{ waiting: number; active: number; oldest: Date | null }>(
      `select count(*) filter (where state < 'active') as waiting, count(*) filter (where state = 'active') as active,
         min(created_on) filter (where state < 'active') as oldest
       from ${jobs} where name = $1 and state <= 'active'`,
      [WINDOWS],
    ),
    deadWindows({ warehouse, jobs }),
  ])
  return { workers, ...counts.rows[0]!, dead }
}
