import { setTimeout as delay } from 'node:timers/promises'
import { sql } from 'kysely'
import type { Clock } from '../core/day.ts'
import { messageOf, OverloadedError, TimeLimitError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import type { Monotonic } from '../core/waiting.ts'
import type { DatabaseState } from '../warehouse/connect.ts'
import { isTransient } from '../warehouse/retry.ts'
import type { SidePool } from '../warehouse/side-pool.ts'

interface WatchOptions {
  /** Has a connection of its own: neither runs nor readers can make the database look as if it were away. */
  pool: SidePool
  clock: Clock
  monotonic: Monotonic
  log: Log
}

const LOOK_MS = 2000

/**
 * Knows whether the database answers, and its time. Callers get the result of the last look, so a probe waits for
 * nothing.
 */
export class DatabaseWatch {
  private up: boolean | undefined
  private since: number
  private reason: string | undefined = 'the database was not asked yet'
  private mayPass = true
  private serverTime: { time: number; at: number } | undefined
  private looking: Promise<DatabaseState> | undefined
  private looked: ((state: DatabaseState) => void) | undefined
  private readonly stopped = new AbortController()

  constructor(private readonly options: WatchOptions) {
    this.since = options.monotonic()
  }

  get state(): DatabaseState {
    const { reason, mayPass } = this
    return { up: this.up ?? false, forMs: this.options.monotonic() - this.since, reason, mayPass }
  }

  /** The database's time, as far as it is known: what the ledger wrote down is compared with the clock that wrote it. */
  now(): Date {
    if (this.serverTime === undefined) return this.options.clock()
    return new Date(this.serverTime.time + this.options.monotonic() - this.serverTime.at)
  }

  look(): Promise<DatabaseState> {
    this.looking ??= this.ask().finally(() => {
      this.looking = undefined
    })
    return this.looking
  }

  /** Asks again and again. `looked` is called after every look from now on. */
  start(looked: (state: DatabaseState) => void): void {
    this.looked = looked
    const { signal } = this.stopped
    const go = async () => {
      while (!signal.aborted) {
        await this.look()
        await delay(LOOK_MS, undefined, { signal }).catch(() => {})
      }
    }
    void go()
  }

  stop(): void {
    this.stopped.abort()
  }

  private async ask(): Promise<DatabaseState> {
    try {
      // An overloaded machine answers late, and the second time in time; a lost one does not answer.
      const time = await this.readTime().catch((error: unknown) => {
        if (error instanceof TimeLimitError && !this.stopped.signal.aborted) return this.readTime()
        throw error
      })
      this.serverTime = { time: time.getTime(), at: this.options.monotonic() }
      this.become(true, undefined)
    } catch (error) {
      this.mayPass = isTransient(error) || error instanceof TimeLimitError || error instanceof OverloadedError
      this.become(false, messageOf(error))
    }
    if (!this.stopped.signal.aborted) this.looked?.(this.state)
    return this.state
  }

  private async readTime(): Promise<Date> {
    const { rows } = await this.options.pool.read((warehouse) =>
      sql<{ now: Date }>`select clock_timestamp() as now`.execute(warehouse.db),
    )
    return rows[0]!.now
  }

  private become(up: boolean, reason: string | undefined): void {
    this.reason = reason
    if (up === this.up) return
    const before = this.up
    this.up = up
    this.since = this.options.monotonic()
    if (this.stopped.signal.aborted) return
    if (up && before !== undefined) this.options.log.info('the database answers again')
    if (!up) this.options.log.warn({ reason }, 'the database does not answer')
  }
}
