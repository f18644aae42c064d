import { countDays, type Range, showRange } from '../../core/day.ts'
import { InterruptedError, KeyError, TransientError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import { streamKey } from '../../core/stream-key.ts'
import { toVerdict } from '../../core/verdict.ts'
import { isTriedAgain } from '../../source/retry-delay.ts'
import type { Stream } from '../../streams/stream.ts'
import type { SizedWindow } from '../plan/page-limit.ts'
import type { WindowFeed } from '../plan/window-feed.ts'
import { countRows } from '../read/read-window.ts'
import type { Loaded, PageFacts, Run, StepResult, SyncedProject } from './context.ts'
import { drain } from './drain.ts'
import { failureOf, performStep } from './perform-step.ts'
import { addFailure, addOutcome, type Failure, type StreamReport } from './report.ts'

/* One project and stream of a run: what is left to do, and what becomes of each result. */

/** Called with a run's progress, in days of streams. */
export interface Observer {
  started?(run: { runId: number; command: string }): void
  planned?(totals: { days: number; lists: number }): void
  advanced?(step: Step): void
  /** An attempt of a request: its status, or undefined where there was no answer. */
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

/** Something to do now: a window, or a list, which has no range. */
export interface Item {
  task: Task
  range: Range | undefined
}

/** Undefined where there is nothing to do, or nothing before another result is settled. */
export function nextItem(task: Task): Item | undefined {
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

/** What nobody did is left to do as before. */
export function putBack({ task, range }: Item): void {
  const { left } = task
  if ('list' in left) left.list = true
  else left.putBack(range!)
}

/** Has everything done that the tasks have to do, and settles it. */
export type Drain = (run: Run, tasks: readonly Task[]) => Promise<void>

/** Does everything in this process, so many windows and lists at once. */
export const drainHere: Drain = async (run, tasks) => {
  const sources = tasks.map((task) => ({
    next() {
      const item = nextItem(task)
      return item && (() => performHere(item).then(({ result, seconds }) => settle(item, result, seconds)))
    },
  }))
  await drain(sources, run.config.source.concurrency)
}

/** Does one window or list in this process. */
export async function performHere({ task, range }: Item): Promise<{ result: StepResult; seconds: number }> {
  const startedAt = monotonic()
  const { run, project, stream } = task
  const onAttempt = (status: number | undefined) => countRequest(task, status)
  const result = await performStep(run, project, stream, range, { signal: run.signal, onAttempt })
  return { result, seconds: (monotonic() - startedAt) / 1000 }
}

export function countRequest({ report, observer }: Task, status: number | undefined): void {
  report.requests++
  if (isTriedAgain(status)) report.retries++
  observer.asked?.(status)
}

/** Writes a result down, and lets it decide what is done next. A failure ends no more than it must. */
export function settle({ task, range }: Item, result: StepResult, seconds: number): void {
  const { run, report, left } = task
  report.seconds += seconds
  if (range !== undefined && (result.kind === 'loaded' || result.kind === 'split')) learnPages({ task, range }, result)
  if (result.kind === 'loaded') finish(task, result, range === undefined ? 0 : countDays(range), seconds)
  if (result.kind === 'failed') fail(task, range, result)
  if (result.kind === 'not-offered') report.not_offered = result.status
  if ('list' in left || range === undefined) return
  switch (result.kind) {
    case 'loaded':
      left.density.learn(range, result.rowsByDay)
      return left.settle(range, 'done')
    case 'split':
      left.density.learnFull(countDays(range), run.limit.current)
      return left.settle(range, 'split')
    case 'not-offered':
      return left.drop()
    case 'shorten':
      return left.shorten(range)
    case 'failed':
      return left.fail(range, ['refused', 'key', 'project'].includes(result.verdict))
  }
}

/** Decides, by what reading found out about pages, which windows passed for complete and are to be read again. */
function learnPages({ task, range }: { task: Task; range: Range }, result: Extract<StepResult, PageFacts>): void {
  const { limit } = task.run
  const window = { name: taskName(task), range }
  requeue(task.tasks, limit.learnLower(result.pageLimit))
  if (result.cutAt !== undefined) requeue(task.tasks, limit.learnCut(window, result.cutAt))
  if (result.kind !== 'loaded' || result.pageRows === undefined) return
  if (result.pageRows >= limit.current) requeue(task.tasks, [window])
  else limit.remember(window, result.pageRows)
}

/** Writes down what was left, for a run or a stream that ends. */
export function failRemaining(task: Task, inFlight: readonly (Range | undefined)[] = [], failure?: Failure): void {
  const { left, report } = task
  const ranges = 'list' in left ? (left.list ? [undefined] : []) : left.failRemaining()
  const reasoned = failure === undefined ? notRead(task) : { ...failure, reason: `not read: ${failure.reason}` }
  for (const range of [...inFlight, ...ranges]) addFailure(report, range, reasoned)
}

/**
 * A service that cuts all answers to a number that nobody would guess shows it in the largest one: if that is whole, so
 * are the smaller ones. It is read once more in two halves; true where they have more rows, and the windows that were
 * cut are to be read again.
 */
export async function findCut(run: Run, tasks: ReadonlyMap<string, Task>): Promise<boolean> {
  const largest = run.limit.largest()
  if (largest === undefined || run.signal.aborted) return false
  const { rows, windows } = largest
  const window = windows[0]!
  const task = tasks.get(window.name)
  if (task?.stream.by !== 'day') return false
  const context = { signal: run.signal, onAttempt: (status: number | undefined) => countRequest(task, status) }
  const startedAt = monotonic()
  try {
    const counted = await countRows(
      run,
      { caller: task.project.caller, stream: task.stream, range: window.range },
      context,
    )
    const cut = counted > rows
    if (cut) requeue(tasks, [window, ...run.limit.learnCut(window, rows)])
    else run.limit.learnWhole(rows)
    return cut
  } catch (error) {
    const stopped = run.signal.aborted || error instanceof InterruptedError
    fail(task, window.range, stopped ? { kind: 'failed', reason: '', verdict: 'interrupted' } : failureOf(error))
    return false
  } finally {
    task.report.seconds += (monotonic() - startedAt) / 1000
  }
}

/** Windows that passed for complete until the service was found to cut its answers are read again. */
export function requeue(tasks: ReadonlyMap<string, Task>, windows: readonly SizedWindow[]): void {
  for (const { name, range } of windows) {
    const left = tasks.get(name)?.left
    if (left !== undefined && !('list' in left)) left.readAgain(range)
  }
}

/** Why a window was left: its project cannot be read, or the run was stopped. */
function notRead({ run, failedProjects, project }: Task): Failure {
  const failure = failedProjects.get(project.id)
  if (failure !== undefined) return { ...failure, reason: `not read: ${failure.reason}` }
  if (!run.signal.aborted) return { reason: 'not read', verdict: 'error' }
  const cause: unknown = run.signal.reason
  if (cause instanceof KeyError || cause instanceof TransientError)
    return { reason: `not read: ${cause.message}`, verdict: toVerdict(cause.code) }
  return { reason: 'not read: the run was stopped', verdict: 'interrupted' }
}

function fail(task: Task, range: Range | undefined, failure: Extract<StepResult, { kind: 'failed' }>): void {
  const { run, project, report } = task
  const { reason } = failure
  const verdict = toVerdict(failure.verdict)
  if (verdict === 'interrupted') return addFailure(report, range, notRead(task))
  addFailure(report, range, { reason, verdict })
  if (verdict === 'key' && !project.ownKey) task.stopRun({ reason, verdict })
  else if (failure.verdict === 'service-down') task.failRun({ reason, verdict })
  else if (['key', 'project', 'project-down'].includes(failure.verdict))
    task.failProject(project.id, { reason, verdict })
  else if (failure.verdict === 'operation-down') failRemaining(task, [], { reason, verdict })
  const place = {
    project: project.id,
    stream: report.stream,
    ...(range === undefined ? {} : { window: showRange(range) }),
  }
  run.log[verdict === 'stale' ? 'warn' : 'error']({ ...place, reason }, 'failed')
}

function finish({ run, project, report, observer }: Task, { outcome }: Loaded, days: number, seconds: number): void {
  addOutcome(report, outcome, days)
  const { inserted, updated, deleted, unchanged, held } = outcome.effect
  observer.advanced?.({
    projectId: project.id,
    stream: report.stream,
    days,
    rows: outcome.rowsRead,
    effect: { inserted, updated, deleted, unchanged },
    quarantined: outcome.rejects,
    seconds,
  })
  const fields = {
    project: project.id,
    stream: report.stream,
    ...(outcome.range === undefined ? {} : { window: showRange(outcome.range) }),
    rows: outcome.rowsRead,
    inserted,
    updated,
    deleted,
    unchanged,
    seconds,
  }
  run.log.info(fields, outcome.range === undefined ? 'list loaded' : 'window loaded')
  if (outcome.rejects > 0) run.log.warn({ ...fields, quarantined: outcome.rejects }, 'rows quarantined')
  if (held !== undefined)
    run.log.warn({ ...fields, ...held }, 'held: most rows would have vanished, so none was deleted')
}

/** The tasks by the names of their windows. */
export function taskName(task: Pick<Task, 'project' | 'stream'>): string {
  return streamKey(task.project.id, task.stream.name)
}
