import { setTimeout as delay } from 'node:timers/promises'
import { daysOfInterest } from '../../core/config/load.ts'
import { addDays, type Day, dayOf, daysIn, type Range } from '../../core/day.ts'
import { KeyError, messageOf, TransientError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import { verdictOf } from '../../core/verdict.ts'
import { type CoverageSummary, readCoverage, readCoverageSummaries } from '../../ledger/coverage.ts'
import { lockRun, type Pair } from '../../ledger/run-lock.ts'
import { runReason } from '../../ledger/run-reason.ts'
import { closeRun } from '../../ledger/runs.ts'
import { claimSource } from '../../ledger/source.ts'
import { dayStreamNames } from '../../streams/registry.ts'
import type { DayStream, Stream } from '../../streams/stream.ts'
import { applyLabels, listProjects } from '../../warehouse/load/mentions.ts'
import { applyOwnBrands, ownBrandNotes, readOwnBrands, unknownLabels } from '../../warehouse/load/own-brands.ts'
import { isTransient, withRetries } from '../../warehouse/retry.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import { sumOpenPeriods } from '../../warehouse/schema/prompt-sums.ts'
import { saveStreamSettings } from '../../warehouse/schema/stream-settings.ts'
import { PageLimit } from '../plan/page-limit.ts'
import { Density, dueDays, readableRange, WindowFeed } from '../plan/plan.ts'
import type { Run, Services, SyncedProject } from './context.ts'
import { cleanReport, emptyReport, type Failure, outcomeOf, type RunReport, type StreamReport } from './report.ts'
import { requireProject } from './require-project.ts'
import { type Drain, drainHere, failRemaining, findCut, type Observer, type Task, taskName } from './tasks.ts'

export type { Drain, Observer, Step } from './tasks.ts'

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

// Rows that arrive while they are counted look like a cut; that must not go on for ever.
const CUT_ROUNDS = 6
const CLOSING_MS = 6000

/** One run: locks, plans, reads and loads everything that was asked for, and closes with an honest outcome. */
export async function runSync(
  services: Services,
  request: RunRequest,
  observer: Observer = {},
  drain: Drain = drainHere,
): Promise<RunReport> {
  const { warehouse, config } = services
  const startedAt = monotonic()
  const today = dayOf(services.clock())
  const lastDay = readableRange(daysOfInterest(config, today), today).to
  services.client.reconsider(request.projects.map(({ caller }) => caller))
  await requireProject(services.client, request.projects, request.signal)
  await migrate(warehouse, config)
  await claimSource(warehouse, services.sourceAddress)
  const pairs = request.projects.flatMap((project) =>
    request.streams.map((stream) => ({ projectId: project.id, stream: stream.name })),
  )
  const lock = await lockRun(
    warehouse,
    pairs,
    { command: request.command, version: services.version, source: services.source },
    // Runs that share the queue may work beside each other: each window is safe by itself.
    { log: services.log, signal: request.signal, shared: config.queue.mode === 'pg-boss' },
  )
  request.signal?.addEventListener('abort', () => warehouse.hurry(), { once: true })
  observer.started?.({ runId: lock.runId, command: request.command })
  const stopped = new AbortController()
  const signals = [stopped.signal, lock.lost, ...(request.signal === undefined ? [] : [request.signal])]
  const run = makeRun(
    services,
    {
      runId: lock.runId,
      command: request.command,
      limit: new PageLimit(config.source.page_limit),
      mentions: new Map(),
      acceptDeletes: request.acceptDeletes ?? false,
      lookbackFrom: addDays(lastDay, 1 - config.lookback_days),
      recentFrom: addDays(lastDay, -Math.max(1, config.lookback_days)),
    },
    AbortSignal.any(signals),
  )
  let failure: Failure | undefined
  const reports: StreamReport[] = []
  const notes: string[] = []
  const stopRun = (cause: Failure) => {
    failure ??= cause
    // The windows that are left say why: only a key that was refused is cured by another key.
    stopped.abort(cause.verdict === 'key' ? new KeyError(cause.reason) : new TransientError(cause.reason))
  }
  const late: Failure = { reason: deadlineReason(config), verdict: 'transient' }
  const deadline = setTimeout(() => stopRun(late), config.source.run_minutes * 60_000)
  try {
    const ids = request.projects.map(({ id }) => id)
    const interest = daysOfInterest(config, today)
    await withRetries(warehouse, run.signal, async () => {
      await listProjects(warehouse, ids)
      await applyLabels(warehouse, ids, config.labels)
      await saveStreamSettings(warehouse.pool, warehouse, config, interest, ids)
    })
    const noteFailure = (cause: Failure) => {
      failure ??= cause
    }
    const tasks = await makeTasks(run, request, reports, observer, stopRun, noteFailure)
    const all = [...tasks.values()]
    run.log.info({ command: request.command, source: services.source, streams: pairs.length }, 'run started')
    await drain(run, all)
    // Each round either proves the largest answer whole or finds a cut, which lowers the page limit.
    for (let round = 0; round < CUT_ROUNDS && (await findCut(run, tasks)); round++) await drain(run, all)
    for (const task of all) failRemaining(task)
    if (!request.signal?.aborted) {
      notes.push(...(await withRetries(warehouse, run.signal, () => settleOwnBrands(services, ids))))
    }
    for (const note of notes) run.log.warn(note)
    await sumForViews(run)
  } catch (cause) {
    if (!run.signal.aborted)
      failure ??= { reason: messageOf(cause), verdict: isTransient(cause) ? 'transient' : verdictOf(cause) }
  } finally {
    clearTimeout(deadline)
  }
  if (lock.lost.aborted) failure ??= { reason: messageOf(lock.lost.reason), verdict: 'transient' }
  const interrupted = request.signal?.aborted ?? false
  const outcome =
    failure !== undefined && !interrupted && reports.every(({ windows }) => windows === 0)
      ? 'failed'
      : outcomeOf(reports, interrupted)
  const told: RunReport = {
    run_id: lock.runId,
    command: request.command,
    outcome: failure !== undefined && outcome === 'complete' ? 'partial' : outcome,
    source: services.source,
    seconds: (monotonic() - startedAt) / 1000,
    streams: reports,
    notes,
    ...(failure === undefined ? {} : { error: failure.reason, verdict: failure.verdict }),
  }
  const report = cleanReport(told, warehouse.redactor)
  const { error = null } = report
  const end = { outcome: report.outcome, summary: report.streams, error }
  const close = async () => {
    await withRetries(warehouse, undefined, () => closeRun(warehouse, lock.runId, end)).catch((cause: unknown) => {
      run.log.error({ reason: messageOf(cause) }, 'the run could not be closed')
    })
    await lock.release()
  }
  // Whoever told it to stop does not wait for a database that is away: the lease expires by itself.
  await (interrupted ? Promise.race([close(), delay(CLOSING_MS, undefined, { ref: false })]) : close())
  const totals = { rows: sum(reports, 'rows_read'), requests: sum(reports, 'requests'), seconds: report.seconds }
  run.log[report.outcome === 'complete' ? 'info' : 'warn'](
    { outcome: report.outcome, ...totals, ...(error === null ? {} : { error }), reason: runReason(end) },
    'run ended',
  )
  return report
}

/** Own brands by labels or by the profile, and what to say of them. */
async function settleOwnBrands({ warehouse, config }: Services, ids: readonly string[]): Promise<string[]> {
  const hasChanged = await applyOwnBrands(warehouse, ids, config.labels)
  const { derived, without } = await readOwnBrands(warehouse, ids, config.labels)
  // Said when it is decided, not again by every run.
  const own = { derived: hasChanged ? derived : [], without }
  return ownBrandNotes(own, await unknownLabels(warehouse, ids, config.labels))
}

/** Open periods make views slower, not wrong: a run that read everything is complete without their sums. */
async function sumForViews({ warehouse, config, signal, log }: Run): Promise<void> {
  try {
    const periods = await withRetries(warehouse, signal, () => sumOpenPeriods(warehouse, config, signal))
    if (periods > 0) log.debug({ periods }, 'periods summed for views')
  } catch (cause) {
    if (!signal.aborted) log.warn({ reason: messageOf(cause) }, 'periods could not be summed for views')
  }
}

function deadlineReason({ source }: Services['config']): string {
  return `source.run_minutes passed: the run was stopped after ${source.run_minutes} min; what is loaded stays, and the next run continues from there`
}

function sum(reports: readonly StreamReport[], field: 'rows_read' | 'requests'): number {
  return reports.reduce((total, report) => total + report[field], 0)
}

/** What a run needs beside its services, whichever process does a part of it. */
export function makeRun(
  services: Services,
  own: Pick<Run, 'runId' | 'command' | 'limit' | 'mentions' | 'acceptDeletes' | 'lookbackFrom' | 'recentFrom'>,
  signal: AbortSignal,
): Run {
  const log = services.log.child({ run: own.runId })
  return { ...services, ...own, log, signal, dayStreams: dayStreamNames(services.config) }
}

/** One task for each project and stream. */
async function makeTasks(
  run: Run,
  request: RunRequest,
  reports: StreamReport[],
  observer: Observer,
  stopRun: Task['stopRun'],
  noteFailure: (failure: Failure) => void,
): Promise<Map<string, Task>> {
  const tasks = new Map<string, Task>()
  const failedProjects: Task['failedProjects'] = new Map()
  const failProject = (projectId: string, failure: Failure) => {
    failedProjects.set(projectId, failure)
    // The only project: its trouble is that of the run.
    if (request.projects.length === 1) noteFailure(failure)
  }
  const failRun = (failure: Failure) => {
    for (const { id } of request.projects) if (!failedProjects.has(id)) failedProjects.set(id, failure)
    noteFailure(failure)
  }
  const totals = { days: 0, lists: 0 }
  const of = { today: dayOf(run.clock()), lookbackDays: run.config.lookback_days }
  const summaryOf = await withRetries(run.warehouse, run.signal, () =>
    readCoverageSummaries(run.warehouse, duePairs(request), of),
  )
  for (const project of request.projects) {
    for (const stream of request.streams) {
      const report = emptyReport(project.id, stream.name)
      reports.push(report)
      const left = stream.by === 'list' ? { list: true } : await feedOf(run, request, project, stream, summaryOf)
      if ('list' in left) totals.lists++
      else totals.days += left.totalDays
      const task: Task = {
        run,
        project,
        stream,
        report,
        observer,
        left,
        tasks,
        failedProjects,
        stopRun,
        failProject,
        failRun,
      }
      tasks.set(taskName(task), task)
    }
  }
  observer.planned?.(totals)
  return tasks
}

/** Where the ledger decides what is due: a given range is read whatever is known of it. */
function duePairs({ projects, streams, range }: RunRequest): Pair[] {
  if (range !== undefined) return []
  return projects.flatMap(({ id }) =>
    streams.flatMap(({ by, name }) => (by === 'day' ? [{ projectId: id, stream: name }] : [])),
  )
}

async function feedOf(
  run: Run,
  request: RunRequest,
  project: SyncedProject,
  stream: DayStream,
  summaryOf: (pair: Pair) => CoverageSummary,
): Promise<WindowFeed> {
  const { config, limit } = run
  const today = dayOf(run.clock())
  const pair = { projectId: project.id, stream: stream.name }
  const { range } = request
  const summary = summaryOf(pair)
  const coverage =
    range === undefined
      ? summary.coverage
      : await withRetries(run.warehouse, run.signal, () => readCoverage(run.warehouse, pair, range))
  const due = () => {
    if (request.only !== undefined) return request.only(project.id, stream.name)
    if (range === undefined) {
      return dueDays(summary, { interest: daysOfInterest(config, today), today, lookbackDays: config.lookback_days })
    }
    const covered = new Set(coverage.map(({ date }) => date))
    return daysIn(readableRange(range, today)).filter((day) => !request.missingOnly || !covered.has(day))
  }
  return new WindowFeed(due(), new Density(coverage, today), () => limit.current, config.source.max_window_days)
}
