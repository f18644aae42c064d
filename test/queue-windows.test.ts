import { randomUUID } from 'node:crypto'
import { describe, expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { processIdentity } from '../src/core/process-identity.ts'
import { fetchJobs, hasQueue, openQueue, pruneQueues, queueNameOf, within } from '../src/queue/boss.ts'
import {
  dropWindowsOfEndedRuns,
  enqueueWindows,
  missingWindows,
  type NewWindow,
  publishResult,
  type RunSettings,
  readResults,
  releaseWindow,
  reportProgress,
  takeWindows,
  withdrawWindows,
} from '../src/queue/run-windows.ts'
import { createSharedBudget } from '../src/queue/shared-budget.ts'
import { heartbeat, reapWindows } from '../src/queue/workers.ts'
import { StreamSet } from '../src/streams/registry.ts'
import { Db } from '../src/warehouse/database.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { until } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { createDatabase, openWarehouse, type TestDatabase } from './support/postgres.ts'
import { configOf, FOUR_GRAINS } from './support/setup.ts'

const quiet = createLog({ level: 'silent', destination: { write: () => {} } })

describe('windows in the queue', () => {
  const settings: RunSettings = {
    command: 'sync',
    acceptDeletes: false,
    lookbackFrom: '2026-03-25',
    pageLimit: 1000,
  }
  const window = (changes: Partial<NewWindow> = {}): NewWindow => ({
    id: randomUUID(),
    project: 'p',
    stream: 'chats',
    range: { from: '2026-03-01', to: '2026-03-07' },
    priority: 1,
    ...changes,
  })
  const result = { result: { kind: 'shorten' as const }, cost: { seconds: 1, statuses: {} } }
  const [one, two] = [randomUUID(), randomUUID()]

  async function open() {
    const { rows, warehouse } = await createDatabase('migrated')
    const queue = await openQueue(warehouse, 'windows_test', quiet)
    closeLater(() => queue.close())
    const runs = await rows<{ run_id: number }>(
      `insert into visibility_ops.runs (command, host, pid, version, source, lease_expires_at)
       select 'sync', '', 1, '', '', now() + interval '1 hour' from generate_series(1, 2) returning run_id`,
    )
    const [run, other] = runs.map(({ run_id }) => run_id) as [number, number]
    const put = (...all: NewWindow[]) => enqueueWindows(queue, run, settings, all)
    const take = (worker = one, most = 10) => takeWindows(queue, worker, most, 60_000)
    const publish = ({ id }: { id: string }, acceptDeletes = false) =>
      inTransaction(warehouse, (tx) => publishResult(tx, queue, { id, acceptDeletes }, result))
    const windows = (where: string) =>
      rows<{ losses: number }>(`select * from visibility_ops.run_windows where ${where}`)
    const jobs = () => rows('select id from visibility_queue.job')
    return { rows, queue, warehouse, run, other, put, take, publish, windows, jobs }
  }

  test('are taken by one worker each, those of a sync first, and putting them in twice changes nothing', async () => {
    const { put, take, queue, run } = await open()
    const [late, early] = [window({ priority: -5 }), window({ priority: 1_000_000_000 })]
    await put(late, early)
    await put(late, early)
    expect((await take(one, 1)).map(({ id }) => id)).toEqual([early.id])
    expect((await take(two)).map(({ id }) => id)).toEqual([late.id])
    expect(await take()).toEqual([])
    expect(await withdrawWindows(queue, run)).toEqual([])
  })

  test('have one result: the first counts, and a late one is ignored', async () => {
    const { put, take, publish, queue, warehouse, run, jobs } = await open()
    await put(window())
    const [mine] = await take()
    expect(await releaseWindow(queue, mine!.id, { workerId: one, isLoss: true })).toBe('released')
    const [theirs] = await take(two)
    expect(await releaseWindow(queue, mine!.id, { workerId: one })).toBe('not-mine')
    await publish(mine!)
    await publish(theirs!)
    expect(await readResults(warehouse, run, 10)).toHaveLength(1)
    expect([await take(), await jobs()]).toEqual([[], []])
  })

  test('of a run that ended are discarded, and none that accepts deletions is loaded', async () => {
    const { put, take, publish, rows, jobs } = await open()
    await put(window(), window())
    const [begun] = await take(one, 1)
    await rows("update visibility_ops.runs set outcome = 'interrupted'")
    expect(await take()).toEqual([])
    await expect(publish(begun!, true)).rejects.toThrow('is over')
    await publish(begun!)
    expect(await jobs()).toEqual([])
  })

  test('of a worker that is silent, gone or stuck are released, and those of one with progress are not', async () => {
    const { put, take, queue, warehouse, rows, windows } = await open()
    const self = (id: string) => ({ id, version: '', concurrency: 1, source: '', queue: queue.name })
    const health = { busy: 1, done: 0, state: 'working' as const, reason: null }
    await put(window())
    const [first] = await take()
    const say = (idleMs: number) => reportProgress(warehouse, one, [{ id: first!.id, idleMs, stallAfterMs: 30_000 }])
    await heartbeat(warehouse, self(one), health)
    expect((await say(1000)).lost).toEqual([])
    await reapWindows(queue, quiet)
    expect(await windows("state = 'taken'")).toHaveLength(1)
    // Alive, but without progress for too long.
    await say(31_000)
    await reapWindows(queue, quiet)
    expect(await windows("state = 'queued'")).toMatchObject([{ losses: 1 }])
    expect((await say(0)).lost).toEqual([first!.id])
    // Silent.
    await take()
    await rows("update visibility_ops.workers set seen_at = now() - interval '10 seconds'")
    await reapWindows(queue, quiet)
    expect(await windows("state = 'queued'")).toMatchObject([{ losses: 2 }])
    // A process of this machine that is gone.
    await take()
    const gone = `${processIdentity().split('/').slice(0, 2).join('/')}/999999999/1`
    await rows('update visibility_ops.workers set seen_at = now(), process = $1', [gone])
    await reapWindows(queue, quiet)
    expect(await windows("state = 'queued'")).toMatchObject([{ losses: 3 }])
  })

  test('are given up at the eighth loss of a worker, and seven do not count as failures', async () => {
    const { put, take, queue, warehouse, run, windows, jobs } = await open()
    await put(window())
    const lose = async () => {
      const [taken] = await take()
      return releaseWindow(queue, taken!.id, { workerId: one, isLoss: true })
    }
    for (let loss = 1; loss <= 7; loss++) expect(await lose()).toBe('released')
    expect(await windows('losses = 7 and failures = 0')).toHaveLength(1)
    expect(await lose()).toBe('given-up')
    expect([await take(), await jobs()]).toEqual([[], []])
    expect(await readResults(warehouse, run, 10)).toMatchObject([
      { result: { result: { kind: 'failed', code: 'worker-died' } } },
    ])
  })

  test('keep what failed attempts cost, which do not count as losses', async () => {
    const { put, take, queue, windows } = await open()
    await put(window())
    const spent = { seconds: 3, statuses: { 500: 2 } }
    const [first] = await take()
    expect([first!.failures, first!.spent]).toEqual([0, null])
    expect(await releaseWindow(queue, first!.id, { workerId: one, spent })).toBe('released')
    const [second] = await take(two)
    expect([second!.failures, second!.spent]).toEqual([1, spent])
    expect(await releaseWindow(queue, first!.id, { workerId: two })).toBe('released')
    expect(await windows('failures = 1 and losses = 0')).toHaveLength(1)
  })

  test('of a run that accepts deletions and is over are not reported as lost', async () => {
    const { rows, take, queue, run, warehouse } = await open()
    await enqueueWindows(queue, run, { ...settings, acceptDeletes: true }, [window()])
    const [taken] = await take()
    await rows("update visibility_ops.run_windows set losses = 7; update visibility_ops.runs set outcome = 'failed'")
    expect(await releaseWindow(queue, taken!.id, { workerId: one, isLoss: true })).toBe('run-over')
    expect(await readResults(warehouse, run, 10)).toEqual([])
  })

  test('that wait are withdrawn, the last ones first, for a project or for all', async () => {
    const { put, take, queue, run, other, jobs } = await open()
    const [taken, second, third, ofOther] = [40, 30, 20, 10].map((priority) => window({ priority }))
    await put(taken!, second!, third!, { ...ofOther!, project: 'q' })
    await take(one, 1)
    expect(await withdrawWindows(queue, other)).toEqual([])
    expect(await withdrawWindows(queue, run, { project: 'q' })).toEqual([ofOther!.id])
    expect(await withdrawWindows(queue, run, { most: 1 })).toEqual([second!.id])
    expect((await take(two)).map(({ id }) => id)).toEqual([third!.id])
    expect(await withdrawWindows(queue, run)).toEqual([])
    expect(await jobs()).toHaveLength(2)
  })

  test('that a worker takes at the same moment are not withdrawn', async () => {
    const { put, queue, run, warehouse, rows, windows } = await open()
    await put(window())
    const withdrawn = await inTransaction(warehouse, async ({ client }) => {
      await client.query('select from visibility_queue.job for update')
      await client.query("update visibility_ops.run_windows set state = 'taken'")
      const pending = withdrawWindows(queue, run)
      const waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
      await until('it waits', async () => (await rows(waiting)).length > 0)
      return { pending }
    })
    expect(await withdrawn.pending).toEqual([])
    expect(await windows("state = 'taken'")).toHaveLength(1)
  })

  test('that vanished are known', async () => {
    const { put, warehouse } = await open()
    const [there, gone] = [window(), window()]
    await put(there)
    expect(await missingWindows(warehouse, [there.id, gone.id])).toEqual([gone.id])
  })

  test('of a run whose lease has just expired are still taken, and dropped a minute later', async () => {
    const { put, take, rows, queue, windows, jobs } = await open()
    await put(window(), window(), window())
    const expireLease = (age: string) =>
      rows('update visibility_ops.runs set lease_expires_at = now() - $1::interval', [age])
    await expireLease('30 seconds')
    expect(await take(one, 1)).toHaveLength(1)
    await dropWindowsOfEndedRuns(queue)
    expect(await windows('true')).toHaveLength(3)
    await expireLease('90 seconds')
    expect(await take(two, 1)).toEqual([])
    await dropWindowsOfEndedRuns(queue)
    expect([await windows('true'), await jobs()]).toEqual([[], []])
  })

  test('of ended runs are removed by the next run, and others stay', async () => {
    const { put, take, queue, run, other, rows, jobs, windows } = await open()
    await put(window(), window())
    await take(one, 1)
    const own = window()
    await enqueueWindows(queue, other, settings, [own])
    await rows("update visibility_ops.runs set outcome = 'failed' where run_id = $1", [run])
    await dropWindowsOfEndedRuns(queue)
    expect((await windows('true')).length).toBe(1)
    await rows('update visibility_ops.runs set outcome = null')
    await put(window(), window())
    await dropWindowsOfEndedRuns(queue, { andOf: run })
    expect((await take()).map(({ id }) => id)).toEqual([own.id])
    await rows("update visibility_ops.runs set outcome = 'interrupted'")
    await dropWindowsOfEndedRuns(queue)
    expect([await jobs(), await windows('true')]).toEqual([[], []])
  })
})

describe('a queue', () => {
  test('is set up by many processes at once', async () => {
    const { rows, warehouse } = await createDatabase('migrated')
    expect(await hasQueue(warehouse)).toBe(false)
    const all = await Promise.all(Array.from({ length: 5 }, () => openQueue(warehouse, 'windows_test', quiet)))
    for (const { close } of all) await close()
    expect(await rows('select name from visibility_queue.queue')).toEqual([{ name: 'windows_test' }])
    expect(await hasQueue(warehouse)).toBe(true)
  })

  test('of another configuration is deleted after a day without use, and no other', async () => {
    const { rows, warehouse } = await createDatabase('migrated')
    const queue = await openQueue(warehouse, 'windows_test', quiet)
    closeLater(() => queue.close())
    for (const name of ['windows_old', 'windows_worker', 'windows_window', 'windows', 'others']) {
      await queue.api.createQueue(name)
      await queue.api.insert([{ id: randomUUID(), name }])
    }
    await rows("update visibility_queue.queue set updated_on = now() - interval '25 hours'")
    await queue.api.createQueue('windows_new')
    const self = { id: randomUUID(), version: '', concurrency: 1, source: '', queue: 'windows_worker' }
    await heartbeat(warehouse, self, { busy: 0, done: 0, state: 'working', reason: null })
    await rows(
      `insert into visibility_ops.run_windows (window_id, run_id, queue, project_id, stream, priority, request)
       values (gen_random_uuid(), 1, 'windows_window', 'p', 's', 1, '{}')`,
    )
    await pruneQueues(queue, quiet)
    expect((await queue.api.getQueues()).map(({ name }) => name).sort()).toEqual([
      'others',
      'windows_new',
      'windows_test',
      'windows_window',
      'windows_worker',
    ])
  })

  test('is another one for each setting that decides which rows are loaded', () => {
    const columns = [{ name: 'id', path: 'id', type: 'text' }]
    const custom = { name: 'cited', path: 'cited', by: 'list', key: ['id'], columns }
    const nameOf = (
      content: Record<string, unknown>,
      { projects = ['a', 'b'], sourceAddress = 'https://a.example' } = {},
    ) => {
      const config = configOf(content)
      return queueNameOf({ config, streams: new StreamSet(config), sourceAddress, projects })
    }
    const usual = nameOf({ reports: FOUR_GRAINS })
    const filters = [{ field: 'model_id', operator: 'in', values: ['m'] }]
    const others = [
      nameOf({ reports: FOUR_GRAINS }, { projects: ['a'] }),
      nameOf({ reports: FOUR_GRAINS }, { sourceAddress: 'https://b.example' }),
      nameOf({ reports: FOUR_GRAINS.slice(1) }),
      nameOf({ reports: [{ ...FOUR_GRAINS[0], filters }, ...FOUR_GRAINS.slice(1)] }),
      nameOf({ reports: FOUR_GRAINS, labels: { topics: { to_1: 'One' } } }),
      nameOf({ reports: FOUR_GRAINS, max_bad_share: 0.2 }),
      nameOf({ reports: FOUR_GRAINS, custom_streams: [custom] }),
      nameOf({ reports: FOUR_GRAINS, custom_streams: [{ ...custom, path: 'others' }] }),
    ]
    expect(new Set([usual, ...others]).size).toBe(others.length + 1)
    for (const name of [usual, ...others]) expect(name).toMatch(/^windows_[0-9a-f]{16}$/)
    const same = [
      nameOf({ reports: FOUR_GRAINS }, { projects: ['b', 'a'] }),
      nameOf({ reports: [...FOUR_GRAINS].reverse() }),
      nameOf({ reports: FOUR_GRAINS, lookback_days: 3, source: { concurrency: 2 } }),
    ]
    expect(same).toEqual([usual, usual, usual])
  })

  test('that the role may not set up is refused with what to grant', async () => {
    const { url, rows } = await createDatabase('migrated')
    const role = `queue_${randomUUID().slice(0, 8)}`
    await rows(`create role ${role} login password 'secret'`)
    const address = Object.assign(new URL(url), { username: role, password: 'secret' })
    const warehouse = await openWarehouse(address.href)
    await expect(openQueue(warehouse, 'windows_test', quiet)).rejects.toThrow(
      /may not set up the queue .* its own schema visibility_queue: run/,
    )
    await warehouse.close()
    await rows(`drop role ${role}`)
  })
})

/* What is relied on beyond the documentation of pg-boss. */
describe('pg-boss', () => {
  const open = async (database: TestDatabase) => {
    const queue = await openQueue(database.warehouse, 'windows_test', quiet)
    closeLater(() => queue.close())
    return queue
  }

  test('accepts our ids, ignores ids that are there, and works inside a transaction', async () => {
    const database = await createDatabase('migrated')
    const { warehouse } = database
    const queue = await open(database)
    const id = randomUUID()
    const job = { id, name: queue.name }
    await queue.api.insert([job])
    await queue.api.insert([job])
    expect(await queue.api.getQueueSize(queue.name)).toBe(1)
    const undone = inTransaction(warehouse, async (tx) => {
      expect(await fetchJobs(queue, tx, 5)).toEqual([id])
      await queue.api.deleteJob(queue.name, id, within(tx))
      await queue.api.insert([job], within(tx))
      expect((await tx.client.query('select state from visibility_queue.job')).rows).toEqual([{ state: 'created' }])
      throw new Error('undone')
    })
    await expect(undone).rejects.toThrow('undone')
    expect(await inTransaction(warehouse, (tx) => fetchJobs(queue, tx, 5))).toEqual([id])
    expect(await inTransaction(warehouse, (tx) => fetchJobs(queue, tx, 5))).toEqual([])
  })

  test('gives each job to one of several transactions at once, by priority', async () => {
    const database = await createDatabase('migrated')
    const { warehouse } = database
    const queue = await open(database)
    const ids = [randomUUID(), randomUUID()]
    await queue.api.insert(ids.map((id, priority) => ({ id, name: queue.name, priority })))
    const found = await inTransaction(warehouse, async (tx) => [
      await fetchJobs(queue, tx, 1),
      await inTransaction(warehouse, (other) => fetchJobs(queue, other, 5)),
    ])
    expect(found).toEqual([[ids[1]], [ids[0]]])
  })

  test('reports errors of fetch, which it only emits', async () => {
    const database = await createDatabase('migrated')
    const queue = await open(database)
    const broken = inTransaction(database.warehouse, async (tx) => {
      await tx.client.query('select 1/0').catch(() => {})
      return fetchJobs(queue, tx, 5)
    })
    await expect(broken).rejects.toThrow('aborted')
  })
})

describe('the shared request budget', () => {
  test('falls back to a local budget if the database does not answer', async () => {
    const broken = {
      db: new Db({ schema: 'x', opsSchema: 'x_ops' }, () => Promise.reject(new Error('gone'))),
    } as never
    const budget = createSharedBudget(broken, 'p', { perMinute: 5, owner: 'a', log: quiet })
    const permit = await budget.acquire()
    permit.learn({ remaining: 3, resetMs: 1000 }, false)
  })
})
