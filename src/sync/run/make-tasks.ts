import { daysOfInterest } from '../../core/config/load.ts'
import { type Day, dayOf, daysIn } from '../../core/day.ts'
import { type ProjectStream, streamKey } from '../../core/vocabulary.ts'
import { readCoverage } from '../../ledger/coverage.ts'
import { type CoverageSummary, readCoverageSummaries } from '../../ledger/coverage-summaries.ts'
import { readNotOffered } from '../../ledger/service-notes.ts'
import type { DayStream, Stream } from '../../streams/stream.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { Density, firstDaysOf } from '../plan/density.ts'
import { dueDays, readableRange } from '../plan/due-days.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import { ControlPhase } from './control-phase.ts'
import { emptyReport } from './report.ts'
import type { Run, RunRequest, SyncedProject } from './run.ts'
import { type Remaining, reportPlan, type SharedByTasks, type Task, taskKey } from './task.ts'

/** One task for each project and stream. */
export async function makeTasks(
  run: Run,
  request: RunRequest,
  known: Pick<SharedByTasks, 'failures' | 'observer'>,
): Promise<SharedByTasks> {
  const parts = { tasks: new Map<string, Task>(), ...known }
  const hasOwnDays = request.range !== undefined || request.only !== undefined
  const replan = async (project: SyncedProject) => {
    const planner = await plannerOf(run, { ...request, projects: [project] })
    return (stream: string) => planner.dueDays(planner.summaryOf({ projectId: project.id, stream }))
  }
  const gate = new ControlPhase(run, parts, hasOwnDays ? undefined : replan)
  const shared: SharedByTasks = { ...parts, gate }
  const planner = await plannerOf(run, request)
  const isOffered = await offeredStreams(run, request)
  for (const project of request.projects) {
    for (const stream of request.streams) {
      if (stream.perChat || !isOffered(project, stream)) continue
      const remaining: Remaining =
        stream.by === 'list'
          ? { kind: 'list', state: 'due' }
          : { kind: 'windows', feed: await feedOf(run, request, planner, { project, stream }) }
      const task: Task = { run, project, stream, report: emptyReport(project.id, stream.name), remaining, shared }
      shared.tasks.set(taskKey(task), task)
    }
  }
  reportPlan(shared)
  return shared
}

/** What was found not to be offered within the last days is not asked for. If no extra stream was requested, the ledger is not asked. */
async function offeredStreams(
  { warehouse, signal, clock }: Run,
  { projects, streams }: RunRequest,
): Promise<(project: SyncedProject, stream: Stream) => boolean> {
  // If only extra streams were named, the service is asked again.
  const extras = streams.filter(({ isExtra }) => isExtra).length
  if (extras === 0 || extras === streams.length) return () => true
  const ids = projects.map(({ id }) => id)
  const known = await withRetries(warehouse, signal, () => readNotOffered(warehouse, ids, clock()))
  const names = new Set(known.map(({ project_id, stream }) => streamKey(project_id, stream)))
  return ({ id }, { isExtra, name }) => !isExtra || !names.has(streamKey(id, name))
}

/** What the ledger says of the days that are due. */
interface Planner {
  today: Day
  summaryOf: (projectStream: ProjectStream) => CoverageSummary
  dueDays: (known: CoverageSummary) => Day[]
}

async function plannerOf(run: Run, request: RunRequest): Promise<Planner> {
  const { config, warehouse } = run
  const today = dayOf(run.clock())
  const lookbackDays = config.lookback_days
  const interest = daysOfInterest(config, today)
  const summaryOf = await withRetries(warehouse, run.signal, () =>
    readCoverageSummaries(warehouse, duePairs(request), { from: interest.from, today, lookbackDays }),
  )
  return { today, summaryOf, dueDays: dueDays({ interest, today, lookbackDays }) }
}

/** Streams whose coverage decides which days are due; none if a range was given. */
function duePairs({ projects, streams, range }: RunRequest): ProjectStream[] {
  if (range !== undefined) return []
  return projects.flatMap(({ id }) =>
    streams.flatMap(({ by, name }) => (by === 'day' ? [{ projectId: id, stream: name }] : [])),
  )
}

async function feedOf(
  run: Run,
  request: RunRequest,
  planner: Planner,
  { project, stream }: { project: SyncedProject; stream: DayStream },
): Promise<WindowFeed> {
  const { config, limit } = run
  const { today } = planner
  const projectStream = { projectId: project.id, stream: stream.name }
  const { range } = request
  const summary = planner.summaryOf(projectStream)
  const coverage =
    range === undefined
      ? summary.coverage
      : await withRetries(run.warehouse, run.signal, () => readCoverage(run.warehouse, projectStream, range))
  const due = () => {
    if (request.only !== undefined) return request.only(project.id, stream.name)
    if (range === undefined) return planner.dueDays(summary)
    const covered = new Set(coverage.map(({ date }) => date))
    return daysIn(readableRange(range, today)).filter((day) => !request.missingOnly || !covered.has(day))
  }
  const density = new Density(coverage, today, firstDaysOf(stream))
  return new WindowFeed(due(), density, () => limit.current, config.source.max_window_days)
}
