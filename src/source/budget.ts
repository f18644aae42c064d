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

export interface BudgetWait {
  signal?: AbortSignal | undefined
  /** Called for each wait. */
  onWait?: ((ms: number) => void) | undefined
  /** Waits for anything else, before each look at the budget. */
  ready?: () => Promise<void>
}

/** Where requests for one project and key are paced. */
export interface RequestBudget {
  /** Waits until a request may be sent. */
  acquire(wait?: BudgetWait): Promise<Permit>
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
}

/** A state in this process. */
export function memoryStore(now: () => number = Date.now): BudgetStore {
  const state = newBudgetState()
  return { change: async (work) => work(state, now()) }
}

// Others may learn something meanwhile, so nobody sleeps through a whole period.
const LONGEST_NAP_MS = 500

/**
 * Paces the requests of one project and key. It starts from the configured number a minute and then believes the
 * response headers: the service's limit has changed before, and other programs spend from the same budget.
 */
export function createBudget(
  perMinute: number,
  store: BudgetStore = memoryStore(),
  { owner = 'here', wait = sleep }: BudgetOptions = {},
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
        const result = work(state, now)
        show(state, now)
        return result
      })
    } catch (error) {
      unstored.push(...ends, end)
      throw error
    }
  }

  function show(state: BudgetState, now: number): void {
    const { remaining, resetBy } = state
    resetAt = monotonic() + resetBy - now
    // The value is negative if requests in flight were already counted. It is shown as 0.
    const left = remaining === null ? undefined : Math.max(0, remaining)
    shown = { limit: limitOf(state, now, perMinute), remaining: left }
  }

  function permitOf(sentAt: number): Permit {
    const end = (work: Work<void>) => {
      const cameAt = monotonic()
      // The store may get to it later than the answer came.
      const update: Work<void> = (state, now) => work(state, Math.max(sentAt, now - (monotonic() - cameAt)))
      lastUpdate = change(update, update).catch(() => {})
    }
    return {
      learn: (headers, asksToWait) =>
        end((state, receivedAt) => learnAnswer(state, { owner, sentAt, receivedAt, headers, asksToWait }, perMinute)),
      drop: () => end((state, now) => endRequest(state, now, owner)),
    }
  }

  return {
    async acquire({ signal, onWait, ready } = {}) {
      for (;;) {
        await ready?.()
        await lastUpdate
        signal?.throwIfAborted()
        const ask: Work<[waitMs: number, at: number]> = (state, now) => [
          requestPermit(state, now, owner, perMinute),
          now,
        ]
        // If this fails, the permit may have been stored all the same.
        const [waitMs, at] = await change(ask, (state, now) => endRequest(state, now, owner))
        if (waitMs === 0) return permitOf(at)
        waits++
        onWait?.(waitMs)
        await wait(Math.min(waitMs + 5, LONGEST_NAP_MS), signal)
      }
    },

    view() {
      const resetsInMs = Math.max(0, resetAt - monotonic())
      return { ...shown, ...(resetsInMs === 0 && { remaining: undefined }), resetsInMs, waits }
    },
  }
}
