import { setTimeout as delay } from 'node:timers/promises'
import type { Monotonic } from '../core/monotonic.ts'

/**
 * Spreads requests over time: each gets the next free moment, `gapMs` after the one before. Pages share their thread with
 * the run, and readers who ask as fast as they are answered would take all of it.
 */
export class Pace {
  private nextAt = Number.NEGATIVE_INFINITY

  constructor(private readonly options: { gapMs: number; burst: number; monotonic: Monotonic }) {}

  /** Waits for a turn. So many who come at once, after a pause, do not wait. */
  async turn(): Promise<void> {
    const { gapMs, burst, monotonic } = this.options
    const now = monotonic()
    this.nextAt = Math.max(this.nextAt, now - burst * gapMs) + gapMs
    if (this.nextAt > now) await delay(this.nextAt - now)
  }
}
