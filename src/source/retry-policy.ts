import type { ConnectionFailure } from '../core/connection-failure.ts'
import { KeyError, ProjectError, RefusedError, TransientError } from '../core/errors.ts'
import type { RateHeaders } from './rate-headers.ts'

// A 429 is an answer, not a fault: it is waited out for longer than a fault is, but not for ever.
const MOST_RATE_LIMITS = 40
// A request that was never sent is no attempt. But a host that refuses some connections must not be tried without end.
const MOST_UNSENT = 20
const MOST_TIMEOUTS = 2

/** Decides, for one request, whether it is sent again after an attempt that failed temporarily. */
export class RetryPolicy {
  private attempts = 0
  private rateLimits = 0
  private unsent = 0
  private timeouts = 0

  /**
   * @param options.isRepeatable only what changes nothing in the service may be sent twice
   * @param options.isDivisible true if less could be asked for instead, which is better than running out of time again
   */
  constructor(private readonly options: { maxAttempts: number; isRepeatable: boolean; isDivisible: boolean }) {}

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
    const isRateLimited = error.status === RATE_LIMITED
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

/** The status that says that the budget is spent for now. */
export const RATE_LIMITED = 429

/** No connection was made. */
export class UnsentError extends TransientError {
  constructor(
    message: string,
    readonly connection: ConnectionFailure,
  ) {
    super(message, { neverSent: true })
  }
}

const WRONG_KEY =
  /api[ _-]?key|(?:invalid|wrong|missing|bad|unknown) key\b|key (?:is )?(?:invalid|missing|wrong)|unauthori[sz]ed|authenticat/i

/** The error for a status other than success. `request` names the request. */
export function failureOf(
  status: number,
  message: string,
  request: string,
  { retryAfterMs, resetMs = 0 }: RateHeaders,
): Error {
  const text = `${request}: HTTP ${status}: ${message}`
  if (status === RATE_LIMITED) {
    // The budget waits for the reset, but not for one that is too far away.
    const askedMs = retryAfterMs ?? (resetMs > LONGEST_WAIT_MS ? resetMs : undefined)
    return new TransientError(text, { retryAfterMs: askedMs, status })
  }
  if (isTriedAgain(status)) return new TransientError(text, { retryAfterMs, status })
  if (status === 401 || (status === 400 && WRONG_KEY.test(message))) {
    return new KeyError(`${text} (check VISIBILITY_API_KEY)`, { status })
  }
  if (status === 403) return new ProjectError(text, { status })
  if (status >= 300 && status < 400) return new RefusedError(`${text} (redirects are not followed)`, { status })
  return new RefusedError(text, { status })
}

/** A service that asks for a longer wait is not waited for: the run says so and the next one tries again. */
export const LONGEST_WAIT_MS = 300_000

/** Whether an attempt that ended with this status, or without any, is followed by another one. */
export function isTriedAgain(status: number | undefined): boolean {
  return status === undefined || [408, 425, 429].includes(status) || status >= 500
}
