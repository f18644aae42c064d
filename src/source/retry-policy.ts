import type { ConnectionFailure } from '../core/connection-failure.ts'
import { KeyError, ProjectError, RefusedError, TransientError } from '../core/errors.ts'
import type { RateHeaders } from './rate-headers.ts'

export const RATE_LIMITED = 429
/** A service that asks for a longer wait is not waited for: the run says so and the next one tries again. */
export const LONGEST_WAIT_MS = 300_000
const FIRST_MS = 400
const LONGEST_MS = 20_000
// A 429 is an answer, not a fault: it is waited out for longer than a fault is, but not for ever.
const MOST_RATE_LIMITS = 40
// A request that was never sent is no attempt. But a host that refuses some connections must not be tried without end.
const MOST_UNSENT = 20

/** No connection was made. */
export class UnsentError extends TransientError {
  constructor(
    message: string,
    readonly connection: ConnectionFailure,
  ) {
    super(message, { neverSent: true })
  }
}

interface Retry {
  /** How long to wait before the next attempt; undefined after the last. */
  delayMs: number | undefined
  /** How many attempts in a row ran out of time. */
  timeouts: number
}

/** Gives a function that counts a failed attempt. Only what changes nothing in the service may be repeated. */
export function createRetries(maxAttempts: number, isRepeatable: boolean): (error: TransientError) => Retry {
  let [attempts, rateLimits, unsent, timeouts] = [0, 0, 0, 0]
  const delayAfter = (error: TransientError) => {
    // The gate keeps requests for as long as the service asked for, or fails them. The budget waits after a 429.
    if ((error.retryAfterMs ?? 0) > LONGEST_WAIT_MS) return 0
    if (error instanceof UnsentError) return ++unsent < MOST_UNSENT ? 0 : undefined
    if (error.status === RATE_LIMITED) return ++rateLimits < MOST_RATE_LIMITS ? 0 : undefined
    return ++attempts < maxAttempts ? retryDelayMs(attempts, error.retryAfterMs) : undefined
  }
  return (error) => {
    if (!(error instanceof UnsentError)) timeouts = error.timedOut ? timeouts + 1 : 0
    return { delayMs: isRepeatable ? delayAfter(error) : undefined, timeouts }
  }
}

/** How long to wait before attempt `attempt + 1`: what the service asked for, else doubling, with jitter on top. */
export function retryDelayMs(attempt: number, askedMs: number | undefined, random: () => number = Math.random): number {
  // Jitter only adds to what the service asked for: coming back early would cost another refusal.
  if (askedMs !== undefined) return askedMs + random() * 250
  return Math.min(LONGEST_MS, FIRST_MS * 2 ** (attempt - 1)) * (0.5 + random() * 0.5)
}

/** Whether an attempt that ended with this status, or without any, is followed by another one. */
export function isTriedAgain(status: number | undefined): boolean {
  return status === undefined || [408, 425, 429].includes(status) || status >= 500
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
  if (isTriedAgain(status)) {
    // The budget waits for the reset, but not for one that is too far away.
    const isFar = status === RATE_LIMITED && resetMs > LONGEST_WAIT_MS
    return new TransientError(text, { retryAfterMs: retryAfterMs ?? (isFar ? resetMs : undefined), status })
  }
  if (status === 401 || (status === 400 && WRONG_KEY.test(message)))
    return new KeyError(`${text} (check VISIBILITY_API_KEY)`, { status })
  if (status === 403) return new ProjectError(text, { status })
  return new RefusedError(`${text}${status >= 300 && status < 400 ? ' (redirects are not followed)' : ''}`, { status })
}
