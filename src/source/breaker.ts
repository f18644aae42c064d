import { DownError, messageOf } from '../core/errors.ts'
import { monotonic, sleep, unlessStopped } from '../core/waiting.ts'

// Chance alone makes ten failures in a row once in 170,000 requests where three in ten fail.
const MANY = 10
const FEW = 3
const FIRST_PROBE_MS = 500
const LONGEST_PROBE_MS = 20_000
// For processes that stay: the next run finds out with one request whether there are answers again.
const PAUSE_MS = 30_000

interface BreakerOptions {
  scope: 'service' | 'project' | 'operation'
  message(silence: string): string
  patienceMs(): number
  /** Time alone is not enough to give up: a single request may have used all of it. By default there are no probes. */
  leastProbes?(): number
  opens?(failures: number, isPastPatience: boolean): boolean
  onChange?(down: boolean, reason: string): void
}

/** A small request, and how it failed: undefined if there was a usable answer. */
type Probe = () => Promise<Error | undefined>

/**
 * Stops requests to one host, project or operation after failures in a row. `closed`: requests pass. `open`: requests wait, and
 * one probe at a time asks whether there are answers again. `down`: the patience is over, and requests fail at once, but
 * for one probe after each pause.
 */
export class Breaker {
  state: 'closed' | 'open' | 'down' = 'closed'
  /** When the last usable answer came. */
  answeredAt = 0
  private failures = 0
  private probes = 0
  private silentSince = 0
  private reason = ''
  private probeAt = 0
  private probing: Promise<void> | undefined
  private trial: object | undefined
  private closing = new AbortController()

  constructor(private readonly options: BreakerOptions) {}

  succeed(): void {
    this.failures = this.probes = 0
    this.answeredAt = monotonic()
    if (this.state === 'closed') return
    this.state = 'closed'
    this.closing.abort()
    this.options.onChange?.(false, '')
  }

  fail({ message }: Error, sentAt: number): void {
    const { opens = isDown, onChange } = this.options
    // The silence begins at the last answer at the earliest, even if the failed request was sent before it.
    if (this.failures++ === 0) this.silentSince = Math.max(sentAt, this.answeredAt)
    this.reason = message
    if (this.state === 'closed') {
      if (!opens(this.failures, this.isPastPatience)) return
      this.state = 'open'
      this.closing = new AbortController()
      this.probes = 0
      this.probeAt = monotonic()
      onChange?.(true, message)
    }
    this.trial = undefined
    this.giveUpInTime()
  }

  /** Requests wait for one more probe, though it may have given up. */
  allowProbe(): void {
    if (this.state === 'down') this.state = 'open'
    this.probeAt = Math.min(this.probeAt, monotonic())
  }

  /**
   * Waits until this request may be sent. Without a probe, the first request after a pause is one itself. Throws a DownError if
   * the patience is over.
   */
  async pass(request: { signal: AbortSignal | undefined }, probe?: Probe): Promise<void> {
    while (this.state !== 'closed' && this.trial !== request) {
      if (this.state === 'down' && (this.probing !== undefined || monotonic() < this.probeAt)) {
        const attempts = `(${this.failures + this.probes} attempts, the last: ${this.reason})`
        throw new DownError(this.options.message(`for ${spanOf(this.silentMs)} ${attempts}`), this.options.scope)
      }
      if (probe === undefined) {
        this.trial = request
        this.probeAt = monotonic() + PAUSE_MS
        return
      }
      this.probing ??= this.ask(probe, request.signal).finally(() => {
        this.probing = undefined
      })
      await unlessStopped(this.probing, request.signal)
    }
  }

  private async ask(probe: Probe, signal: AbortSignal | undefined): Promise<void> {
    // An answer to an earlier request may come meanwhile.
    const over = AbortSignal.any([this.closing.signal, ...(signal === undefined ? [] : [signal])])
    const waitMs = this.probeAt - monotonic()
    if (waitMs > 0) await sleep(waitMs, over).catch(() => {})
    if (over.aborted) return
    const failure = await probe().catch((error: unknown) => error)
    if (failure === undefined) return this.succeed()
    if (over.aborted) return
    this.reason = messageOf(failure)
    const delayMs = Math.min(LONGEST_PROBE_MS, FIRST_PROBE_MS * 2 ** this.probes++)
    // The last one is sent when the patience ends.
    const leftMs = this.options.patienceMs() - this.silentMs
    this.probeAt = monotonic() + (leftMs > 0 ? Math.min(delayMs, leftMs) : delayMs)
    this.giveUpInTime()
  }

  private giveUpInTime(): void {
    if (this.probes < (this.options.leastProbes?.() ?? 0) || !this.isPastPatience) return
    this.state = 'down'
    this.probeAt = monotonic() + PAUSE_MS
  }

  private get silentMs(): number {
    return monotonic() - this.silentSince
  }

  private get isPastPatience(): boolean {
    return this.silentMs >= this.options.patienceMs()
  }
}

export function isDown(failures: number, isPastPatience: boolean): boolean {
  return failures >= MANY || (failures >= FEW && isPastPatience)
}

function spanOf(ms: number): string {
  return ms < 120_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`
}
