import { type Range, showRange } from '../../core/day.ts'
import { KeyError, TransientError } from '../../core/errors.ts'
import { failureCodeOf, failureRule, reportedCode } from '../../core/failure-code.ts'
import { streamKey } from '../../core/stream-key.ts'
import { isTriedAgain } from '../../source/retry-delay.ts'
import type { Stream } from '../../streams/stream.ts'
import type { WindowFeed } from '../plan/window-feed.ts'
import type { FailedItem, Run, SyncedProject } from './context.ts'
import { addFailure, type Failure, type StreamReport } from './report.ts'

/* One project and stream of a run: what is left to do of it, and what its failures end. */

/** Called with a run's progress, in days of streams. */
export interface Observer {
  started?(run: { runId: number; command: string }): void
  planned?(totals: { days: number; lists: number }): void
  advanced?(step: Step): void
  /** An attempt of a request: its status, or undefined if there was no answer. */
  asked?(status: number | undefined): void
}

/** A window or list that was loaded. */
export interface Step {
  projectId: string
  stream: string
  days: number
  rows: number
  effect: { inserted: number; updated: number; deleted: number; unchanged: number }
  quarantined: number
  seconds: number
}

export interface Task {
  run: Run
  project: SyncedProject
  stream: Stream
  report: StreamReport
  observer: Observer
  /** What is left of it: windows of a feed, or the list itself. */
  left: WindowFeed | { list: boolean }
  /** All tasks of the run by the names of their windows, and the projects that cannot be read. */
  tasks: Map<string, Task>
  failedProjects: Map<string, Failure>
  /** Ends the run at once, with what is in flight. */
  stopRun: (failure: Failure) => void
  /** Lets what is in flight end, and begins nothing else of the project, or of any. */
  failProject: (projectId: string, failure: Failure) => void
  failRun: (failure: Failure) => void
}

/** A unit of work: one window of a task, or its list, which has no range. */
export interface WorkItem {
  task: Task
  range: Range | undefined
}

/** Undefined if there is nothing to do, or nothing before another result is known. */
export function nextItem(task: Task): WorkItem | undefined {
  if (task.run.signal.aborted || task.failedProjects.has(task.project.id)) return undefined
  const { left } = task
  if ('list' in left) {
    if (!left.list) return undefined
    left.list = false
    return { task, range: undefined }
  }
  const range = left.next()
  return range === undefined ? undefined : { task, range }
}

/** An item that nobody did is handed out again later. */
export function putBack({ task, range }: WorkItem): void {
  const { left } = task
  if ('list' in left) left.list = true
  else left.putBack(range!)
}

export function countRequest({ report, observer }: Task, status: number | undefined): void {
  countRequestOf(report, observer, status)
}

export function countRequestOf(report: StreamReport, observer: Observer, status: number | undefined): void {
  report.requests++
  if (isTriedAgain(status)) report.retries++
  observer.asked?.(status)
}

/** Writes down what was left, for a run or a stream that ends. */
export function failRemaining(task: Task, inFlight: readonly (Range | undefined)[] = [], failure?: Failure): void {
  const { left, report } = task
  const ranges = 'list' in left ? (left.list ? [undefined] : []) : left.failRemaining()
  const reasoned = failure === undefined ? notRead(task) : { ...failure, reason: `not read: ${failure.reason}` }
  for (const range of [...inFlight, ...ranges]) addFailure(report, range, reasoned)
}

/** Why a window was left: its project cannot be read, or the run was stopped. */
function notRead({ run, failedProjects, project }: Task): Failure {
  const failure = failedProjects.get(project.id)
  if (failure !== undefined) return { ...failure, reason: `not read: ${failure.reason}` }
  if (!run.signal.aborted) return { reason: 'not read', code: 'error' }
  const cause: unknown = run.signal.reason
  if (cause instanceof KeyError || cause instanceof TransientError)
    return { reason: `not read: ${cause.message}`, code: reportedCode(failureCodeOf(cause)) }
  return { reason: 'not read: the run was stopped', code: 'interrupted' }
}

/** Counts a failure, and ends what cannot be read for the same reason. */
export function failItem({ task, range }: WorkItem, { reason, code: exactCode }: FailedItem): void {
  const { run, project, report } = task
  const code = reportedCode(exactCode)
  if (code === 'interrupted') return addFailure(report, range, notRead(task))
  const failure = { reason, code }
  addFailure(report, range, failure)
  // A key of the project's own says nothing of other projects.
  const ends = code === 'key' && project.ownKey ? 'project' : failureRule(exactCode).ends
  if (ends === 'run' && code === 'key') task.stopRun(failure)
  else if (ends === 'run') task.failRun(failure)
  else if (ends === 'project') task.failProject(project.id, failure)
  else if (ends === 'stream') failRemaining(task, [], failure)
  run.log[code === 'stale' ? 'warn' : 'error']({ ...logFields(task, range), reason }, 'failed')
}

/** The key of a task, by which PageLimit also names its windows. */
export function taskName(task: Pick<Task, 'project' | 'stream'>): string {
  return streamKey(task.project.id, task.stream.name)
}

export function logFields({ project, report }: Task, range: Range | undefined) {
  const window = range === undefined ? {} : { window: showRange(range) }
  return { project: project.id, stream: report.stream, ...window }
}
