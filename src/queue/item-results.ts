import { applyResult } from '../sync/run/apply-result.ts'
import type { Run } from '../sync/run/run.ts'
import { putBack, type WorkItem } from '../sync/run/task.ts'
import type { NewDeadWindow } from './dead-windows.ts'
import type { TaskRotation } from './task-rotation.ts'
import type { WindowResult } from './window-result.ts'

const MOST_SUPERSEDED_READS = 5

/** Applies the results of a run's work items, whoever did them, and keeps what the run has to do about them. */
export class ItemResults {
  /** Items that a worker returned, for this process to do. */
  readonly returned: WorkItem[] = []
  readonly deadWindows: NewDeadWindow[] = []
  /** How often each item was read while a newer read of its days was loaded. */
  private readonly supersededReads = new Map<string, number>()

  constructor(
    private readonly run: Run,
    private readonly rotation: TaskRotation,
  ) {}

  apply(item: WorkItem, { result, cost }: WindowResult): void {
    const { task, range } = item
    const project = task.project.id
    if (result.kind === 'deferred') {
      this.rotation.pause(project, result.waitMs)
      return putBack(item)
    }
    if (result.kind === 'returned') {
      this.run.log.warn({ project, reason: result.reason }, 'a worker could not read it; this process tries')
      this.returned.push(item)
      return
    }
    if (result.kind === 'failed' && result.code === 'superseded' && this.mayReadAgain(item)) return putBack(item)
    if (result.kind === 'failed' && result.code !== 'interrupted') {
      const { reason } = result
      this.deadWindows.push({ runId: this.run.runId, project, stream: task.stream.name, range, reason })
    }
    applyResult(item, result, cost.seconds)
  }

  /** Another run loaded the same days meanwhile: they are read again, a few times at most. */
  private mayReadAgain({ task, range }: WorkItem): boolean {
    const name = JSON.stringify([task.project.id, task.stream.name, range])
    const times = (this.supersededReads.get(name) ?? 0) + 1
    this.supersededReads.set(name, times)
    return times <= MOST_SUPERSEDED_READS
  }
}
