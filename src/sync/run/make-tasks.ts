import { daysOfInterest } from '../../core/config/load.ts'
import { type Day, dayOf, daysIn } from '../../core/day.ts'
import { type StreamOfProject, streamKey } from '../../core/stream-key.ts'
import { type CoverageSummary, readCoverage, readCoverageSummaries } from '../../ledger/coverage.ts'
import { readNotOffered } from '../../ledger/not-offered.ts'
import type { DayStream, Stream } from '../../streams/stream.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { Density } from '../plan/density.ts'
import { dueDays, readableRange } from '../plan/due-days.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import type { Run, RunRequest, SyncedProject } from './context.ts'
import { emptyReport, type Failure, type StreamReport } from './report.ts'
import { type Observer, type Task, taskName } from './task.ts'

/** What the tasks of a run call when something happens. */
export interface TaskHooks {
  observer: Observer
  stopRun: Task['stopRun']
  noteFailure: (failure: Failure) => void
}

/** What the ledger says of the days that are due. */
interface Planner {
  today: Day
  summaryOf: (pair: StreamOfProject) => CoverageSummary
  dueDays: (known: CoverageSummary) => Day[]
}

/** One task for each project and stream, and the report that each fills. */
export async function makeTasks(
  run: Run,
  request: RunRequest,
  { observer, stopRun, noteFailure }: TaskHooks,
): Promise<{ tasks: Map<string, Task>; reports: StreamReport[] }> {
  const tasks = new Map<string, Task>()
  const reports: StreamReport[] = []
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
  const planner = await plannerOf(run, request)
  const isOffered = await offeredStreams(run, request)
  for (const project of request.projects) {
    for (const stream of request.streams) {
      if (stream.perChat || !isOffered(project, stream)) continue
      const report = emptyReport(project.id, stream.name)
      reports.push(report)
      const left = stream.by === 'list' ? { list: true } : await feedOf(run, request, project, stream, planner)
      if ('list' in left) totals.lists++
      else totals.days += left.totalDays
      const shared = { run, observer, tasks, failedProjects, stopRun, failProject, failRun }
      const task: Task = { ...shared, project, stream, report, left }
      tasks.set(taskName(task), task)
    }
  }
  observer.planned?.(totals)
  return { tasks, reports }
}

/** What was found not to be offered within the last days is not asked for. Without streams beyond the contract nothing is read. */
async function offeredStreams(
  { warehouse, signal, clock }: Run,
  { projects, streams }: RunRequest,
): Promise<(project: SyncedProject, stream: Stream) => boolean> {
  // If only streams beyond the contract were named, the service is asked again.
  const extras = streams.filter(({ isExtra }) => isExtra).length
  if (extras === 0 || extras === streams.length) return () => true
  const ids = projects.map(({ id }) => id)
  const known = await withRetries(warehouse, signal, () => readNotOffered(warehouse, ids, clock()))
  const names = new Set(known.map(({ project_id, stream }) => streamKey(project_id, stream)))
  return ({ id }, { isExtra, name }) => !isExtra || !names.has(streamKey(id, name))
}

async function plannerOf(run: Run, request: RunRequest): Promise<Planner> {
  const { config, warehouse } = run
  const today = dayOf(run.clock())
  const lookbackDays = config.lookback_days
  const summaryOf = await withRetries(warehouse, run.signal, () =>
    readCoverageSummaries(warehouse, duePairs(request), { today, lookbackDays }),
  )
  return { today, summaryOf, dueDays: dueDays({ interest: daysOfInterest(config, today), today, lookbackDays }) }
}

/** Streams whose coverage decides which days are due; none if a range was given. */
function duePairs({ projects, streams, range }: RunRequest): StreamOfProject[] {
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
  planner: Planner,
): Promise<WindowFeed> {
  const { config, limit } = run
  const { today } = planner
  const pair = { projectId: project.id, stream: stream.name }
  const { range } = request
  const summary = planner.summaryOf(pair)
  const coverage =
    range === undefined
      ? summary.coverage
      : await withRetries(run.warehouse, run.signal, () => readCoverage(run.warehouse, pair, range))
  const due = () => {
    if (request.only !== undefined) return request.only(project.id, stream.name)
    if (range === undefined) return planner.dueDays(summary)
    const covered = new Set(coverage.map(({ date }) => date))
    return daysIn(readableRange(range, today)).filter((day) => !request.missingOnly || !covered.has(day))
  }
  return new WindowFeed(due(), new Density(coverage, today), () => limit.current, config.source.max_window_days)
}
