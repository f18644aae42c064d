import { daysOfInterest } from '../../core/config/load.ts'
import { type Day, dayOf, daysIn } from '../../core/day.ts'
import { InterruptedError, messageOf } from '../../core/errors.ts'
import { failureCodeOf, reportedCode } from '../../core/failure-code.ts'
import { type ProjectStream, streamKey } from '../../core/vocabulary.ts'
import { countStale, readCoverage } from '../../ledger/coverage.ts'
import { type CoverageSummary, readCoverageSummaries } from '../../ledger/coverage-summaries.ts'
import { readNotOffered } from '../../ledger/service-notes.ts'
import { type DayStream, isControl, type Stream } from '../../streams/stream.ts'
import { Density, firstDaysOf } from '../plan/density.ts'
import { dueDays, readableRange } from '../plan/due-days.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import { NULLABLE, recheckNotAdditive } from '../reconcile/prove-not-additive.ts'
import { checkHistory, readDueControls } from '../reconcile/read-control.ts'
import { emptyReport } from './report.ts'
import type { Run, RunRequest, SyncedProject } from './run.ts'
import {
  countRequest,
  type Gate,
  isExhausted,
  type Remaining,
  reportPlan,
  type SharedByTasks,
  type Task,
  taskKey,
} from './task.ts'

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
  { warehouse, clock, retry }: Run,
  { projects, streams }: RunRequest,
): Promise<(project: SyncedProject, stream: Stream) => boolean> {
  // If only extra streams were named, the service is asked again.
  const extras = streams.filter(({ isExtra }) => isExtra).length
  if (extras === 0 || extras === streams.length) return () => true
  const ids = projects.map(({ id }) => id)
  const known = await retry(() => readNotOffered(warehouse, ids, clock()))
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
  const summaryOf = await run.retry(() =>
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
    range === undefined ? summary.coverage : await run.retry(() => readCoverage(run.warehouse, projectStream, range))
  const due = () => {
    if (request.only !== undefined) return request.only(project.id, stream.name)
    if (range === undefined) return planner.dueDays(summary)
    const sound = new Set(coverage.flatMap(({ date, state }) => (state === 'read' ? [date] : [])))
    return daysIn(readableRange(range, today)).filter((day) => !request.missingOnly || !sound.has(day))
  }
  const density = new Density(coverage, today, firstDaysOf(stream))
  return new WindowFeed(due(), density, () => limit.current, config.source.max_window_days)
}

/** Lists show what values dimensions have. The report by date alone gives the control totals. */
function isReadFirst({ stream }: Task): boolean {
  return stream.by === 'list' || isControl(stream)
}

/** Chats show which prompts and channels have answers, and so which groups a report may lack. */
function isReadAfterChats({ stream }: Task): boolean {
  return stream.by === 'day' && (stream.dimensions ?? []).some((name) => NULLABLE.includes(name))
}

/** Reads the control totals of each project, after its first streams and before those that are compared with the totals. */
export class ControlPhase implements Gate {
  private readonly reading = new Map<string, Promise<void>>()
  private readonly open = new Set<string>()
  private readonly byProject = new Map<string, Task[]>()

  constructor(
    private readonly run: Run,
    private readonly shared: Omit<SharedByTasks, 'gate'>,
    /** Gives the days of each stream that are due now; undefined if the run was given its days. */
    private readonly replan: ((project: SyncedProject) => Promise<(stream: string) => Day[]>) | undefined,
  ) {}

  mayBegin(task: Task): boolean {
    this.beginReading(task.project)
    if (isReadFirst(task)) return true
    return this.open.has(task.project.id) && !(isReadAfterChats(task) && this.readsChats(task.project))
  }

  private readsChats(project: SyncedProject): boolean {
    const isOfChats = ({ stream }: Task) => stream.by === 'day' && stream.control === 'answers'
    return this.tasksOf(project).some((task) => isOfChats(task) && !isExhausted(task))
  }

  get pending(): Promise<void> | undefined {
    return this.reading.size === 0 ? undefined : Promise.race(this.reading.values())
  }

  private beginReading(project: SyncedProject): void {
    const { reading, open } = this
    if (open.has(project.id) || reading.has(project.id)) return
    if (this.tasksOf(project).some((task) => isReadFirst(task) && !isExhausted(task))) return
    const done = this.readTotals(project).finally(() => {
      reading.delete(project.id)
      open.add(project.id)
    })
    reading.set(project.id, done)
  }

  private tasksOf({ id }: SyncedProject): readonly Task[] {
    const { byProject } = this
    if (byProject.size === 0) {
      for (const task of this.shared.tasks.values()) {
        const tasks = byProject.get(task.project.id)
        if (tasks === undefined) byProject.set(task.project.id, [task])
        else tasks.push(task)
      }
    }
    return byProject.get(id) ?? []
  }

  /** Without control totals, days are loaded without a comparison. They stay due, and the run is partial. */
  private async readTotals(project: SyncedProject): Promise<void> {
    const { run, shared, replan } = this
    const feeds = this.tasksOf(project).flatMap(({ stream, remaining, report }) =>
      stream.by === 'day' && remaining.kind === 'windows' ? [{ stream, feed: remaining.feed, report }] : [],
    )
    if (feeds.length === 0) return
    // Requests for control totals are counted in the control report, or in the first stream by day if that is not configured.
    const { report } = feeds.find(({ stream }) => isControl(stream)) ?? feeds[0]!
    const { observer } = shared
    const context = { signal: run.signal, onAttempt: (status?: number) => countRequest({ report, observer }, status) }
    try {
      const isChecked = replan !== undefined && (await checkHistory(run, project, context))
      if (isChecked) await recheckNotAdditive(run, project, context)
      if (replan !== undefined && (isChecked || (await this.hasStaleDays(project, feeds)))) {
        const dueDays = await replan(project)
        for (const { stream, feed } of feeds) feed.replan(dueDays(stream.name))
        reportPlan(shared)
      }
      const due = new Map(feeds.map(({ stream, feed }): [DayStream, readonly Day[]] => [stream, feed.dueDays]))
      const changed = await readDueControls(run, project, due, context)
      for (const { stream, feed } of feeds) if (isControl(stream) && !stream.filters?.length) feed.readAgain(changed)
    } catch (error) {
      if (run.signal.aborted || error instanceof InterruptedError) return
      const reason = `${project.id}: control totals could not be read: ${messageOf(error)}`
      shared.failures.note({ reason, code: reportedCode(failureCodeOf(error)) })
    }
  }

  /** Lists and the control report may have shown that days of other streams are old. */
  private async hasStaleDays({ id }: SyncedProject, feeds: readonly { stream: DayStream }[]): Promise<boolean> {
    const { warehouse, clock, retry } = this.run
    const streams = feeds.map(({ stream }) => stream.name)
    const range = { from: '0001-01-01', to: dayOf(clock()) }
    return (await retry(() => countStale(warehouse, [id], { streams, range }))).length > 0
  }
}
