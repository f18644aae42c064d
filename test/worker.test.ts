import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { describe, expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { openQueue } from '../src/queue/boss.ts'
import { enqueueWindows, type RunSettings, readResults, type WindowResult } from '../src/queue/run-windows.ts'
import { BudgetWatch } from '../src/queue/shared-budget.ts'
import { QueueWorker } from '../src/queue/worker.ts'
import { newBudgetState } from '../src/source/budget-state.ts'
import type { Services, SyncedProject } from '../src/sync/run/run.ts'
import { until } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { listening, openClient, startProxy, startRewriter } from './support/proxy.ts'
import { type Setup, setUp } from './support/setup.ts'

/* What becomes of a window that a worker takes: each row of the table in src/README.md. */

const RANGE = { from: '2026-03-25', to: '2026-03-31' }
const QUEUE = 'windows_test'
const quiet = createLog({ level: 'silent', destination: { write: () => {} } })

const begin = (projects = 1) =>
  setUp({
    world: { projects, prompts: 2, models: 2, brands: 2 },
    config: { start_date: RANGE.from, end_date: RANGE.to, streams: ['chats'], reports: [] },
  })

interface Start {
  changes?: Partial<Services>
  settings?: Partial<RunSettings>
  stream?: string
  projects?: (all: SyncedProject[]) => SyncedProject[]
}

/** A worker, and a window that a run put into its queue. */
async function startWorker(setup: Setup, { changes, settings, stream = 'chats', projects = (all) => all }: Start = {}) {
  const { warehouse, rows } = setup.database
  const queue = await openQueue(warehouse, QUEUE, quiet)
  closeLater(() => queue.close())
  const [run] = await rows<{ run_id: number }>(
    `insert into visibility_ops.runs (command, host, pid, version, source, lease_expires_at)
     values ('sync', '', 1, '', '', now() + interval '1 hour') returning run_id`,
  )
  const runId = run!.run_id
  const all = { command: 'sync', acceptDeletes: false, lookbackFrom: RANGE.to, pageLimit: 1000, ...settings }
  const window = { id: randomUUID(), project: setup.projects[0]!.id, stream, range: RANGE, priority: 1 }
  await enqueueWindows(queue, runId, all, [window])
  const self = { id: randomUUID(), version: '', concurrency: 1, source: '', queue: QUEUE }
  const worker = new QueueWorker({ ...setup.services, log: quiet, ...changes }, queue, self, projects(setup.projects))
  closeLater(() => worker.stop())
  await worker.start()
  const windowState = async () =>
    (
      await rows('select state, worker_id is not null as has_worker, failures, losses from visibility_ops.run_windows')
    )[0]
  const health = async () => (await rows('select state, reason, busy from visibility_ops.workers'))[0]!
  const result = async (): Promise<WindowResult> => {
    await until('there is a result', async () => (await readResults(warehouse, runId, 10)).length > 0)
    return (await readResults(warehouse, runId, 10))[0]!.result
  }
  const jobs = () => rows('select id from visibility_queue.job')
  const loaded = () => rows('select from visibility.chats')
  return { worker, self, runId, window, windowState, health, result, jobs, loaded }
}

const QUEUED = { state: 'queued', has_worker: false, failures: 0, losses: 0 }

/** A client whose answers are kept back until it is told otherwise. They were computed before. */
async function holdAnswers(setup: Setup) {
  let release: () => void = () => {}
  let asked = 0
  const held = new Promise<void>((done) => {
    release = done
  })
  closeLater(() => release())
  const proxy = await startRewriter(setup.service.url, (text) => {
    asked++
    return held.then(() => text)
  })
  return { client: openClient(proxy.url), release, untilAsked: () => until('it was asked', () => asked > 0) }
}

async function spendRequests({ database, projects }: Setup, resetsInMs: number): Promise<void> {
  const state = { ...newBudgetState(), limit: 200, remaining: 0, limitAt: Date.now(), resetBy: Date.now() + resetsInMs }
  await database.rows('insert into visibility_ops.request_budgets values ($1, $2, 1, 200)', [
    projects[0]!.id,
    JSON.stringify(state),
  ])
}

describe('a window is', () => {
  test('loaded with its result, and the cost of its requests', async () => {
    const setup = await begin()
    const { result, jobs, loaded } = await startWorker(setup)
    const found = await result()
    expect(found).toMatchObject({ result: { kind: 'loaded' }, cost: { statuses: { 200: expect.any(Number) } } })
    expect(await loaded()).toHaveLength(7 * 2 * 2)
    expect(await jobs()).toEqual([])
  })

  test('deferred while the requests of its project are spent, if there are others', async () => {
    const setup = await begin(2)
    await spendRequests(setup, 3_600_000)
    const { result, jobs } = await startWorker(setup)
    expect(await result()).toMatchObject({ result: { kind: 'deferred', waitMs: expect.any(Number) } })
    expect([await jobs(), setup.service.requests.length]).toEqual([[], 0])
  })

  test.each([
    ['not deferred without other projects', 3_600_000, false, false],
    ['not deferred if requests come back soon', 2000, true, false],
    ['deferred if requests come back late', 5000, true, true],
  ])('%s', async (_, resetsInMs, hasOthers, isDeferred) => {
    const setup = await begin(2)
    await spendRequests(setup, resetsInMs)
    const waitMs = await new BudgetWatch(setup.services, hasOthers).spentForMs(setup.projects[0]!)
    expect(waitMs > 0).toBe(isDeferred)
  })

  test('released if the worker is stopped, and nothing counts against it', async () => {
    const setup = await begin()
    const service = await holdAnswers(setup)
    const { worker, windowState, jobs, loaded } = await startWorker(setup, { changes: { client: service.client } })
    await service.untilAsked()
    await worker.stop()
    expect([await windowState(), await jobs(), await loaded()]).toEqual([QUEUED, [expect.anything()], []])
  })

  test('released if the service gives no answer, and the worker backs off and requests no shorter windows', async () => {
    const setup = await begin()
    const silent = await listening(createServer(() => {}))
    const client = openClient(`${silent.origin}/v1`, { maxAttempts: 2, timeoutMs: 100, patienceMs: 60_000 })
    const services = { ...setup.services, client, log: quiet }
    const { health, windowState } = await startWorker(setup, { changes: services })
    await until('it backs off', async () => (await health()).state === 'backing off')
    expect(await health()).toMatchObject({ reason: expect.stringContaining('ETIMEDOUT') })
    expect(await windowState()).toMatchObject({ failures: 0, losses: 0 })
    expect(await windowState()).not.toMatchObject({ state: 'done' })
  })

  test('read by a worker that backed off, which works on once the service answers, be it with an error', async () => {
    const setup = await begin()
    let isSilent = true
    const proxy = await startRewriter(setup.service.url, (text) => (isSilent ? new Promise(() => {}) : text))
    const refusing = await startProxy(proxy.url, ({ url }) => !isSilent && url!.includes('/chats'), 404)
    const client = openClient(refusing.url, { maxAttempts: 1, timeoutMs: 100, patienceMs: 60_000 })
    const { health, result } = await startWorker(setup, { changes: { client } })
    await until('it backs off', async () => (await health()).state === 'backing off')
    isSilent = false
    expect(await result()).toMatchObject({ result: { kind: 'failed', code: 'refused' } })
    await until('it works', async () => (await health()).state === 'working')
    expect(await health()).toMatchObject({ reason: null })
  })

  test('retried if it fails while the service answers, and reported at the third time with the cost of all', async () => {
    const setup = await begin()
    const proxy = await startProxy(setup.service.url, ({ url }) => url!.includes('/chats'))
    const client = openClient(proxy.url, { maxAttempts: 1 })
    const { result, health } = await startWorker(setup, { changes: { client } })
    expect(await result()).toMatchObject({
      result: { kind: 'failed', code: 'transient', reason: expect.stringContaining('HTTP 500') },
      cost: { statuses: { 500: 3 } },
    })
    expect(await health()).toMatchObject({ state: 'working', reason: null })
  })

  test('returned if the worker may not read the project, and the worker backs off', async () => {
    const setup = await begin()
    const projects = (all: SyncedProject[]) =>
      all.map((one) => ({ ...one, caller: { ...one.caller, key: 'an-old-one' } }))
    const { result, health, jobs } = await startWorker(setup, { projects })
    expect(await result()).toMatchObject({ result: { kind: 'returned', reason: expect.stringContaining('key') } })
    await until('it backs off', async () => (await health()).state === 'backing off')
    expect(await jobs()).toEqual([])
  })

  test('reported if the service refuses its request, which is sent once', async () => {
    const setup = await begin()
    const proxy = await startProxy(setup.service.url, ({ url }) => url!.includes('/chats'), 404)
    const { result } = await startWorker(setup, { changes: { client: openClient(proxy.url) } })
    expect(await result()).toMatchObject({
      result: { kind: 'failed', code: 'refused' },
      cost: { statuses: { 404: 1 } },
    })
  })

  test('reported if a newer answer was loaded meanwhile, and its own is not', async () => {
    const setup = await begin()
    const service = await holdAnswers(setup)
    const { result } = await startWorker(setup, { changes: { client: service.client } })
    await service.untilAsked()
    const [project] = setup.service.world.projects
    setup.service.world.deletePrompt(project!, project!.prompts[0]!.id)
    await setup.sync()
    service.release()
    expect(await result()).toMatchObject({ result: { kind: 'failed', code: 'superseded' } })
    expect(await setup.database.rows('select distinct prompt_id from visibility.chats')).toHaveLength(1)
  })

  test('discarded if its run ended before the rows were committed, with --accept-deletes', async () => {
    const setup = await begin()
    const service = await holdAnswers(setup)
    const changes = { client: service.client, log: setup.services.log }
    const { loaded } = await startWorker(setup, { changes, settings: { acceptDeletes: true } })
    await service.untilAsked()
    await setup.database.rows("update visibility_ops.runs set outcome = 'interrupted'")
    service.release()
    await until('it is discarded', () => setup.logs.join().includes('the run that asked for a window is over'))
    expect(await loaded()).toEqual([])
  })

  test('loaded though its run ended, without --accept-deletes', async () => {
    const setup = await begin()
    const service = await holdAnswers(setup)
    const { loaded } = await startWorker(setup, { changes: { client: service.client } })
    await service.untilAsked()
    await setup.database.rows("update visibility_ops.runs set outcome = 'interrupted'")
    service.release()
    await until('it is loaded', async () => (await loaded()).length === 7 * 2 * 2)
  })

  test('lost if it fails outside of reading and loading, and reported at the eighth loss', async () => {
    const setup = await begin()
    const { result, jobs } = await startWorker(setup, { stream: 'nope' })
    expect(await result()).toMatchObject({
      result: { kind: 'failed', code: 'worker-died', reason: expect.stringContaining('8 times') },
    })
    expect(await jobs()).toEqual([])
  })

  test('given up if it was taken from the worker', async () => {
    const setup = await begin()
    const service = await holdAnswers(setup)
    const { health, windowState, loaded } = await startWorker(setup, { changes: { client: service.client } })
    await service.untilAsked()
    await setup.database.rows('update visibility_ops.run_windows set worker_id = gen_random_uuid()')
    await until('it is seen to be busy', async () => (await health()).busy === 1)
    await until('it has given up', async () => (await health()).busy === 0)
    expect([await windowState(), await loaded()]).toEqual([{ ...QUEUED, state: 'taken', has_worker: true }, []])
  })

  test('released if it is marked as that of a worker which does not have it', async () => {
    const setup = await begin()
    const { self, result } = await startWorker(setup)
    await result()
    await setup.database.rows(
      `insert into visibility_ops.run_windows (window_id, run_id, queue, project_id, stream, priority, request, state, worker_id,
         taken_at, progress_at, stalls_at)
       select gen_random_uuid(), run_id, queue, project_id, 'nope', 1, request, 'taken', $1, now(), now(), now() + interval '1 hour'
       from visibility_ops.run_windows`,
      [self.id],
    )
    await until('it is taken, and lost', async () => {
      const [row] = await setup.database.rows<{ n: number }>(
        "select coalesce(max(losses), 0) as n from visibility_ops.run_windows where stream = 'nope'",
      )
      return row!.n > 0
    })
  })
})
