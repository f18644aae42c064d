import { randomUUID } from 'node:crypto'
import { codeOf, messageOf } from '../core/errors.ts'
import { monotonic } from '../core/monotonic.ts'
import { sleep } from '../core/sleep.ts'
import { streamsOf } from '../streams/registry.ts'
import type { Loaded, Run, Services, StepResult, SyncedProject } from '../sync/context.ts'
import { PageLimit } from '../sync/page-limit.ts'
import { performStep } from '../sync/perform.ts'
import { makeRun } from '../sync/run.ts'
import { inTransaction, type Transaction } from '../warehouse/connect.ts'
import { withRetries } from '../warehouse/retry.ts'
import type { Boss } from './boss.ts'
import {
  completeJob,
  discardJob,
  doubtJob,
  failJob,
  giveBack,
  isWanted,
  keepAlive,
  type TakenJob,
  takeJobs,
} from './jobs.ts'
import { budgetWaitMs } from './shared-budget.ts'
import type { Told } from './told.ts'

// The longer nothing came, the rarer it looks.
const SHORTEST_NAP_MS = 40
const LONGEST_NAP_MS = 1000
const TROUBLE_MS = 1000
const BEAT_MS = 3000
// A project whose requests are spent for longer than this makes room for others.
const PATIENCE_MS = 1500
const PLENTY = 20
const ASK_MS = 1000
const DOUBT_MS = 60_000
const TOO_MANY_TROUBLES = 10
const UNIQUE = '23505'
/** Failures of the service, a project or a key, not of the window at hand. */
const NOT_THE_WINDOW = new Set(['key', 'project', 'service-down', 'project-down', 'operation-down'])
const REMEMBERED_RUNS = 20

export interface WorkerOptions {
  concurrency: number
  projects: readonly SyncedProject[]
  /** True where the process speaks for the run: what it says of a key is final. A worker may have an old one. */
  hasLastWord?: boolean
  /** Asked before jobs are taken: those of other projects are left to others. */
  projectsLeft?: () => Promise<readonly SyncedProject[]>
  /** Told every few seconds how it goes. */
  beat?: (state: { busy: number; done: number }) => Promise<void>
}

/** Takes windows from the queue and does them, as one process would. */
export class QueueWorker {
  readonly id = randomUUID()
  done = 0
  private readonly active = new Map<TakenJob, Promise<void>>()
  private readonly stopping = new AbortController()
  private readonly memory = new Map<number, Pick<Run, 'limit' | 'mentions'>>()
  /** Projects that are left alone until a time, by its milliseconds. */
  private readonly avoided = new Map<string, number>()
  /** When a project's budget was last asked for. */
  private readonly askedAt = new Map<string, number>()
  private troubles = 0
  private loop: Promise<void> = Promise.resolve()
  private beating: NodeJS.Timeout | undefined

  constructor(
    private readonly services: Services,
    private readonly boss: Boss,
    private readonly options: WorkerOptions,
  ) {}

  start(): void {
    this.beating = setInterval(() => void this.beat(), BEAT_MS)
    this.loop = this.work()
  }

  /** Takes no more; what is in hand is rolled back and given back, for others to take at once. */
  async stop(): Promise<void> {
    this.stopping.abort()
    clearInterval(this.beating)
    await this.loop
    await Promise.all(this.active.values())
  }

  private async work(): Promise<void> {
    const { signal } = this.stopping
    for (let napMs = SHORTEST_NAP_MS; !signal.aborted; ) {
      try {
        const free = this.options.concurrency - this.active.size
        if (free === 0) {
          await Promise.race(this.active.values())
          continue
        }
        const jobs = await this.take(free)
        this.troubles = 0
        for (const job of jobs) {
          const work = this.perform(job)
            .catch((error: unknown) => this.recover(job, error))
            .finally(() => this.active.delete(job))
          this.active.set(job, work)
        }
        if (jobs.length > 0) napMs = SHORTEST_NAP_MS
        else await sleep(napMs, signal)
        if (jobs.length === 0) napMs = Math.min(LONGEST_NAP_MS, napMs * 1.3)
      } catch (error) {
        if (signal.aborted) return
        // Two may reach for windows with the same name at once: the next look finds another.
        if (codeOf(error) !== UNIQUE && ++this.troubles > 1)
          this.services.log.warn({ reason: messageOf(error) }, 'the queue cannot be reached')
        await sleep(TROUBLE_MS, signal).catch(() => {})
      }
    }
  }

  private async take(free: number): Promise<TakenJob[]> {
    const left = (await this.options.projectsLeft?.()) ?? this.options.projects
    const now = monotonic()
    for (const [project, until] of this.avoided) if (until <= now) this.avoided.delete(project)
    const { config, source } = this.services
    const projects = left.flatMap(({ id }) => (this.avoided.has(id) ? [] : [id]))
    if (projects.length === 0) return []
    return takeJobs(this.boss, free, { source, projects, streams: streamsOf(config).map(({ name }) => name) })
  }

  private async beat(): Promise<void> {
    try {
      if (this.active.size > 0) await keepAlive(this.boss, [...this.active.keys()])
      // Whoever cannot take anything does not claim to be about: others may then work.
      if (this.troubles <= TOO_MANY_TROUBLES) await this.options.beat?.({ busy: this.active.size, done: this.done })
    } catch (error) {
      this.services.log.debug({ reason: messageOf(error) }, 'no sign of life could be given')
    }
  }

  private async perform(job: TakenJob): Promise<void> {
    const { services, boss } = this
    const { data } = job
    const startedAt = monotonic()
    const statuses: Record<string, number> = {}
    const { limit, mentions } = this.memoryOf(data.runs[0]!, data.page_limit)
    const told = (result: StepResult): Told => ({
      result,
      seconds: (monotonic() - startedAt) / 1000,
      statuses,
      pageLimit: limit.current,
    })
    const project = this.options.projects.find(({ id }) => id === data.project)!
    const stream = streamsOf(services.config).find(({ name }) => name === data.stream)!
    // Nobody may be watching any more when deletions are let through.
    if (data.accept_deletes && !(await isWanted(boss, job))) return discardJob(boss, job)
    const waitMs = await this.budgetWaitMs(project)
    if (waitMs > PATIENCE_MS) {
      this.avoided.set(project.id, monotonic() + waitMs)
      return giveBack(boss, job)
    }
    const run: Run = {
      ...makeRun(
        services,
        {
          runId: data.runs[0]!,
          command: data.command,
          limit,
          mentions,
          acceptDeletes: data.accept_deletes,
          lookbackFrom: data.lookback_from,
          recentFrom: data.recent_from,
        },
        this.stopping.signal,
      ),
      committing: (tx: Transaction, loaded: Loaded) => completeJob(tx, boss, job, told(loaded)),
    }
    const range = data.from === null ? undefined : { from: data.from, to: data.to! }
    const result = await performStep(run, project, stream, range, (status) => {
      statuses[status ?? 'none'] = (statuses[status ?? 'none'] ?? 0) + 1
    })
    if (result.kind === 'loaded') {
      this.done++
      const { rowsRead, effect } = result.outcome
      const { inserted, updated, deleted } = effect
      const place = { project: data.project, stream: data.stream, from: data.from, to: data.to }
      run.log.info({ ...place, rows: rowsRead, inserted, updated, deleted }, 'job done')
      return
    }
    if (result.kind === 'failed' && result.verdict === 'taken') return
    if (result.kind === 'failed' && result.verdict === 'interrupted') return giveBack(boss, job)
    if (result.kind !== 'failed') return this.end(job, (tx) => completeJob(tx, boss, job, told(result)))
    const { reason, verdict } = result
    run.log.warn({ project: data.project, stream: data.stream, from: data.from, to: data.to, reason }, 'job failed')
    if (NOT_THE_WINDOW.has(verdict)) {
      // Trying again would not help; but a worker may have an old key, or no way to the service.
      if (this.options.hasLastWord) return this.end(job, (tx) => completeJob(tx, boss, job, told(result)))
      this.avoided.set(project.id, monotonic() + DOUBT_MS)
      return this.end(job, (tx) => doubtJob(tx, boss, job, told(result), reason))
    }
    // What the service refuses once it refuses again, as in one process.
    const final = verdict === 'refused'
    await this.end(job, (tx) => (final ? completeJob : failJob)(tx, boss, job, told(result)))
  }

  /** Where it was not even known what to do with a job, another may take it at once. */
  private async recover(job: TakenJob, error: unknown): Promise<void> {
    this.services.log.warn({ job: job.id, reason: messageOf(error) }, 'a job could not be done here')
    await giveBack(this.boss, job).catch(() => {})
  }

  private async end(job: TakenJob, work: (tx: Transaction) => Promise<void>): Promise<void> {
    // A lost connection must not leave the job to be taken over only when it expires.
    const ending = withRetries(this.services.warehouse, this.stopping.signal, () =>
      inTransaction(this.services.warehouse, work),
    )
    await ending.catch((error: unknown) => {
      const level = codeOf(error) === 'taken' ? 'debug' : 'warn'
      this.services.log[level]({ job: job.id, reason: messageOf(error) }, 'a job could not be ended; another will')
    })
  }

  /** Asked before a window is begun; while the answers leave enough, others are looked at once in a while only. */
  private async budgetWaitMs({ id, caller }: SyncedProject): Promise<number> {
    const { remaining, waits } = this.services.client.budgetView(caller)
    const plenty = remaining === undefined ? waits === 0 : remaining > PLENTY
    const now = monotonic()
    if (plenty && now - (this.askedAt.get(id) ?? Number.NEGATIVE_INFINITY) < ASK_MS) return 0
    this.askedAt.set(id, now)
    return budgetWaitMs(this.services.warehouse, id)
  }

  /** What windows of one run teach each other; at most a few runs are remembered. */
  private memoryOf(runId: number, pageLimit: number): Pick<Run, 'limit' | 'mentions'> {
    const known = this.memory.get(runId) ?? { limit: new PageLimit(pageLimit), mentions: new Map() }
    this.memory.set(runId, known)
    known.limit.learnAccepted(pageLimit)
    for (const old of this.memory.keys()) {
      if (this.memory.size <= REMEMBERED_RUNS) break
      this.memory.delete(old)
    }
    return known
  }
}
