import { randomUUID } from 'node:crypto'
import { describe, expect, test } from '@jest/globals'
import { openQueue } from '../src/queue/boss.ts'
import { openQueueExecutor } from '../src/queue/queue-executor.ts'
import { NO_COST, publishResult, takeWindows, type WindowResult } from '../src/queue/run-windows.ts'
import { heartbeat, signOut } from '../src/queue/workers.ts'
import type { RunReport } from '../src/sync/run/report.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { longTest } from './support/long.ts'
import { type Setup, setUp } from './support/setup.ts'

const QUEUE = 'windows_test'

const begin = () =>
  setUp({
    world: { projects: 1, prompts: 2, models: 2, brands: 2 },
    config: { start_date: '2026-03-25', end_date: '2026-03-31', streams: ['chats'], reports: [] },
  })

/** Runs a sync whose windows get these results from a worker: one for each time that a window is handed out. */
async function syncWith(
  { database: { warehouse }, services, sync }: Setup,
  resultOf: (time: number) => WindowResult['result'] | undefined,
): Promise<{ report: RunReport; times: number }> {
  const queue = await openQueue(warehouse, QUEUE, services.log)
  const self = { id: randomUUID(), version: '', concurrency: 1, source: '', queue: QUEUE }
  const { execute, close } = openQueueExecutor(warehouse, QUEUE, services.log)
  const health = { busy: 0, done: 0, state: 'working' as const, reason: null }
  await heartbeat(warehouse, self, health)
  let report: RunReport | undefined
  const done = sync({}, {}, execute).then((end) => {
    report = end
  })
  let times = 0
  while (report === undefined) {
    await heartbeat(warehouse, self, health)
    for (const { id } of await takeWindows(queue, self.id, 1, 60_000)) {
      const result = resultOf(++times)
      if (result === undefined) continue
      const settings = { id, acceptDeletes: false }
      await inTransaction(warehouse, (tx) => publishResult(tx, queue, settings, { result, cost: NO_COST }))
    }
    await Promise.race([done, new Promise((next) => setTimeout(next, 20))])
  }
  await done
  await signOut(warehouse, self.id)
  await close()
  await queue.close()
  return { report, times }
}

const rowsOf = ({ database }: Setup) => database.rows('select from visibility.chats')
const superseded = { kind: 'failed', code: 'superseded', reason: 'a newer answer was loaded' } as const

describe('a run whose worker reports a window as', () => {
  test('superseded hands it out again five times, and then counts it as failed', async () => {
    const setup = await begin()
    const { report, times } = await syncWith(setup, () => superseded)
    expect([times, report.streams[0]!.failed]).toEqual([6, [expect.objectContaining({ error: superseded.reason })]])
  })

  test('deferred hands it out again after the wait', async () => {
    const setup = await begin()
    const results: WindowResult['result'][] = [
      { kind: 'deferred', waitMs: 50 },
      { kind: 'deferred', waitMs: 50 },
      { kind: 'failed', code: 'refused', reason: 'no' },
    ]
    const { report, times } = await syncWith(setup, (time) => results[time - 1])
    expect([times, report.streams[0]!.failed]).toEqual([3, [expect.objectContaining({ error: 'no' })]])
  })

  test('returned performs it itself', async () => {
    const setup = await begin()
    const { report, times } = await syncWith(setup, () => ({ kind: 'returned', reason: 'a wrong key' }))
    expect([report.outcome, times, (await rowsOf(setup)).length]).toEqual(['complete', 1, 28])
  })

  test('too long hands out shorter ones', async () => {
    const setup = await begin()
    const { report, times } = await syncWith(setup, (time) =>
      time === 1 ? { kind: 'shorten' } : { kind: 'returned', reason: 'a wrong key' },
    )
    expect([report.outcome, (await rowsOf(setup)).length]).toEqual(['complete', 28])
    expect(times).toBeGreaterThan(2)
  })

  test('failed lists it as dead, unless it was interrupted', async () => {
    for (const code of ['refused', 'interrupted'] as const) {
      const setup = await begin()
      await syncWith(setup, () => ({ kind: 'failed', code, reason: 'no' }))
      const dead = await setup.database.rows('select stream, reason from visibility_ops.dead_windows')
      expect({ code, dead }).toEqual({ code, dead: code === 'refused' ? [{ stream: 'chats', reason: 'no' }] : [] })
    }
  })
})

longTest('a run whose window vanishes from the queue reads it all the same', async () => {
  const setup = await begin()
  const { report } = await syncWith(setup, () => void setup.database.rows('delete from visibility_ops.run_windows'))
  expect([report.outcome, (await rowsOf(setup)).length]).toEqual(['complete', 28])
})
