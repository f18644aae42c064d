import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from '@jest/globals'
import { PackedRows } from '../src/rows/packed-rows.ts'
import type { RunReport } from '../src/sync/run/report.ts'
import { connectWarehouse } from '../src/warehouse/connect.ts'
import { startEmbedded } from '../src/warehouse/embedded/server.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { runCli, startCli, startProcess, temporaryFolder } from './support/cli.ts'
import { longTest } from './support/long.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { startTcpProxy } from './support/tcp-proxy.ts'
import { expectExact } from './support/truth.ts'

/* Whatever ends a run, the next one makes the tables what an uninterrupted run would have made. */

let setup: Setup
afterEach(() => setup.close())

const range = { from: '2026-03-01', to: '2026-03-31' }
const start = async (options: SetupOptions = {}) => {
  setup = await setUp({
    world: { projects: 2, prompts: 7, models: 2, brands: 3 },
    faults: { ...NO_LIMIT, latency_ms: 60 },
    config: { lookback_days: 0 },
    ...options,
  })
}
const options = () => ({ env: { ...setup.env, LOG_FORMAT: 'json' }, config: setup.fileConfig })
const exact = () => expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
const runs = () =>
  setup.database.rows<{ outcome: string | null; error: string | null }>(
    'select outcome, error from visibility_ops.runs order by run_id',
  )

async function finish() {
  setup.service.setFaults(NO_LIMIT)
  const result = await runCli(['sync', '--json'], options())
  expect({ code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({ code: 0, stderr: '' })
  await exact()
}

test('a process killed with SIGKILL loses and doubles nothing, its lock dies with it, and loaded days are not read again', async () => {
  await start()
  const killed = startProcess(['sync'], options())
  await killed.saw('window loaded')
  killed.child.kill('SIGKILL')
  await killed.done
  const dated = ['chats', ...FOUR_GRAINS.map(({ name }) => name)]
  const read = () =>
    setup.database.rows<{ key: string; read_at: Date }>(
      `select concat_ws(' ', project_id, stream, date) as key, read_at from visibility_ops.coverage where stream = any($1)`,
      [dated],
    )
  const loaded = await read()
  expect(loaded.length).toBeGreaterThan(0)
  await setup.database.rows("update visibility_ops.runs set started_at = started_at - interval '1 minute'")
  await finish()
  expect(await read()).toEqual(expect.arrayContaining(loaded))
  expect(await runs()).toEqual([
    { outcome: 'interrupted', error: 'the process ended without closing the run' },
    { outcome: 'complete', error: null },
  ])
})

test('SIGTERM closes the run as interrupted, exits 1, and the next run completes it', async () => {
  await start()
  const stopped = startProcess(['sync'], options())
  await stopped.saw('window loaded')
  stopped.child.kill('SIGTERM')
  const result = await stopped.done
  expect(result.code).toBe(1)
  expect(result.stdout).toContain('interrupted')
  expect((await runs()).map(({ outcome }) => outcome)).toEqual(['interrupted'])
  await finish()
})

test.each([
  ['migrates', 'select pg_advisory_xact_lock(7265190401)'],
  ['looks up its source', 'lock table visibility_ops.source'],
])('a connection that is lost while a run %s is replaced', async (_, lock) => {
  await start({ faults: NO_LIMIT })
  const waiting = async () =>
    (
      await setup.database.rows<{ pid: number }>(
        "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
      )
    ).map(({ pid }) => pid)
  let done: Promise<RunReport> | undefined
  await inTransaction(setup.database.warehouse, async ({ client }) => {
    await client.query(lock)
    done = setup.sync({ streams: setup.services.streams.named(['prompts']) })
    let pids: number[] = []
    while (pids.length === 0) pids = await waiting()
    await setup.database.rows('select pg_terminate_backend(pid) from unnest($1::int[]) pid', [pids])
  })
  expect((await done!).outcome).toBe('complete')
})

test('a run whose lease was taken over stops, and says so', async () => {
  await start({ faults: { ...NO_LIMIT, latency_ms: 1500 } })
  const running = startCli(['sync', '--json'], options())
  await running.saw('run started')
  // As another run does that takes this one for dead.
  await setup.database.rows("update visibility_ops.runs set outcome = 'interrupted'")
  await setup.database.rows('delete from visibility_ops.run_leases')
  const result = await running.done
  expect(result.code).toBe(1)
  expect(result.json().error).toContain('another run took over')
  await finish()
})

test('the lease of a process that nobody can see is waited for until it expires, and then taken over', async () => {
  await start({ faults: NO_LIMIT })
  await setup.sync()
  // A run on another machine that fell silent: 40 of its 45 seconds are over.
  const [run] = await setup.database.rows<{ run_id: number }>(
    `insert into visibility_ops.runs (command, host, pid, version, source, process, lease_expires_at)
     values ('sync', 'elsewhere', 1, '0', '', 'other-boot/pid:[1]/1/1', now() + interval '5 seconds') returning run_id`,
  )
  await setup.database.rows(
    "insert into visibility_ops.run_leases select project_id, 'chats', $1, false from visibility.projects",
    [run!.run_id],
  )
  const result = await runCli(['sync', '--json'], options())
  expect([result.code, result.stderr]).toEqual([0, expect.stringContaining('waiting for the lease of a run')])
  expect(await setup.database.rows('select outcome from visibility_ops.runs where run_id = $1', [run!.run_id])).toEqual(
    [{ outcome: 'interrupted' }],
  )
})

test('a connection killed in the middle of a COPY fails that load and nothing else', async () => {
  await start()
  await setup.database.rows('create table target (project_id text, words text)')
  const rows = Array.from({ length: 50_000 }, (_, index) => [`${index} ${'x'.repeat(200)}`])
  for (const delay of [0, 5, 20, 60]) {
    const load = inTransaction(setup.database.warehouse, async ({ client }) => {
      const { rows: own } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
      setTimeout(
        () => void setup.database.rows('select pg_terminate_backend($1)', [own[0]!.pid]).catch(() => {}),
        delay,
      )
      await copyRows(client, 'target', PackedRows.of([{ name: 'words', type: 'text' }], 'p', rows))
      await client.query('select pg_sleep(1)')
    })
    await expect(load).rejects.toMatchObject({ code: expect.stringMatching(/^(transient|database-away)$/) })
  }
  expect(await setup.database.rows('select count(*)::int as n from target')).toEqual([{ n: 0 }])
})

describe('a database that goes away in the middle of a run', () => {
  /** A server of its own behind a proxy, which keeps the address when the server comes back on another port. */
  async function ownServer() {
    const folder = temporaryFolder()
    const data = join(folder.path, '.data')
    let server = await startEmbedded({ folder: data })
    const proxy = await startTcpProxy(server.url)
    return {
      env: { ...setup.env, DATABASE_URL: proxy.url },
      async restart() {
        proxy.refuse()
        process.kill(Number(readFileSync(join(data, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]), 'SIGINT')
        await server.release()
        server = await startEmbedded({ folder: data })
        proxy.retarget(server.url)
        proxy.resume()
      },
      async expectExact() {
        const warehouse = await connectWarehouse({ url: server.url, schema: 'visibility', connections: 2 })
        const rows = async (sql: string, values?: unknown[]) => (await warehouse.pool.query(sql, values)).rows as never
        await expectExact({ ...setup.database, rows }, { world: setup.service.world, range, reports: FOUR_GRAINS })
        await warehouse.close()
      },
      async close() {
        await proxy.close()
        await server.release()
        folder.remove()
      },
    }
  }

  test('comes back: the run goes on under the same lease, and ends complete', async () => {
    await start()
    const own = await ownServer()
    const running = startCli(['sync', '--json'], { env: own.env, config: setup.fileConfig })
    await running.saw('window loaded')
    await own.restart()
    const result = await running.done
    expect({ code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({ code: 0, stderr: '' })
    expect(result.json().outcome).toBe('complete')
    await own.expectExact()
    await own.close()
  })

  longTest('comes back: a run on the queue and its worker go on, and the run ends complete', async () => {
    await start({ config: { lookback_days: 0, queue: { mode: 'pg-boss' }, source: { max_window_days: 3 } } })
    const own = await ownServer()
    const options = { env: own.env, config: setup.fileConfig }
    const worker = startCli(['worker', '--json'], options)
    await worker.saw('worker_id')
    const running = startCli(['sync', '--json'], options)
    await worker.saw('window loaded by this worker')
    await own.restart()
    const result = await running.done
    expect({ code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({ code: 0, stderr: '' })
    expect(result.json().outcome).toBe('complete')
    worker.stop()
    expect((await worker.done).code).toBe(0)
    await own.expectExact()
    await own.close()
  })

  test('stays away for longer than the patience: the run ends, and says so', async () => {
    await start({ config: { lookback_days: 0, warehouse: { patience_seconds: 2 } } })
    const proxy = await startTcpProxy(setup.database.url)
    const env = { ...setup.env, DATABASE_URL: proxy.url }
    const running = startCli(['sync', '--json'], { env, config: setup.fileConfig })
    await running.saw('window loaded')
    proxy.refuse()
    const result = await running.done
    expect(result.code).toBe(1)
    expect(result.json().error).toMatch(/the database (has been away for \d+ s|is away)/)
    expect(['partial', 'failed']).toContain(result.json().outcome)
    await proxy.close()
  })
})

test('a full disk fails the windows it hits, keeps what was there, and the next run completes', async () => {
  await start()
  await setup.sync({
    streams: setup.services.streams.named(['by_topic']),
    range: { from: '2026-03-30', to: '2026-03-31' },
  })
  await setup.database.rows(
    "create function visibility.full() returns trigger language plpgsql as $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$",
  )
  await setup.database.rows(
    'create trigger full_disk before insert on visibility.by_topic for each row execute function visibility.full()',
  )
  const result = await runCli(['sync', '--json'], options())
  expect(result.code).toBe(1)
  expect(result.json().outcome).toBe('partial')
  expect(
    result
      .json()
      .streams.filter((stream: any) => stream.failed.length > 0)
      .every((stream: any) => stream.stream === 'by_topic' && stream.failed[0].error.includes('No space left')),
  ).toBe(true)
  expect(await setup.database.rows('select count(*)::int as n from visibility.by_topic')).toEqual([
    { n: 2 * 2 * 7 * 3 },
  ])
  await setup.database.rows('drop trigger full_disk on visibility.by_topic')
  await finish()
})

describe('overlap', () => {
  test('of two syncs at once one exits 3 and names the other, and the tables are exact', async () => {
    await start({ faults: { ...NO_LIMIT, latency_ms: 400 } })
    const first = startCli(['sync'], options())
    await first.saw('run started')
    const second = await runCli(['backfill', '--from', '2026-03-01', '--to', '2026-03-31', '--json'], options())
    expect(second.code).toBe(3)
    expect(second.json().error).toMatchObject({
      code: 'locked',
      message: expect.stringMatching(/is being synced by run 1 \(sync, since .*, process \d+ on /),
    })
    expect((await first.done).code).toBe(0)
    await exact()
    expect((await runs()).map(({ outcome }) => outcome)).toEqual(['complete'])
  })

  test('an answer that was asked for before a newer one is not written over it', async () => {
    await start({ world: { projects: 1, prompts: 7, models: 2, brands: 3 }, faults: NO_LIMIT })
    await setup.sync()
    const day = { from: '2026-03-31', to: '2026-03-31' }
    const streams = setup.services.streams.named(['by_model'])
    // A read that began now, and is loaded only after a newer one.
    setup.service.setFaults({ ...NO_LIMIT, latency_ms: 1500 })
    const lastRead = async () => (await setup.database.rows('select last_value from visibility_ops.read_order'))[0]
    const before = await lastRead()
    const slow = setup.sync({ command: 'backfill', range: day, streams })
    while (JSON.stringify(await lastRead()) === JSON.stringify(before))
      await new Promise((done) => setTimeout(done, 20))
    // The lock is bypassed, as if its connection had been lost.
    await setup.database.rows(
      "update visibility_ops.coverage set read_order = nextval('visibility_ops.read_order') where stream = 'by_model' and date = '2026-03-31'",
    )
    await setup.database.rows("update visibility.by_model set mention_count = 4711 where date = '2026-03-31'")
    const report = await slow
    expect(report.outcome).toBe('failed')
    expect(report.streams[0]!.failed[0]!.error).toContain('a newer read was loaded meanwhile')
    expect(
      await setup.database.rows("select distinct mention_count from visibility.by_model where date = '2026-03-31'"),
    ).toEqual([{ mention_count: 4711 }])
  })
})
