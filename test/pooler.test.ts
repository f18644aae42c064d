import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { OverloadedError, TimeLimitError, TransientError } from '../src/core/errors.ts'
import { connectWarehouse, type Warehouse } from '../src/warehouse/connect.ts'
import { createSidePool, type SidePool, type SidePoolOptions } from '../src/warehouse/side-pool.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { Cache } from '../src/web/cache.ts'
import { runCli, startCli } from './support/cli.ts'
import { some } from './support/long.ts'
import { hasPgBouncer, PGBOUNCER, type PgBouncer, startPgBouncer } from './support/pgbouncer.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { until } from './support/serve.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.ts'
import { expectExact } from './support/truth.ts'

/* Everything behind a pooler that hands each transaction another connection of the server. */

if (!hasPgBouncer) {
  const reason = `pooler tests need PgBouncer at ${PGBOUNCER} (apt-get install pgbouncer, or set PGBOUNCER)`
  if (process.env.REQUIRE_PGBOUNCER === '1') throw new Error(reason)
  process.stderr.write(`skipped: ${reason}\n`)
}
const behindPooler = hasPgBouncer ? describe : describe.skip

behindPooler('PgBouncer in transaction mode', () => {
  let setup: Setup
  let pooler: PgBouncer
  const range = { from: '2026-03-01', to: '2026-03-31' }

  async function start(poolSize: number, faults = NO_LIMIT) {
    setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 }, faults })
    pooler = await startPgBouncer(setup.database.url, poolSize)
  }
  const cli = () => ({ env: { ...setup.env, DATABASE_URL: pooler.url, LOG_FORMAT: 'json' }, config: setup.fileConfig })

  afterEach(async () => {
    await pooler.close()
    await setup.close()
  })

  test.each(some([1, 8], 1))(
    'a pool of %d: commands one after the other do not lock each other out, and rows are exact',
    async (size) => {
      await start(size)
      for (const command of [['sync'], ['backfill', ...days], ['audit', '--repair'], ['sync'], ['status'], ['check']]) {
        const result = await runCli([...command, '--json'], cli())
        expect({ command, code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({
          command,
          code: 0,
          stderr: '',
        })
      }
      await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    },
  )
  const days = ['--from', '2026-03-01', '--to', '2026-03-31']

  test.each(some([1, 8], 1))(
    'a pool of %d: a run on the queue and a worker share it, and rows are exact',
    async (size) => {
      await start(size)
      const queued = { ...cli(), config: { ...setup.fileConfig, queue: { mode: 'pg-boss' } } }
      const worker = startCli(['worker', '--json'], queued)
      await worker.saw('worker_id')
      const result = await runCli(['sync', '--json'], queued)
      expect({ code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({ code: 0, stderr: '' })
      worker.stop()
      expect((await worker.done).code).toBe(0)
      await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    },
  )

  test.each(some([1, 8], 1))('a pool of %d: of two backfills at once one exits 3', async (size) => {
    await start(size, { ...NO_LIMIT, latency_ms: 300 })
    const first = startCli(['backfill', ...days], cli())
    await first.saw('run started')
    const second = await runCli(['backfill', ...days], cli())
    expect([second.code, second.stderr]).toEqual([3, expect.stringContaining('is being synced by run 1')])
    expect((await first.done).code).toBe(0)
  })

  test.each(some([1, 8], 1))(
    'a pool of %d: two commands that create the same prompt at once create it once',
    async (size) => {
      await start(size)
      const [project] = setup.service.world.projects
      const args = [
        'create',
        'prompt',
        '--project',
        project!.id,
        '--text',
        'Which one is made once?',
        '--country',
        'DE',
      ]
      await Promise.all([runCli(args, cli()), runCli(args, cli()), runCli(args, cli())])
      expect(project!.prompts.filter(({ text }) => text === 'Which one is made once?')).toHaveLength(1)
    },
  )

  test('settings and temporary tables do not leak to other clients', async () => {
    await start(1)
    const other = new Client({ connectionString: pooler.url })
    await other.connect()
    const settings = async () => {
      const { rows } = await other.query(
        `select name, setting from pg_settings where name in ('jit', 'lock_timeout', 'timezone', 'datestyle',
           'client_min_messages', 'idle_in_transaction_session_timeout', 'client_connection_check_interval') order by 1`,
      )
      const { rows: temporary } = await other.query("select relname from pg_class where relname like 'stage\\_%'")
      return { rows, temporary }
    }
    await other.query("set timezone = 'Asia/Tokyo'")
    const before = await settings()
    expect((await runCli(['sync'], cli())).code).toBe(0)
    expect(await settings()).toEqual({ ...before, temporary: [] })
    await other.end()
  })

  test('a direct connection is told from a pooled one', async () => {
    await start(2)
    const options = { schema: 'visibility', connections: 2 }
    const pooled = await connectWarehouse({ ...options, url: pooler.url })
    const setting = await inTransaction(pooled, ({ client }) => client.query('show lock_timeout'))
    expect([pooled.isPooled, setup.database.warehouse.isPooled, setting.rows]).toEqual([
      true,
      false,
      [{ lock_timeout: '25s' }],
    ])
    await pooled.close()
  })
})

describe('the pool of pages', () => {
  let database: TestDatabase
  let proxy: TcpProxy
  let warehouse: Warehouse
  let pool: SidePool
  beforeEach(async () => {
    database = await createDatabase()
    proxy = await startTcpProxy(database.url)
    warehouse = await connectWarehouse({ url: proxy.url, schema: 'visibility', connections: 2 })
  })
  afterEach(async () => {
    pool.close()
    await warehouse.close()
    await proxy.close()
    await database.drop()
  })

  function open(options: Partial<SidePoolOptions> = {}): void {
    pool = createSidePool(warehouse, {
      name: 'side pool of a test',
      connections: 2,
      waiting: 2,
      patienceMs: 10_000,
      limitMs: 5000,
      ...options,
    })
  }
  const ask = <T>(sql: string) => pool.read(async (bound) => (await bound.pool.query(sql)).rows[0] as T)

  test('a look changes nothing, sees one state, and leaves nothing set for whoever has the connection next', async () => {
    open({ connections: 1 })
    await database.rows('create table notes (text text)')
    await pool.read(async (bound) => {
      const count = async () => (await bound.pool.query('select count(*)::int as n from notes')).rows[0].n
      expect(await count()).toBe(0)
      await database.rows("insert into notes values ('new')")
      expect(await count()).toBe(0)
      const { rows } = await bound.pool.query(
        "select current_setting('statement_timeout') as limit, current_setting('TimeZone') as zone",
      )
      expect(rows[0]).toEqual({ limit: '5s', zone: 'UTC' })
      // At once, as `Promise.all` over several statements asks.
      const both = await Promise.all([bound.pool.query('select 1 as n'), bound.pool.query('select 2 as n')])
      expect(both.map(({ rows: [row] }) => row.n)).toEqual([1, 2])
    })
    await expect(pool.read((bound) => bound.pool.query("insert into notes values ('x')"))).rejects.toThrow('read-only')
    await pool.write((bound) => bound.pool.query("insert into notes values ('y')"))
    await expect(
      pool.write(async (bound) => {
        await bound.pool.query("insert into notes values ('z')")
        throw new Error('changed my mind')
      }),
    ).rejects.toThrow('changed my mind')
    expect(await database.rows('select text from notes order by 1')).toEqual([{ text: 'new' }, { text: 'y' }])
    // The server learns of a connection that was closed when it next listens.
    await until(async () => {
      const left = await database.rows(
        "select 1 from pg_stat_activity where application_name = 'side pool of a test' and state like '%transaction%'",
      )
      return left.length === 0
    })
  })

  test('what takes too long is ended, and those who come after are served', async () => {
    open({ connections: 1, limitMs: 3000 })
    await expect(ask('select pg_sleep(60)')).rejects.toThrow(TimeLimitError)
    await expect(
      pool.read(async (bound) => {
        for (;;) await bound.pool.query('select pg_sleep(0.1)')
      }),
    ).rejects.toThrow(TimeLimitError)
    expect(await ask('select 1 as n')).toEqual({ n: 1 })
  })

  test('more who look than can wait are turned away at once, and those who waited too long as well', async () => {
    open({ patienceMs: 300 })
    const slow = [ask('select pg_sleep(2)'), ask('select pg_sleep(2)')]
    const waiting = [ask('select 1'), ask('select 1')]
    await expect(ask('select 1')).rejects.toThrow(OverloadedError)
    for (const one of waiting) await expect(one).rejects.toThrow(OverloadedError)
    await Promise.all(slow)
    expect(await ask('select 1 as n')).toEqual({ n: 1 })
  })

  test('a database that is away or lost in the network is an error that may pass, and it does', async () => {
    open({ limitMs: 1000 })
    expect(await ask('select 1 as n')).toEqual({ n: 1 })
    proxy.refuse()
    await expect(ask('select 1')).rejects.toThrow(TransientError)
    proxy.resume()
    expect(await ask('select 1 as n')).toEqual({ n: 1 })
    proxy.freeze()
    await expect(ask('select 1')).rejects.toThrow(TimeLimitError)
    await expect(ask('select 1')).rejects.toThrow(TransientError)
    proxy.resume()
    expect(await ask('select 1 as n')).toEqual({ n: 1 })
  })

  test('closing does not wait for what is being read, nor for a network that lost its way', async () => {
    open()
    const reading = ask('select pg_sleep(60)').catch((error: unknown) => error)
    await new Promise((done) => setTimeout(done, 200))
    proxy.freeze()
    pool.close()
    expect(await reading).toBeInstanceOf(TransientError)
    // The connections of the warehouse itself are closed after the test, through the same network.
  })

  test('a value is read once within its time to live, again after it, after a failure and after a clear', async () => {
    open()
    let now = 0
    let reads = 0
    const cache = new Cache(() => now)
    let finish: (value: number) => void = () => {}
    const read = () => {
      reads++
      return new Promise<number>((done) => {
        finish = done
      })
    }
    const first = Array.from({ length: 50 }, () => cache.get('a', 1000, read))
    // Whoever asks while it is being read waits for it, however long that takes.
    now = 5000
    const late = cache.get('a', 1000, read)
    finish(1)
    expect(new Set(await Promise.all([...first, late]))).toEqual(new Set([1]))
    now = 5999
    expect(await cache.get('a', 1000, read)).toBe(1)
    expect(reads).toBe(1)
    now = 6000
    expect(await cache.get('a', 1000, async () => 2)).toBe(2)
    cache.clear()
    await expect(cache.get('a', 1000, () => Promise.reject(new Error('no')))).rejects.toThrow('no')
    expect(await cache.get('a', 1000, async () => 3)).toBe(3)
    // The least recently read of too many makes room.
    for (let key = 0; key < 128; key++) await cache.get(`${key}`, 1000, async () => key)
    expect(await cache.get('a', 1000, async () => 4)).toBe(4)
  })
})
