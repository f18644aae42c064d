import type { Range } from '../../core/day.ts'
import { InterruptedError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import type { DayStream } from '../../streams/stream.ts'
import type { SizedWindow } from '../plan/answer-sizes.ts'
import { countRows, rowsIn } from '../read/count-rows.ts'
import { failedItem } from './perform-item.ts'
import type { FailedItem, ItemResult, PageFacts, Run } from './run-types.ts'
import { countRequest, failItem, type Task, taskKey } from './task.ts'

/** Decides, by what reading found out about pages, which windows passed for complete and are to be read again. */
export function learnPages(
  { task, stream, range }: { task: Task; stream: DayStream; range: Range },
  result: Extract<ItemResult, PageFacts>,
): void {
  const { limit, answers } = task.run
  const { tasks } = task.shared
  const window = { task: taskKey(task), operation: stream.operation, range }
  // If another process read it, its answer is seen here for the first time.
  const rows = result.cappedAt ?? (result.kind === 'split' ? result.pageLimit : (result.pageRows ?? 0))
  answers.add(stream, rows)
  // True only if another process found the lower limit. If this one did, the limit is lowered already, and what is to be
  // read again follows from `cappedAt`.
  if (limit.lowerTo(result.pageLimit)) readAgain(tasks, answers.removeFrom(result.pageLimit))
  if (result.cappedAt !== undefined) {
    limit.lowerTo(result.cappedAt)
    readAgain(tasks, answers.removeEqual(result.cappedAt))
  }
  if (result.kind !== 'loaded' || result.pageRows === undefined) return
  if (result.pageRows >= limit.current) readAgain(tasks, [window])
  else answers.addComplete(window, result.pageRows)
}

/**
 * A service may cap the answers of an operation at any number of rows. Then its largest answer is capped: if that one is
 * complete, all are. True if one was capped: then windows are to be read again.
 */
export async function findCap(run: Run, tasks: ReadonlyMap<string, Task>): Promise<boolean> {
  let isCapped = false
  for (const { window, rows } of run.answers.largestUnchecked()) {
    const task = tasks.get(window.task)
    if (run.signal.aborted || task === undefined || (await isLargestComplete(task, window.range, rows))) continue
    run.limit.lowerTo(rows)
    run.answers.forgetLargest(rows)
    readAgain(tasks, run.answers.removeEqual(rows))
    isCapped = true
  }
  return isCapped
}

/**
 * A longer range is asked for; if its answer has more rows, none was capped at that number. Otherwise the window is read
 * once more in two halves. If that fails, the window has failed, and nothing is known of a cap.
 */
async function isLargestComplete(task: Task, range: Range, rows: number): Promise<boolean> {
  const { run, stream, project, remaining } = task
  if (stream.by !== 'day' || remaining.kind !== 'windows') return true
  // The limit was lowered since: with it, nothing larger can be seen, and the window would be split.
  if (rows >= run.limit.current) return false
  const request = { caller: project.caller, stream, range }
  const longer = remaining.feed.longerThan(range)
  const context = { signal: run.signal, onAttempt: (status: number | undefined) => countRequest(task, status) }
  const startedAt = monotonic()
  try {
    const found = longer === undefined ? 0 : await rowsIn(run, { ...request, range: longer }, context)
    run.answers.add(stream, found)
    const isComplete = found > rows || (await countRows(run, request, context)) <= rows
    if (isComplete) run.answers.markChecked(stream.operation, rows)
    return isComplete
  } catch (error) {
    const stopped = run.signal.aborted || error instanceof InterruptedError
    const failure: FailedItem = stopped ? { kind: 'failed', reason: '', code: 'interrupted' } : failedItem(error)
    failItem({ task, range }, failure)
    // The next round need not fail the same window again.
    run.answers.markChecked(stream.operation, rows)
    return true
  } finally {
    task.report.seconds += (monotonic() - startedAt) / 1000
  }
}

/** Windows that passed for complete until the service was found to cap its answers are read again. */
function readAgain(tasks: ReadonlyMap<string, Task>, windows: readonly SizedWindow[]): void {
  for (const { task, range } of windows) {
    const remaining = tasks.get(task)?.remaining
    if (remaining?.kind === 'windows') remaining.feed.readAgain(range)
  }
}
