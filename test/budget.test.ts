import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { createSharedBudget, voidRequestsOf, WarehouseBudgetStore } from '../src/queue/shared-budget.ts'
import { createBudget, memoryStore } from '../src/source/budget.ts'
import { advanceAndWait, learnAnswer, newBudgetState, requestPermit, voidRequests } from '../src/source/budget-state.ts'
import type { RateHeaders } from '../src/source/rate-headers.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
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
    voidRequests(other, 'dead')
    learnAnswer(other, answer({ limit: 5, remaining: 4, resetMs: 59_000 }, { receivedAt: at + 1000 }), 100)
    expect(requestPermit(other, at + 1001, 'a', 100)).toBe(0)
    // Told by the next answer that comes after it fell silent.
    requestPermit(state, at + 11_000, 'a', 100)
    learnAnswer(state, answer({ limit: 5, remaining: 3, resetMs: 49_000 }, { receivedAt: at + 11_000 }), 100)
    expect(requestPermit(state, at + 11_001, 'a', 100)).toBe(0)
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

  test('in the warehouse forgets what a dead process had under way', async () => {
    const store = new WarehouseBudgetStore(database.warehouse, 'voided', 7)
    const log = createLog({ level: 'silent', destination: { write: () => {} } })
    for (const owner of ['dead', 'alive'])
      await createSharedBudget(database.warehouse, 'voided', { perMinute: 7, owner, log }).acquire()
    await voidRequestsOf(database.warehouse, 'dead')
    expect(Object.keys((await store.read()).state.underWay)).toEqual(['alive'])
  })
})
