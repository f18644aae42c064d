import { randomUUID } from 'node:crypto'
import type { Run } from '../sync/run/run.ts'
import type { WorkItem } from '../sync/run/task.ts'
import { withRetries } from '../warehouse/retry.ts'
import type { Queue } from './boss.ts'
import {
  deleteResults,
  enqueueWindows,
  missingWindows,
  readResults,
  type WindowResult,
  withdrawWindows,
} from './run-windows.ts'

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
    const ids = items.map((item) => {
      const id = randomUUID()
      this.items.set(id, item)
      return id
    })
    await this.enqueue(ids)
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

  async withdraw({ most = MOST_AT_ONCE, project }: { most?: number; project?: string }): Promise<WorkItem[]> {
    const ids = await whileLeased(this.run, () => withdrawWindows(this.queue, this.run.runId, { most, project }))
    return ids.flatMap((id) => this.remove(id) ?? [])
  }

  async restoreMissing(): Promise<void> {
    const ids = await whileLeased(this.run, () => missingWindows(this.run.warehouse, [...this.items.keys()]))
    if (ids.length === 0) return
    this.run.log.warn({ windows: ids.length }, 'windows vanished from the queue and are put in again')
    await this.enqueue(ids)
  }

  /** Also what workers have begun. */
  clear(): WorkItem[] {
    const items = [...this.items.values()]
    this.items.clear()
    return items
  }

  private remove(id: string): WorkItem | undefined {
    const item = this.items.get(id)
    this.items.delete(id)
    return item
  }

  private async enqueue(ids: readonly string[]): Promise<void> {
    const { runId, command, acceptDeletes, lookbackFrom, limit } = this.run
    const first = command === 'backfill' ? 0 : SYNC_FIRST
    const windows = ids.map((id) => {
      const { task, range } = this.items.get(id)!
      return { id, project: task.project.id, stream: task.stream.name, range, priority: first - this.sequence++ }
    })
    const settings = { command, acceptDeletes, lookbackFrom, pageLimit: limit.current }
    await whileLeased(this.run, () => enqueueWindows(this.queue, runId, settings, windows))
  }
}
