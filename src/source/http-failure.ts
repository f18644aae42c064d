import type { ConnectionFailure } from '../core/connection-failure.ts'
import { KeyError, ProjectError, RefusedError, TransientError } from '../core/errors.ts'
import type { RateHeaders } from './rate-headers.ts'

/** A 429: the budget is spent for now. */
export class RateLimitedError extends TransientError {}

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

/** What a status other than success means. `request` names what was asked for. */
export function failureOf(
  status: number,
  message: string,
  request: string,
  { retryAfterMs, resetMs = 0 }: RateHeaders,
): Error {
  const text = `${request}: HTTP ${status}: ${message}`
  if (status === 429) {
    // The budget waits for the reset, but not for one that is too far away.
    return new RateLimitedError(text, {
      retryAfterMs: retryAfterMs ?? (resetMs > LONGEST_WAIT_MS ? resetMs : undefined),
      status,
    })
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
