import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { createSharedBudget, voidRequestsOf, WarehouseBudgetStore } from '../src/queue/shared-budget.ts'
import { createBudget, memoryStore } from '../src/source/budget.ts'
import {
  advanceAndWait,
  type BudgetState,
  learnAnswer,
  newBudgetState,
  requestBlock,
  requestPermit,
  returnRequests,
} from '../src/source/budget-state.ts'
import type { RateHeaders } from '../src/source/rate-headers.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { until } from './support/cli.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'

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

  test('Retry-After holds everyone back for as long as it says', () => {
    const state = newBudgetState()
    requestPermit(state, at, 'a', 100)
    learnAnswer(state, answer({ retryAfterMs: 30_000 }, { asksToWait: true }), 100)
    expect(requestPermit(state, at + 1, 'b', 100)).toBe(29_999)
    expect(requestPermit(state, at + 30_000, 'b', 100)).toBe(0)
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
    // As the ledger does for a process that is known to be dead.
    delete other.underWay.dead
    learnAnswer(other, answer({ limit: 5, remaining: 4, resetMs: 59_000 }, { receivedAt: at + 1000 }), 100)
    expect(requestPermit(other, at + 1001, 'a', 100)).toBe(0)
    // Told by the next answer that comes after it fell silent.
    requestPermit(state, at + 11_000, 'a', 100)
    learnAnswer(state, answer({ limit: 5, remaining: 3, resetMs: 49_000 }, { receivedAt: at + 11_000 }), 100)
    expect(requestPermit(state, at + 11_001, 'a', 100)).toBe(0)
  })

  test('a block is a tenth of what is left, ten requests at most, and what was not sent of it goes back', () => {
    const state = newBudgetState()
    const ask = (now: number) => requestBlock(state, now, 'a', { perMinute: 100, most: 10 })
    // Nothing is known of the limit: one at a time.
    expect(ask(at).block.requests).toBe(1)
    learnAnswer(state, answer({ limit: 100, remaining: 99, resetMs: 30_000 }), 100)
    const { block } = ask(at + 1)
    expect(block).toEqual({ requests: 9, grantedAt: at + 1, resetBy: at + 30_000 })
    expect(state.remaining).toBe(90)
    returnRequests(state, at + 2, 'a', { ...block, requests: 4 })
    expect(state).toMatchObject({ remaining: 94, underWay: { a: { requests: 5 } } })
    expect(state.sent.reduce((sum, [, requests]) => sum + requests, 0)).toBe(6)
    // Those of a period that is over are not added to the next one.
    learnAnswer(state, answer({ limit: 100, remaining: 19, resetMs: 90_000 }, { sentAt: at + 31_000 }), 100)
    const left = state.remaining!
    returnRequests(state, at + 31_000, 'a', { ...block, requests: 2 })
    expect(state.remaining).toBe(left)
    expect(ask(at + 31_001).block.requests).toBe(1)
  })

  test('a refusal without a word halves what may be under way at once', () => {
    const state = newBudgetState()
    state.slowStart = 16
    for (let index = 0; index < 9; index++) requestPermit(state, at, 'a', 100)
    learnAnswer(state, answer({}, { asksToWait: true }), 100)
    // The refused one has ended.
    expect(state.mostInFlight).toBe(4)
    expect(requestPermit(state, at + 60_000, 'b', 100)).toBe(0)
  })

  test('after a refusal without a word, and with nothing left, there are no blocks', () => {
    const state = newBudgetState()
    learnAnswer(state, answer({ limit: 100, remaining: 99, resetMs: 30_000 }), 100)
    state.mostInFlight = 8
    expect(requestBlock(state, at, 'a', { perMinute: 100, most: 10 }).block.requests).toBe(1)
    state.remaining = 0
    state.underWay = {}
    const { block, waitMs } = requestBlock(state, at, 'a', { perMinute: 100, most: 10 })
    expect([block.requests, waitMs]).toEqual([0, 30_000])
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
    expect(waits.reduce((sum, ms) => sum + ms)).toBe(10_000)
  })

  test('kept in the warehouse grants no more than there is, however many ask at once', async () => {
    const project = randomUUID()
    const storeOf = () => new WarehouseBudgetStore(database.warehouse, project, 7)
    const signal = AbortSignal.timeout(1000)
    const asked = Array.from({ length: 8 }, (_, owner) => createBudget(3, storeOf(), { owner: `${owner}` }))
    const granted = await Promise.all(
      [...asked, ...asked].map((budget) =>
        budget.acquire({ signal }).then(
          () => 1,
          () => 0,
        ),
      ),
    )
    expect(granted.reduce<number>((sum, one) => sum + one, 0)).toBe(3)
  })

  test('kept in memory learns for everyone from the answer that anyone gets', async () => {
    const store = memoryStore()
    const [first, second] = [createBudget(7, store, { owner: 'a' }), createBudget(7, store, { owner: 'b' })]
    const permit = await first.acquire()
    permit.learn({ limit: 90, remaining: 33, resetMs: 50_000 }, false)
    await first.acquire()
    await second.acquire()
    expect(second.view()).toMatchObject({ limit: 90, remaining: 31 })
  })

  describe('with blocks', () => {
    const countedStore = () => {
      const store = memoryStore()
      const counted = { changes: 0, state: newBudgetState() }
      return {
        counted,
        change: <T>(work: (state: BudgetState, now: number) => T) => {
          counted.changes++
          return store.change((state, now) => {
            const result = work(state, now)
            counted.state = state
            return result
          })
        },
      }
    }
    const plenty = { limit: 1000, remaining: 900, resetMs: 50_000 }
    const isUnderWay = ({ underWay }: BudgetState) => underWay.here?.requests ?? 0

    test('asks the store once for ten requests, and stores their ends together', async () => {
      const store = countedStore()
      const budget = createBudget(1000, store, { blockSize: 10 })
      const first = await budget.acquire()
      first.learn(plenty, false)
      const before = store.counted.changes
      const permits = await Promise.all(Array.from({ length: 10 }, () => budget.acquire()))
      expect(store.counted.changes - before).toBe(1)
      for (const [index, permit] of permits.entries()) permit.learn({ ...plenty, remaining: 899 - index }, false)
      expect(isUnderWay(store.counted.state)).toBe(10)
      await until('the ends of all requests are stored', () => isUnderWay(store.counted.state) === 0)
      expect(store.counted.changes - before).toBe(2)
      expect(budget.view().remaining).toBe(890)
    })

    test('gives back what it does not send', async () => {
      const store = countedStore()
      const budget = createBudget(1000, store, { blockSize: 10 })
      const first = await budget.acquire()
      first.learn(plenty, false)
      await budget.acquire()
      expect(store.counted.state.remaining).toBe(890)
      await until('the rest of the block is given back', () => isUnderWay(store.counted.state) === 1)
      expect(store.counted.state.remaining).toBe(899)
    })

    test('gives back the rest at once when the service asks to wait, and sends nothing before', async () => {
      const store = countedStore()
      const waits: number[] = []
      const wait = async (ms: number) => {
        waits.push(ms)
        store.counted.state.pausedUntil = 0
      }
      const budget = createBudget(1000, store, { blockSize: 10, wait })
      const first = await budget.acquire()
      first.learn(plenty, false)
      const second = await budget.acquire()
      second.learn({ retryAfterMs: 20_000 }, true)
      expect(isUnderWay(store.counted.state)).toBe(0)
      await budget.acquire()
      expect(waits).toHaveLength(1)
    })
  })

  test('in the warehouse forgets what a dead process had under way', async () => {
    const store = new WarehouseBudgetStore(database.warehouse, 'voided', 7)
    const log = createLog({ level: 'silent', destination: { write: () => {} } })
    for (const owner of ['dead', 'alive'])
      await createSharedBudget(database.warehouse, 'voided', { perMinute: 7, owner, log }).acquire()
    await voidRequestsOf(database.warehouse, 'dead')
    expect(Object.keys((await store.read()).state.underWay)).toEqual(['alive'])
  })
})
