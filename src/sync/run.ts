import { daysOfInterest } from '../core/config/load.ts'
import { addDays, countDays, type Day, dayOf, daysIn, type Range, showRange } from '../core/day.ts'
import {
  InterruptedError,
  KeyError,
  messageOf,
  ProjectError,
  RefusedError,
  StaleReadError,
  TransientError,
} from '../core/errors.ts'
import { readCoverage, unsettledDays } from '../ledger/coverage.ts'
import { lockRun } from '../ledger/locks.ts'
import { closeRun } from '../ledger/runs.ts'
import type { CallContext } from '../source/client.ts'
import { streamsOf } from '../streams/registry.ts'
import type { DayStream, ListStream, Stream } from '../streams/stream.ts'
import { applyLabels } from '../warehouse/mentions.ts'
import { migrate } from '../warehouse/migrate.ts'
import type { Outcome, Run, Services, SyncedProject } from './context.ts'
import { drain, type JobSource } from './drain.ts'
import { PageLimit, type SizedWindow } from './page-limit.ts'
import { Density, dueDays, readableRange, WindowFeed } from './plan.ts'
import { countRows } from './read-window.ts'
import { addFailure, addOutcome, emptyReport, outcomeOf, type RunReport, type StreamReport } from './report.ts'
import { syncList } from './sync-list.ts'
import { syncWindow, windowName } from './sync-window.ts'

export interface RunRequest {
  command: string
  projects: SyncedProject[]
  streams: Stream[]
  /** A range to read whatever is known of it; without one, the days that are due are read. */
  range?: Range
  /** Of the range, only the days that were never read. */
  missingOnly?: boolean
  /** Only these days of each project and stream. */
  only?: (projectId: string, stream: string) => Day[]
  acceptDeletes?: boolean
  signal?: AbortSignal
}

/** Told of a run's progress, in days of streams. */
export interface Observer {
  planned?(totals: { days: number; lists: number }): void
  advanced?(step: { projectId: string; stream: string; days: number; rows: number }): void
}

// Rows that arrive while they are counted look like a cut; that must not go on for ever.
const CUT_ROUNDS = 6

/** One run: locks, plans, reads and loads everything that was asked for, and closes with an honest outcome. */
export async function runSync(services: Services, request: RunRequest, observer: Observer = {}): Promise<RunReport> {
  const { warehouse, config, log } = services
  const startedAt = Date.now()
  const today = dayOf(services.clock())
  const lastDay = readableRange(daysOfInterest(config, today), today).to
  await migrate(warehouse, config)
  const pairs = request.projects.flatMap((project) =>
    request.streams.map((stream) => ({ projectId: project.id, stream: stream.name })),
  )
  const held = await lockRun(warehouse, pairs, {
    command: request.command,
    version: services.version,
    source: services.source,
  })
  const stopped = new AbortController()
  const signals = [stopped.signal, held.lost, ...(request.signal === undefined ? [] : [request.signal])]
  const run: Run = {
    ...services,
    log: log.child({ run: held.runId }),
    runId: held.runId,
    signal: AbortSignal.any(signals),
    limit: new PageLimit(config.source.page_limit),
    mentions: new Map(),
    acceptDeletes: request.acceptDeletes ?? false,
    dayStreams: streamsOf(config).flatMap(({ by, name }) => (by === 'day' ? [name] : [])),
    lookbackFrom: addDays(lastDay, 1 - config.lookback_days),
    recentFrom: addDays(lastDay, -Math.max(1, config.lookback_days)),
  }
  let error: string | null = null
  const reports: StreamReport[] = []
  try {
    await applyLabels(
      warehouse,
      request.projects.map(({ id }) => id),
      config.labels,
    )
    const { sources, tasks } = await makeSources(run, request, reports, observer, (reason) => {
      error ??= reason
      stopped.abort()
    })
    run.log.info({ command: request.command, source: services.source, streams: pairs.length }, 'run started')
    await drain(sources, config.source.concurrency)
    // Each round either proves the largest answer whole or finds a cut, which lowers the page limit.
    for (let round = 0; round < CUT_ROUNDS && (await findCut(run, tasks)); round++) {
      await drain(sources, config.source.concurrency)
    }
    for (const source of sources) source.finish()
  } catch (cause) {
    if (!run.signal.aborted) error ??= messageOf(cause)
  }
  if (held.lost.aborted) error ??= 'the database connection that holds the lock was lost'
  const interrupted = request.signal?.aborted ?? false
  const outcome =
    error !== null && !interrupted && reports.every(({ windows }) => windows === 0)
      ? 'failed'
      : outcomeOf(reports, interrupted)
  const report: RunReport = {
    run_id: held.runId,
    command: request.command,
    outcome: error !== null && outcome === 'complete' ? 'partial' : outcome,
    source: services.source,
    seconds: (Date.now() - startedAt) / 1000,
    streams: reports,
    ...(error === null ? {} : { error }),
  }
  await closeRun(warehouse, held.runId, { outcome: report.outcome, summary: report.streams, error }).catch(
    (cause: unknown) => {
      run.log.error({ reason: messageOf(cause) }, 'the run could not be closed')
    },
  )
  await held.release()
  const totals = { rows: sum(reports, 'rows_read'), requests: sum(reports, 'requests'), seconds: report.seconds }
  run.log[report.outcome === 'complete' ? 'info' : 'warn'](
    { outcome: report.outcome, ...totals, ...(error === null ? {} : { error }) },
    'run ended',
  )
  return report
}

function sum(reports: readonly StreamReport[], field: 'rows_read' | 'requests'): number {
  return reports.reduce((total, report) => total + report[field], 0)
}

interface Source extends JobSource {
  finish(): void
}

/** One source of jobs for each project and stream, lists first. */
async function makeSources(
  run: Run,
  request: RunRequest,
  reports: StreamReport[],
  observer: Observer,
  stopRun: (reason: string) => void,
): Promise<{ sources: Source[]; tasks: Task[] }> {
  const sources: Source[] = []
  const tasks: Task[] = []
  const failedProjects = new Map<string, string>()
  const feeds = new Map<string, WindowFeed>()
  const totals = { days: 0, lists: 0 }
  for (const project of request.projects) {
    for (const stream of request.streams) {
      const report = emptyReport(project.id, stream.name)
      reports.push(report)
      const task: Task = { feeds, run, project, stream, report, observer, failedProjects, stopRun }
      tasks.push(task)
      if (stream.by === 'list') {
        totals.lists++
        sources.push(listSource(task, stream))
      } else {
        const feed = await feedOf(run, request, project, stream)
        totals.days += feed.totalDays
        feeds.set(windowName({ projectId: project.id, stream: stream.name }), feed)
        sources.push(windowSource(task, stream, feed))
      }
    }
  }
  observer.planned?.(totals)
  return { sources, tasks }
}

async function feedOf(run: Run, request: RunRequest, project: SyncedProject, stream: DayStream): Promise<WindowFeed> {
  const today = dayOf(run.clock())
  const pair = { projectId: project.id, stream: stream.name }
  const interest = daysOfInterest(run.config, today)
  const coverage = await readCoverage(run.warehouse, pair, request.range ?? interest)
  const covered = new Set(coverage.map(({ date }) => date))
  const due = async () => {
    if (request.only !== undefined) return request.only(project.id, stream.name)
    if (request.range !== undefined) {
      return daysIn(readableRange(request.range, today)).filter((day) => !request.missingOnly || !covered.has(day))
    }
    const unsettled = await unsettledDays(run.warehouse, pair)
    return dueDays(coverage, { interest, today, lookbackDays: run.config.lookback_days, unsettled })
  }
  return new WindowFeed(
    await due(),
    new Density(coverage, today),
    () => run.limit.current,
    run.config.source.max_window_days,
  )
}

interface Task {
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

function listSource(task: Task, stream: ListStream): Source {
  let left = true
  return {
    next() {
      if (!left || task.run.signal.aborted || task.failedProjects.has(task.project.id)) return undefined
      left = false
      return () =>
        attempt(task, undefined, async (context) => {
          finishStep(task, await syncList(task.run, task.project, stream, context), 0)
        })
    },
    finish() {
      if (left) addFailure(task.report, undefined, notRead(task))
    },
  }
}

function windowSource(task: Task, stream: DayStream, feed: WindowFeed): Source {
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
  finishStep(task, result.outcome, countDays(range))
  return 'done'
}

/**
 * A service that cuts all answers to a number that nobody would guess shows it in the largest one: if that is whole, so
 * are the smaller ones. It is read once more in two halves; true where they have more rows, and the windows that were
 * cut are to be read again.
 */
async function findCut(run: Run, tasks: readonly Task[]): Promise<boolean> {
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

function finishStep({ run, project, report, observer }: Task, outcome: Outcome, days: number): void {
  addOutcome(report, outcome, days)
  observer.advanced?.({ projectId: project.id, stream: report.stream, days, rows: outcome.rowsRead })
  const { inserted, updated, deleted, unchanged, held } = outcome.effect
  const fields = {
    project: project.id,
    stream: report.stream,
    ...(outcome.range === undefined ? {} : { window: showRange(outcome.range) }),
    rows: outcome.rowsRead,
    inserted,
    updated,
    deleted,
    unchanged,
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
    onAttempt: () => {
      report.requests++
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
