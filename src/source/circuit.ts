import { messageOf } from '../core/errors.ts'
import { monotonic, sleep, unlessStopped } from '../core/waiting.ts'

// Chance alone makes ten failures in a row once in 170,000 requests where three in ten fail.
const MANY = 10
const FEW = 3
const FIRST_PROBE_MS = 500
const LONGEST_PROBE_MS = 20_000
// For processes that stay: the next run finds out with one request whether there are answers again.
const PAUSE_MS = 30_000

export interface CircuitOptions {
  patienceMs: () => number
  /** Time alone is not enough to give up: a single request may have used all of it. */
  leastProbes: () => number
  onChange: (isOpen: boolean, reason: string) => void
}

/**
 * Opens after many failures in a row, or after a few that took as long as the patience. While it is open, requests wait
 * and one small request at a time, the probe, asks whether there are answers again. Past the patience it gives up:
 * requests then fail at once, but for a probe now and then.
 */
export class Circuit {
  private failures = 0
  private failedProbes = 0
  private silentSince = 0
  /** When the last usable answer came. */
  answeredAt = 0
  private lastReason = ''
  private probeAt = 0
  private probing: Promise<void> | undefined
  /** Aborted when it closes; undefined while it is closed. */
  private open: AbortController | undefined
  private hopeless = false
  private reconsidered = false

  constructor(private readonly options: CircuitOptions) {}

  get isOpen(): boolean {
    return this.open !== undefined
  }

  /** The problem, for people. */
  get silence(): string {
    const attempts = this.failures + this.failedProbes
    return `has given no usable answer for ${spanOf(this.silentMs)} (${attempts} attempts, the last: ${this.lastReason})`
  }

  private get hasGivenUp(): boolean {
    if (this.open === undefined || this.reconsidered) return false
    return this.hopeless || (this.failedProbes >= this.options.leastProbes() && this.isPastPatience)
  }

  private get silentMs(): number {
    return monotonic() - this.silentSince
  }

  private get isPastPatience(): boolean {
    return this.silentMs >= this.options.patienceMs()
  }

  succeed(): void {
    const { open } = this
    this.failures = this.failedProbes = 0
    this.hopeless = this.reconsidered = false
    this.answeredAt = monotonic()
    this.open = undefined
    if (open === undefined) return
    open.abort()
    this.options.onChange(false, '')
  }

  /** `in time`: opens after enough failures and enough time. `now`: opens at once. `never`: is only counted. */
  fail({ message: reason }: Error, sentAt: number, mayOpen: 'in time' | 'now' | 'never'): void {
    // The silence begins at the last answer at the earliest, even if the failed request was sent before it.
    if (this.failures === 0) this.silentSince = Math.max(sentAt, this.answeredAt)
    this.failures++
    this.lastReason = reason
    if (this.open !== undefined || mayOpen === 'never') return
    const isLong = this.failures >= FEW && this.isPastPatience
    if (mayOpen === 'in time' && this.failures < MANY && !isLong) return
    this.open = new AbortController()
    this.failedProbes = 0
    this.probeAt = monotonic()
    this.options.onChange(true, reason)
  }

  /** No patience: what failed will fail again. */
  giveUp(): void {
    this.hopeless = true
    this.probeAt = monotonic() + PAUSE_MS
  }

  /** Requests wait for one more probe, though it may have given up. */
  allowProbe(): void {
    this.reconsidered = this.open !== undefined
    this.probeAt = Math.min(this.probeAt, monotonic())
  }

  /** Waits until requests may be sent, and throws what `downError` gives if it has given up. */
  async pass(
    probe: () => Promise<Error | undefined>,
    signal: AbortSignal | undefined,
    downError: () => Error,
  ): Promise<void> {
    while (this.open !== undefined) {
      const mayProbe = this.probing === undefined && monotonic() >= this.probeAt
      if (this.hasGivenUp && !mayProbe) throw downError()
      this.probing ??= this.ask(this.open.signal, probe, signal).finally(() => {
        this.probing = undefined
      })
      await unlessStopped(this.probing, signal)
    }
  }

  private async ask(
    closed: AbortSignal,
    probe: () => Promise<Error | undefined>,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const waitMs = this.probeAt - monotonic()
    if (waitMs > 0) {
      // An answer to an earlier request may come while this waits.
      await sleep(waitMs, AbortSignal.any(signal === undefined ? [closed] : [closed, signal])).catch(() => {})
      if (closed.aborted || signal?.aborted) return
    }
    const failure = await probe().catch((error: unknown) => error)
    if (failure === undefined) return this.succeed()
    if (closed.aborted || signal?.aborted) return
    this.failedProbes++
    this.reconsidered = false
    this.lastReason = messageOf(failure)
    const now = monotonic()
    const delayMs = Math.min(LONGEST_PROBE_MS, FIRST_PROBE_MS * 2 ** (this.failedProbes - 1))
    // The last one is sent when the patience ends.
    const leftMs = this.silentSince + this.options.patienceMs() - now
    this.probeAt = now + (this.hasGivenUp ? PAUSE_MS : Math.min(delayMs, leftMs > 0 ? leftMs : delayMs))
  }
}

export function spanOf(ms: number): string {
  return ms < 120_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`
}
