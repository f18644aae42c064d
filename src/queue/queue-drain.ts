import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../core/errors.ts'
import { sleep } from '../core/sleep.ts'
import { closeAbandonedRuns } from '../ledger/run-lock.ts'
import type { Run } from '../sync/run/context.ts'
import {
  countRequest,
  failRemaining,
  type Item,
  nextItem,
  performHere,
  putBack,
  settle,
  type Task,
} from '../sync/run/tasks.ts'
import { isTransient } from '../warehouse/retry.ts'
import { pruneQueues, type Queue } from './boss.ts'
import { BudgetWatch } from './budget-watch.ts'
import { type GivenUp, pruneDeadLetters, saveDeadWindows } from './dead-windows.ts'
import { fromWire, type JobResult, type WireJobResult } from './job-result.ts'
import { REAP_MS, reapWindows } from './reap.ts'
import {
  deleteResults,
  dropWindows,
  enqueueWindows,
  missingWindows,
  readResults,
  type WindowRequest,
  withdrawWindows,
} from './run-windows.ts'
import { forgetWorkers, liveWorkers } from './workers.ts'

const SHORTEST_NAP_MS = 20
const LONGEST_NAP_MS = 200
const LOOK_MS = 1000
const TROUBLE_MS = 1000
// A few windows for each slot; more where a round of results finds the queue nearly empty. pg-boss sorts what waits
// each time that a worker asks, so it never gets long.
const FIRST_PER_SLOT = 4
const MOST_PER_SLOT = 64
const FEWEST = 8
const MOST = 1000
// When none of the run's windows got done for so long, its own process works, too.
const HELP_MS = 5000
// When nothing came for so long, it is checked that the windows are still there.
const SILENCE_MS = 10_000
const MOST_STALE = 5
// A sync goes before any backfill; within a run, what was handed out first goes first.
const SYNC_FIRST = 1_000_000_000
const LEAVING_MS = 6000
const FREE = { seconds: 0, statuses: {} }

/** Has the tasks of one run done by workers, and by this process where they do not get on. */
export class QueueDrain {
  /** Windows in the queue, by their ids. */
  private readonly inFlight = new Map<string, Item>()
  /** Windows that this process does. */
  private readonly here = new Set<Promise<void>>()
  /** Windows that a worker gave back for this process to do. */
  private readonly returned: Item[] = []
  private readonly tasks: Task[]
  private readonly budgets: BudgetWatch
  private turn = 0
  private sequence = 0
  /** Projects whose requests are spent, until a time. */
  private readonly avoided = new Map<string, number>()
  private readonly withdrawn = new Set<string>()
  private readonly stale = new Map<string, number>()
  private readonly givenUp: GivenUp[] = []
  private slots = 0
  private isAnyoneThere = false
  private perSlot = FIRST_PER_SLOT
  private movedAt = performance.now()
  private lookedAt = Number.NEGATIVE_INFINITY
  private reapedAt = performance.now()
  private checkedAt = performance.now()

  constructor(
    private readonly run: Run,
    tasks: readonly Task[],
    private readonly queue: Queue,
  ) {
    this.tasks = byStream(tasks)
    this.budgets = new BudgetWatch(run, new Set(tasks.map(({ project }) => project.id)).size > 1)
  }

  async finish(): Promise<void> {
    const { signal, warehouse, log } = this.run
    try {
      await this.persist(() => closeAbandonedRuns(warehouse))
      await this.persist(() => dropWindows(this.queue, -1))
      for (let napMs = SHORTEST_NAP_MS; !signal.aborted; ) {
        const came = await this.takeResults()
        await this.lookAround()
        const began = (await this.feed()) + (await this.help())
        if (this.inFlight.size === 0 && this.here.size === 0 && this.avoided.size === 0) break
        napMs = came + began > 0 ? SHORTEST_NAP_MS : Math.min(LONGEST_NAP_MS, napMs * 1.3)
        await Promise.race([sleep(napMs, signal).catch(() => {}), ...this.here])
      }
      if (signal.aborted) return
      await this.persist(() => saveDeadWindows(warehouse, this.givenUp))
      await this.persist(() => pruneDeadLetters(warehouse))
      await this.persist(() => forgetWorkers(warehouse))
      await this.persist(() => pruneQueues(this.queue, log))
    } finally {
      await this.leave()
    }
  }

  /** What did not come back is said, and taken out. */
  private async leave(): Promise<void> {
    await Promise.all(this.here)
    for (const { task, range } of [...this.inFlight.values(), ...this.returned]) failRemaining(task, [range])
    if (this.inFlight.size === 0) return
    this.inFlight.clear()
    const drop = dropWindows(this.queue, this.run.runId, LEAVING_MS).catch((error: unknown) =>
      this.run.log.warn({ reason: messageOf(error) }, 'windows may still be in the queue; workers will not do them'),
    )
    // Where the database is away, the run that comes next does it.
    await Promise.race([drop, delay(LEAVING_MS, undefined, { ref: false })])
  }

  /** A connection that was lost is no reason to give up, as long as the run has its lease. */
  private async persist<T>(work: () => Promise<T>): Promise<T> {
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

  /** Who is there to work, whose windows are to be taken over, and which windows vanished. */
  private async lookAround(): Promise<void> {
    const now = performance.now()
    for (const [project, until] of this.avoided) if (until <= now) this.avoided.delete(project)
    if (now - this.lookedAt > LOOK_MS) {
      const workers = await this.persist(() => liveWorkers(this.run.warehouse))
      const ours = workers.filter(({ queue }) => queue === this.queue.name)
      this.isAnyoneThere = ours.length > 0
      this.slots = ours.reduce((sum, { state, concurrency }) => sum + (state === 'working' ? concurrency : 0), 0)
      this.lookedAt = performance.now()
    }
    if (now - this.reapedAt > REAP_MS) {
      this.reapedAt = now
      await this.persist(() => reapWindows(this.queue, this.run.log))
    }
    if (this.inFlight.size > 0 && now - Math.max(this.movedAt, this.checkedAt) > SILENCE_MS) {
      this.checkedAt = now
      await this.findMissing()
    }
    await this.withdrawFailedProjects()
  }

  /** Keeps a few windows in the queue for each slot of the workers; the rest stays with the plan, which still learns. */
  private async feed(): Promise<number> {
    if (!this.isAnyoneThere) return 0
    const target = Math.min(MOST, Math.max(FEWEST, this.slots * this.perSlot))
    const items = new Map<string, Item>()
    while (this.inFlight.size + items.size < target) {
      const item = this.next()
      if (item === undefined) break
      items.set(randomUUID(), item)
    }
    if (items.size === 0) return 0
    if (this.inFlight.size === 0) this.movedAt = performance.now()
    for (const [id, item] of items) this.inFlight.set(id, item)
    await this.enqueue(items)
    return items.size
  }

  private async enqueue(items: ReadonlyMap<string, Item>): Promise<void> {
    const { runId, command, acceptDeletes, lookbackFrom, recentFrom, limit } = this.run
    const request: WindowRequest = {
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
    await this.persist(() => enqueueWindows(this.queue, runId, request, windows))
  }

  /** The next window of any task, taking turns; none of projects whose requests are spent. */
  private next(): Item | undefined {
    for (let step = 0; step < this.tasks.length; step++) {
      const index = (this.turn + step) % this.tasks.length
      const task = this.tasks[index]!
      if (this.avoided.has(task.project.id)) continue
      const item = nextItem(task)
      if (item === undefined) continue
      this.turn = index + 1
      return item
    }
    return undefined
  }

  /** This process works where no healthy worker is there, or where none of the run's windows gets done. */
  private async help(): Promise<number> {
    const free = this.run.config.source.concurrency - this.here.size
    const isNeeded = this.slots === 0 || performance.now() - this.movedAt > HELP_MS
    const items: Item[] = this.returned.splice(0, free)
    while (isNeeded && items.length < free) {
      const item = this.next()
      if (item === undefined) break
      items.push(item)
    }
    if (isNeeded && items.length < free && this.inFlight.size > 0)
      items.push(...(await this.reclaim(free - items.length)))
    for (const item of items) this.performHere(item)
    return items.length
  }

  private async reclaim(most: number): Promise<Item[]> {
    const ids = await this.persist(() => withdrawWindows(this.queue, this.run.runId, { most }))
    return ids.flatMap((id) => {
      const item = this.inFlight.get(id)
      this.inFlight.delete(id)
      return item === undefined ? [] : [item]
    })
  }

  private performHere(item: Item): void {
    const perform = async () => {
      const waitMs = await this.budgets.spentForMs(item.task.project).catch(() => 0)
      if (waitMs > 0) return this.settle(item, { result: { kind: 'deferred', waitMs }, cost: FREE })
      const { result, seconds } = await performHere(item)
      this.settle(item, { result, cost: { seconds, statuses: {} } })
    }
    const work: Promise<void> = perform().finally(() => this.here.delete(work))
    this.here.add(work)
  }

  /** Takes what came. A result is deleted once it was counted, and counted once: then its window is not in flight. */
  private async takeResults(): Promise<number> {
    if (this.inFlight.size === 0) return 0
    const { warehouse, runId } = this.run
    const rows = await this.persist(() => readResults(warehouse, runId, MOST))
    if (rows.length === 0) return 0
    if (rows.length * 2 > this.inFlight.size) this.perSlot = Math.min(MOST_PER_SLOT, this.perSlot * 2)
    for (const { id, result } of rows) this.take(id, result)
    const ids = rows.map(({ id }) => id)
    await this.persist(() => deleteResults(warehouse, ids))
    return rows.length
  }

  private take(id: string, wire: WireJobResult): void {
    const item = this.inFlight.get(id)
    if (item === undefined) return
    this.inFlight.delete(id)
    const told = fromWire(wire)
    for (const [status, times] of Object.entries(told.cost.statuses)) {
      for (let time = 0; time < times; time++) countRequest(item.task, status === 'none' ? undefined : Number(status))
    }
    this.settle(item, told)
    if (told.result.kind !== 'deferred' && told.result.kind !== 'returned') this.movedAt = performance.now()
  }

  private settle(item: Item, { result, cost }: JobResult): void {
    const { task, range } = item
    const project = task.project.id
    if (result.kind === 'deferred') {
      this.avoided.set(project, performance.now() + result.waitMs)
      return putBack(item)
    }
    if (result.kind === 'returned') {
      this.run.log.warn({ project, reason: result.reason }, 'a worker was refused; this process tries')
      this.returned.push(item)
      return
    }
    if (result.kind === 'failed' && result.verdict === 'stale' && this.mayReadAgain(item)) return putBack(item)
    if (result.kind === 'failed' && result.verdict !== 'interrupted') {
      const { reason } = result
      this.givenUp.push({ runId: this.run.runId, project, stream: task.stream.name, range, reason })
    }
    settle(item, result, cost.seconds)
  }

  /** Another run loaded the same days meanwhile. Reading them again settles who is the newest. */
  private mayReadAgain({ task, range }: Item): boolean {
    const name = JSON.stringify([task.project.id, task.stream.name, range])
    const times = (this.stale.get(name) ?? 0) + 1
    this.stale.set(name, times)
    return times <= MOST_STALE
  }

  /** Other windows of a project that cannot be read are not tried. */
  private async withdrawFailedProjects(): Promise<void> {
    for (const [project, { reason }] of this.tasks[0]?.failedProjects ?? []) {
      if (this.withdrawn.has(project)) continue
      this.withdrawn.add(project)
      const ids = await this.persist(() => withdrawWindows(this.queue, this.run.runId, { most: MOST, project }))
      for (const id of ids) {
        const item = this.inFlight.get(id)
        this.inFlight.delete(id)
        if (item !== undefined)
          settle(item, { kind: 'failed', reason: `not read: ${reason}`, verdict: 'interrupted' }, 0)
      }
    }
  }

  /** Windows that vanished from the queue without a result are put in again. */
  private async findMissing(): Promise<void> {
    const ids = await this.persist(() => missingWindows(this.run.warehouse, [...this.inFlight.keys()]))
    const items = new Map(ids.flatMap((id) => (this.inFlight.has(id) ? [[id, this.inFlight.get(id)!] as const] : [])))
    if (items.size === 0) return
    this.run.log.warn({ windows: items.size }, 'windows vanished from the queue and are put in again')
    await this.enqueue(items)
  }
}

/** Stream after stream, each of all projects: whoever takes windows in this order seldom meets others in one project. */
function byStream(tasks: readonly Task[]): Task[] {
  const groups = new Map<string, Task[]>()
  for (const task of tasks) {
    const group = groups.get(task.stream.name)
    if (group === undefined) groups.set(task.stream.name, [task])
    else group.push(task)
  }
  return [...groups.values()].flat()
}
