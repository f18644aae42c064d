import { type Clock, DAY_MS } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { sleep } from '../core/waiting.ts'
import type { Cron } from './cron.ts'

interface Duty {
  name: string
  cron: Cron
  work: () => Promise<void>
}

interface SchedulerOptions {
  clock: Clock
  log: Log
  jitterMs: number
  random?: () => number
}

const TICK_MS = 1000

/**
 * Runs duties on schedule, one at a time. If a duty is still running at its next time, that time is skipped. If another
 * duty is running, it waits for its turn, once.
 */
export class Scheduler {
  private lastTick: Date
  private readonly waiting: Duty[] = []
  private readonly nexts = new Map<Duty, { from: Date; at: Date | undefined; until: Date }>()
  private timer: NodeJS.Timeout | undefined
  private stopped = new AbortController()
  private done: Promise<void> = Promise.resolve()
  activity: { name: string; startedAt: Date } | undefined

  constructor(
    private readonly duties: readonly Duty[],
    private readonly options: SchedulerOptions,
  ) {
    this.lastTick = options.clock()
  }

  start(): void {
    const tick = () => {
      this.tick()
      this.timer = setTimeout(tick, TICK_MS - (this.options.clock().getTime() % TICK_MS) + 5)
    }
    tick()
  }

  /** A duty runs once, however many of its times passed since the last tick: the planner sees the gap. */
  tick(): void {
    const [last, now] = [this.lastTick, this.options.clock()]
    this.lastTick = now
    for (const duty of this.duties) {
      const at = this.nextAfter(duty, last)
      if (at !== undefined && at <= now) this.request(duty)
    }
  }

  next(name: string): Date | undefined {
    const duty = this.duties.find((candidate) => candidate.name === name)
    return duty && this.nextAfter(duty, this.options.clock())
  }

  /** Cached: searching a year ahead is slow. */
  private nextAfter(duty: Duty, after: Date): Date | undefined {
    const known = this.nexts.get(duty)
    if (known !== undefined && after >= known.from && after < known.until) return known.at
    const at = duty.cron.next(after)
    this.nexts.set(duty, { from: after, at, until: at ?? new Date(after.getTime() + DAY_MS) })
    return at
  }

  trigger(name: string): void {
    for (const duty of this.duties) if (duty.name === name) this.request(duty, 0)
  }

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

  private request(duty: Duty, delayMs = (this.options.random ?? Math.random)() * this.options.jitterMs): void {
    if (this.stopped.signal.aborted) return
    if (this.activity?.name === duty.name) {
      const { startedAt: since } = this.activity
      this.options.log.warn({ duty: duty.name, since }, 'still running, so this time is skipped')
    } else if (this.activity === undefined) {
      this.done = this.run(duty.name, duty.work, delayMs)
    } else if (!this.waiting.includes(duty)) {
      this.waiting.push(duty)
    }
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
}
