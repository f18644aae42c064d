import { sleep } from '../core/sleep.ts'
import type { RateHeaders } from './rate-headers.ts'
import { LONGEST_WAIT_MS } from './retry-delay.ts'

const WINDOW_MS = 60_000
const ANSWER_MS = 25

export interface BudgetView {
  limit: number
  remaining: number | undefined
  waits: number
}

/** Where requests for one project and key are paced. */
export interface RequestBudget {
  /** Waits until a request may be sent. */
  take(signal?: AbortSignal): Promise<Permit>
  view(): BudgetView
}

/** Leave to send one request, which tells what came of it. */
export interface Permit {
  /** Learns from the response. `refused` is true where it asks everyone to wait: a 429, or a 503 that says for how long. */
  learn(headers: RateHeaders, refused: boolean): void
  /** It ended without a response. */
  drop(): void
}

/**
 * Paces the requests of one project and key. It starts from the configured number a minute and then believes the
 * response headers: the service's limit has changed before, and other programs spend from the same budget.
 */
export function createBudget(
  requestsPerMinute: number,
  now: () => number = Date.now,
  wait: (ms: number, signal?: AbortSignal) => Promise<void> = sleep,
): RequestBudget {
  let limit = requestsPerMinute
  let inFlight = 0
  let waits = 0
  /** What the service said is left, less what was sent since; undefined until it said so. */
  let remaining: number | undefined
  let resetAt = 0
  let taught = false
  let pausedUntil = 0
  /** When each request of the last minute was sent, for services that send no headers. */
  const sent: number[] = []

  const waitMs = (): number => {
    const at = now()
    if (pausedUntil > at) return pausedUntil - at
    if (remaining !== undefined) {
      if (at >= resetAt) {
        // A new period began, of whatever length the service keeps: our own count of the last minute is void.
        remaining = undefined
        sent.length = 0
      } else if (remaining > 0) return 0
      else return resetAt - at
    }
    while (sent.length > 0 && sent[0]! <= at - WINDOW_MS) sent.shift()
    if (sent.length < limit) return 0
    // A service that sends headers tells with its next answer how much is left, and for how long.
    return taught && inFlight > 0 ? ANSWER_MS : sent[0]! + WINDOW_MS - at
  }

  const permit: Permit = {
    learn(headers, refused) {
      inFlight = Math.max(0, inFlight - 1)
      const at = now()
      if (headers.limit !== undefined) limit = headers.limit
      if (headers.remaining !== undefined && headers.resetMs !== undefined) {
        // Requests still under way were not counted yet when the service wrote this header.
        remaining = Math.max(0, headers.remaining - inFlight)
        resetAt = at + Math.min(headers.resetMs, LONGEST_WAIT_MS)
        taught = true
      }
      const pauseMs = pauseOf(headers, refused)
      if (pauseMs !== undefined) pausedUntil = Math.max(pausedUntil, at + pauseMs)
    },
    drop() {
      inFlight = Math.max(0, inFlight - 1)
    },
  }

  return {
    async take(signal) {
      for (let ms = waitMs(); ms > 0; ms = waitMs()) {
        waits++
        await wait(Math.min(ms + 5, WINDOW_MS), signal)
      }
      if (remaining !== undefined) remaining--
      sent.push(now())
      inFlight++
      return permit
    },

    view: () => ({ limit, remaining, waits }),
  }
}

/** For how long a refusal asks everyone to wait. One that is too long is not waited for at all: requests fail instead. */
export function pauseOf(headers: RateHeaders, refused: boolean): number | undefined {
  const pauseMs = refused ? (headers.retryAfterMs ?? headers.resetMs) : undefined
  return pauseMs === undefined || pauseMs > LONGEST_WAIT_MS ? undefined : pauseMs
}
