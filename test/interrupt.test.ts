import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from '@jest/globals'
import { PackedRows } from '../src/rows/packed-rows.ts'
import type { Warehouse } from '../src/warehouse/connect.ts'
import { startEmbedded } from '../src/warehouse/embedded/server.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import { isTransient, withRetries } from '../src/warehouse/retry.ts'
import { inTransaction, LONG_WORK, type Transaction } from '../src/warehouse/transaction.ts'
import { runCli, startCli, startProcess, temporaryFolder, until } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { longTest } from './support/long.ts'
import { openWarehouse } from './support/postgres.ts'
import { startTcpProxy, type TcpProxy } from './support/proxy.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

describe('what ends a run', () => {
  /* Whatever ends a run, the next one makes the tables what an uninterrupted run would have made. */

  let setup: Setup

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

  test('SIGKILL loses and duplicates nothing, the lock is released, and loaded days are not read again', async () => {
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

  test('a connection killed in the middle of a COPY fails that load and nothing else', async () => {
    await start()
    await setup.database.rows('create table target (project_id text, words text)')
    const rows = Array.from({ length: 50_000 }, (_, index) => [`${index} ${'x'.repeat(200)}`])
    for (const delay of [0, 20]) {
      const load = inTransaction(setup.database.warehouse, async (tx) => {
        const { client } = tx
        const { rows: own } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
        setTimeout(
          () => void setup.database.rows('select pg_terminate_backend($1)', [own[0]!.pid]).catch(() => {}),
          delay,
        )
        await copyRows(tx, 'target', PackedRows.of([{ name: 'words', type: 'text' }], 'p', rows))
        await client.query('select pg_sleep(1)')
      })
      await expect(load).rejects.toMatchObject({ code: expect.stringMatching(/^(transient|database-away)$/) })
    }
    expect(await setup.database.rows('select count(*)::int as n from target')).toEqual([{ n: 0 }])
  })

  test('a run whose lease was taken over stops, and reports it', async () => {
    await start({ faults: { ...NO_LIMIT, latency_ms: 1500 } })
    const running = startCli(['sync', '--json'], options())
    await running.saw('run started')
    // As another run does that takes this one for dead.
    await setup.database.rows("update visibility_ops.runs set outcome = 'interrupted'")
    await setup.database.rows('delete from visibility_ops.run_leases')
    const result = await running.done
    expect(result.code).toBe(1)
    const { error, reason } = result.json()
    expect(error).toContain('another run took over')
    expect(reason).toBe(`A${error.slice(1)}.`)
  })

  test('the lease of a process that cannot be seen is taken over once it expires', async () => {
    await start({ faults: NO_LIMIT })
    await setup.sync()
    // A run on another machine that fell silent: 43 of its 45 seconds are over.
    const [run] = await setup.database.rows<{ run_id: number }>(
      `insert into visibility_ops.runs (command, host, pid, version, source, process, lease_expires_at)
     values ('sync', 'elsewhere', 1, '0', '', 'other-boot/pid:[1]/1/1', now() + interval '2 seconds') returning run_id`,
    )
    await setup.database.rows(
      "insert into visibility_ops.run_leases select project_id, 'chats', $1, false from visibility.projects",
      [run!.run_id],
    )
    const result = await runCli(['sync', '--json'], options())
    expect([result.code, result.stderr]).toEqual([0, expect.stringContaining('waiting for the lease of a run')])
    expect(
      await setup.database.rows('select outcome from visibility_ops.runs where run_id = $1', [run!.run_id]),
    ).toEqual([{ outcome: 'interrupted' }])
  })

  describe('a database that goes away in the middle of a run', () => {
    /** A server of its own behind a proxy, which keeps the address when the server comes back on another port. */
    async function ownServer() {
      const folder = temporaryFolder()
      const data = join(folder.path, '.data')
      let server = await startEmbedded({ folder: data })
      closeLater(() => server.release())
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
          const warehouse = await openWarehouse(server.url)
          const rows = async (sql: string, values?: unknown[]) =>
            (await warehouse.pool.query(sql, values)).rows as never
          await expectExact({ ...setup.database, rows }, { world: setup.service.world, range, reports: FOUR_GRAINS })
        },
      }
    }

    test('comes back: the run continues under the same lease, and ends complete', async () => {
      await start()
      const own = await ownServer()
      const running = startCli(['sync', '--json'], { env: own.env, config: setup.fileConfig })
      await running.saw('window loaded')
      await own.restart()
      const result = await running.done
      expect({ code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({ code: 0, stderr: '' })
      expect(result.json().outcome).toBe('complete')
      await own.expectExact()
    })
  })

  test('a database that is lost at the start of a run is waited for, whichever statement it is', async () => {
    await start()
    const proxy = await startTcpProxy(setup.database.url)
    const run = (...args: string[]) =>
      runCli(args, { env: { ...setup.env, DATABASE_URL: proxy.url }, config: setup.fileConfig })
    await run('sync')
    const first = ['set timezone = UTC', 'server_version_num']
    for (const [args, statements] of [
      [['sync'], [...first, 'pg_advisory_xact_lock(7265190401)', 'run leases', 'into "visibility_ops"."runs"']],
      [
        ['quarantine', 'retry'],
        [...first, 'to_regclass', 'pg_advisory_xact_lock(7265190401)', 'quarantine_id'],
      ],
    ] as const) {
      for (const text of statements) {
        proxy.loseAt(text)
        const { code, stderr } = await run(...args)
        expect([args, text, code, stderr.match(/visibility-sync:.*/)?.[0]]).toEqual([args, text, 0, undefined])
      }
    }
  })

  test('a full disk fails the windows it affects, keeps the rows that were there, and the next run completes', async () => {
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

  test('a run whose end cannot be written is reported all the same, and keeps out no other', async () => {
    await start()
    const { rows } = setup.database
    await rows(
      "create function visibility.full() returns trigger language plpgsql as $$ begin raise exception 'No space left on device' using errcode = '53100'; end $$",
    )
    await rows(
      'create trigger full_disk before update of outcome on visibility_ops.runs for each row execute function visibility.full()',
    )
    const result = await runCli(['sync', '--json'], options())
    expect([result.code, result.json().outcome]).toEqual([0, 'complete'])
    expect(result.stderr).toContain('the run could not be closed')
    await rows('drop trigger full_disk on visibility_ops.runs')
    await finish()
  })

  describe('overlap', () => {
    test('of two syncs at once one exits 3 and names the other, and the tables are exact', async () => {
      await start({ faults: { ...NO_LIMIT, latency_ms: 200 } })
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
      setup.service.setFaults({ ...NO_LIMIT, latency_ms: 800 })
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
})

describe('frozen connections', () => {
  /* A network that swallows packets without a word: nothing fails by itself, so everything has a deadline. */

  let setup: Setup
  let proxy: TcpProxy
  afterEach(() => proxy.resume())

  async function begin(faults = NO_LIMIT): Promise<Warehouse> {
    setup = await setUp({ world: { projects: 1, prompts: 3, models: 2, brands: 2 }, faults })
    proxy = await startTcpProxy(setup.database.url)
    return openWarehouse(proxy.url)
  }

  describe('a frozen connection', () => {
    test('is given up by each kind of query, and the pool replaces it', async () => {
      const warehouse = await begin()
      await setup.database.rows('create table target (project_id text, words text)')
      const rows = PackedRows.of([{ name: 'words', type: 'text' }], 'p', [['a']])
      const asks = [
        () => warehouse.pool.query('select 1'),
        () => warehouse.db.selectNoFrom((all) => all.lit(1).as('one')).execute(),
        () => inTransaction(warehouse, async ({ client }) => proxy.freeze() ?? client.query('select 1')),
        () => inTransaction(warehouse, async ({ db }) => proxy.freeze() ?? db.selectFrom('ops.runs').execute()),
        () =>
          inTransaction(warehouse, async (tx) => {
            const { client } = tx
            const query = client.query.bind(client)
            client.query = ((copy: object) => query(Object.assign(copy, { query_timeout: 300 }) as never)) as never
            proxy.freeze()
            await copyRows(tx, 'target', rows)
          }),
      ]
      for (const [index, ask] of asks.entries()) {
        Object.assign(warehouse.pool.options, { query_timeout: 10_000, max: 1 })
        const { rows: before } = await warehouse.pool.query('select pg_backend_pid() as pid')
        Object.assign(warehouse.pool.options, { query_timeout: 300 })
        if (index < 2) proxy.freeze()
        const error = await ask().catch((failure: unknown) => failure)
        expect([index, isTransient(error)]).toEqual([index, true])
        proxy.resume()
        Object.assign(warehouse.pool.options, { query_timeout: 10_000 })
        const { rows: after } = await warehouse.pool.query('select pg_backend_pid() as pid')
        expect(after).not.toEqual(before)
      }
    })

    test('in work that may take long is given up once the command is stopped', async () => {
      const warehouse = await begin()
      const work = async ({ client }: Transaction) => {
        proxy.stall()
        warehouse.hurry()
        await client.query('select 1')
      }
      await expect(inTransaction(warehouse, work, undefined, LONG_WORK)).rejects.toMatchObject({
        code: 'database-away',
      })
      expect((await warehouse.pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
    })

    test('of a process that is gone is noticed by the server, which ends its transaction and locks', async () => {
      const warehouse = await begin()
      const found = await inTransaction(warehouse, async ({ client }) => {
        const { rows } = await client.query<{ name: string; setting: string; unit: string }>(
          `select name, setting, unit from pg_settings where name in ('idle_in_transaction_session_timeout', 'statement_timeout',
             'client_connection_check_interval', 'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout')`,
        )
        return Object.fromEntries(rows.map(({ name, setting, unit }) => [name, `${setting} ${unit ?? 'times'}`]))
      })
      expect(found).toEqual({
        idle_in_transaction_session_timeout: '25000 ms',
        statement_timeout: '600000 ms',
        client_connection_check_interval: '2000 ms',
        tcp_keepalives_idle: '10 s',
        tcp_keepalives_interval: '5 s',
        tcp_keepalives_count: '3 times',
        tcp_user_timeout: '25000 ms',
      })
    })

    longTest('of a process that is gone between two statements keeps no lock', async () => {
      const warehouse = await begin()
      await setup.database.rows('create table target (words text)')
      const gone = inTransaction(warehouse, async ({ client }) => {
        await client.query('lock table target in exclusive mode')
        proxy.stall()
        await client.query('select 1')
      })
      const lock = () =>
        inTransaction(warehouse, ({ client }) => client.query('lock table target in exclusive mode'), undefined, {
          lockTimeoutMs: 200,
        })
      await expect(withRetries(warehouse, undefined, lock)).resolves.toBeDefined()
      await expect(gone).rejects.toMatchObject({ code: 'database-away' })
    })
  })

  test('SIGTERM ends a sync whose connections are all frozen', async () => {
    await begin({ ...NO_LIMIT, latency_ms: 100 })
    const sync = startProcess(['sync', '--json'], {
      env: { ...setup.env, DATABASE_URL: proxy.url },
      config: { ...setup.fileConfig, source: { max_window_days: 1, requests_per_minute: 100_000 } },
    })
    await sync.saw('window loaded')
    proxy.freeze()
    sync.child.kill('SIGTERM')
    // The time after which an orchestrator kills.
    const killer = setTimeout(() => void sync.child.kill('SIGKILL'), 30_000)
    const result = await sync.done
    clearTimeout(killer)
    expect([result.code, result.json().outcome]).toEqual([1, 'interrupted'])
  })

  test('SIGTERM ends an audit that waits for the database', async () => {
    await begin()
    await setup.sync()
    // Its sums may take ten minutes, and get no answer.
    const holder = await setup.database.warehouse.pool.connect()
    await holder.query('begin; lock table visibility.by_prompt in access exclusive mode')
    const audit = startProcess(['audit', '--json'], { env: setup.env, config: setup.fileConfig })
    const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
      and application_name like 'visibility-sync%'`
    await until('the audit waits for the lock', async () => (await setup.database.rows(waiting)).length > 0)
    audit.child.kill('SIGTERM')
    const killer = setTimeout(() => void audit.child.kill('SIGKILL'), 30_000)
    const { code } = await audit.done
    clearTimeout(killer)
    await holder.query('rollback')
    holder.release()
    expect(code).toBe(1)
  })
})
