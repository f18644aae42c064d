import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { voidRequestsOf, WarehouseBudgetStore } from '../src/queue/shared-budget.ts'
import { type BudgetStore, createBudget, memoryStore } from '../src/source/budget.ts'
import {
  advanceAndWait,
  learnAnswer,
  limitOf,
  newBudgetState,
  requestPermit,
  voidRequests,
} from '../src/source/budget-state.ts'
import type { RateHeaders } from '../src/source/rate-headers.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { until } from './support/serve.ts'
import { configOf } from './support/setup.ts'

/** A service with a limit, on a clock of its own. */
interface Limit {
  requests: number
  periodMs: number
  /** `none`: a 429 comes without a word. */
  headers: 'seconds' | 'retry-after' | 'none'
  /** True where periods begin at whole multiples of their length; else with the first request. */
  isAligned?: boolean
}

/** Plays owners against a service in virtual time: each slot sends its next request as soon as the budget lets it. */
function play(
  limit: Limit,
  { owners, slots = 2, requests = 60 }: { owners: number; slots?: number; requests?: number },
) {
  const state = newBudgetState()
  const LATENCY_MS = 16
  const START = 1_000_000_300
  const events: { at: number; run: () => void }[] = []
  let now = START
  let left = requests
  let refused = 0
  let period = { startedAt: Number.NEGATIVE_INFINITY, used: 0 }
  const schedule = (at: number, run: () => void) => events.push({ at, run })
  const serve = (): { headers: RateHeaders; asksToWait: boolean } => {
    if (now - period.startedAt >= limit.periodMs) {
      const startedAt = limit.isAligned ? Math.floor(now / limit.periodMs) * limit.periodMs : now
      period = { startedAt, used: 0 }
    }
    period.used++
    const isRefused = period.used > limit.requests
    const resetMs = Math.ceil((period.startedAt + limit.periodMs - now) / 1000) * 1000
    if (limit.headers === 'none') return { headers: {}, asksToWait: isRefused }
    if (limit.headers === 'retry-after')
      return { headers: isRefused ? { retryAfterMs: resetMs } : {}, asksToWait: isRefused }
    const remaining = Math.max(0, limit.requests - period.used)
    return { headers: { limit: limit.requests, remaining, resetMs }, asksToWait: isRefused }
  }
  const slot = (owner: string) => {
    if (left === 0) return
    const waitMs = requestPermit(state, now, owner, 100_000)
    if (waitMs > 0) return schedule(now + Math.min(waitMs + 5, 500), () => slot(owner))
    left--
    const sentAt = now
    schedule(now + LATENCY_MS / 2, () => {
      const answer = serve()
      schedule(now + LATENCY_MS / 2, () => {
        learnAnswer(state, { owner, sentAt, receivedAt: now, ...answer }, 100_000)
        if (answer.asksToWait) {
          refused++
          left++
        }
        slot(owner)
      })
    })
  }
  for (let owner = 0; owner < owners; owner++) {
    for (let index = 0; index < slots; index++) schedule(START + index, () => slot(`owner ${owner}`))
  }
  while (events.length > 0) {
    events.sort((a, b) => a.at - b.at)
    const next = events.shift()!
    now = next.at
    next.run()
  }
  return { refused, ms: now - START }
}

describe('the request budget as a state machine', () => {
  const at = 1_000_000
  const answer = (headers: RateHeaders, more: object = {}) => ({
    owner: 'a',
    sentAt: at,
    receivedAt: at,
    headers,
    asksToWait: false,
    ...more,
  })

  test('three workers use a limit of 5 in 2 s to at least five sixths, and are hardly ever refused', () => {
    const ideal = (60 / 5 - 1) * 2000
    for (const owners of [1, 3, 6]) {
      const played = play({ requests: 5, periodMs: 2000, headers: 'seconds' }, { owners })
      expect(played.ms).toBeLessThan(ideal * 1.2)
      expect(played.refused).toBeLessThanOrEqual(owners * 2)
    }
  })

  test('periods at fixed times are used as well, though their end is told in whole seconds', () => {
    const ideal = (60 / 5 - 1) * 2000
    const played = play({ requests: 5, periodMs: 2000, headers: 'seconds', isAligned: true }, { owners: 3 })
    expect(played.ms).toBeLessThan(ideal * 1.2)
  })

  test('a 429 without any header slows everyone: six times the workers get at most twice as many', () => {
    const refusedOf = (owners: number) => play({ requests: 5, periodMs: 2000, headers: 'none' }, { owners }).refused
    const alone = refusedOf(1)
    expect(alone).toBeGreaterThan(0)
    for (const owners of [3, 6]) expect(refusedOf(owners)).toBeLessThanOrEqual(alone * 2)
  })

  test('only a few requests are under way while no limit is known, and again after it was forgotten', () => {
    const state = newBudgetState()
    const grant = (now: number) => {
      let granted = 0
      while (granted < 80 && requestPermit(state, now, `owner ${granted}`, 200) === 0) granted++
      return granted
    }
    const learn = (now: number, granted: number, headers: RateHeaders) => {
      for (let owner = 0; owner < granted; owner++)
        learnAnswer(state, { ...answer(headers), owner: `owner ${owner}`, sentAt: now, receivedAt: now }, 200)
    }
    expect(grant(at)).toBe(4)
    learn(at, 4, { limit: 20, remaining: 16, resetMs: 10_000 })
    expect(grant(at)).toBe(16)
    learn(at, 16, { limit: 20, remaining: 0, resetMs: 10_000 })
    expect(grant(at + 120_000)).toBe(4)
    // A service without headers is trusted a little more with each answer.
    learn(at + 120_000, 4, {})
    expect(grant(at + 120_001)).toBe(8)
  })

  test('twenty workers of four slots meet a limit of 20 with few refusals', () => {
    const played = play({ requests: 20, periodMs: 2000, headers: 'seconds' }, { owners: 20, slots: 4, requests: 200 })
    expect(played.refused).toBeLessThanOrEqual(4)
    expect(played.ms).toBeLessThan((200 / 20 - 1) * 2000 * 1.2)
  })

  test('Retry-After holds everyone back for as long as it says', () => {
    const state = newBudgetState()
    requestPermit(state, at, 'a', 100)
    learnAnswer(state, answer({ retryAfterMs: 30_000 }, { asksToWait: true }), 100)
    expect(requestPermit(state, at + 1, 'b', 100)).toBe(29_999)
    expect(requestPermit(state, at + 30_000, 'b', 100)).toBe(0)
  })

  test('a limit that the service no longer sends is not counted by the minute', () => {
    const state = newBudgetState()
    requestPermit(state, at, 'a', 100)
    learnAnswer(state, answer({ limit: 5, remaining: 4, resetMs: 300 }), 100)
    // Another period, in which nothing is said of a limit any more.
    for (let request = 1; request <= 5; request++) {
      const sentAt = at + request * 1000
      expect(requestPermit(state, sentAt, 'a', 100)).toBe(0)
      learnAnswer(state, answer({}, { sentAt, receivedAt: sentAt + 10 }), 100)
    }
    expect(requestPermit(state, at + 6000, 'a', 100)).toBe(0)
    expect(limitOf(state, at + 6000, 100)).toBe(100)
  })

  test('refusals without a word double the pause, and an answer takes one step back', () => {
    const state = newBudgetState()
    const refuse = (sentAt: number) =>
      learnAnswer(state, answer({}, { sentAt, receivedAt: sentAt + 10, asksToWait: true }), 100)
    refuse(at)
    expect(advanceAndWait(state, at + 10, 100)).toBe(400)
    // Those that were under way together are one refusal.
    refuse(at)
    expect(advanceAndWait(state, at + 10, 100)).toBe(400)
    refuse(at + 500)
    expect(advanceAndWait(state, at + 510, 100)).toBe(800)
    learnAnswer(state, answer({}, { sentAt: at + 2000, receivedAt: at + 2010 }), 100)
    refuse(at + 3000)
    expect(advanceAndWait(state, at + 3010, 100)).toBe(800)
    // After a calm minute it begins anew.
    learnAnswer(state, answer({}, { sentAt: at + 90_000, receivedAt: at + 90_010 }), 100)
    refuse(at + 91_000)
    expect(advanceAndWait(state, at + 91_010, 100)).toBe(400)
  })

  test('requests of an owner that is not heard of do not count, and those of one known to be dead at once', () => {
    const state = newBudgetState()
    for (let index = 0; index < 4; index++) requestPermit(state, at, 'dead', 100)
    requestPermit(state, at, 'a', 100)
    learnAnswer(state, answer({ limit: 5, remaining: 4, resetMs: 60_000 }), 100)
    expect(requestPermit(state, at + 1000, 'a', 100)).toBeGreaterThan(0)
    const other = structuredClone(state)
    voidRequests(other, 'dead')
    learnAnswer(other, answer({ limit: 5, remaining: 4, resetMs: 59_000 }, { receivedAt: at + 1000 }), 100)
    expect(requestPermit(other, at + 1001, 'a', 100)).toBe(0)
    // Told by the next answer that comes after it fell silent.
    requestPermit(state, at + 11_000, 'a', 100)
    learnAnswer(state, answer({ limit: 5, remaining: 3, resetMs: 49_000 }, { receivedAt: at + 11_000 }), 100)
    expect(requestPermit(state, at + 11_001, 'a', 100)).toBe(0)
  })

  test('a limit that was told long ago counts no more than the configured one', () => {
    const state = newBudgetState()
    requestPermit(state, at, 'a', 50)
    learnAnswer(state, answer({ limit: 2, remaining: 1, resetMs: 1000 }), 50)
    const grant = (now: number) => {
      let granted = 0
      while (granted < 100 && requestPermit(state, now, 'b', 50) === 0) granted++
      return granted
    }
    expect(grant(at + 2000)).toBe(2)
    expect(limitOf(state, at + 90_000, 50)).toBe(50)
  })

  test('the state stays small however much is sent', () => {
    const state = newBudgetState()
    for (let index = 0; index < 20_000; index++) {
      requestPermit(state, at + index * 10, 'a', 100_000)
      learnAnswer(state, answer({}, { sentAt: at + index * 10, receivedAt: at + index * 10 }), 100_000)
    }
    expect(JSON.stringify(state).length).toBeLessThan(2000)
  })
})

describe('a budget', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase('migrated')
    await migrate(database.warehouse, configOf({}))
  })

  test('believes the service about its limit and waits for the reset', async () => {
    let now = 1_000_000
    const waits: number[] = []
    const wait = async (ms: number) => {
      waits.push(ms)
      now += ms
    }
    const budget = createBudget(
      2,
      memoryStore(() => now),
      { wait },
    )
    const permit = await budget.acquire()
    permit.learn({ limit: 50, remaining: 40, resetMs: 10_000 }, false)
    for (let index = 0; index < 40; index++) (await budget.acquire()).drop()
    expect(waits).toEqual([])
    await budget.acquire()
    expect(waits).toEqual([10_005])
  })

  test('without headers keeps to the configured number a minute', async () => {
    let now = 1_000_000
    const wait = async (ms: number) => void (now += ms)
    const budget = createBudget(
      3,
      memoryStore(() => now),
      { wait },
    )
    for (let index = 0; index < 4; index++) await budget.acquire()
    expect(now).toBeGreaterThanOrEqual(1_060_000)
  })

  const stores: [string, () => () => BudgetStore][] = [
    [
      'in memory',
      () => {
        const store = memoryStore()
        return () => store
      },
    ],
    [
      'in the warehouse',
      () => {
        const project = randomUUID()
        return () => new WarehouseBudgetStore(database.warehouse, project, 7)
      },
    ],
  ]
  test.each(stores)('kept %s grants no more than there is, however many ask at once', async (_, make) => {
    const storeOf = make()
    const signal = AbortSignal.timeout(1000)
    const asked = Array.from({ length: 8 }, (_, owner) => createBudget(3, storeOf(), { owner: `${owner}` }))
    const granted = await Promise.all(
      [...asked, ...asked].map((budget) =>
        budget.acquire(signal).then(
          () => 1,
          () => 0,
        ),
      ),
    )
    expect(granted.reduce<number>((sum, one) => sum + one, 0)).toBe(3)
  })

  test.each(stores)('kept %s learns for everyone from the answer that anyone gets', async (_, make) => {
    const storeOf = make()
    const [first, second] = [createBudget(7, storeOf(), { owner: 'a' }), createBudget(7, storeOf(), { owner: 'b' })]
    const permit = await first.acquire()
    permit.learn({ limit: 90, remaining: 33, resetMs: 50_000 }, false)
    await first.acquire()
    await second.acquire()
    expect(second.view()).toMatchObject({ limit: 90, remaining: 31 })
  })

  test.each(['answers', 'permits'])('goes on when the store loses %s, which it may have stored', async (lost) => {
    const kept = memoryStore()
    let [fails, isStored] = [false, false]
    const store: BudgetStore = {
      async change(work) {
        if (!fails) return kept.change(work)
        if (isStored) await kept.change(work)
        throw new Error('the connection was lost')
      },
    }
    const budget = createBudget(1000, store)
    const signal = AbortSignal.timeout(60_000)
    for (let index = 0; index < 20; index++) {
      isStored = lost === 'permits' && index % 2 === 0
      fails = lost === 'permits'
      const permit = await budget.acquire(signal).catch(() => undefined)
      fails = !fails
      permit?.learn({}, false)
      await delay(0)
      fails = false
    }
    const permits = await Promise.all([1, 2, 3, 4].map(() => budget.acquire(signal)))
    expect(permits).toHaveLength(4)
  })

  test('forgets what was left when the period is over', async () => {
    const budget = createBudget(7)
    const permit = await budget.acquire()
    permit.learn({ limit: 90, remaining: 33, resetMs: 200 }, false)
    await until(() => budget.view().remaining === 33)
    await until(() => budget.view().remaining === undefined)
  })

  test('in the warehouse forgets what a dead process had under way', async () => {
    const store = new WarehouseBudgetStore(database.warehouse, 'voided', 7)
    await createBudget(7, store, { owner: 'dead' }).acquire()
    await createBudget(7, store, { owner: 'alive' }).acquire()
    await voidRequestsOf(database.warehouse, 'dead')
    expect(Object.keys((await store.read()).state.underWay)).toEqual(['alive'])
  })
})
