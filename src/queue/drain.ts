import { sql } from 'kysely'
import type { Range } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import { sleep } from '../core/sleep.ts'
import { closeAbandonedRuns } from '../ledger/locks.ts'
import type { Run, StepResult } from '../sync/context.ts'
import { windowName } from '../sync/sync-window.ts'
import { abandon, countRequest, nextItem, requeue, settle, type Task, taskName } from '../sync/tasks.ts'
import { inTransaction } from '../warehouse/connect.ts'
import { mayPass } from '../warehouse/retry.ts'
import type { Boss } from './boss.ts'
import {
  deadWindows,
  enqueue,
  forgetEndedRuns,
  lockEnqueuing,
  type Order,
  openWindows,
  raiseDead,
  withdraw,
} from './jobs.ts'
import { fromSent } from './told.ts'

const BATCH = 1000
const SHORTEST_NAP_MS = 20
// While much is under way, results are taken in batches.
const MUCH = 32
const BATCH_NAP_MS = 80
const LONGEST_NAP_MS = 200
const DEAD_MS = 1000
// When nothing came for so long, it is checked that the jobs are still there.
const SILENCE_MS = 15_000
// A sync goes before any backfill; within a run, what was handed out first goes first.
const SYNC_FIRST = 1_000_000_000
const LIST = ''
// When nothing moved for so long, this process works, too, whoever else is about.
const HELP_MS = 20_000
const TROUBLE_MS = 1000

/** Everything that a run has in the queue, until all of it came back. */
export class Drain {
  private readonly inFlight = new Map<Task, Set<string>>()
  private readonly tasks: readonly Task[]
  private readonly byName: Map<string, Task>
  private readonly dead = new Set<string>()
  private readonly withdrawn = new Set<string>()
  private sequence = 0
  /** Results that were counted and may not be deleted yet. */
  private readonly counted = new Set<number>()
  private movedAt = Date.now()
  private heardAt = Date.now()
  private helping = false
  private lookedAt = 0

  constructor(
    private readonly run: Run,
    tasks: readonly Task[],
    private readonly boss: Boss,
  ) {
    this.tasks = byStream(tasks)
    this.byName = new Map(tasks.map((task) => [taskName(task), task]))
    for (const task of tasks) this.inFlight.set(task, new Set())
  }

  async finish(): Promise<void> {
    const { signal, warehouse } = this.run
    await this.persist(() => closeAbandonedRuns(warehouse))
    await this.persist(() => inTransaction(warehouse, (tx) => forgetEndedRuns(tx, this.boss)))
    await this.persist(() => this.forgetOldResults())
    await this.putIn()
    for (let napMs = SHORTEST_NAP_MS; this.countWaiting() > 0 && !signal.aborted; ) {
      let came = (await this.takeResults()) + (await this.takeDead())
      if (came > 0) await this.withdrawFailedProjects()
      else if (Date.now() - this.heardAt > SILENCE_MS) came = await this.lookForLost()
      if (came > 0) {
        this.heardAt = this.movedAt = Date.now()
        napMs = SHORTEST_NAP_MS
        await this.putIn()
        if (this.countWaiting() > MUCH) await sleep(BATCH_NAP_MS, signal).catch(() => {})
        continue
      }
      await sleep(napMs, signal).catch(() => {})
      napMs = Math.min(LONGEST_NAP_MS, napMs * 1.2)
    }
    if (!signal.aborted) await this.persist(() => raiseDead(this.boss))
  }

  /** True from when a worker doubted that it is the right one, or nothing moved for a while: then for the rest. */
  needsHelp(): boolean {
    this.helping ||= Date.now() - this.movedAt > HELP_MS
    return this.helping
  }

  /** A connection that was lost is no reason to give up, while the one that holds the lock of the run is there. */
  private async persist<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work()
      } catch (error) {
        if (this.run.signal.aborted || !mayPass(error)) throw error
        this.run.log.warn({ reason: messageOf(error) }, 'the queue cannot be reached')
        await sleep(TROUBLE_MS, this.run.signal)
      }
    }
  }

  /** What did not come back is said, and taken out where nobody has begun it. */
  async leave(): Promise<void> {
    if (this.countWaiting() === 0) return
    await withdraw(this.boss, this.run.runId).catch((error: unknown) =>
      this.run.log.warn({ reason: messageOf(error) }, 'windows may still be in the queue'),
    )
    for (const [task, windows] of this.inFlight) {
      abandon(task, [...windows].map(rangeOf))
      windows.clear()
    }
  }

  private countWaiting(): number {
    let waiting = 0
    for (const { size } of this.inFlight.values()) waiting += size
    return waiting
  }

  /** Puts in all that the tasks have to do now, in one transaction, taking turns between them. */
  private async putIn(): Promise<void> {
    let left = this.tasks
    const next = () => {
      const orders: Order[] = []
      while (orders.length < BATCH && left.length > 0) left = left.filter((task) => this.takeTurn(task, orders))
      return orders
    }
    const first = next()
    if (first.length === 0) return
    let unsure = false
    await this.persist(() =>
      inTransaction(this.run.warehouse, async (tx) => {
        await lockEnqueuing(tx)
        // Of what was under way when the connection was lost nobody knows: everything is put in that is not there.
        if (unsure) for (const orders of this.everything()) await enqueue(tx, this.boss, orders)
        else {
          unsure = true
          await enqueue(tx, this.boss, first)
        }
        for (let orders = next(); orders.length > 0; orders = next()) await enqueue(tx, this.boss, orders)
      }),
    )
  }

  /** All windows that are waited for, in batches. */
  private *everything(): Generator<Order[]> {
    let orders: Order[] = []
    for (const [task, windows] of this.inFlight) {
      for (const text of windows) {
        orders.push({ data: this.jobOf(task, rangeOf(text)), priority: this.priority() })
        if (orders.length < BATCH) continue
        yield orders
        orders = []
      }
    }
    if (orders.length > 0) yield orders
  }

  /** Adds the next window of a task; false where there is none for now. */
  private takeTurn(task: Task, orders: Order[]): boolean {
    const item = nextItem(task)
    if (item === undefined) return false
    this.inFlight.get(task)!.add(textOf(item.range))
    orders.push({ data: this.jobOf(task, item.range), priority: this.priority() })
    return true
  }

  private priority(): number {
    return (this.run.command === 'backfill' ? 0 : SYNC_FIRST) - this.sequence++
  }

  private jobOf({ project, stream }: Task, range: Range | undefined): Order['data'] {
    const { runId, command, acceptDeletes, lookbackFrom, recentFrom, limit } = this.run
    return {
      runs: [runId],
      command,
      source: this.run.source,
      project: project.id,
      stream: stream.name,
      from: range?.from ?? null,
      to: range?.to ?? null,
      accept_deletes: acceptDeletes,
      lookback_from: lookbackFrom,
      recent_from: recentFrom,
      page_limit: limit.current,
    }
  }

  /** Takes what came; a result is deleted once it was counted, and counted once. */
  private async takeResults(): Promise<number> {
    const { ops } = this.run.warehouse
    const { runId } = this.run
    const rows = await this.persist(() =>
      ops
        .selectFrom('window_results')
        .selectAll()
        .where('run_id', '=', runId)
        .orderBy('result_id')
        .limit(BATCH)
        .execute(),
    )
    const fresh = rows.filter(({ result_id }) => !this.counted.has(result_id))
    for (const row of fresh) {
      this.counted.add(row.result_id)
      const task = this.byName.get(windowName({ projectId: row.project_id, stream: row.stream }))
      const range = row.from_date === null ? undefined : { from: row.from_date, to: row.to_date! }
      if (task !== undefined) this.take(task, range, row.result)
    }
    const ids = rows.map(({ result_id }) => result_id)
    if (ids.length === 0) return 0
    await this.persist(() =>
      ops.deleteFrom('window_results').where(sql<boolean>`result_id = any(${ids}::bigint[])`).execute(),
    )
    for (const id of ids) this.counted.delete(id)
    return fresh.length
  }

  private take(task: Task, range: Range | undefined, sent: Parameters<typeof fromSent>[0]): void {
    const told = fromSent(sent)
    for (const [status, times] of Object.entries(told.statuses)) {
      for (let time = 0; time < times; time++) countRequest(task, status === 'none' ? undefined : Number(status))
    }
    const { result } = told
    if (told.doubt !== undefined) {
      this.run.log.warn({ project: task.project.id, reason: told.doubt }, 'a worker was refused; this process tries')
      this.helping = true
    }
    if (result === undefined) task.report.seconds += told.seconds
    else if (this.inFlight.get(task)!.delete(textOf(range))) {
      this.learn(task, range, result, told.pageLimit)
      settle({ task, range }, result, told.seconds)
    }
  }

  /** What one process learns from its own answers, learned from those of all. */
  private learn(task: Task, range: Range | undefined, result: StepResult, pageLimit: number): void {
    const { limit } = this.run
    requeue(this.byName, limit.learnLower(pageLimit))
    if (result.kind !== 'loaded' || result.pageRows === undefined || range === undefined) return
    const window = { name: taskName(task), range }
    if (result.pageRows >= limit.current) result.again.push(window)
    else limit.remember(window, result.pageRows)
  }

  private async takeDead(now = false): Promise<number> {
    if (!now && Date.now() - this.lookedAt < DEAD_MS) return 0
    this.lookedAt = Date.now()
    let came = 0
    const dead = await this.persist(() => deadWindows(this.boss, this.run.runId))
    for (const { id, project, stream, range, reason } of dead) {
      if (this.dead.has(id)) continue
      this.dead.add(id)
      const task = this.byName.get(windowName({ projectId: project, stream }))
      if (task === undefined || !this.inFlight.get(task)!.delete(textOf(range))) continue
      settle({ task, range }, { kind: 'failed', reason: `set aside: ${reason}`, verdict: 'dead' }, 0)
      came++
    }
    return came
  }

  /** Other windows of a project that cannot be read are not tried. */
  private async withdrawFailedProjects(): Promise<void> {
    for (const project of this.tasks[0]!.failedProjects.keys()) {
      if (this.withdrawn.has(project)) continue
      this.withdrawn.add(project)
      await this.persist(() => withdraw(this.boss, this.run.runId, project))
      await this.lookForLost(project)
    }
  }

  /** Windows whose jobs are gone without a result are not waited for. Gives how many came to an end. */
  private async lookForLost(project?: string): Promise<number> {
    const jobs = await this.persist(() => openWindows(this.boss, this.run.runId))
    let came = 0
    // What ended meanwhile has its result here by now.
    for (let more = await this.takeResults(); more > 0; more = await this.takeResults()) came += more
    came += await this.takeDead(true)
    const open = new Set(jobs.map((job) => JSON.stringify([job.project, job.stream, textOfJob(job)])))
    for (const [task, windows] of this.inFlight) {
      if (project !== undefined && task.project.id !== project) continue
      for (const text of windows) {
        if (open.has(JSON.stringify([task.project.id, task.stream.name, text]))) continue
        windows.delete(text)
        came++
        const reason = task.failedProjects.get(task.project.id)
        const lost = reason === undefined ? 'its job vanished from the queue' : `not read: ${reason}`
        settle({ task, range: rangeOf(text) }, { kind: 'failed', reason: lost, verdict: 'lost' }, 0)
      }
    }
    this.heardAt = Date.now()
    return came
  }

  /** Results for runs that ended without taking them. */
  private async forgetOldResults(): Promise<void> {
    await this.run.warehouse.ops
      .deleteFrom('window_results')
      .where('run_id', 'in', (from) => from.selectFrom('runs').select('run_id').where('outcome', 'is not', null))
      .where(sql<boolean>`created_at < now() - interval '1 minute'`)
      .execute()
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

function textOf(range: Range | undefined): string {
  return range === undefined ? LIST : `${range.from}${range.to}`
}

function textOfJob({ from, to }: { from: string | null; to: string | null }): string {
  return from === null ? LIST : `${from}${to}`
}

function rangeOf(text: string): Range | undefined {
  return text === LIST ? undefined : { from: text.slice(0, 10), to: text.slice(10) }
}
