import type { Clock } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { sleep } from '../core/waiting.ts'
import type { Cron } from './cron.ts'

export interface Duty {
  name: string
  cron: Cron
  work: () => Promise<void>
}

export interface SchedulerOptions {
  clock: Clock
  log: Log
  jitterMs: number
  random?: () => number
}

export interface Activity {
  name: string
  startedAt: Date
}

const TICK_MS = 1000
// Times missed for longer than this lead to one run: the planner sees the gap.
const LONGEST_MISS_MS = 120_000

/**
 * Runs duties on schedule, one at a time. If a duty is still running at its next time, that time is skipped. If another
 * duty is running, it waits for its turn, once.
 */
export class Scheduler {
  private lastTick: number
  private readonly waiting: Duty[] = []
  private readonly nexts = new Map<string, { from: Date; at: Date }>()
  private timer: NodeJS.Timeout | undefined
  private stopped = new AbortController()
  private done: Promise<void> = Promise.resolve()
  activity: Activity | undefined

  constructor(
    private readonly duties: readonly Duty[],
    private readonly options: SchedulerOptions,
  ) {
    this.lastTick = options.clock().getTime()
  }

  start(): void {
    const tick = () => {
      this.tick()
      this.timer = setTimeout(tick, TICK_MS - (this.options.clock().getTime() % TICK_MS) + 5)
    }
    tick()
  }

  tick(): void {
    const now = this.options.clock().getTime()
    const last = this.lastTick
    const from = Math.max(last, now - LONGEST_MISS_MS)
    this.lastTick = now
    // After a machine slept, each duty runs once, however many of its times passed.
    if (from > last) {
      const due = this.duties.filter(({ cron }) => (cron.previous(new Date(from + 1))?.getTime() ?? 0) > last)
      for (const duty of due) this.request(duty)
    }
    for (let at = Math.floor(from / TICK_MS) * TICK_MS + TICK_MS; at <= now; at += TICK_MS) {
      const moment = new Date(at)
      for (const duty of this.duties) if (duty.cron.isTime(moment)) this.request(duty)
    }
  }

  /** The next time of a duty. It is cached: searching a year ahead is slow. */
  next(name: string): Date | undefined {
    const now = this.options.clock()
    const known = this.nexts.get(name)
    if (known !== undefined && now >= known.from && now < known.at) return known.at
    const at = this.duties.find((duty) => duty.name === name)?.cron.next(now)
    if (at !== undefined) this.nexts.set(name, { from: now, at })
    return at
  }

  trigger(name: string): void {
    const duty = this.duties.find((candidate) => candidate.name === name)
    if (duty !== undefined) this.request(duty, 0)
  }

  /** Starts other work; false if something is in progress. */
  tryRun(name: string, work: () => Promise<void>): boolean {
    if (this.activity !== undefined || this.stopped.signal.aborted) return false
    this.done = this.run(name, work, 0)
    return true
  }

  async stop(): Promise<void> {
    clearTimeout(this.timer)
    this.stopped.abort()
    this.waiting.length = 0
    await this.done
  }

  private request(duty: Duty, delayMs = this.jitter()): void {
    if (this.stopped.signal.aborted) return
    if (this.activity?.name === duty.name) {
      this.options.log.warn(
        { duty: duty.name, since: this.activity.startedAt },
        'still running, so this time is skipped',
      )
      return
    }
    if (this.activity !== undefined) {
      if (!this.waiting.includes(duty)) this.waiting.push(duty)
      return
    }
    this.done = this.run(duty.name, duty.work, delayMs)
  }

  private async run(name: string, work: () => Promise<void>, delayMs: number): Promise<void> {
    this.activity = { name, startedAt: this.options.clock() }
    try {
      if (delayMs > 0) await sleep(delayMs, this.stopped.signal).catch(() => {})
      if (!this.stopped.signal.aborted) await work()
    } catch (error) {
      this.options.log.error({ duty: name, reason: messageOf(error) }, 'failed')
    } finally {
      this.activity = undefined
    }
    const next = this.waiting.shift()
    if (next !== undefined && !this.stopped.signal.aborted) await this.run(next.name, next.work, 0)
  }

  private jitter(): number {
    return Math.floor((this.options.random ?? Math.random)() * this.options.jitterMs)
  }
}
