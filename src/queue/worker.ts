import { messageOf } from '../core/errors.ts'
import { monotonic, sleep } from '../core/waiting.ts'
import { performItem } from '../sync/run/execute.ts'
import {
  type FailedItem,
  type ItemResult,
  type Loaded,
  makeRun,
  newRunMemory,
  type Run,
  type RunMemory,
  type Services,
  type SyncedProject,
} from '../sync/run/run.ts'
import { isTransient, withRetries } from '../warehouse/retry.ts'
import { inTransaction, type Transaction } from '../warehouse/transaction.ts'
import type { Queue } from './boss.ts'
import { endOfFailure } from './end-of-failure.ts'
import {
  addCosts,
  NO_COST,
  publishResult,
  type Release,
  releaseWindow,
  reportProgress,
  type TakenWindow,
  takeWindows,
  type WindowCost,
  type WindowResult,
} from './run-windows.ts'
import { BudgetWatch } from './shared-budget.ts'
import { HEARTBEAT_MS, heartbeat, reapWindows, type WorkerSelf } from './workers.ts'

// Polls less often while the queue is empty.
const SHORTEST_NAP_MS = 30
const LONGEST_NAP_MS = 500
const TROUBLE_MS = 1000
// The time that a step may take besides the time limit of a request.
const GRACE_MS = 20_000
const REMEMBERED_RUNS = 20

interface WindowWork {
  window: TakenWindow
  startedAt: number
  /** Aborted if it is not this worker's any more. */
  revoked: AbortController
  progressAt: number
  stallAfterMs: number
  statuses: Record<string, number>
}

export class QueueWorker {
  done = 0
  private readonly inProgress = new Map<WindowWork, Promise<void>>()
  private readonly stopping = new AbortController()
  private readonly memory = new Map<number, RunMemory>()
  private readonly projects: Map<string, SyncedProject>
  private readonly budgets: BudgetWatch
  private readonly backOff = new BackOff()
  private readonly stallAfterMs: number
  private isTaking = false
  private loop: Promise<void> = Promise.resolve()
  private beating: Promise<void> = Promise.resolve()

  constructor(
    private readonly services: Services,
    private readonly queue: Queue,
    private readonly self: WorkerSelf,
    projects: readonly SyncedProject[],
  ) {
    this.projects = new Map(projects.map((project) => [project.id, project]))
    this.budgets = new BudgetWatch(services, projects.length > 1)
    this.stallAfterMs = services.config.source.timeout_seconds * 1000 + GRACE_MS
  }

  async start(): Promise<void> {
    await this.heartbeat()
    this.loop = this.fetchAndPerform()
    this.beating = this.beat()
  }

  /** Takes no more; what is in progress is rolled back and released, for others to take at once. */
  async stop(): Promise<void> {
    this.stopping.abort()
    await Promise.all([this.loop, this.beating, ...this.inProgress.values()])
  }

  private async fetchAndPerform(): Promise<void> {
    const { signal } = this.stopping
    for (let napMs = SHORTEST_NAP_MS; !signal.aborted; ) {
      try {
        const free = this.freeSlots()
        if (free === 0) {
          await (this.inProgress.size > 0 ? Promise.race(this.inProgress.values()) : sleep(LONGEST_NAP_MS, signal))
          continue
        }
        if (await this.fetchWindows(free)) napMs = SHORTEST_NAP_MS
        else {
          await sleep(napMs, signal)
          napMs = Math.min(LONGEST_NAP_MS, napMs * 1.3)
        }
      } catch (error) {
        if (signal.aborted) return
        this.services.log.warn({ reason: messageOf(error) }, 'the queue cannot be reached')
        await sleep(TROUBLE_MS, signal).catch(() => {})
      }
    }
  }

  private async fetchWindows(most: number): Promise<boolean> {
    this.isTaking = true
    try {
      const windows = await takeWindows(this.queue, this.self.id, most, this.stallAfterMs)
      for (const window of windows) this.begin(window)
      return windows.length > 0
    } finally {
      this.isTaking = false
    }
  }

  /** After a fault of its own the worker pauses, and then tries a single window. */
  private freeSlots(): number {
    if (this.backOff.isPausing(monotonic())) return 0
    return (this.backOff.reason === null ? this.self.concurrency : 1) - this.inProgress.size
  }

  private begin(window: TakenWindow): void {
    const now = monotonic()
    const times = { startedAt: now, progressAt: now, stallAfterMs: this.stallAfterMs }
    const work: WindowWork = { window, ...times, revoked: new AbortController(), statuses: {} }
    const ending = this.perform(work)
      // Not foreseen. Another may take it at once, but not for ever.
      .catch((error: unknown) => {
        this.services.log.warn({ window: window.id, reason: messageOf(error) }, 'a window could not be done here')
        return this.release(work, { isLoss: !isTransient(error) })
      })
      .finally(() => this.inProgress.delete(work))
    this.inProgress.set(work, ending)
  }

  private async beat(): Promise<void> {
    const { signal } = this.stopping
    while (!signal.aborted) {
      await sleep(HEARTBEAT_MS, signal).catch(() => {})
      if (signal.aborted) return
      try {
        await this.heartbeat()
        await this.reportProgress()
        await reapWindows(this.queue, this.services.log)
      } catch (error) {
        this.services.log.debug({ reason: messageOf(error) }, 'heartbeat failed')
      }
    }
  }

  private heartbeat(): Promise<void> {
    const { reason } = this.backOff
    const state = reason === null ? 'working' : 'backing off'
    return heartbeat(this.services.warehouse, this.self, { busy: this.inProgress.size, done: this.done, state, reason })
  }

  private async reportProgress(): Promise<void> {
    const now = monotonic()
    const inProgress = [...this.inProgress.keys()]
    const progress = inProgress.map(({ window, progressAt, stallAfterMs }) => {
      return { id: window.id, idleMs: now - progressAt, stallAfterMs }
    })
    const { lost, unknown } = await reportProgress(this.services.warehouse, this.self.id, progress)
    for (const work of inProgress)
      if (lost.includes(work.window.id) || now - work.progressAt > work.stallAfterMs) work.revoked.abort()
    // A window that is being taken is not known here yet.
    if (this.isTaking) return
    const known = new Set([...this.inProgress.keys()].map(({ window }) => window.id))
    for (const id of unknown) if (!known.has(id)) await releaseWindow(this.queue, id, { workerId: this.self.id })
  }

  private async perform(work: WindowWork): Promise<void> {
    const { services } = this
    const { window, statuses } = work
    const project = this.projects.get(window.project)!
    const stream = services.streams.get(window.stream)!
    const waitMs = await this.budgets.spentForMs(project)
    if (waitMs > 0) return this.publish(work, { kind: 'deferred', waitMs })
    const signal = AbortSignal.any([this.stopping.signal, work.revoked.signal])
    const run: Run = {
      ...makeRun(services, { ...window.settings, runId: window.runId, ...this.memoryOf(window) }, signal),
      beforeCommit: (tx: Transaction, loaded: Loaded) => {
        this.progress(work, this.stallAfterMs)
        return this.publishIn(tx, work, loaded)
      },
    }
    const onAttempt = (status: number | undefined) => {
      const name = status ?? 'none'
      statuses[name] = (statuses[name] ?? 0) + 1
      if (status !== undefined) this.progress(work, this.stallAfterMs)
    }
    const onWait = (ms: number) => this.progress(work, ms + this.stallAfterMs)
    const result = await performItem(run, { project, stream, range: window.range }, { signal, onAttempt, onWait })
    await this.end(work, result)
  }

  private progress(work: WindowWork, stallAfterMs: number): void {
    work.progressAt = monotonic()
    work.stallAfterMs = stallAfterMs
  }

  private costOf({ window, startedAt, statuses }: WindowWork): WindowCost {
    return addCosts(window.spent ?? NO_COST, { seconds: Math.round(monotonic() - startedAt) / 1000, statuses })
  }

  private async end(work: WindowWork, result: ItemResult): Promise<void> {
    if (result.kind === 'failed') return this.endFailed(work, result)
    if (result.kind !== 'loaded') return this.publish(work, result)
    this.done++
    this.backOff.recover()
    const { rowsRead, effect } = result.summary
    const { inserted, updated, deleted } = effect
    const fields = { ...aboutOf(work.window), rows: rowsRead, inserted, updated, deleted }
    this.services.log.info(fields, 'window loaded by this worker')
  }

  private async endFailed(work: WindowWork, result: FailedItem): Promise<void> {
    const { log } = this.services
    const { window, statuses } = work
    const { reason, code } = result
    const attempt = { failures: window.failures, statuses, isRevoked: work.revoked.signal.aborted }
    const { end, backsOff } = endOfFailure(code, attempt)
    const about = aboutOf(window)
    if (end === 'discard') return log.debug(about, 'the run that asked for a window is over')
    if (code !== 'interrupted') log.warn({ ...about, reason }, 'window failed')
    if (end === 'report') await this.publish(work, result)
    else if (end === 'return') await this.publish(work, { kind: 'returned', reason })
    else if (end === 'retry') await this.release(work, { spent: this.costOf(work) })
    else await this.release(work, { isLoss: end === 'lose' })
    if (!backsOff) {
      if (end === 'report' || end === 'retry') this.backOff.recover()
      return
    }
    const pauseMs = this.backOff.fail(reason, work.startedAt, monotonic())
    if (pauseMs > 0) log.warn({ reason, pause_ms: pauseMs }, 'this worker backs off')
    await this.heartbeat().catch(() => {})
  }

  private publish(work: WindowWork, result: WindowResult['result']): Promise<void> {
    const { warehouse } = this.services
    return this.retryOrLeave(work, () => inTransaction(warehouse, (tx) => this.publishIn(tx, work, result)))
  }

  private publishIn(tx: Transaction, work: WindowWork, result: WindowResult['result']): Promise<void> {
    const { id, settings } = work.window
    const { acceptDeletes } = settings
    return publishResult(tx, this.queue, { id, acceptDeletes }, { result, cost: this.costOf(work) })
  }

  private release(work: WindowWork, release: Omit<Release, 'workerId'>): Promise<void> {
    const all = { ...release, workerId: this.self.id }
    return this.retryOrLeave(work, () => releaseWindow(this.queue, work.window.id, all))
  }

  /** Tries again while the database is away: otherwise the window waits until this worker is found dead. */
  private async retryOrLeave({ window }: WindowWork, write: () => Promise<unknown>): Promise<void> {
    await withRetries(this.services.warehouse, this.stopping.signal, write).catch((error: unknown) => {
      this.services.log.warn({ window: window.id, reason: messageOf(error) }, 'a window is left to others')
    })
  }

  /** Windows of one run share it. Only the latest runs are remembered. */
  private memoryOf({ runId, settings }: TakenWindow): RunMemory {
    const known = this.memory.get(runId) ?? newRunMemory(settings.pageLimit)
    this.memory.set(runId, known)
    known.limit.lowerTo(settings.pageLimit)
    const [oldest] = this.memory.keys()
    if (this.memory.size > REMEMBERED_RUNS) this.memory.delete(oldest!)
    return known
  }
}

function aboutOf({ runId, project, stream, range }: TakenWindow) {
  return { run: runId, project, stream, ...range }
}

const FIRST_PAUSE_MS = 1000
const LONGEST_PAUSE_MS = 30_000

/** How a worker holds itself back after faults of its own: longer each time, until something works again. */
class BackOff {
  /** Null while all is well. */
  reason: string | null = null
  private failedAt = 0
  private pauseMs = 0

  isPausing(now: number): boolean {
    return this.reason !== null && now < this.failedAt + this.pauseMs
  }

  /** Returns the pause. Zero if this work began before the last failure: then it is the same fault. */
  fail(reason: string, begunAt: number, now: number): number {
    if (this.reason !== null && begunAt < this.failedAt) return 0
    this.reason = reason
    this.failedAt = now
    this.pauseMs = Math.min(LONGEST_PAUSE_MS, this.pauseMs === 0 ? FIRST_PAUSE_MS : this.pauseMs * 2)
    return this.pauseMs
  }

  recover(): void {
    this.reason = null
    this.pauseMs = 0
  }
}
