import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, describe, expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { DEAD, openBoss, WINDOWS } from '../src/queue/boss.ts'
import {
  completeJob,
  enqueue,
  giveBack,
  keepAlive,
  lockEnqueuing,
  takeJobs,
  type WindowJob,
} from '../src/queue/jobs.ts'
import { createSharedBudget } from '../src/queue/shared-budget.ts'
import { COMPANY_KEY } from '../src/reference/world.ts'
import { createClient } from '../src/source/client.ts'
import { connectWarehouse, inTransaction } from '../src/warehouse/connect.ts'
import { migrate } from '../src/warehouse/migrate.ts'
import { type RunningCli, runCli, startCli } from './support/cli.ts'
import { startProxy } from './support/proxy.ts'
import { FOUR_GRAINS, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

const RANGE = { from: '2026-03-10', to: '2026-03-31' }
const SMALL = { projects: 1, prompts: 4, models: 2, brands: 3 }
const quiet = createLog({ level: 'silent', destination: { write: () => {} } })

let setup: Setup
const started: RunningCli[] = []
const closing: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const { child } of started) child.kill('SIGKILL')
  await Promise.all(started.map(({ done }) => done))
  started.length = 0
  for (const close of closing.splice(0).reverse()) await close()
  await setup.close()
})

async function begin(options: SetupOptions = {}): Promise<void> {
  setup = await setUp({
    world: SMALL,
    ...options,
    config: { start_date: RANGE.from, end_date: RANGE.to, queue: { mode: 'pg-boss' }, ...options.config },
  })
}

const cli = (env: Record<string, string> = {}) => ({ env: { ...setup.env, ...env }, config: setup.fileConfig })

function start(args: string[], env?: Record<string, string>): RunningCli {
  const running = startCli([...args, '--json'], cli(env))
  started.push(running)
  return running
}

async function startWorker(...args: string[]): Promise<RunningCli> {
  const worker = start(['worker', ...args])
  await worker.saw('worker_id')
  return worker
}

/** Longer than any test waits for an answer. */
const NEVER_MS = 120_000

/** Waits until some process has begun to read a window. */
async function untilTaken(): Promise<void> {
  const taken = () =>
    setup.database.rows("select 1 from visibility_queue.job where name = 'windows' and state = 'active'")
  while (!(await taken().catch(() => [])).length) await delay(50)
}

const truth = () => ({ world: setup.service.world, range: RANGE, reports: FOUR_GRAINS })

describe('many workers', () => {
  test('over forty projects, with limits and faults, two killed and one restarted, leave every table equal to the truth', async () => {
    await begin({
      world: { projects: 40, prompts: 3, models: 2, brands: 3 },
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
    })
    const [first, second] = await Promise.all(Array.from({ length: 4 }, () => startWorker('--concurrency', '3')))
    const sync = start(['sync'])
    await sync.saw('run started')
    await delay(1200)
    first!.child.kill('SIGKILL')
    await delay(700)
    second!.child.kill('SIGKILL')
    await startWorker('--concurrency', '3')
    const result = await sync.done
    expect(result.json()).toMatchObject({ outcome: 'complete' })
    expect(result.code).toBe(0)
    await expectExact(setup.database, truth())
    const again = await runCli(['sync', '--json'], cli())
    const streams = again.json().streams as { inserted: number; updated: number; deleted: number }[]
    expect(streams.every((row) => row.inserted + row.updated + row.deleted === 0)).toBe(true)
  })

  test('one that is told to stop gives its windows back at once, and ends with 0', async () => {
    await begin({ faults: { rate_limit: null, latency_ms: 3000 } })
    const worker = await startWorker()
    const sync = start(['sync'])
    await sync.saw('run started')
    await untilTaken()
    setup.service.setFaults({ rate_limit: null })
    worker.child.kill('SIGTERM')
    expect((await worker.done).code).toBe(0)
    const result = await sync.done
    expect(result.json().outcome).toBe('complete')
    const retried = await setup.database.rows('select 1 from visibility_queue.job where retry_count > 0')
    expect(retried).toEqual([])
    expect(await setup.database.rows('select 1 from visibility_ops.workers')).toEqual([])
    await expectExact(setup.database, truth())
  })
})

describe('a run with a queue', () => {
  test('works itself where no worker is about, and loads the same rows', async () => {
    await begin({ faults: { rate_limit: null, malformed: 0.01, unstable_order: true } })
    const queued = await runCli(['sync', '--json'], cli())
    const here = await runCli(['backfill', '--from', RANGE.from, '--to', RANGE.to, '--json'], {
      env: setup.env,
      config: { ...setup.fileConfig, queue: { mode: 'none' } },
    })
    type Row = Record<string, number | string>
    const numbers = (result: { json(): { streams: Row[] } }) =>
      Object.fromEntries(result.json().streams.map((row) => [row.stream, [row.days, row.rows_read, row.quarantined]]))
    const lists = ['project_profile', 'prompts', 'prompt_suggestions', 'domain_classifications']
    const days = Object.entries(numbers(queued)).filter(([stream]) => !lists.includes(stream))
    expect(Object.fromEntries(days)).toEqual(numbers(here))
    // Nothing was left to change by reading the same days without the queue.
    expect(here.json().streams.every((row: Row) => row.inserted === 0 && row.updated === 0 && row.deleted === 0)).toBe(
      true,
    )
  })

  test('finds a service that cuts its answers without a word, as one process does', async () => {
    await begin({ world: { ...SMALL, prompts: 20 }, faults: { rate_limit: null, silent_cap: 137 } })
    await startWorker()
    const sync = await runCli(['sync', '--json'], cli())
    expect(sync.json().outcome).toBe('complete')
    await expectExact(setup.database, truth())
  })

  test('sets a window aside that always fails, ends as partial, and status tells until it can be read', async () => {
    const week = { from: '2026-03-25', to: RANGE.to }
    await begin({ config: { start_date: week.from, source: { max_attempts: 1 } } })
    let broken = true
    const proxy = await startProxy(setup.service.url, (message) => broken && message.url!.includes('/chats'))
    closing.push(() => proxy.close())
    const env = { VISIBILITY_API_URL: proxy.url }
    const sync = startCli(['sync', '--json'], cli(env))
    started.push(sync)
    const result = await sync.done
    expect(result.code).toBe(1)
    expect(result.json()).toMatchObject({ outcome: 'partial' })
    const chats = result.json().streams.find(({ stream }: { stream: string }) => stream === 'chats')
    expect(chats.failed[0].error).toContain('set aside: GET /chats: HTTP 500')
    expect(chats.requests).toBe(4)
    const status = await runCli(['status', '--json'], cli(env))
    expect(status.json().queue.dead).toMatchObject([{ stream: 'chats', reason: expect.stringContaining('HTTP 500') }])
    expect((await runCli(['status'], cli(env))).stdout).toContain('Set aside')
    broken = false
    const mended = await runCli(['sync', '--json'], cli(env))
    expect(mended.json().outcome).toBe('complete')
    expect((await runCli(['status', '--json'], cli(env))).json().queue.dead).toEqual([])
    await expectExact(setup.database, { ...truth(), range: week })
  })

  test('goes on beside another, and the sync is served before the backfill', async () => {
    await begin({
      config: { source: { max_window_days: 1, concurrency: 1 } },
      faults: { rate_limit: null, latency_ms: 30 },
    })
    await runCli(['sync', '--stream', 'prompts', '--json'], cli())
    const backfill = start(['backfill', '--from', RANGE.from, '--to', RANGE.to])
    await backfill.saw('run started')
    const sync = await runCli(['sync', '--stream', 'brand_daily', '--json'], cli())
    expect(sync.json().outcome).toBe('complete')
    expect(backfill.child.exitCode).toBeNull()
    expect((await backfill.done).json().outcome).toBe('complete')
    const without = { env: setup.env, config: { ...setup.fileConfig, queue: { mode: 'none' } } }
    setup.service.setFaults({ rate_limit: null, latency_ms: NEVER_MS })
    const alone = start(['backfill', '--from', '2026-03-27', '--to', RANGE.to])
    await alone.saw('run started')
    expect((await runCli(['sync', '--json'], without)).code).toBe(3)
    expect(alone.child.exitCode).toBeNull()
  })

  test('of serve lets a backfill go on beside the sync, and shows workers, windows and both runs', async () => {
    // Neither of the two runs gets an answer, so that none ends before it was looked at.
    await begin({ config: { source: { max_window_days: 1 } }, faults: { rate_limit: null, latency_ms: NEVER_MS } })
    await startWorker('--concurrency', '2')
    const serve = start(['serve', '--port', '0'], { VISIBILITY_TOKEN: 'a-token' })
    await serve.saw('address')
    const { address } = JSON.parse(serve.output()) as { address: string }
    const ask = async (path: string, init?: RequestInit) => (await fetch(`${address}${path}`, init)).text()
    const running = async () => (JSON.parse(await ask('/api/status')) as { running: unknown }).running
    while ((await running()) === null) await delay(50)
    const body = JSON.stringify({ from: '2026-03-30', to: '2026-03-31' })
    const headers = { authorization: 'Bearer a-token', 'content-type': 'application/json' }
    const { run_id } = JSON.parse(await ask('/api/backfills', { method: 'POST', headers, body })) as { run_id: number }
    expect(run_id).toBe(2)
    type Queue = { workers: unknown[]; waiting: number; active: number }
    const queue = async () => (JSON.parse(await ask('/api/status')) as { queue: Queue }).queue
    while (!((await queue()).waiting > 0 && (await queue()).active > 0)) await delay(50)
    expect(await queue()).toMatchObject({ workers: [{ concurrency: 2 }], dead: [] })
    const page = await ask('/')
    expect(page.match(/Running now/g)).toHaveLength(2)
    expect(page).toContain('1 worker.')
    expect(await ask('/metrics')).toContain('visibility_sync_workers 1')
    serve.child.kill('SIGTERM')
    expect((await serve.done).code).toBe(0)
  })

  test('that is told to stop takes its windows out of the queue and says what was not read', async () => {
    await begin({ config: { source: { max_window_days: 1 } }, faults: { rate_limit: null, latency_ms: 300 } })
    const backfill = start(['backfill', '--from', RANGE.from, '--to', RANGE.to])
    await backfill.saw('run started')
    await untilTaken()
    backfill.child.kill('SIGTERM')
    const result = await backfill.done
    expect(result.code).toBe(1)
    expect(result.json().outcome).toBe('interrupted')
    expect(result.json().streams.some(({ failed }: { failed: unknown[] }) => failed.length > 0)).toBe(true)
    const left = await setup.database.rows(
      "select 1 from visibility_queue.job where name = 'windows' and state <= 'active'",
    )
    expect(left).toEqual([])
  })

  test.each([
    ['one process alone', 'none'],
    ['a queue', 'pg-boss'],
  ] as const)('is not harmed by lost connections to the database, with %s', async (_, mode) => {
    await begin({
      config: { source: { max_window_days: 2 }, queue: { mode } },
      faults: { rate_limit: null, latency_ms: 30 },
    })
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

  test('does not wait for projects whose requests are spent, while others have some', async () => {
    await begin({ world: { ...SMALL, projects: 6 }, config: { source: { concurrency: 2 } } })
    await migrate(setup.database.warehouse, setup.config)
    const [free, ...spent] = setup.projects.map(({ id }) => id)
    await setup.database.rows(
      `insert into visibility_ops.budgets (project_id, per_minute, told_at, remaining, resets_at)
       select id, 200, now(), 0, now() + interval '1 hour' from unnest(array[${spent.map((id) => `'${id}'`)}]) id`,
    )
    const sync = start(['sync'])
    await sync.saw('run started')
    const read = () => setup.database.rows('select project_id, stream from visibility_ops.coverage group by 1, 2')
    const streams = setup.config.streams.length + setup.config.reports.length
    while ((await read().catch(() => [])).length < streams) await delay(50)
    expect(new Set((await read()).map(({ project_id }) => project_id))).toEqual(new Set([free]))
    // Their windows stay in the queue, and are not blamed for the wait.
    const [{ retried, waiting }] = (await setup.database.rows(
      `select count(*) filter (where retry_count > 0) as retried, count(distinct data->>'project') as waiting
       from visibility_queue.job where name = 'windows' and state <= 'active' and data->>'project' <> '${free}'`,
    )) as [{ retried: number; waiting: number }]
    expect({ retried, waiting }).toEqual({ retried: 0, waiting: spent.length })
    sync.child.kill('SIGTERM')
    expect((await sync.done).json().outcome).toBe('interrupted')
  })

  test('that dies while it puts its windows in puts none in', async () => {
    await begin({ config: { start_date: '2024-01-01', source: { max_window_days: 1 } } })
    const boss = await openBoss(setup.database.warehouse, quiet)
    closing.push(() => boss.close())
    // Its windows come in batches; the last of them never end.
    await setup.database.rows(
      `create function visibility_queue.stall() returns trigger language plpgsql as
       $$ begin perform pg_sleep(60); return new; end $$`,
    )
    await setup.database.rows(
      `create trigger stall before insert on visibility_queue.job for each row
       when (new.data->>'stream' = 'by_topic') execute function visibility_queue.stall()`,
    )
    const sync = start(['sync'])
    const stalled = () =>
      setup.database.rows(
        `select pid from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`,
      )
    while (!(await stalled()).length) await delay(50)
    sync.child.kill('SIGKILL')
    await sync.done
    while ((await stalled()).length) await delay(50)
    expect(await setup.database.rows("select 1 from visibility_queue.job where name = 'windows'")).toEqual([])
  })

  test('is done by its own kind: workers of another service, or without a project, leave its windows alone', async () => {
    await begin({ world: { ...SMALL, projects: 2 } })
    const [first, second] = setup.projects.map(({ id }) => id)
    const other = await setUp({ world: { ...SMALL, projects: 2, brands: 5 } })
    closing.push(() => other.close())
    // The same project ids at another address, and a worker that knows only one of them.
    for (const env of [{ VISIBILITY_API_URL: other.service.url }, { VISIBILITY_PROJECTS: first! }]) {
      await start(['worker'], env).saw('worker_id')
    }
    const both = await Promise.all([first!, second!].map((id) => runCli(['sync', '--project', id, '--json'], cli())))
    expect(both.map((result) => result.json().outcome)).toEqual(['complete', 'complete'])
    expect(other.service.requests).toEqual([])
    await expectExact(setup.database, truth())
  })

  test('does not believe a worker about the key', async () => {
    await begin()
    await start(['worker'], { VISIBILITY_API_KEY: 'an-old-one' }).saw('worker_id')
    const result = await runCli(['sync', '--json'], cli())
    expect(result.json().outcome).toBe('complete')
    await expectExact(setup.database, truth())
  })

  test('gives up a stream that the service refuses as soon as one process does', async () => {
    await begin({ config: { streams: ['chats'], reports: [] } })
    const proxy = await startProxy(setup.service.url, (message) => message.url!.includes('/chats'), 422)
    closing.push(() => proxy.close())
    const env = { VISIBILITY_API_URL: proxy.url }
    const queued = await runCli(['sync', '--json'], cli(env))
    const config = { ...setup.fileConfig, queue: { mode: 'none' } }
    const alone = await runCli(['sync', '--json'], { env: { ...setup.env, ...env }, config })
    const requests = (result: typeof alone) => result.json().streams[0].requests
    expect([queued.code, requests(queued)]).toEqual([1, requests(alone)])
  })

  test('that was killed leaves nothing behind that lets deletions through', async () => {
    await begin({ faults: { rate_limit: null, latency_ms: 5000 } })
    const backfill = start(['backfill', '--from', RANGE.from, '--to', RANGE.to, '--accept-deletes'])
    await backfill.saw('run started')
    const waiting = () =>
      setup.database.rows("select 1 from visibility_queue.job where data->>'accept_deletes' = 'true'")
    while (!(await waiting().catch(() => [])).length) await delay(50)
    backfill.child.kill('SIGKILL')
    await backfill.done
    setup.service.setFaults({ rate_limit: null })
    // Until then the dead run passes for one that just began.
    await setup.database.rows("update visibility_ops.runs set started_at = started_at - interval '1 minute'")
    expect((await runCli(['sync', '--json'], cli())).json().outcome).toBe('complete')
    const left = await setup.database.rows(
      "select 1 from visibility_queue.job where data->>'accept_deletes' = 'true' and state <> 'active'",
    )
    expect(left).toEqual([])
  })

  test('stops at a wrong key, and leaves nothing in the queue', async () => {
    await begin()
    const result = await runCli(['sync', '--json'], cli({ VISIBILITY_API_KEY: 'wrong' }))
    expect(result.code).toBe(1)
    expect(result.json().outcome).toBe('failed')
    const left = await setup.database.rows("select 1 from visibility_queue.job where state <= 'active'")
    expect(left).toEqual([])
  })

  test('without one, nothing of it is made', async () => {
    await begin({ config: { queue: { mode: 'none' } } })
    await setup.sync()
    expect(await setup.database.rows("select 1 from pg_namespace where nspname = 'visibility_queue'")).toEqual([])
    expect((await runCli(['status', '--json'], cli())).json().queue).toBeNull()
  })
})

describe('jobs', () => {
  const job = (changes: Partial<WindowJob> = {}): WindowJob => ({
    runs: [1],
    command: 'sync',
    source: 'here',
    project: 'p',
    stream: 'chats',
    from: '2026-03-01',
    to: '2026-03-07',
    accept_deletes: false,
    lookback_from: '2026-03-25',
    recent_from: '2026-03-24',
    page_limit: 1000,
    ...changes,
  })
  const able = { source: 'here', projects: ['p', 'q'], streams: ['chats'] }
  const told = { result: { kind: 'shorten' as const }, seconds: 1, statuses: {}, pageLimit: 1000 }

  async function open() {
    await begin()
    await migrate(setup.database.warehouse, setup.config)
    const boss = await openBoss(setup.database.warehouse, quiet)
    closing.push(() => boss.close())
    const put = (...jobs: { data: WindowJob; priority: number }[]) =>
      inTransaction(boss.warehouse, async (tx) => {
        await lockEnqueuing(tx)
        await enqueue(tx, boss, jobs)
      })
    return { boss, put }
  }

  test('the same window due twice is one job, which tells both runs', async () => {
    const { boss, put } = await open()
    await put({ data: job(), priority: 1 }, { data: job({ from: '2026-03-02' }), priority: 0 })
    await put({ data: job({ runs: [2] }), priority: 5 })
    await put({ data: job({ runs: [2] }), priority: 5 })
    const all = await takeJobs(boss, 10, able)
    expect(all.length).toBe(2)
    const taken = all.find(({ data }) => data.from === job().from)
    expect(taken!.data).toEqual(job({ runs: [1, 2] }))
    await put({ data: job({ runs: [3] }), priority: 5 })
    expect(await takeJobs(boss, 10, able)).toEqual([])
    await inTransaction(boss.warehouse, (tx) => completeJob(tx, boss, taken!, told))
    const runs = await setup.database.rows('select run_id from visibility_ops.window_results order by 1')
    expect(runs).toEqual([{ run_id: 1 }, { run_id: 2 }, { run_id: 3 }])
    // Where deletions are let through it is not the same work.
    await put({ data: job(), priority: 1 }, { data: job({ accept_deletes: true }), priority: 1 })
    expect((await takeJobs(boss, 10, able)).length).toBe(2)
  })

  test('those of a sync are taken before those of a backfill, in their order', async () => {
    const { boss, put } = await open()
    const day = (number: number) => `2026-03-${String(number).padStart(2, '0')}`
    await put(...[1, 2, 3].map((n) => ({ data: job({ from: day(n), command: 'backfill' }), priority: -n })))
    await put(...[4, 5].map((n) => ({ data: job({ from: day(n) }), priority: 1_000_000_000 - n })))
    const order: string[] = []
    for (let index = 0; index < 5; index++) order.push((await takeJobs(boss, 1, able))[0]!.data.from!)
    expect(order).toEqual([4, 5, 1, 2, 3].map(day))
  })

  test('a late worker can neither end, keep nor give back what another took over', async () => {
    const { boss, put } = await open()
    await put({ data: job(), priority: 1 })
    const [late] = await takeJobs(boss, 1, able)
    await setup.database.rows(
      "update visibility_queue.job set started_on = now() - interval '1 hour' where name = 'windows'",
    )
    await keepAlive(boss, [late!])
    await setup.database.rows(
      "update visibility_queue.job set started_on = now() - interval '1 hour' where name = 'windows'",
    )
    await boss.api.expire()
    await setup.database.rows("update visibility_queue.job set start_after = now() - interval '1 second'")
    const [next] = await takeJobs(boss, 1, able)
    expect(next).toMatchObject({ id: late!.id, retries: late!.retries + 1 })
    const end = inTransaction(boss.warehouse, (tx) => completeJob(tx, boss, late!, told))
    await expect(end).rejects.toThrow('took this window over')
    await giveBack(boss, late!)
    expect(await takeJobs(boss, 1, able)).toEqual([])
    await inTransaction(boss.warehouse, (tx) => completeJob(tx, boss, next!, told))
    expect(await setup.database.rows('select run_id from visibility_ops.window_results')).toHaveLength(1)
  })

  test('one whose workers vanish again and again is set aside', async () => {
    const { boss, put } = await open()
    await put({ data: job(), priority: 1 })
    for (let time = 0; time < 4; time++) {
      expect(await takeJobs(boss, 1, able)).toHaveLength(1)
      await setup.database.rows(
        "update visibility_queue.job set started_on = now() - interval '1 hour' where state = 'active'",
      )
      await boss.api.expire()
      await setup.database.rows(
        "update visibility_queue.job set start_after = now() - interval '1 second' where state < 'active'",
      )
    }
    expect(await takeJobs(boss, 1, able)).toEqual([])
    expect(await boss.api.getQueueSize(DEAD)).toBe(1)
    expect(await boss.api.getQueueSize(WINDOWS)).toBe(0)
  })
})

describe('the shared request budget', () => {
  test('lets ten processes read one project without a single 429, and uses what the service gives', async () => {
    await begin({ faults: { rate_limit: 30, rate_window_ms: 3000, latency_ms: 15 } })
    await migrate(setup.database.warehouse, setup.config)
    const id = setup.projects[0]!.id
    const clients = await Promise.all(
      Array.from({ length: 10 }, async () => {
        const warehouse = await connectWarehouse({ url: setup.database.url, schema: 'visibility', connections: 2 })
        const budgetFor = () => createSharedBudget(warehouse, id, 30, quiet)
        const client = createClient({ baseUrl: setup.service.url, compress: false, budgetFor })
        closing.push(() => warehouse.close())
        return client
      }),
    )
    let refused = 0
    const onAttempt = (status: number | undefined) => void (refused += status === 429 ? 1 : 0)
    await Promise.all(
      clients.map(async (client) => {
        for (let index = 0; index < 7; index++)
          await client.prompts({ key: COMPANY_KEY, projectId: id }, { limit: 10, offset: 0 }, { onAttempt })
      }),
    )
    for (const client of clients) client.close()
    expect(refused).toBe(0)
    expect(setup.service.requests.length).toBe(70)
  })

  test('follows the configured pace again where the service told its own too long ago', async () => {
    await begin()
    const { warehouse } = setup.database
    await migrate(warehouse, setup.config)
    const permit = await createSharedBudget(warehouse, 'p', 50, quiet).take()
    permit.learn({ limit: 2, remaining: 1, resetMs: 20 }, false)
    await delay(100)
    const limit = async () => {
      const budget = createSharedBudget(warehouse, 'p', 50, quiet)
      await budget.take()
      return budget.view().limit
    }
    expect(await limit()).toBe(2)
    await setup.database.rows("update visibility_ops.budgets set told_at = now() - interval '2 minutes'")
    expect(await limit()).toBe(50)
  })

  test('falls back to one of its own where the database cannot be asked', async () => {
    await begin()
    const log = { debug: () => {} } as never
    const broken = { opsSchema: 'x', pool: { query: () => Promise.reject(new Error('gone')) } } as never
    const budget = createSharedBudget(broken, 'p', 5, log)
    const permit = await budget.take()
    permit.learn({ remaining: 3, resetMs: 1000 }, false)
  })
})
