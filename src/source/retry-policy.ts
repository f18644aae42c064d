import type { TransientError } from '../core/errors.ts'
import { LONGEST_WAIT_MS, RateLimitedError, UnsentError } from './http-failure.ts'

export interface RetryOptions {
  maxAttempts: number
  /** Only what changes nothing in the service may be sent twice. */
  isRepeatable: boolean
  /** True if less could be asked for instead, which is better than running out of time again and again. */
  isDivisible: boolean
}

// A 429 is an answer, not a fault: it is waited out for longer than a fault is, but not for ever.
const MOST_RATE_LIMITS = 40
// What was never sent is no attempt; but a host that refuses some connections must not be asked for ever.
const MOST_UNSENT = 20
const MOST_TIMEOUTS = 2

/** Decides, for one request, whether it is sent again after an attempt that failed temporarily. */
export class RetryPolicy {
  private attempts = 0
  private rateLimits = 0
  private unsent = 0
  private timeouts = 0

  constructor(private readonly options: RetryOptions) {}

  /** True if so many attempts in a row timed out that less should be asked for. */
  get ranOutOfTime(): boolean {
    return this.options.isDivisible && this.timeouts >= MOST_TIMEOUTS
  }

  /** How long to wait before the request is sent again; undefined if it is not. */
  delayAfter(error: TransientError): number | undefined {
    const { maxAttempts, isRepeatable } = this.options
    if (!isRepeatable) return undefined
    // The gate keeps requests for as long as the service asked for, or fails them.
    if ((error.retryAfterMs ?? 0) > LONGEST_WAIT_MS) return 0
    if (error instanceof UnsentError) return ++this.unsent < MOST_UNSENT ? 0 : undefined
    const isRateLimited = error instanceof RateLimitedError
    const mayRetry = isRateLimited ? ++this.rateLimits < MOST_RATE_LIMITS : ++this.attempts < maxAttempts
    this.timeouts = error.timedOut ? this.timeouts + 1 : 0
    if (!mayRetry) return undefined
    // The budget makes everyone wait after a 429; a wait of its own would only add to that.
    return isRateLimited ? 0 : retryDelayMs(this.attempts, error.retryAfterMs)
  }
}

const FIRST_MS = 400
const LONGEST_MS = 20_000

/** How long to wait before attempt `attempt + 1`: what the service asked for, else doubling, with jitter on top. */
export function retryDelayMs(attempt: number, askedMs: number | undefined, random: () => number = Math.random): number {
  const base = askedMs ?? Math.min(LONGEST_MS, FIRST_MS * 2 ** (attempt - 1))
  // Jitter only adds to what the service asked for: coming back early would cost another refusal.
  return askedMs === undefined ? base * (0.5 + random() * 0.5) : base + random() * 250
}
