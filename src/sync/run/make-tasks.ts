import { type Day, dayOf, daysIn } from '../../core/day.ts'
import { InterruptedError, messageOf } from '../../core/errors.ts'
import { failureCodeOf, reportedCode } from '../../core/failure-code.ts'
import { streamKey } from '../../core/vocabulary.ts'
import { type ControlKey, controlRows, filtersText } from '../../ledger/control-totals.ts'
import { readChanged } from '../../ledger/days.ts'
import { readNotOffered } from '../../ledger/service-notes.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl } from '../../streams/stream.ts'
import { Density, firstDaysOf } from '../plan/density.ts'
import { makePlanner } from '../plan/planner.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import { NULLABLE } from '../reconcile/answer-facts.ts'
import { checkHistory, readControl } from '../reconcile/read-control.ts'
import { type Executor, executeHere } from './execute.ts'
import { refusalOfProject } from './refused-project.ts'
import { emptyReport } from './report.ts'
import type { Run, RunRequest, SyncedProject } from './run.ts'
import { READINGS } from './sync-window.ts'
import { countRequest, failRemaining, isExhausted, type SharedByTasks, type Task } from './task.ts'

/** One task for each project and stream, with the days that are due. */
export async function makeTasks(run: Run, request: RunRequest, shared: SharedByTasks): Promise<Task[]> {
  const { projects, streams } = request
  // Streams that were not offered within the last days are not requested, unless only extra streams were named.
  const ids = projects.map(({ id }) => id)
  const onlyExtras = streams.every(({ isExtra }) => isExtra)
  const left = onlyExtras ? [] : await run.retry(() => readNotOffered(run.warehouse, ids, run.clock()))
  const notOffered = new Set(left.map(({ project_id, stream }) => streamKey(project_id, stream)))
  const tasks: Task[] = []
  for (const project of projects) {
    for (const stream of streams) {
      if (stream.perChat || (stream.isExtra && notOffered.has(streamKey(project.id, stream.name)))) continue
      const remaining: Task['remaining'] =
        stream.by === 'list'
          ? { kind: 'list', state: 'due' }
          : { kind: 'windows', feed: feedOf(run, stream, [], []), planned: new Set() }
      tasks.push({ run, project, stream, report: emptyReport(project.id, stream.name), remaining, shared })
    }
  }
  await planTasks(run, request, tasks)
  return tasks
}

function feedOf(
  run: Run,
  stream: DayStream,
  due: readonly Day[],
  known: ConstructorParameters<typeof Density>[0],
  bridgesGaps = false,
) {
  const density = new Density(known, dayOf(run.clock()), firstDaysOf(stream))
  return new WindowFeed(due, density, () => run.limit.current, run.config.source.max_window_days, bridgesGaps)
}

/** A run that was not given its days. */
const isSync = ({ range, only }: RunRequest) => range === undefined && only === undefined

/** Gives each task the days that are due now, except those that it was given before. */
async function planTasks(run: Run, request: RunRequest, tasks: readonly Task[]): Promise<void> {
  const today = dayOf(run.clock())
  const plan = await run.retry(() => makePlanner({ ...run, today }, request))
  for (const { project, stream, remaining } of tasks) {
    if (stream.by !== 'day' || remaining.kind !== 'windows') continue
    const { known, due } = await run.retry(() => plan(project.id, stream.name))
    // Only the report by date alone was read since the days were planned first.
    const before = isControl(stream) ? remaining.planned : new Set<Day>()
    const days = due.filter((day) => !before.has(day))
    remaining.feed = feedOf(run, stream, days, known, isSync(request))
    remaining.planned = new Set([...before, ...days])
  }
}

/** A list of each project that every service has. */
function firstLists(tasks: readonly Task[]): Task[] {
  const lists = tasks.filter(({ stream }) => stream.by === 'list' && !stream.isExtra)
  return [...new Map(lists.toReversed().map((task) => [task.project.id, task])).values()]
}

/** Lists show what values dimensions have. The report by date alone gives the control totals. */
function isReadFirst({ stream }: Task): boolean {
  return stream.by === 'list' || isControl(stream)
}

/** Chats show which prompts and channels have answers, and so which groups a report may lack. */
function isReadAfterChats({ stream }: Task): boolean {
  return stream.by === 'day' && (stream.dimensions ?? []).some((name) => NULLABLE.includes(name))
}

/**
 * Reads everything that is due: lists and the report by date alone, then the control totals, then the other streams, and in the
 * end, at most twice, the days that changed while the run read them.
 */
export async function performTasks(
  run: Run,
  request: RunRequest,
  tasks: readonly Task[],
  execute: Executor,
): Promise<void> {
  const read = async (some: readonly Task[]) => {
    if (!run.signal.aborted && !some.every(isExhausted)) await execute(run, some)
    for (const task of some) failRemaining(task)
  }
  // A backfill leaves days alone that were due before it.
  const changedBefore = isSync(request) ? [] : await readChangedDays(run, tasks)
  reportPlan(tasks)
  // One list of each project shows whether the service refuses all of it. That is not worth sending to workers.
  await executeHere(run, firstLists(tasks))
  await read(tasks.filter(isReadFirst))
  const projects = new Set(request.projects)
  const ofProjects = (some: readonly Task[]) => some.filter(({ project }) => projects.has(project))
  if (isSync(request)) {
    await readTotals(run, projects, tasks, ([task], context) => checkHistory(run, task.project, context))
    // Lists, the report by date and the history may have shown that days are old.
    if (!run.signal.aborted) await planTasks(run, request, tasks)
    reportPlan(tasks)
  }
  await readTotals(run, projects, tasks, (own, context) => readDueControls(run, own, context))
  await read(tasks.filter((task) => !isReadAfterChats(task)))
  await read(tasks.filter(isReadAfterChats))
  if (run.signal.aborted) return
  // Days that were not compared with control totals would be due again.
  const wasDue = ({ task, date, isOfRun }: ChangedDay) =>
    !isOfRun && changedBefore.some((day) => day.task === task && day.date === date)
  const readChangedNow = async () => (await readChangedDays(run, ofProjects(tasks))).filter((day) => !wasDue(day))
  let changed = await readChangedNow()
  for (let reading = 1; reading < READINGS && changed.length > 0; reading++) {
    const again = planChanged(run, changed)
    await readTotals(run, projects, again, (own, context) => readDueControls(run, own, context))
    await read(again)
    changed = await readChangedNow()
  }
  for (const { task, date, isOfRun } of changed)
    if (isOfRun) task.report.unreconciled.push({ date, difference: CHANGED_AGAIN })
}

function reportPlan(tasks: readonly Task[]): void {
  const totals = { days: 0, lists: 0 }
  for (const { remaining } of tasks) {
    if (remaining.kind === 'list') totals.lists++
    else totals.days += remaining.planned.size
  }
  tasks[0]?.shared.observer.planned?.(totals)
}

/**
 * Has something read control totals for each of the projects. A project whose totals cannot be read is removed: its days are
 * loaded without a comparison. They stay due, and the run is partial.
 */
async function readTotals(
  run: Run,
  projects: Set<SyncedProject>,
  tasks: readonly Task[],
  read: (own: [Task, ...Task[]], context: CallContext) => Promise<void>,
): Promise<void> {
  const readOf = async (project: SyncedProject) => {
    const own = tasks.filter((task) => task.project === project && task.remaining.kind === 'windows')
    // Requests for control totals are counted in the control report, or in the first stream by day if that is not configured.
    const counted = own.find(({ stream }) => stream.by === 'day' && isControl(stream)) ?? own[0]
    if (counted === undefined || counted.shared.failures.projects.has(project.id)) return
    const { report, shared } = counted
    const onAttempt = (status?: number) => countRequest({ report, observer: shared.observer }, status)
    const context = { signal: run.signal, onAttempt }
    try {
      await read(own as [Task, ...Task[]], context)
    } catch (error) {
      projects.delete(project)
      if (run.signal.aborted || error instanceof InterruptedError) return
      const refusal = await refusalOfProject(run, { project }, error, context)
      if (refusal !== undefined)
        return shared.failures.failProject(project.id, { reason: refusal.message, code: 'project' })
      const reason = `${project.id}: control totals could not be read: ${messageOf(error)}`
      shared.failures.note({ reason, code: reportedCode(failureCodeOf(error)) })
    }
  }
  await Promise.all([...projects].map(readOf))
}

/** Reads the control totals of days that are due in streams which are compared, as far as the run has not read them yet. */
async function readDueControls(run: Run, [first, ...others]: [Task, ...Task[]], context: CallContext): Promise<void> {
  const { project } = first
  const due = new Map<string, { filters: ControlKey['filters']; days: Set<Day> }>()
  for (const { stream, remaining } of [first, ...others]) {
    if (stream.by !== 'day' || stream.control === undefined || remaining.kind !== 'windows') continue
    const { filters = [] } = stream
    const same = due.get(filtersText(filters)) ?? { filters, days: new Set() }
    due.set(filtersText(filters), same)
    for (const day of remaining.feed.dueDays) same.days.add(day)
  }
  for (const { filters, days: all } of due.values()) {
    const days = [...all].sort()
    if (days.length === 0) continue
    const whole = { from: days[0]!, to: days.at(-1)! }
    const known = controlRows({ projectId: project.id, filters }, whole, run.runId)
    const { rows } = await run.retry(() => known.execute(run.warehouse.db))
    const read = new Set(rows.map(({ date }) => date))
    // Windows may have the days between.
    const missing = daysIn(whole).filter((day) => !read.has(day))
    if (missing.length === 0) continue
    await readControl(run, { project, filters, range: { from: missing[0]!, to: missing.at(-1)! } }, context)
  }
}

interface ChangedDay {
  task: Task
  date: Day
  /** True if this run has read the day. */
  isOfRun: boolean
}

async function readChangedDays(run: Run, tasks: readonly Task[]): Promise<ChangedDay[]> {
  const { warehouse, runId } = run
  const byStream = new Map(tasks.map((task) => [streamKey(task.project.id, task.stream.name), task]))
  const ids = [...new Set(tasks.map(({ project }) => project.id))]
  const streams = [...new Set(tasks.map(({ stream }) => stream.name))]
  // A backfill may have read days that are not configured.
  const range = { from: '0001-01-01', to: dayOf(run.clock()) }
  const found = await run.retry(() => readChanged(warehouse, ids, { streams, range, runId }))
  return found.flatMap(({ projectId, stream, date, isOfRun }) => {
    const task = byStream.get(streamKey(projectId, stream))
    return task?.remaining.kind === 'windows' ? [{ task, date, isOfRun }] : []
  })
}

const CHANGED_AGAIN = 'the service changed the day again after it was read'

function planChanged(run: Run, changed: readonly ChangedDay[]): Task[] {
  const tasks = [...new Set(changed.map(({ task }) => task))]
  for (const task of tasks) {
    const { stream, remaining } = task
    if (stream.by !== 'day' || remaining.kind !== 'windows') continue
    const days = changed.filter((day) => day.task === task).map(({ date }) => date)
    remaining.feed = feedOf(run, stream, days, [])
    remaining.planned = new Set([...remaining.planned, ...days])
  }
  reportPlan(tasks)
  return tasks
}
