import { InterruptedError, messageOf } from '../../core/errors.ts'
import { failureCodeOf, reportedCode } from '../../core/failure-code.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl } from '../../streams/stream.ts'
import { checkHistory, readDueControls } from '../reconcile/check-history.ts'
import type { Run, RunRequest, SyncedProject } from './run.ts'
import type { SharedByTasks, Task } from './task.ts'

/** True for lists, which show what values dimensions have, and for the report by date alone. */
export function isReadFirst({ stream }: Task): boolean {
  return stream.by === 'list' || isControl(stream)
}

/** Reads the control totals of a run, before the days that must add up to them. */
export class ControlPhase {
  private readonly context: CallContext

  constructor(
    private readonly run: Run,
    private readonly request: RunRequest,
    private readonly shared: Pick<SharedByTasks, 'failures' | 'observer'>,
  ) {
    this.context = { signal: run.signal, onAttempt: (status) => shared.observer.asked?.(status) }
  }

  /** The totals of the whole history, if they are due. A backfill has a range of its own. */
  async checkHistory(): Promise<void> {
    if (this.request.range !== undefined || this.request.only !== undefined) return
    await this.forEachProject((project) => checkHistory(this.run, project, this.context))
  }

  /** The totals of the days that the tasks are about to read, as far as the report by date alone did not give them. */
  async readDue(tasks: readonly Task[]): Promise<void> {
    await this.forEachProject((project) => {
      const due = new Map<DayStream, readonly string[]>()
      for (const {
        project: { id },
        stream,
        remaining,
      } of tasks)
        if (id === project.id && stream.by === 'day' && remaining.kind === 'windows')
          due.set(stream, remaining.feed.dueDays)
      return readDueControls(this.run, project, due, this.context)
    })
  }

  /** Without control totals, days are loaded without a comparison. They stay due, and the run is partial. */
  private async forEachProject(work: (project: SyncedProject) => Promise<void>): Promise<void> {
    const { run, request, shared } = this
    await Promise.all(
      request.projects.map(async (project) => {
        if (run.signal.aborted || shared.failures.projects.has(project.id)) return
        try {
          await work(project)
        } catch (error) {
          if (run.signal.aborted || error instanceof InterruptedError) return
          const reason = `${project.id}: control totals could not be read: ${messageOf(error)}`
          shared.failures.note({ reason, code: reportedCode(failureCodeOf(error)) })
        }
      }),
    )
  }
}
