import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { processIdentity } from '../src/core/process-identity.ts'
import { openQueue } from '../src/queue/boss.ts'
import {
  dropWindowsOfEndedRuns,
  enqueueWindows,
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
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { type RunningCli, type RunningProcess, runCli, startCli, startProcess } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { sized } from './support/long.ts'
import { startProxy, startRewriter, startTcpProxy } from './support/proxy.ts'
import { FOUR_GRAINS, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact, expectReport } from './support/truth.ts'

const RANGE = { from: '2026-03-10', to: '2026-03-31' }
const SMALL = { projects: 1, prompts: 4, models: 2, brands: 3 }
const quiet = createLog({ level: 'silent', destination: { write: () => {} } })

let setup: Setup

async function begin(options: SetupOptions = {}): Promise<void> {
  setup = await setUp({
    world: SMALL,
    ...options,
    config: { start_date: RANGE.from, end_date: RANGE.to, queue: { mode: 'pg-boss' }, ...options.config },
  })
}

const cli = (env: Record<string, string> = {}) => ({ env: { ...setup.env, ...env }, config: setup.fileConfig })

const start = (args: string[], env?: Record<string, string>) => startCli([...args, '--json'], cli(env))

/** A command in a process of its own, for tests that kill it. */
function startMortal(args: string[], env?: Record<string, string>): RunningProcess {
  const running = startProcess([...args, '--json'], cli(env))
  closeLater(() => {
    running.child.kill('SIGKILL')
    return running.done
  })
  return running
}

async function startWorker(...args: string[]): Promise<RunningCli> {
  const worker = start(['worker', ...args])
  await worker.saw('worker_id')
  return worker
}

async function startMortalWorker(...args: string[]): Promise<RunningProcess> {
  const worker = startMortal(['worker', ...args])
  await worker.saw('worker_id')
  return worker
}

const windows = (where: string) =>
  setup.database
    .rows<{ worker_id: string; losses: number }>(
      `select worker_id, losses from visibility_ops.run_windows where ${where}`,
    )
    .catch(() => [])
const jobs = () => setup.database.rows('select 1 from visibility_queue.job').catch(() => [])

/** Waits until some worker has begun to read a window. */
async function untilTaken(): Promise<void> {
  while (!(await windows("state = 'taken'")).length) await delay(50)
}

const truth = () => ({ world: setup.service.world, range: RANGE, reports: FOUR_GRAINS })

describe('many workers', () => {
  test('over several projects, with limits and faults, two killed and one restarted, leave every table equal to the truth', async () => {
    await begin({
      world: { projects: sized(3, 8), prompts: 3, models: 2, brands: 3 },
      faults: {
        rate_limit: 40,
        rate_window_ms: 2000,
        latency_ms: 20,
        server_error: 0.05,
        reset: 0.03,
        truncate: 0.02,
        cut_json: 0.02,
        unstable_order: true,
      },
      config: { source: { patience_seconds: 60 } },
    })
    const [first, second] = await Promise.all(Array.from({ length: 3 }, () => startMortalWorker('--concurrency', '3')))
    const sync = start(['sync'])
    await sync.saw('run started')
    await first!.saw('window loaded')
    first!.child.kill('SIGKILL')
    await second!.saw('window loaded')
    second!.child.kill('SIGKILL')
    await startWorker('--concurrency', '3')
    const result = await sync.done
    expect(result.json()).toMatchObject({ outcome: 'complete' })
    expect(result.code).toBe(0)
    await expectExact(setup.database, truth())
  })

  test('a stopped worker releases its windows immediately, and exits 0', async () => {
    await begin({ faults: { rate_limit: null, latency_ms: 3000 } })
    const worker = await startWorker()
    const sync = start(['sync'])
    await sync.saw('run started')
    await untilTaken()
    setup.service.setFaults({ rate_limit: null })
    worker.stop()
    expect((await worker.done).code).toBe(0)
    const result = await sync.done
    expect(result.json().outcome).toBe('complete')
    expect(await jobs()).toEqual([])
    expect(await setup.database.rows('select 1 from visibility_ops.workers')).toEqual([])
    await expectExact(setup.database, truth())
  })
})

describe('a run with a queue', () => {
  test('performs the work itself if there is no worker, and loads the same rows', async () => {
    await begin({ faults: { rate_limit: null, unstable_order: true } })
    const { outcome } = (await runCli(['sync', '--json'], cli())).json()
    expect(outcome).toBe('complete')
    await expectExact(setup.database, truth())
  })

  test('gives up a window that fails three times, ends as partial, and status lists it until it can be read', async () => {
    const week = { from: '2026-03-25', to: RANGE.to }
    await begin({ config: { start_date: week.from, source: { max_attempts: 1 } } })
    let broken = true
    const proxy = await startProxy(setup.service.url, (message) => broken && message.url!.includes('/chats'))
    const env = { VISIBILITY_API_URL: proxy.url }
    await start(['worker'], env).saw('worker_id')
    const result = await runCli(['sync', '--json'], cli(env))
    expect(result.code).toBe(1)
    expect(result.json()).toMatchObject({ outcome: 'partial' })
    const chats = result.json().streams.find(({ stream }: { stream: string }) => stream === 'chats')
    expect(chats.failed[0].error).toContain('GET /chats: HTTP 500')
    expect(chats.requests).toBe(3)
    const status = await runCli(['status', '--json'], cli(env))
    expect(status.json().queue.dead).toMatchObject([{ stream: 'chats', reason: expect.stringContaining('HTTP 500') }])
    expect((await runCli(['status'], cli(env))).stdout).toContain('Given up')
    broken = false
    // However its days are read.
    const mended = await runCli(['sync', '--json'], { ...cli(env), config: { ...setup.fileConfig, queue: {} } })
    expect(mended.json().outcome).toBe('complete')
    expect((await runCli(['status', '--json'], cli(env))).json().queue.dead).toEqual([])
    await expectExact(setup.database, { ...truth(), range: week })
  })

  test('that is stopped removes its windows from the queue and reports what was not read', async () => {
    await begin({ config: { source: { max_window_days: 1 } }, faults: { rate_limit: null, latency_ms: 300 } })
    await startWorker()
    const backfill = start(['backfill', '--from', RANGE.from, '--to', RANGE.to])
    await backfill.saw('run started')
    await untilTaken()
    backfill.stop()
    const result = await backfill.done
    expect(result.code).toBe(1)
    expect(result.json().outcome).toBe('interrupted')
    expect(result.json().streams.some(({ failed }: { failed: unknown[] }) => failed.length > 0)).toBe(true)
    expect([await jobs(), await windows('true')]).toEqual([[], []])
  })

  test('is not harmed by lost connections to the database', async () => {
    await begin({ config: { source: { max_window_days: 2 } }, faults: { rate_limit: null, latency_ms: 30 } })
    await migrate(setup.database.warehouse, setup.config)
    const ours = await setup.database.rows('select pid from pg_stat_activity where datname = current_database()')
    const sync = start(['sync'])
    await sync.saw('run started')
    // One at a time, and then all of them at once; only the connection that holds the lock of the run stays.
    for (const connections of [1, 1, 1, 1, 9, 1, 1, 9]) {
      await delay(100)
      await setup.database.rows(
        `select pg_terminate_backend(pid) from (select pid from pg_stat_activity where datname = current_database()
         and application_name = 'visibility-sync' and pid <> all($1) order by random() limit $2) chosen`,
        [ours.map(({ pid }) => pid), connections],
      )
    }
    const result = await sync.done
    expect(result.json().outcome).toBe('complete')
    await expectExact(setup.database, truth())
  })

  test('is processed only by workers with the same projects and reports, and status shows it', async () => {
    const filtered = [{ name: 'by_model', dimensions: ['date', 'model_id'], filters: [] as unknown[] }]
    await begin({ world: { ...SMALL, projects: 2 }, config: { reports: filtered } })
    const [first] = setup.projects.map(({ id }) => id)
    const [model] = setup.service.world.models
    filtered[0]!.filters.push({ field: 'model_id', operator: 'in', values: [model] })
    await startWorker()
    await start(['worker'], { VISIBILITY_PROJECTS: first! }).saw('worker_id')
    // The filter is taken away while the worker still has it.
    filtered[0]!.filters.pop()
    await setup.database.rows('drop table visibility.by_model cascade')
    await setup.database.rows('delete from visibility_ops.reports')
    const result = await runCli(['sync', '--json'], cli())
    expect(result.json().outcome).toBe('complete')
    await expectExact(setup.database, { ...truth(), reports: filtered })
    const { queue } = (await runCli(['status', '--json'], cli())).json()
    expect(queue.workers).toMatchObject([
      { done: 0, is_current: false },
      { done: 0, is_current: false },
    ])
    expect((await runCli(['status'], cli())).stdout).toContain('Workers with another configuration')
  })
})

describe('failures of workers and runs', () => {
  /** The service, but its answers are kept back while `isHeld`: they were computed before. */
  async function holdAnswers() {
    let release: () => void = () => {}
    let held = Promise.resolve()
    const proxy = await startRewriter(setup.service.url, (text) => held.then(() => text))
    closeLater(() => release())
    return {
      url: proxy.url,
      hold() {
        held = new Promise((done) => {
          release = done
        })
      },
      release: () => release(),
    }
  }

  test('a backfill of days that are being read does not accept answers older than itself', async () => {
    await begin({ config: { streams: [], reports: [FOUR_GRAINS[1]] } })
    const service = await holdAnswers()
    const env = { VISIBILITY_API_URL: service.url }
    await start(['worker', '--concurrency', '1'], env).saw('worker_id')
    service.hold()
    const asked = setup.service.requests
    const days = ['--from', '2026-03-25', '--to', RANGE.to]
    const first = start(['backfill', ...days], env)
    while (asked.length === 0) await delay(50)
    // The answer was computed before these days changed.
    setup.service.world.rewriteDays(setup.service.world.projects[0]!, ['2026-03-26', '2026-03-27'])
    const second = start(['backfill', ...days], env)
    await second.saw('run started')
    service.release()
    expect((await second.done).json()).toMatchObject({ outcome: 'complete' })
    expect((await first.done).json()).toMatchObject({ outcome: 'complete' })
    await expectExact(setup.database, {
      ...truth(),
      range: { from: '2026-03-25', to: RANGE.to },
      reports: [FOUR_GRAINS[1]!],
      projects: [],
    })
    const [project] = setup.service.world.projects
    await expectReport(
      setup.database,
      { ...truth(), range: { from: '2026-03-25', to: RANGE.to } },
      project!,
      FOUR_GRAINS[1]!,
    )
  })

  test('a worker waits for a database that is away, and reports it', async () => {
    await begin()
    const proxy = await startTcpProxy(setup.database.url)
    proxy.refuse()
    const worker = start(['worker'], { DATABASE_URL: proxy.url })
    await worker.saw('waiting for the database')
    proxy.resume()
    await worker.saw('worker_id')
    worker.stop()
    expect((await worker.done).code).toBe(0)
  })
})

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
    await begin()
    const { warehouse } = setup.database
    await migrate(warehouse, setup.config)
    const queue = await openQueue(warehouse, 'windows_test', quiet)
    closeLater(() => queue.close())
    const runs = await setup.database.rows<{ run_id: number }>(
      `insert into visibility_ops.runs (command, host, pid, version, source, lease_expires_at)
       select 'sync', '', 1, '', '', now() + interval '1 hour' from generate_series(1, 2) returning run_id`,
    )
    const [run, other] = runs.map(({ run_id }) => run_id) as [number, number]
    const put = (...all: NewWindow[]) => enqueueWindows(queue, run, settings, all)
    const take = (worker = one, most = 10) => takeWindows(queue, worker, most, 60_000)
    const publish = ({ id }: { id: string }, acceptDeletes = false) =>
      inTransaction(warehouse, (tx) => publishResult(tx, queue, { id, acceptDeletes }, result))
    return { queue, warehouse, run, other, put, take, publish }
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
    const { put, take, publish, queue, warehouse, run } = await open()
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
    const { put, take, publish } = await open()
    await put(window(), window())
    const [begun] = await take(one, 1)
    await setup.database.rows("update visibility_ops.runs set outcome = 'interrupted'")
    expect(await take()).toEqual([])
    await expect(publish(begun!, true)).rejects.toThrow('is over')
    await publish(begun!)
    expect(await jobs()).toEqual([])
  })

  test('of a worker that is silent, gone or stuck are released, and those of one with progress are not', async () => {
    const { put, take, queue, warehouse } = await open()
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
    await setup.database.rows("update visibility_ops.workers set seen_at = now() - interval '10 seconds'")
    await reapWindows(queue, quiet)
    expect(await windows("state = 'queued'")).toMatchObject([{ losses: 2 }])
    // A process of this machine that is gone.
    await take()
    const gone = `${processIdentity().split('/').slice(0, 2).join('/')}/999999999/1`
    await setup.database.rows('update visibility_ops.workers set seen_at = now(), process = $1', [gone])
    await reapWindows(queue, quiet)
    expect(await windows("state = 'queued'")).toMatchObject([{ losses: 3 }])
  })

  test('of ended runs are removed by the next run, and others stay', async () => {
    const { put, take, queue, run, other } = await open()
    await put(window(), window())
    await take(one, 1)
    const own = window()
    await enqueueWindows(queue, other, settings, [own])
    await dropWindowsOfEndedRuns(queue, { andOf: run })
    expect((await take()).map(({ id }) => id)).toEqual([own.id])
    await setup.database.rows("update visibility_ops.runs set outcome = 'interrupted'")
    await dropWindowsOfEndedRuns(queue)
    expect([await jobs(), await windows('true')]).toEqual([[], []])
  })
})

describe('pg-boss', () => {
  test('is set up by many processes at once', async () => {
    await begin()
    const { warehouse } = setup.database
    const all = await Promise.all(Array.from({ length: 5 }, () => openQueue(warehouse, 'windows_test', quiet)))
    for (const { close } of all) await close()
    expect(await setup.database.rows('select name from visibility_queue.queue')).toEqual([{ name: 'windows_test' }])
  })
})

describe('the shared request budget', () => {
  test('falls back to a local budget if the database does not answer', async () => {
    await begin()
    const broken = { opsSchema: 'x', pool: { query: () => Promise.reject(new Error('gone')) } } as never
    const budget = createSharedBudget(broken, 'p', { perMinute: 5, owner: 'a', log: quiet })
    const permit = await budget.acquire()
    permit.learn({ remaining: 3, resetMs: 1000 }, false)
  })
})
