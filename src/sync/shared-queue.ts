import type { Run } from './context.ts'
import type { Task } from './tasks.ts'

/** A queue that any number of processes work at. What it hands out and what comes back is what one process would do. */
export interface SharedQueue {
  /** Has everything done that the tasks have to do, by whoever is about, and settles it. */
  drain(run: Run, tasks: readonly Task[]): Promise<void>
}
