import { monotonic, sleep } from '../core/waiting.ts'
import { type BudgetState, endRequest, learnAnswer, limitOf, newBudgetState, requestPermit } from './budget-state.ts'
import type { RateHeaders } from './rate-headers.ts'

export interface BudgetView {
  limit: number
  /** Undefined if it is not known, or the period that it was reported for is over. */
  remaining: number | undefined
  resetsInMs: number
  waits: number
}

/** Where requests for one project and key are paced. */
export interface RequestBudget {
  /** Waits until a request may be sent; `onWait` is called for each wait. */
  acquire(signal?: AbortSignal, onWait?: (ms: number) => void): Promise<Permit>
  view(): BudgetView
}

/** Leave to send one request, which reports what came of it. */
export interface Permit {
  /** Learns from the response. `asksToWait` is true if it asks everyone to wait: a 429, or a 503 that says for how long. */
  learn(headers: RateHeaders, asksToWait: boolean): void
  /** It ended without a response. */
  drop(): void
}

/** Changes a state in place, at a time of the store's clock. */
type Work<T> = (state: BudgetState, now: number) => T

/** Keeps the state of one budget. A change may be worked out more than once, and only the last one counts. */
export interface BudgetStore {
  change<T>(work: Work<T>): Promise<T>
}

interface BudgetOptions {
  /** By whom requests are under way: a name that no other process has. */
  owner?: string
  wait?: (ms: number, signal?: AbortSignal) => Promise<void>
  /** If others change the state too, nobody sleeps for longer. */
  longestNapMs?: number
}

/** A state in this process. */
export function memoryStore(now: () => number = Date.now): BudgetStore {
  const state = newBudgetState()
  return { change: async (work) => work(state, now()) }
}

const OWN_NAP_MS = 60_000

/**
 * Paces the requests of one project and key. It starts from the configured number a minute and then believes the
 * response headers: the service's limit has changed before, and other programs spend from the same budget.
 */
export function createBudget(
  perMinute: number,
  store: BudgetStore = memoryStore(),
  { owner = 'here', wait = sleep, longestNapMs = OWN_NAP_MS }: BudgetOptions = {},
): RequestBudget {
  let shown: Pick<BudgetView, 'limit' | 'remaining'> = { limit: perMinute, remaining: undefined }
  let resetAt = 0
  let waits = 0
  let lastUpdate: Promise<unknown> = Promise.resolve()
  /** Ends of requests that could not be stored. Without them, the store would count these requests as under way for ever. */
  let unstored: Work<void>[] = []

  /** Changes the state, and stores ends of earlier requests with it. `end` is what is stored later if this fails. */
  async function change<T>(work: Work<T>, end: Work<void>): Promise<T> {
    const ends = unstored
    unstored = []
    try {
      return await store.change((state, now) => {
        for (const earlier of ends) earlier(state, now)
        return work(state, now)
      })
    } catch (error) {
      unstored.push(...ends, end)
      throw error
    }
  }

  const view = (state: BudgetState, now: number) => {
    const { remaining, resetBy } = state
    resetAt = monotonic() + resetBy - now
    // The value is negative if requests in flight were already counted. It is shown as 0.
    shown = {
      limit: limitOf(state, now, perMinute),
      remaining: remaining === null ? undefined : Math.max(0, remaining),
    }
  }

  function permitOf(sentAt: number): Permit {
    const end = (work: Work<void>) => {
      const cameAt = monotonic()
      const update: Work<void> = (state, now) => {
        // The store may get to it later than the answer came.
        const receivedAt = Math.max(sentAt, now - (monotonic() - cameAt))
        work(state, receivedAt)
        view(state, now)
      }
      lastUpdate = change(update, update).catch(() => {})
    }
    return {
      learn: (headers, asksToWait) =>
        end((state, receivedAt) => learnAnswer(state, { owner, sentAt, receivedAt, headers, asksToWait }, perMinute)),
      drop: () => end((state, now) => endRequest(state, now, owner)),
    }
  }

  return {
    async acquire(signal, onWait) {
      for (;;) {
        await lastUpdate
        signal?.throwIfAborted()
        const ask: Work<{ waitMs: number; at: number }> = (state, now) => {
          const waitMs = requestPermit(state, now, owner, perMinute)
          view(state, now)
          return { waitMs, at: now }
        }
        // If this fails, the permit may have been stored all the same.
        const { waitMs, at } = await change(ask, (state, now) => endRequest(state, now, owner))
        if (waitMs === 0) return permitOf(at)
        waits++
        onWait?.(waitMs)
        await wait(Math.min(waitMs + 5, longestNapMs), signal)
      }
    },

    view() {
      const resetsInMs = Math.max(0, resetAt - monotonic())
      return { ...shown, ...(resetsInMs === 0 && { remaining: undefined }), resetsInMs, waits }
    },
  }
}
