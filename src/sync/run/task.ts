import { countDays, type Day, type Range, showRange } from '../../core/day.ts'
import { messageOf } from '../../core/errors.ts'
import { failureRule, reportedCode } from '../../core/failure-code.ts'
import { monotonic } from '../../core/waiting.ts'
import { isTriedAgain } from '../../source/retry-policy.ts'
import type { Stream } from '../../streams/stream.ts'
import type { WindowFeed } from '../plan/window-feed.ts'
import { addFailure, addLoad, type Failure, type StreamReport } from './report.ts'
import type { FailedItem, LoadSummary, Run, SyncedProject } from './run.ts'

/* One project and stream of a run: what is left to do of it, and what its failures end. */

/** Called with a run's progress, in stream-days: one day of one stream each. */
export interface Observer {
  started?(run: { runId: number; command: string }): void
  planned?(totals: { days: number; lists: number }): void
  advanced?(step: Step): void
  /** An attempt of a request: its status, or undefined if there was no answer. */
  onRequest?(status: number | undefined): void
}

/** A window or list that was loaded. */
export interface Step extends Pick<StreamReport, 'stream' | 'days' | 'quarantined' | 'seconds'> {
  projectId: string
  rows: number
  effect: Pick<StreamReport, 'inserted' | 'updated' | 'deleted' | 'unchanged'>
}

export interface Task {
  run: Run
  project: SyncedProject
  stream: Stream
  report: StreamReport
  remaining: Remaining
  shared: SharedByTasks
}

/** The rest of a task: windows of a feed, or the list itself. */
export type Remaining =
  /** `planned` are the days that the task was given so far. */
  | { kind: 'windows'; feed: WindowFeed; planned: ReadonlySet<Day> }
  | { kind: 'list'; state: 'due' | 'in flight' | 'done' }

export interface SharedByTasks {
  failures: RunFailures
  observer: Observer
}

/** A unit of work: one window of a task, or its list, which has no range. */
export interface WorkItem {
  task: Task
  range: Range | undefined
}

/** Undefined if there is nothing to do, or nothing before another result is known. */
function nextItem(task: Task): WorkItem | undefined {
  if (task.run.signal.aborted || task.shared.failures.projects.has(task.project.id)) return undefined
  const { remaining } = task
  if (remaining.kind === 'list') {
    if (remaining.state !== 'due') return undefined
    remaining.state = 'in flight'
    return { task, range: undefined }
  }
  const range = remaining.feed.next()
  return range === undefined ? undefined : { task, range }
}

export function putBack({ task, range }: WorkItem): void {
  const { remaining } = task
  if (remaining.kind === 'list') remaining.state = 'due'
  else remaining.feed.putBack(range!)
}

/** Hands out the work items of all tasks in turn, but none of a project whose requests are spent. */
export class TaskRotation {
  private turn = 0
  /** Projects whose requests are spent, until a time. */
  private readonly spentUntil = new Map<string, number>()

  constructor(private readonly tasks: readonly Task[]) {}

  next(): WorkItem | undefined {
    for (let step = 0; step < this.tasks.length; step++) {
      const index = (this.turn + step) % this.tasks.length
      const task = this.tasks[index]!
      if (isAhead(this.spentUntil.get(task.project.id))) continue
      const item = nextItem(task)
      if (item === undefined) continue
      this.turn = index + 1
      return item
    }
    return undefined
  }

  pause(projectId: string, ms: number): void {
    this.spentUntil.set(projectId, monotonic() + ms)
  }

  /** True while a project waits for its requests: it may have items later. */
  get isWaiting(): boolean {
    return [...this.spentUntil.values()].some(isAhead)
  }
}

const isAhead = (until = 0) => until > monotonic()

export function isExhausted({ remaining }: Task): boolean {
  return remaining.kind === 'list' ? remaining.state === 'done' : remaining.feed.isExhausted
}

type Counted = { report: StreamReport; observer: Observer }

export function countLoad({ report, observer }: Counted, summary: LoadSummary, seconds: number): void {
  const days = summary.range === undefined ? 0 : countDays(summary.range)
  addLoad(report, summary, days)
  const { inserted, updated, deleted, unchanged } = summary.effect
  const effect = { inserted, updated, deleted, unchanged }
  const of = { projectId: report.project_id, stream: report.stream, days, rows: summary.rowsRead }
  observer.advanced?.({ ...of, effect, quarantined: summary.rejects, seconds })
}

export function countRequest({ report, observer }: Counted, status: number | undefined): void {
  report.requests++
  if (isTriedAgain(status)) report.retries++
  observer.onRequest?.(status)
}

/** Writes down what was left, for a run or a stream that ends. */
export function failRemaining(task: Task, inFlight: readonly (Range | undefined)[] = [], failure?: Failure): void {
  const { remaining, report } = task
  const ranges =
    remaining.kind === 'windows' ? remaining.feed.removeRest() : remaining.state === 'due' ? [undefined] : []
  if (remaining.kind === 'list') remaining.state = 'done'
  const unread = notRead(task, failure)
  for (const range of [...inFlight, ...ranges]) addFailure(report, range, unread)
}

/** Why a window was left: its stream or project cannot be read, or the run was stopped. */
function notRead({ run, report, shared: { failures }, project }: Task, ofStream?: Failure): Failure {
  const failure = ofStream ?? failures.projects.get(project.id) ?? failures.stopReason
  if (failure !== undefined) return { reason: `not read: ${failure.reason}`, code: failure.code }
  if (run.signal.aborted) return { reason: 'not read: the run was stopped', code: 'interrupted' }
  // A window of one day was refused, so the others were not asked for.
  const [refused] = report.failed
  return refused === undefined
    ? { reason: 'not read', code: 'error' }
    : { reason: `not read: ${refused.error}`, code: refused.code }
}

/** Counts a failure, and ends what cannot be read for the same reason. */
export function failItem({ task, range }: WorkItem, { reason, code: exactCode }: FailedItem): void {
  const { run, project, report } = task
  const { failures } = task.shared
  const code = reportedCode(exactCode)
  if (code === 'interrupted') return addFailure(report, range, notRead(task))
  const failure = { reason, code }
  addFailure(report, range, failure)
  // A key of the project's own says nothing of other projects.
  const ends = code === 'key' && project.ownKey ? 'project' : failureRule(exactCode).ends
  if (ends === 'run' && code === 'key') failures.stopRun(failure)
  else if (ends === 'run') failures.failRun(failure)
  else if (ends === 'project') failures.failProject(project.id, failure)
  else if (ends === 'stream') failRemaining(task, [], failure)
  run.log[code === 'superseded' ? 'warn' : 'error']({ ...logFields(task, range), reason }, 'failed')
}

export function logFields({ project, report }: Task, range: Range | undefined) {
  const window = range === undefined ? {} : { window: showRange(range) }
  return { project: project.id, stream: report.stream, ...window }
}

/** Failures that end a run, or a project of it, early. All tasks of the run share them. */
export class RunFailures {
  /** Aborted when everything that is in flight has to end. */
  readonly signal: AbortSignal
  readonly projects = new Map<string, Failure>()
  /** The first failure of the run as a whole. */
  first: Failure | undefined
  /** Why the run was stopped by itself; undefined if it was not, or if somebody asked it to stop. */
  stopReason: Failure | undefined
  private readonly stopped = new AbortController()

  constructor(
    private readonly projectIds: readonly string[],
    { lostLease, request }: { lostLease: AbortSignal; request: AbortSignal | undefined },
  ) {
    this.signal = AbortSignal.any([this.stopped.signal, ...(request === undefined ? [] : [request])])
    const end = () => this.stopRun({ reason: messageOf(lostLease.reason), code: 'transient' })
    lostLease.addEventListener('abort', end, { once: true })
    if (lostLease.aborted) end()
  }

  note(failure: Failure): void {
    this.first ??= failure
  }

  /** Ends the run at once, with what is in flight. */
  stopRun(failure: Failure): void {
    this.note(failure)
    this.stopReason ??= failure
    this.stopped.abort()
  }

  /** Lets what is in flight end, and begins nothing else of the project. */
  failProject(projectId: string, failure: Failure): void {
    this.projects.set(projectId, failure)
    // The only project: its failure is that of the run.
    if (this.projectIds.length === 1) this.note(failure)
  }

  /** Lets what is in flight end, and begins nothing else. */
  failRun(failure: Failure): void {
    for (const id of this.projectIds) if (!this.projects.has(id)) this.projects.set(id, failure)
    this.note(failure)
  }
}
