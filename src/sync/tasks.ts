import { countDays, type Range, showRange } from '../core/day.ts'
import {
  InterruptedError,
  KeyError,
  messageOf,
  ProjectError,
  RefusedError,
  StaleReadError,
  TransientError,
} from '../core/errors.ts'
import type { CallContext } from '../source/client.ts'
import type { DayStream, ListStream, Stream } from '../streams/stream.ts'
import type { Outcome, Run, SyncedProject } from './context.ts'
import type { JobSource } from './drain.ts'
import type { SizedWindow } from './page-limit.ts'
import type { WindowFeed } from './plan.ts'
import { countRows } from './read-window.ts'
import { addFailure, addOutcome, type StreamReport } from './report.ts'
import { syncList } from './sync-list.ts'
import { syncWindow, windowName } from './sync-window.ts'

/* One project and stream of a run: where its jobs come from, and what becomes of their failures. */

/** Told of a run's progress, in days of streams. */
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

/** Where a run's jobs come from; `finish` writes down what was left. */
export interface Source extends JobSource {
  finish(): void
}

export interface Task {
  /** The feeds of all projects and streams, by name. */
  feeds: Map<string, WindowFeed>
  run: Run
  project: SyncedProject
  stream: Stream
  report: StreamReport
  observer: Observer
  failedProjects: Map<string, string>
  stopRun: (reason: string) => void
}

export function listSource(task: Task, stream: ListStream): Source {
  let left = true
  return {
    next() {
      if (!left || task.run.signal.aborted || task.failedProjects.has(task.project.id)) return undefined
      left = false
      return () =>
        attempt(task, undefined, async (context) => {
          const startedAt = Date.now()
          finishStep(task, await syncList(task.run, task.project, stream, context), 0, startedAt)
        })
    },
    finish() {
      if (left) addFailure(task.report, undefined, notRead(task))
    },
  }
}

export function windowSource(task: Task, stream: DayStream, feed: WindowFeed): Source {
  return {
    next() {
      if (task.run.signal.aborted || task.failedProjects.has(task.project.id)) return undefined
      const range = feed.next()
      if (range === undefined) return undefined
      return async () => {
        const step = await attempt(task, range, (context) => windowStep(task, stream, feed, range, context))
        if (!step.ok) feed.fail(range, step.error instanceof RefusedError)
        else if (step.value === 'shorten') feed.shorten(range)
        else feed.settle(range, step.value)
      }
    },
    finish() {
      for (const range of feed.abandon()) addFailure(task.report, range, notRead(task))
    },
  }
}

/** Syncs one window and tells its feed's next move. */
async function windowStep(
  task: Task,
  stream: DayStream,
  feed: WindowFeed,
  range: Range,
  context: CallContext,
): Promise<'done' | 'split' | 'shorten'> {
  const startedAt = Date.now()
  const result = await syncWindow(task.run, task.project, stream, range, context).catch((error: unknown) => {
    if (countDays(range) > 1 && isTooMuch(error) && !task.run.signal.aborted) return undefined
    throw error
  })
  if (result === undefined) return 'shorten'
  requeue(task, result.again)
  if (result.kind === 'split') {
    feed.density.learnFull(countDays(range), task.run.limit.current)
    return 'split'
  }
  feed.density.learn(range, result.rowsByDay)
  finishStep(task, result.outcome, countDays(range), startedAt)
  return 'done'
}

/**
 * A service that cuts all answers to a number that nobody would guess shows it in the largest one: if that is whole, so
 * are the smaller ones. It is read once more in two halves; true where they have more rows, and the windows that were
 * cut are to be read again.
 */
export async function findCut(run: Run, tasks: readonly Task[]): Promise<boolean> {
  const largest = run.limit.largest()
  if (largest === undefined || run.signal.aborted) return false
  const { rows, windows } = largest
  const [window] = windows
  const task = tasks.find(
    ({ project, stream }) => windowName({ projectId: project.id, stream: stream.name }) === window!.name,
  )
  const stream = task?.stream
  if (task === undefined || stream?.by !== 'day') return false
  const counted = await attempt(task, window!.range, (context) =>
    countRows(run, task.project, stream, window!.range, context),
  )
  if (!counted.ok) return false
  const cut = counted.value > rows
  if (cut) requeue(task, [window!, ...run.limit.learnCut(window!, rows)])
  else run.limit.learnWhole(rows)
  return cut
}

/** Errors by which a service says, or shows, that a window is too long for it. */
function isTooMuch(error: unknown): boolean {
  if (error instanceof KeyError || error instanceof ProjectError) return false
  if (error instanceof RefusedError) return [undefined, 400, 413, 422].includes(error.status)
  return error instanceof TransientError && /HTTP (?:408|504)|ETIMEDOUT/.test(error.message)
}

/** Windows that passed for complete until the service was found to cut its answers are read again. */
function requeue({ feeds }: Task, windows: readonly SizedWindow[]): void {
  for (const { name, range } of windows) feeds.get(name)?.again(range)
}

function notRead({ run, failedProjects, project }: Task): string {
  const reason = failedProjects.get(project.id)
  if (reason !== undefined) return `not read: ${reason}`
  return run.signal.aborted ? 'not read: the run was stopped' : 'not read'
}

function finishStep({ run, project, report, observer }: Task, outcome: Outcome, days: number, startedAt: number): void {
  addOutcome(report, outcome, days)
  const { inserted, updated, deleted, unchanged, held } = outcome.effect
  const seconds = (Date.now() - startedAt) / 1000
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

type Attempt<T> = { ok: true; value: T } | { ok: false; error: unknown }

/** Runs a step; a failure is written down, and ends no more than it must. */
async function attempt<T>(
  task: Task,
  range: Range | undefined,
  work: (context: CallContext) => Promise<T>,
): Promise<Attempt<T>> {
  const { run, project, report } = task
  const startedAt = Date.now()
  const context: CallContext = {
    signal: run.signal,
    onAttempt: (status) => {
      report.requests++
      task.observer.asked?.(status)
    },
  }
  try {
    return { ok: true, value: await work(context) }
  } catch (error) {
    const reason = messageOf(error)
    const stopped = run.signal.aborted || error instanceof InterruptedError
    addFailure(report, range, stopped ? 'not read: the run was stopped' : reason)
    if (stopped) return { ok: false, error }
    if (error instanceof KeyError && !project.ownKey) task.stopRun(reason)
    else if (error instanceof KeyError || error instanceof ProjectError) task.failedProjects.set(project.id, reason)
    const level = error instanceof StaleReadError ? 'warn' : 'error'
    run.log[level](
      {
        project: project.id,
        stream: report.stream,
        ...(range === undefined ? {} : { window: showRange(range) }),
        reason,
      },
      'failed',
    )
    return { ok: false, error }
  } finally {
    report.seconds += (Date.now() - startedAt) / 1000
  }
}
