import { type Day, dayOf } from '../../core/day.ts'
import { InterruptedError, messageOf } from '../../core/errors.ts'
import { failureCodeOf, reportedCode } from '../../core/failure-code.ts'
import { streamKey } from '../../core/vocabulary.ts'
import { readNotOffered } from '../../ledger/service-notes.ts'
import { type DayStream, isControl } from '../../streams/stream.ts'
import { Density, firstDaysOf } from '../plan/density.ts'
import { makePlanner, type Planner } from '../plan/planner.ts'
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
} from './task.ts'

/** One task for each project and stream. */
export async function makeTasks(
  run: Run,
  request: RunRequest,
  known: Pick<SharedByTasks, 'failures' | 'observer'>,
): Promise<SharedByTasks> {
  const { projects, streams } = request
  const byProject = new Map<string, Task[]>()
  const hasOwnDays = request.range !== undefined || request.only !== undefined
  const today = dayOf(run.clock())
  const planFor = (of: readonly SyncedProject[]) =>
    run.retry(() => makePlanner({ ...run, today }, { ...request, projects: of }))
  const parts = { tasks: [] as Task[], ...known }
  const gate = new ControlPhase(run, { byProject, ...parts }, hasOwnDays ? undefined : (project) => planFor([project]))
  const shared: SharedByTasks = { ...parts, gate }
  const planned = await planFor(projects)
  // Streams that were not offered within the last days are not requested, unless only extra streams were named.
  const ids = projects.map(({ id }) => id)
  const onlyExtras = streams.every(({ isExtra }) => isExtra)
  const left = onlyExtras ? [] : await run.retry(() => readNotOffered(run.warehouse, ids, run.clock()))
  const feedOf = async (projectId: string, stream: DayStream) => {
    const { coverage, due } = await run.retry(() => planned(projectId, stream.name))
    const density = new Density(coverage, today, firstDaysOf(stream))
    return new WindowFeed(due, density, () => run.limit.current, run.config.source.max_window_days)
  }
  const notOffered = new Set(left.map(({ project_id, stream }) => streamKey(project_id, stream)))
  for (const project of projects) {
    const tasks: Task[] = []
    byProject.set(project.id, tasks)
    for (const stream of streams) {
      const key = streamKey(project.id, stream.name)
      if (stream.perChat || (stream.isExtra && notOffered.has(key))) continue
      const remaining: Remaining =
        stream.by === 'list'
          ? { kind: 'list', state: 'due' }
          : { kind: 'windows', feed: await feedOf(project.id, stream) }
      const task: Task = { run, project, stream, report: emptyReport(project.id, stream.name), remaining, shared }
      tasks.push(task)
      shared.tasks.push(task)
    }
  }
  reportPlan(shared)
  return shared
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
class ControlPhase implements Gate {
  private readonly reading = new Map<string, Promise<void>>()
  private readonly open = new Set<string>()

  constructor(
    private readonly run: Run,
    private readonly shared: Omit<SharedByTasks, 'gate'> & { byProject: ReadonlyMap<string, readonly Task[]> },
    /** Finds out which days are due now; undefined if the run was given its days. */
    private readonly replan: ((project: SyncedProject) => Promise<Planner>) | undefined,
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
    return this.shared.byProject.get(id) ?? []
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
      // Lists, the control report and the history may have shown that days are old.
      if (replan !== undefined) {
        const planned = await replan(project)
        for (const { stream, feed } of feeds) feed.replan((await planned(project.id, stream.name)).due)
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
}
