import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, test } from '@jest/globals'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { type RunningCli, type RunningProcess, runCli, startCli, startProcess } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { sized } from './support/long.ts'
import { startProxy, startRewriter, startTcpProxy } from './support/proxy.ts'
import { FOUR_GRAINS, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact, expectReport } from './support/truth.ts'

const RANGE = { from: '2026-03-10', to: '2026-03-31' }
const SMALL = { projects: 1, prompts: 4, models: 2, brands: 3 }

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

test('without a queue, none of its tables is created', async () => {
  await begin({ config: { queue: { mode: 'none' }, streams: ['prompts'], reports: [] } })
  expect((await runCli(['sync'], cli())).code).toBe(0)
  expect(await setup.database.rows("select from pg_namespace where nspname = 'visibility_queue'")).toEqual([])
  expect((await runCli(['status', '--json'], cli())).json().queue).toBeNull()
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
