import { daysOfInterest } from '../core/config/load.ts'
import { addDays, type Day, dayOf, daysIn, type Range } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import { type Knowledge, readCoverage, readKnowledge } from '../ledger/coverage.ts'
import { lockRun, type Pair } from '../ledger/locks.ts'
import { closeRun } from '../ledger/runs.ts'
import { streamsOf } from '../streams/registry.ts'
import type { DayStream, Stream } from '../streams/stream.ts'
import { applyLabels } from '../warehouse/mentions.ts'
import { migrate } from '../warehouse/migrate.ts'
import { sumOpenPeriods } from '../warehouse/prompt-sums.ts'
import { withRetries } from '../warehouse/retry.ts'
import { saveStreamSettings } from '../warehouse/stream-settings.ts'
import type { Run, Services, SyncedProject } from './context.ts'
import { PageLimit } from './page-limit.ts'
import { Density, dueDays, readableRange, WindowFeed } from './plan.ts'
import { emptyReport, outcomeOf, type RunReport, type StreamReport } from './report.ts'
import { abandon, drainHere, findCut, type Observer, type Task, taskName } from './tasks.ts'

export type { Observer, Step } from './tasks.ts'

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

/** One run: locks, plans, reads and loads everything that was asked for, and closes with an honest outcome. */
export async function runSync(services: Services, request: RunRequest, observer: Observer = {}): Promise<RunReport> {
  const { warehouse, config } = services
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
    // Whoever works at the queue may work beside others: each window is safe by itself.
    shared: services.queue !== undefined,
  })
  observer.started?.({ runId: held.runId, command: request.command })
  const stopped = new AbortController()
  const signals = [stopped.signal, held.lost, ...(request.signal === undefined ? [] : [request.signal])]
  const run = makeRun(
    services,
    {
      runId: held.runId,
      command: request.command,
      limit: new PageLimit(config.source.page_limit),
      mentions: new Map(),
      acceptDeletes: request.acceptDeletes ?? false,
      lookbackFrom: addDays(lastDay, 1 - config.lookback_days),
      recentFrom: addDays(lastDay, -Math.max(1, config.lookback_days)),
    },
    AbortSignal.any(signals),
  )
  let error: string | null = null
  const reports: StreamReport[] = []
  try {
    const ids = request.projects.map(({ id }) => id)
    await withRetries(run.signal, () => applyLabels(warehouse, ids, config.labels))
    const interest = daysOfInterest(config, today)
    await withRetries(run.signal, () => saveStreamSettings(warehouse.pool, warehouse, config, interest, ids))
    const tasks = await makeTasks(run, request, reports, observer, (reason) => {
      error ??= reason
      stopped.abort()
    })
    const all = [...tasks.values()]
    const work = () => services.queue?.drain(run, all) ?? drainHere(all, config.source.concurrency)
    run.log.info({ command: request.command, source: services.source, streams: pairs.length }, 'run started')
    await work()
    // Each round either proves the largest answer whole or finds a cut, which lowers the page limit.
    for (let round = 0; round < CUT_ROUNDS && (await findCut(run, tasks)); round++) await work()
    for (const task of all) abandon(task)
    await sumForViews(run)
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
  const end = { outcome: report.outcome, summary: report.streams, error }
  await withRetries(undefined, () => closeRun(warehouse, held.runId, end)).catch((cause: unknown) => {
    run.log.error({ reason: messageOf(cause) }, 'the run could not be closed')
  })
  await held.release()
  const totals = { rows: sum(reports, 'rows_read'), requests: sum(reports, 'requests'), seconds: report.seconds }
  run.log[report.outcome === 'complete' ? 'info' : 'warn'](
    { outcome: report.outcome, ...totals, ...(error === null ? {} : { error }) },
    'run ended',
  )
  return report
}

/** Open periods make views slower, not wrong: a run that read everything is complete without their sums. */
async function sumForViews({ warehouse, config, signal, log }: Run): Promise<void> {
  try {
    const periods = await withRetries(signal, () => sumOpenPeriods(warehouse, config, signal))
    if (periods > 0) log.debug({ periods }, 'periods summed for views')
  } catch (cause) {
    if (!signal.aborted) log.warn({ reason: messageOf(cause) }, 'periods could not be summed for views')
  }
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
  const dayStreams = streamsOf(services.config).flatMap(({ by, name }) => (by === 'day' ? [name] : []))
  return { ...services, ...own, log: services.log.child({ run: own.runId }), signal, dayStreams }
}

/** One task for each project and stream. */
async function makeTasks(
  run: Run,
  request: RunRequest,
  reports: StreamReport[],
  observer: Observer,
  stopRun: (reason: string) => void,
): Promise<Map<string, Task>> {
  const tasks = new Map<string, Task>()
  const failedProjects = new Map<string, string>()
  const totals = { days: 0, lists: 0 }
  const of = { today: dayOf(run.clock()), lookbackDays: run.config.lookback_days }
  const knowledgeOf = await withRetries(run.signal, () => readKnowledge(run.warehouse, duePairs(request), of))
  for (const project of request.projects) {
    for (const stream of request.streams) {
      const report = emptyReport(project.id, stream.name)
      reports.push(report)
      const left = stream.by === 'list' ? { list: true } : await feedOf(run, request, project, stream, knowledgeOf)
      if ('list' in left) totals.lists++
      else totals.days += left.totalDays
      const task: Task = { run, project, stream, report, observer, left, tasks, failedProjects, stopRun }
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
  knowledgeOf: (pair: Pair) => Knowledge,
): Promise<WindowFeed> {
  const { config, limit } = run
  const today = dayOf(run.clock())
  const pair = { projectId: project.id, stream: stream.name }
  const { range } = request
  const knowledge = knowledgeOf(pair)
  const coverage =
    range === undefined
      ? knowledge.coverage
      : await withRetries(run.signal, () => readCoverage(run.warehouse, pair, range))
  const due = () => {
    if (request.only !== undefined) return request.only(project.id, stream.name)
    if (range === undefined) {
      return dueDays(knowledge, { interest: daysOfInterest(config, today), today, lookbackDays: config.lookback_days })
    }
    const covered = new Set(coverage.map(({ date }) => date))
    return daysIn(readableRange(range, today)).filter((day) => !request.missingOnly || !covered.has(day))
  }
  return new WindowFeed(due(), new Density(coverage, today), () => limit.current, config.source.max_window_days)
}
