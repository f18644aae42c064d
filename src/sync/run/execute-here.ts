import { monotonic } from '../../core/monotonic.ts'
import { applyResult } from './apply-result.ts'
import { performItem } from './perform-item.ts'
import { runConcurrently } from './run-concurrently.ts'
import type { ItemResult, Run } from './run-types.ts'
import { countRequest, nextItem, type Task, type WorkItem } from './task.ts'

/** Has all work items of the tasks done, and applies their results. */
export type Executor = (run: Run, tasks: readonly Task[]) => Promise<void>

/** Does everything in this process, so many windows and lists at once. */
export const executeHere: Executor = async (run, tasks) => {
  const suppliers = tasks.map((task) => ({
    next() {
      const item = nextItem(task)
      return item && (() => performHere(item).then(({ result, seconds }) => applyResult(item, result, seconds)))
    },
  }))
  await runConcurrently(suppliers, run.config.source.concurrency)
}

/** Does one window or list in this process. */
export async function performHere({ task, range }: WorkItem): Promise<{ result: ItemResult; seconds: number }> {
  const startedAt = monotonic()
  const { run, project, stream } = task
  const onAttempt = (status: number | undefined) => countRequest(task, status)
  const result = await performItem(run, { project, stream, range }, { signal: run.signal, onAttempt })
  return { result, seconds: (monotonic() - startedAt) / 1000 }
}
