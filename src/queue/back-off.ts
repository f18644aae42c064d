const FIRST_PAUSE_MS = 1000
const LONGEST_PAUSE_MS = 30_000

/** How a worker holds itself back after faults of its own: longer each time, until something works again. */
export class BackOff {
  /** Why; null while all is well. */
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
