import type { Day } from '../../core/day.ts'
import { InterruptedError, messageOf } from '../../core/errors.ts'
import { failureCodeOf, reportedCode } from '../../core/failure-code.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl } from '../../streams/stream.ts'
import { checkHistory, readDueControls } from '../reconcile/read-control.ts'
import type { Run, SyncedProject } from './run.ts'
import { type Gate, isExhausted, reportPlan, type SharedByTasks, type Task } from './task.ts'

/** Lists show what values dimensions have. The report by date alone gives the control totals. */
function isReadFirst({ stream }: Task): boolean {
  return stream.by === 'list' || isControl(stream)
}

/** Reads the control totals of each project, after its first streams and before those that are compared with the totals. */
export class ControlPhase implements Gate {
  private readonly reading = new Map<string, Promise<void>>()
  private readonly open = new Set<string>()
  private readonly context: CallContext

  constructor(
    private readonly run: Run,
    private readonly shared: Omit<SharedByTasks, 'gate'>,
    /** Gives the days of each stream that are due now; undefined if the run was given its days. */
    private readonly replan: ((project: SyncedProject) => Promise<(stream: string) => Day[]>) | undefined,
  ) {
    this.context = { signal: run.signal, onAttempt: (status) => shared.observer.onRequest?.(status) }
  }

  mayBegin(task: Task): boolean {
    this.beginReading(task.project)
    return isReadFirst(task) || this.open.has(task.project.id)
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

  private tasksOf({ id }: SyncedProject): Task[] {
    return [...this.shared.tasks.values()].filter(({ project }) => project.id === id)
  }

  /** Without control totals, days are loaded without a comparison. They stay due, and the run is partial. */
  private async readTotals(project: SyncedProject): Promise<void> {
    const { run, shared, context, replan } = this
    const feeds = this.tasksOf(project).flatMap(({ stream, remaining }) =>
      stream.by === 'day' && remaining.kind === 'windows' ? [{ stream, feed: remaining.feed }] : [],
    )
    if (feeds.length === 0) return
    try {
      if (replan !== undefined && (await checkHistory(run, project, context))) {
        const dueDays = await replan(project)
        for (const { stream, feed } of feeds) feed.replan(dueDays(stream.name))
        reportPlan(shared)
      }
      const due = new Map(feeds.map(({ stream, feed }): [DayStream, readonly Day[]] => [stream, feed.dueDays]))
      await readDueControls(run, project, due, context)
    } catch (error) {
      if (run.signal.aborted || error instanceof InterruptedError) return
      const reason = `${project.id}: control totals could not be read: ${messageOf(error)}`
      shared.failures.note({ reason, code: reportedCode(failureCodeOf(error)) })
    }
  }
}
