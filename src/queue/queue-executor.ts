import { randomUUID } from 'node:crypto'
import { messageOf } from '../core/errors.ts'
import { monotonic } from '../core/monotonic.ts'
import { sleep } from '../core/sleep.ts'
import { waitAtMost } from '../core/time-limit.ts'
import { closeAbandonedRuns } from '../ledger/run-lock.ts'
import { applyResult } from '../sync/run/apply-result.ts'
import { performHere } from '../sync/run/execute-here.ts'
import type { Run } from '../sync/run/run-types.ts'
import { countRequest, failRemaining, putBack, type Task, type WorkItem } from '../sync/run/task.ts'
import { isTransient } from '../warehouse/retry.ts'
import { pruneQueues, type Queue } from './boss.ts'
import { BudgetWatch } from './budget-watch.ts'
import { type NewDeadWindow, pruneDeadWindows, saveDeadWindows } from './dead-windows.ts'
import { REAP_MS, reapWindows } from './reap.ts'
import {
  deleteResults,
  dropWindowsOfEndedRuns,
  enqueueWindows,
  missingWindows,
  type RunSettings,
  readResults,
  withdrawWindows,
} from './run-windows.ts'
import { TaskRotation } from './task-rotation.ts'
import { fromWire, type WindowResult, type WireResult } from './window-result.ts'
import { forgetWorkers, liveWorkers } from './workers.ts'

const SHORTEST_NAP_MS = 20
const LONGEST_NAP_MS = 200
const LOOK_MS = 1000
const TROUBLE_MS = 1000
// A few windows for each slot; more if a round of results finds the queue nearly empty. pg-boss sorts what waits each
// time that a worker asks, so the queue stays short.
const FIRST_PER_SLOT = 4
const MOST_PER_SLOT = 64
const FEWEST = 8
const MOST = 1000
// If none of the run's windows got done for so long, its own process works, too.
const HELP_MS = 5000
// If no result came for so long, it checks that its windows are still in the queue.
const SILENCE_MS = 10_000
const MOST_SUPERSEDED_READS = 5
// A sync goes before any backfill; within a run, what was handed out first goes first.
const SYNC_FIRST = 1_000_000_000
const LEAVING_MS = 6000
const NO_COST = { seconds: 0, statuses: {} }

/** Has the work items of one run done by workers of the queue, and by this process if they make no progress. */
export class QueueExecutor {
  private readonly rotation: TaskRotation
  /** Items in the queue, by the ids of their windows. */
  private readonly inFlight = new Map<string, WorkItem>()
  /** Items that this process does. */
  private readonly here = new Set<Promise<void>>()
  /** Items that a worker returned, for this process to do. */
  private readonly returned: WorkItem[] = []
  private readonly deadWindows: NewDeadWindow[] = []
  private readonly budgets: BudgetWatch
  /** Projects whose windows were taken out of the queue, because they cannot be read. */
  private readonly withdrawn = new Set<string>()
  /** How often each item was read while a newer read of its days was loaded. */
  private readonly supersededReads = new Map<string, number>()
  /** Of the workers that take from this queue: how many windows at once they do. */
  private slots = 0
  private hasWorkers = false
  private perSlot = FIRST_PER_SLOT
  private sequence = 0
  private progressAt = monotonic()
  private lookedAt = Number.NEGATIVE_INFINITY
  private reapedAt = monotonic()
  private checkedAt = monotonic()

  constructor(
    private readonly run: Run,
    private readonly tasks: readonly Task[],
    private readonly queue: Queue,
  ) {
    this.rotation = new TaskRotation(tasks)
    this.budgets = new BudgetWatch(run, new Set(tasks.map(({ project }) => project.id)).size > 1)
  }

  async execute(): Promise<void> {
    const { signal, warehouse, log } = this.run
    try {
      await this.retryWhileAway(() => closeAbandonedRuns(warehouse))
      await this.retryWhileAway(() => dropWindowsOfEndedRuns(this.queue))
      for (let napMs = SHORTEST_NAP_MS; !signal.aborted; ) {
        const finished = await this.takeResults()
        await this.maintain()
        const begun = (await this.feed()) + (await this.help())
        if (this.inFlight.size === 0 && this.here.size === 0 && !this.rotation.isWaiting) break
        napMs = finished + begun > 0 ? SHORTEST_NAP_MS : Math.min(LONGEST_NAP_MS, napMs * 1.3)
        await Promise.race([sleep(napMs, signal).catch(() => {}), ...this.here])
      }
      if (signal.aborted) return
      await this.retryWhileAway(() => saveDeadWindows(warehouse, this.deadWindows))
      await this.retryWhileAway(() => pruneDeadWindows(warehouse))
      await this.retryWhileAway(() => forgetWorkers(warehouse))
      await this.retryWhileAway(() => pruneQueues(this.queue, log))
    } finally {
      await this.leave()
    }
  }

  /** Reports what has no result as not read, and takes it out of the queue. */
  private async leave(): Promise<void> {
    await Promise.all(this.here)
    for (const { task, range } of [...this.inFlight.values(), ...this.returned]) failRemaining(task, [range])
    if (this.inFlight.size === 0) return
    this.inFlight.clear()
    const drop = dropWindowsOfEndedRuns(this.queue, { andOf: this.run.runId, patienceMs: LEAVING_MS }).catch(
      (error: unknown) =>
        this.run.log.warn({ reason: messageOf(error) }, 'windows may still be in the queue; workers will not do them'),
    )
    // If the database is away, the next run takes them out.
    await waitAtMost(LEAVING_MS, drop)
  }

  /** A connection that was lost is no reason to give up, as long as the run has its lease. */
  private async retryWhileAway<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work()
      } catch (error) {
        if (this.run.signal.aborted || !isTransient(error)) throw error
        this.run.log.warn({ reason: messageOf(error) }, 'the queue cannot be reached')
        await sleep(TROUBLE_MS, this.run.signal)
      }
    }
  }

  /** Now and then: counts workers, releases windows of dead ones, and looks for windows that vanished. */
  private async maintain(): Promise<void> {
    const now = monotonic()
    if (now - this.lookedAt > LOOK_MS) {
      await this.countWorkers()
      this.lookedAt = monotonic()
    }
    if (now - this.reapedAt > REAP_MS) {
      this.reapedAt = now
      await this.retryWhileAway(() => reapWindows(this.queue, this.run.log))
    }
    if (this.inFlight.size > 0 && now - Math.max(this.progressAt, this.checkedAt) > SILENCE_MS) {
      this.checkedAt = now
      await this.enqueueMissing()
    }
    await this.withdrawFailedProjects()
  }

  private async countWorkers(): Promise<void> {
    const workers = await this.retryWhileAway(() => liveWorkers(this.run.warehouse))
    const ours = workers.filter(({ queue }) => queue === this.queue.name)
    this.hasWorkers = ours.length > 0
    this.slots = ours.reduce((sum, { state, concurrency }) => sum + (state === 'working' ? concurrency : 0), 0)
  }

  /** Keeps a few windows in the queue for each slot; the rest stays with the tasks, whose feeds still learn from results. */
  private async feed(): Promise<number> {
    if (!this.hasWorkers) return 0
    const target = Math.min(MOST, Math.max(FEWEST, this.slots * this.perSlot))
    const items = new Map<string, WorkItem>()
    while (this.inFlight.size + items.size < target) {
      const item = this.rotation.next()
      if (item === undefined) break
      items.set(randomUUID(), item)
    }
    if (items.size === 0) return 0
    if (this.inFlight.size === 0) this.progressAt = monotonic()
    for (const [id, item] of items) this.inFlight.set(id, item)
    await this.enqueue(items)
    return items.size
  }

  private async enqueue(items: ReadonlyMap<string, WorkItem>): Promise<void> {
    const { runId, command, acceptDeletes, lookbackFrom, recentFrom, limit } = this.run
    const settings: RunSettings = {
      command,
      accept_deletes: acceptDeletes,
      lookback_from: lookbackFrom,
      recent_from: recentFrom,
      page_limit: limit.current,
    }
    const first = command === 'backfill' ? 0 : SYNC_FIRST
    const windows = [...items].map(([id, { task, range }]) => {
      return { id, project: task.project.id, stream: task.stream.name, range, priority: first - this.sequence++ }
    })
    await this.retryWhileAway(() => enqueueWindows(this.queue, runId, settings, windows))
  }

  /** Begins items in this process: those returned by workers, and others if no worker makes progress. */
  private async help(): Promise<number> {
    const free = this.run.config.source.concurrency - this.here.size
    const isNeeded = this.slots === 0 || monotonic() - this.progressAt > HELP_MS
    const items: WorkItem[] = this.returned.splice(0, free)
    while (isNeeded && items.length < free) {
      const item = this.rotation.next()
      if (item === undefined) break
      items.push(item)
    }
    if (isNeeded && items.length < free && this.inFlight.size > 0)
      items.push(...(await this.withdraw({ most: free - items.length })))
    for (const item of items) this.beginHere(item)
    return items.length
  }

  /** Takes items out of the queue that no worker has begun. */
  private async withdraw(which: { most: number; project?: string }): Promise<WorkItem[]> {
    const ids = await this.retryWhileAway(() => withdrawWindows(this.queue, this.run.runId, which))
    return ids.flatMap((id) => {
      const item = this.inFlight.get(id)
      this.inFlight.delete(id)
      return item === undefined ? [] : [item]
    })
  }

  private beginHere(item: WorkItem): void {
    const perform = async () => {
      const waitMs = await this.budgets.spentForMs(item.task.project).catch(() => 0)
      if (waitMs > 0) return this.apply(item, { result: { kind: 'deferred', waitMs }, cost: NO_COST })
      const { result, seconds } = await performHere(item)
      this.apply(item, { result, cost: { seconds, statuses: {} } })
    }
    const work: Promise<void> = perform().finally(() => this.here.delete(work))
    this.here.add(work)
  }

  /** A result is deleted once it was counted, and counted once: then its window is not in flight any more. */
  private async takeResults(): Promise<number> {
    if (this.inFlight.size === 0) return 0
    const { warehouse, runId } = this.run
    const rows = await this.retryWhileAway(() => readResults(warehouse, runId, MOST))
    if (rows.length === 0) return 0
    if (rows.length * 2 > this.inFlight.size) this.perSlot = Math.min(MOST_PER_SLOT, this.perSlot * 2)
    for (const { id, result } of rows) this.take(id, result)
    const ids = rows.map(({ id }) => id)
    await this.retryWhileAway(() => deleteResults(warehouse, ids))
    return rows.length
  }

  private take(id: string, wire: WireResult): void {
    const item = this.inFlight.get(id)
    if (item === undefined) return
    this.inFlight.delete(id)
    const windowResult = fromWire(wire)
    const { result, cost } = windowResult
    for (const [status, times] of Object.entries(cost.statuses)) {
      for (let time = 0; time < times; time++) countRequest(item.task, status === 'none' ? undefined : Number(status))
    }
    this.apply(item, windowResult)
    if (result.kind !== 'deferred' && result.kind !== 'returned') this.progressAt = monotonic()
  }

  private apply(item: WorkItem, { result, cost }: WindowResult): void {
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

  /** Other windows of a project that cannot be read are not tried. */
  private async withdrawFailedProjects(): Promise<void> {
    for (const [project, { reason }] of this.tasks[0]?.shared.failures.projects ?? []) {
      if (this.withdrawn.has(project)) continue
      this.withdrawn.add(project)
      for (const item of await this.withdraw({ most: MOST, project }))
        applyResult(item, { kind: 'failed', reason: `not read: ${reason}`, code: 'interrupted' }, 0)
    }
  }

  /** Windows that vanished from the queue without a result are put in again. */
  private async enqueueMissing(): Promise<void> {
    const ids = await this.retryWhileAway(() => missingWindows(this.run.warehouse, [...this.inFlight.keys()]))
    const items = new Map(ids.flatMap((id) => (this.inFlight.has(id) ? [[id, this.inFlight.get(id)!] as const] : [])))
    if (items.size === 0) return
    this.run.log.warn({ windows: items.size }, 'windows vanished from the queue and are put in again')
    await this.enqueue(items)
  }
}
