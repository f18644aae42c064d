import type { Range } from '../../core/day.ts'
import { InterruptedError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import type { SizedWindow } from '../plan/answer-sizes.ts'
import { countRows, rowsIn } from '../read/count-rows.ts'
import type { FailedItem, ItemResult, PageFacts, Run } from './context.ts'
import { failureOf } from './perform-item.ts'
import { countRequest, failItem, type Task, taskKey } from './task.ts'

/** Decides, by what reading found out about pages, which windows passed for complete and are to be read again. */
export function learnPages(
  { task, range }: { task: Task; range: Range },
  result: Extract<ItemResult, PageFacts>,
): void {
  const { limit, answers } = task.run
  const { tasks } = task.board
  const window = { task: taskKey(task), range }
  // If another process read it, its answer is seen here for the first time.
  const rows = result.cappedAt ?? (result.kind === 'split' ? result.pageLimit : (result.pageRows ?? 0))
  answers.add(task.stream.name, rows)
  if (limit.lowerTo(result.pageLimit)) requeue(tasks, answers.removeFrom(result.pageLimit))
  if (result.cappedAt !== undefined) {
    limit.lowerTo(result.cappedAt)
    requeue(tasks, answers.removeEqual(result.cappedAt))
  }
  if (result.kind !== 'loaded' || result.pageRows === undefined) return
  if (result.pageRows >= limit.current) requeue(tasks, [window])
  else answers.addComplete(window, result.pageRows)
}

/**
 * A service that caps all answers at a number that nobody would guess shows it in the largest one: if that is whole, so
 * are the smaller ones. A range with more rows is asked for; if its answer is larger, none was capped at that number.
 * Otherwise the window is read once more in two halves; true if they have more rows, and the windows that were capped are
 * to be read again.
 */
export async function findCap(run: Run, tasks: ReadonlyMap<string, Task>): Promise<boolean> {
  const largest = run.answers.largest()
  if (largest === undefined || run.signal.aborted) return false
  const { rows, windows } = largest
  const window = windows[0]!
  const task = tasks.get(window.task)
  if (task?.stream.by !== 'day' || task.remaining.kind !== 'windows') return false
  const request = { caller: task.project.caller, stream: task.stream, range: window.range }
  const longer = task.remaining.feed.longerThan(window.range)
  const context = { signal: run.signal, onAttempt: (status: number | undefined) => countRequest(task, status) }
  const startedAt = monotonic()
  try {
    const served = longer === undefined ? 0 : await rowsIn(run, { ...request, range: longer }, context)
    run.answers.add(task.stream.name, served)
    if (served > rows) return false
    const counted = await countRows(run, request, context)
    const isCapped = counted > rows
    if (isCapped) {
      run.limit.lowerTo(rows)
      requeue(tasks, run.answers.removeEqual(rows))
    } else run.answers.addProof(rows)
    return isCapped
  } catch (error) {
    const stopped = run.signal.aborted || error instanceof InterruptedError
    const failure: FailedItem = stopped ? { kind: 'failed', reason: '', code: 'interrupted' } : failureOf(error)
    failItem({ task, range: window.range }, failure)
    return false
  } finally {
    task.report.seconds += (monotonic() - startedAt) / 1000
  }
}

/** Windows that passed for complete until the service was found to cap its answers are read again. */
export function requeue(tasks: ReadonlyMap<string, Task>, windows: readonly SizedWindow[]): void {
  for (const { task, range } of windows) {
    const remaining = tasks.get(task)?.remaining
    if (remaining?.kind === 'windows') remaining.feed.readAgain(range)
  }
}
