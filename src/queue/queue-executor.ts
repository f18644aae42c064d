import { messageOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { monotonic, sleep, waitAtMost } from '../core/waiting.ts'
import { closeAbandonedRuns } from '../ledger/run-lock.ts'
import { applyResult, type Executor, performHere } from '../sync/run/execute.ts'
import type { Run } from '../sync/run/run.ts'
import { countRequest, failRemaining, putBack, type Task, TaskRotation, type WorkItem } from '../sync/run/task.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { openQueue, pruneQueues, type Queue } from './boss.ts'
import { type NewDeadWindow, pruneDeadWindows, saveDeadWindows } from './dead-windows.ts'
import { QueuedItems, whileLeased } from './queued-items.ts'
import { dropWindowsOfEndedRuns, NO_COST, type WindowResult } from './run-windows.ts'
import { BudgetWatch } from './shared-budget.ts'
import { forgetWorkers, liveWorkers, REAP_MS, reapWindows } from './workers.ts'

/** Does the work of runs through a queue, which is opened with the first of them. */
export function openQueueExecutor(
  warehouse: Warehouse,
  queueName: string,
  log: Log,
): { execute: Executor; close(): Promise<void> } {
  let opening: Promise<Queue> | undefined
  return {
    async execute(run, tasks) {
      opening ??= openQueue(warehouse, queueName, log, run.signal)
      const queue = await opening.catch((error: unknown) => {
        opening = undefined
        throw error
      })
      await new QueueExecutor(run, tasks, queue).execute()
    },
    close: async () => (await opening?.catch(() => undefined))?.close(),
  }
}

const SHORTEST_NAP_MS = 50
const LONGEST_NAP_MS = 200
const COUNT_MS = 1000
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
const LEAVING_MS = 6000
const MOST_SUPERSEDED_READS = 5

/**
 * The process that performs the work items of a run:
 * - `alone`: no worker is alive, so nothing is put into the queue and this process does everything.
 * - `shared`: workers do them, and this process does only what they return.
 * - `helping`: all workers back off, or none finished a window for five seconds, so this process works, too.
 */
type Mode = 'alone' | 'shared' | 'helping'

/** Has the work items of one run done by workers of the queue, and by this process if they make no progress. */
class QueueExecutor {
  private readonly rotation: TaskRotation
  private readonly queued: QueuedItems
  private readonly budgets: BudgetWatch
  private readonly returned: WorkItem[] = []
  private readonly deadWindows: NewDeadWindow[] = []
  /** How often each item was read while a newer read of its days was loaded. */
  private readonly supersededReads = new Map<string, number>()
  private readonly here = new Set<Promise<void>>()
  /** Projects whose windows were taken out of the queue, because they cannot be read. */
  private readonly withdrawn = new Set<string>()
  private workers = { alive: 0, slots: 0 }
  private perSlot = FIRST_PER_SLOT
  private progressAt = monotonic()
  private readonly doneAt = { count: Number.NEGATIVE_INFINITY, reap: monotonic(), restore: monotonic() }

  constructor(
    private readonly run: Run,
    private readonly tasks: readonly Task[],
    private readonly queue: Queue,
  ) {
    this.rotation = new TaskRotation(byStream(tasks))
    this.queued = new QueuedItems(run, queue)
    this.budgets = new BudgetWatch(run, new Set(tasks.map(({ project }) => project.id)).size > 1)
  }

  async execute(): Promise<void> {
    const { signal, warehouse, log } = this.run
    const patiently = <T>(work: () => Promise<T>) => whileLeased(this.run, work)
    try {
      await patiently(() => closeAbandonedRuns(warehouse))
      await patiently(() => dropWindowsOfEndedRuns(this.queue))
      await this.executeAll()
      if (signal.aborted) return
      await patiently(() => saveDeadWindows(warehouse, this.deadWindows))
      await patiently(() => pruneDeadWindows(warehouse))
      await patiently(() => forgetWorkers(warehouse))
      await patiently(() => pruneQueues(this.queue, log))
    } finally {
      await this.leave()
    }
  }

  private async executeAll(): Promise<void> {
    const { signal } = this.run
    for (let napMs = SHORTEST_NAP_MS; !signal.aborted; ) {
      const finished = await this.collectResults()
      await this.maintain()
      const begun = (await this.feed()) + (await this.help())
      if (this.queued.size === 0 && this.here.size === 0 && !this.rotation.isWaiting) return
      napMs = finished + begun > 0 ? SHORTEST_NAP_MS : Math.min(LONGEST_NAP_MS, napMs * 1.3)
      await Promise.race([sleep(napMs, signal).catch(() => {}), ...this.here])
    }
  }

  private get mode(): Mode {
    if (this.workers.alive === 0) return 'alone'
    return this.workers.slots === 0 || monotonic() - this.progressAt > HELP_MS ? 'helping' : 'shared'
  }

  private async collectResults(): Promise<number> {
    const before = this.queued.size
    const taken = await this.queued.collectResults((item, windowResult) => {
      this.apply(item, windowResult)
      const { kind } = windowResult.result
      if (kind !== 'deferred' && kind !== 'returned') this.progressAt = monotonic()
    })
    if (taken * 2 > before) this.perSlot = Math.min(MOST_PER_SLOT, this.perSlot * 2)
    return taken
  }

  /** Applies the result of a worker, or of this process, whose requests are counted already. */
  private apply(item: WorkItem, { result, cost }: WindowResult): void {
    const { task, range } = item
    const { runId, log } = this.run
    const project = task.project.id
    const counted = { report: task.report, observer: task.shared.observer }
    for (const [status, times] of Object.entries(cost.statuses)) {
      for (let time = 0; time < times; time++) countRequest(counted, status === 'none' ? undefined : Number(status))
    }
    if (result.kind === 'deferred') {
      this.rotation.pause(project, result.waitMs)
      return putBack(item)
    }
    if (result.kind === 'returned') {
      log.warn({ project, reason: result.reason }, 'a worker could not read it; this process tries')
      this.returned.push(item)
      return
    }
    if (result.kind === 'failed' && result.code === 'superseded' && this.mayReadAgain(item)) return putBack(item)
    if (result.kind === 'failed' && result.code !== 'interrupted')
      this.deadWindows.push({ runId, project, stream: task.stream.name, range, reason: result.reason })
    applyResult(item, result, cost.seconds)
  }

  /** Another run loaded the same days meanwhile: they are read again, a few times at most. */
  private mayReadAgain({ task, range }: WorkItem): boolean {
    const name = JSON.stringify([task.project.id, task.stream.name, range])
    const times = (this.supersededReads.get(name) ?? 0) + 1
    this.supersededReads.set(name, times)
    return times <= MOST_SUPERSEDED_READS
  }

  private async maintain(): Promise<void> {
    const now = monotonic()
    const { doneAt } = this
    if (now - doneAt.count > COUNT_MS) {
      await this.countWorkers()
      doneAt.count = monotonic()
    }
    if (now - doneAt.reap > REAP_MS) {
      doneAt.reap = now
      await whileLeased(this.run, () => reapWindows(this.queue, this.run.log))
    }
    if (this.queued.size > 0 && now - Math.max(this.progressAt, doneAt.restore) > SILENCE_MS) {
      doneAt.restore = now
      await this.queued.restoreMissing()
    }
    await this.withdrawFailedProjects()
  }

  private async countWorkers(): Promise<void> {
    const workers = await whileLeased(this.run, () => liveWorkers(this.run.warehouse))
    const ours = workers.filter(({ queue }) => queue === this.queue.name)
    const slots = ours.reduce((sum, { state, concurrency }) => sum + (state === 'working' ? concurrency : 0), 0)
    this.workers = { alive: ours.length, slots }
  }

  /** Other windows of a project that cannot be read are not tried. */
  private async withdrawFailedProjects(): Promise<void> {
    for (const [project, { reason }] of this.tasks[0]!.shared.failures.projects) {
      if (this.withdrawn.has(project)) continue
      this.withdrawn.add(project)
      for (const item of await this.queued.withdraw({ project }))
        applyResult(item, { kind: 'failed', reason: `not read: ${reason}`, code: 'interrupted' }, 0)
    }
  }

  /** Keeps a few windows in the queue for each slot; the rest stays with the tasks, whose feeds still learn from results. */
  private async feed(): Promise<number> {
    if (this.mode === 'alone') return 0
    const target = Math.min(MOST, Math.max(FEWEST, this.workers.slots * this.perSlot))
    // Many windows in one message cost little more than one.
    const items = this.queued.size * 2 > target ? [] : this.nextItems(target - this.queued.size)
    if (items.length === 0) return 0
    if (this.queued.size === 0) this.progressAt = monotonic()
    await this.queued.put(items)
    return items.length
  }

  /** Those returned by workers, and others if no worker makes progress. */
  private async help(): Promise<number> {
    const free = this.run.config.source.concurrency - this.here.size
    const items = this.returned.splice(0, free)
    if (this.mode !== 'shared') {
      items.push(...this.nextItems(free - items.length))
      if (items.length < free && this.queued.size > 0)
        items.push(...(await this.queued.withdraw({ most: free - items.length })))
    }
    for (const item of items) this.begin(item)
    return items.length
  }

  private nextItems(most: number): WorkItem[] {
    const items: WorkItem[] = []
    while (items.length < most) {
      const item = this.rotation.next()
      if (item === undefined) break
      items.push(item)
    }
    return items
  }

  private begin(item: WorkItem): void {
    const perform = async () => {
      const waitMs = await this.budgets.spentForMs(item.task.project).catch(() => 0)
      if (waitMs > 0) return this.apply(item, { result: { kind: 'deferred', waitMs }, cost: NO_COST })
      const { result, seconds } = await performHere(item)
      this.apply(item, { result, cost: { ...NO_COST, seconds } })
    }
    const work: Promise<void> = perform().finally(() => this.here.delete(work))
    this.here.add(work)
  }

  private async leave(): Promise<void> {
    await Promise.all(this.here)
    const items = this.queued.clear()
    for (const { task, range } of [...items, ...this.returned]) failRemaining(task, [range])
    if (items.length === 0) return
    const { runId, log } = this.run
    // If the database is away, the next run takes them out.
    const drop = dropWindowsOfEndedRuns(this.queue, { andOf: runId, patienceMs: LEAVING_MS }).catch((error: unknown) =>
      log.warn({ reason: messageOf(error) }, 'windows may still be in the queue; workers will not do them'),
    )
    await waitAtMost(LEAVING_MS, drop)
  }
}

/** Stream after stream, each of all projects: workers that take windows in this order seldom share a project. */
function byStream(tasks: readonly Task[]): Task[] {
  const names = new Set(tasks.map(({ stream }) => stream.name))
  return [...names].flatMap((name) => tasks.filter(({ stream }) => stream.name === name))
}
