import { monotonic, sleep } from '../core/waiting.ts'
import {
  type Block,
  type BudgetState,
  endRequest,
  learnAnswer,
  limitOf,
  newBudgetState,
  requestBlock,
  returnRequests,
} from './budget-state.ts'
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
  onWait?: ((ms: number) => void) | undefined
  /** Waits for anything else, before each look at the budget. */
  ready?: () => Promise<void>
}

export interface RequestBudget {
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
  /** How many requests a change of the store grants at most: several where a change takes round trips. */
  blockSize?: number
  wait?: (ms: number, signal?: AbortSignal) => Promise<void>
}

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
  { owner = 'here', blockSize = 1, wait = sleep }: BudgetOptions = {},
): RequestBudget {
  let shown: Pick<BudgetView, 'limit' | 'remaining'> = { limit: perMinute, remaining: undefined }
  let resetAt = 0
  let waits = 0
  let lastUpdate: Promise<unknown> = Promise.resolve()
  /** Ends of requests to be stored with the next change. Without them, the store would count the requests as under way. */
  let ends: Work<void>[] = []
  let storing: NodeJS.Timeout | undefined
  const none: Block = { requests: 0, grantedAt: 0, resetBy: 0 }
  /** Requests that were granted and not sent yet, and when by this process's clock. */
  let unsent = { block: none, at: 0 }
  let inBlocks = false
  let granting: Promise<number> | undefined

  /** Changes the state, and stores ends of earlier requests with it. They are stored later if this fails. */
  async function change<T>(work: Work<T>): Promise<T> {
    const earlier = ends
    ends = []
    clearTimeout(storing)
    storing = undefined
    try {
      return await store.change((state, at) => {
        for (const end of earlier) end(state, at)
        const result = work(state, at)
        show(state, at)
        return result
      })
    } catch (error) {
      ends.unshift(...earlier)
      throw error
    }
  }

  function storeEnds(): void {
    lastUpdate = change(() => {}).catch(() => {})
  }

  /** Takes a block from the store. Gives how long to wait if there is none. */
  async function grant(): Promise<number> {
    await lastUpdate
    let granted = none
    try {
      const { block, waitMs } = await change((state, now) => {
        const answer = requestBlock(state, now, owner, { perMinute, most: blockSize })
        granted = answer.block
        return answer
      })
      unsent = { block, at: monotonic() }
      inBlocks = block.requests > 1
      if (inBlocks) setTimeout(() => unsent.block === block && returnUnsent(), LONGEST_NAP_MS).unref()
      return waitMs
    } catch (error) {
      // It may have been stored all the same.
      ends.push((state, now) => returnRequests(state, now, owner, granted))
      throw error
    }
  }

  function returnUnsent(): void {
    const { block } = unsent
    unsent = { ...unsent, block: none }
    ends.push((state, now) => returnRequests(state, now, owner, block))
    storeEnds()
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
      ends.push((state, now) => work(state, Math.max(sentAt, now - (monotonic() - cameAt))))
      // While plenty are left, nobody waits for what this answer says, and at its end a process does not wait to store it.
      if (inBlocks) storing ??= setTimeout(storeEnds, LONGEST_NAP_MS).unref()
      else storeEnds()
    }
    return {
      learn(headers, asksToWait) {
        end((state, receivedAt) => learnAnswer(state, { owner, sentAt, receivedAt, headers, asksToWait }, perMinute))
        if (asksToWait) returnUnsent()
      },
      drop: () => end((state, now) => endRequest(state, now, owner)),
    }
  }

  return {
    async acquire({ signal, onWait, ready } = {}) {
      for (;;) {
        await ready?.()
        signal?.throwIfAborted()
        const { block, at } = unsent
        if (block.requests > 0) {
          if (--block.requests === 0) unsent.block = none
          return permitOf(block.grantedAt + Math.floor(monotonic() - at))
        }
        granting ??= grant().finally(() => {
          granting = undefined
        })
        const waitMs = await granting
        if (waitMs === 0) continue
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
