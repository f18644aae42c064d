import { randomUUID } from 'node:crypto'
import { applyResult } from '../sync/run/execute.ts'
import type { Run } from '../sync/run/run.ts'
import { putBack, type Task, type TaskRotation, type WorkItem } from '../sync/run/task.ts'
import { withRetries } from '../warehouse/retry.ts'
import type { Queue } from './boss.ts'
import type { NewDeadWindow } from './dead-windows.ts'
import {
  deleteResults,
  dropWindowsOfEndedRuns,
  enqueueWindows,
  missingWindows,
  readResults,
  withdrawWindows,
} from './run-windows.ts'
import type { WindowResult } from './window-result.ts'

/** A database that is away is waited for as long as the run has its lease. */
export function whileLeased<T>({ signal, log }: Run, work: () => Promise<T>): Promise<T> {
  const onWait = (reason: string) => log.warn({ reason }, 'the queue cannot be reached')
  return withRetries({ patienceMs: Number.POSITIVE_INFINITY, onWait }, signal, work)
}

const MOST_AT_ONCE = 1000
// A sync goes before any backfill; within a run, what was handed out first goes first.
const SYNC_FIRST = 1_000_000_000

/** The work items of one run that are in the queue, by the ids of their windows. */
export class QueuedItems {
  private readonly items = new Map<string, WorkItem>()
  private sequence = 0

  constructor(
    private readonly run: Run,
    private readonly queue: Queue,
  ) {}

  get size(): number {
    return this.items.size
  }

  async put(items: readonly WorkItem[]): Promise<void> {
    const added = items.map((item) => [randomUUID(), item] as const)
    for (const [id, item] of added) this.items.set(id, item)
    await this.enqueue(added)
  }

  /** A result is deleted once it was applied, and applied once: then its item is not here any more. Gives their number. */
  async collectResults(apply: (item: WorkItem, result: WindowResult) => void): Promise<number> {
    if (this.items.size === 0) return 0
    const { warehouse, runId } = this.run
    const rows = await whileLeased(this.run, () => readResults(warehouse, runId, MOST_AT_ONCE))
    if (rows.length === 0) return 0
    for (const { id, result } of rows) {
      const item = this.remove(id)
      if (item !== undefined) apply(item, result)
    }
    const ids = rows.map(({ id }) => id)
    await whileLeased(this.run, () => deleteResults(warehouse, ids))
    return rows.length
  }

  /** Takes items out of the queue that no worker has begun. */
  async withdraw({ most = MOST_AT_ONCE, project }: { most?: number; project?: string }): Promise<WorkItem[]> {
    const which = project === undefined ? { most } : { most, project }
    const ids = await whileLeased(this.run, () => withdrawWindows(this.queue, this.run.runId, which))
    return ids.flatMap((id) => this.remove(id) ?? [])
  }

  /** Puts items in again whose windows vanished from the queue without a result. */
  async restoreMissing(): Promise<void> {
    const ids = await whileLeased(this.run, () => missingWindows(this.run.warehouse, [...this.items.keys()]))
    const missing = ids.map((id) => [id, this.items.get(id)!] as const)
    if (missing.length === 0) return
    this.run.log.warn({ windows: missing.length }, 'windows vanished from the queue and are put in again')
    await this.enqueue(missing)
  }

  /** Takes everything out of the queue at the end of the run, also what workers have begun. Gives the items. */
  drop(patienceMs: number): { items: WorkItem[]; dropped: Promise<void> } {
    const items = [...this.items.values()]
    this.items.clear()
    const drop = () => dropWindowsOfEndedRuns(this.queue, { andOf: this.run.runId, patienceMs })
    return { items, dropped: items.length === 0 ? Promise.resolve() : drop() }
  }

  private remove(id: string): WorkItem | undefined {
    const item = this.items.get(id)
    this.items.delete(id)
    return item
  }

  private async enqueue(items: readonly (readonly [string, WorkItem])[]): Promise<void> {
    const { runId, command, acceptDeletes, lookbackFrom, recentFrom, limit } = this.run
    const first = command === 'backfill' ? 0 : SYNC_FIRST
    const windows = items.map(([id, { task, range }]) => {
      return { id, project: task.project.id, stream: task.stream.name, range, priority: first - this.sequence++ }
    })
    const settings = { command, acceptDeletes, lookbackFrom, recentFrom, pageLimit: limit.current }
    await whileLeased(this.run, () => enqueueWindows(this.queue, runId, settings, windows))
  }
}

/** Stream after stream, each of all projects: workers that take windows in this order seldom share a project. */
export function byStream(tasks: readonly Task[]): Task[] {
  const names = new Set(tasks.map(({ stream }) => stream.name))
  return [...names].flatMap((name) => tasks.filter(({ stream }) => stream.name === name))
}

const MOST_SUPERSEDED_READS = 5

/** Applies the results of a run's work items, of workers and of this process. */
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
