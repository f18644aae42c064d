import { chmodSync, chownSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { Client } from 'pg'
import { loadConfig } from '../src/core/config/load.ts'
import { OverloadedError, TimeLimitError, TransientError, UsageError } from '../src/core/errors.ts'
import type { Warehouse } from '../src/warehouse/connect.ts'
import { databaseFailure } from '../src/warehouse/database-failure.ts'
import { type EmbeddedPostgres, startEmbedded } from '../src/warehouse/embedded/server.ts'
import { withRetries } from '../src/warehouse/retry.ts'
import { createSidePool, type SidePool, type SidePoolOptions } from '../src/warehouse/side-pool.ts'
import { selfSigned } from './support/certificate.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { sized } from './support/long.ts'
import {
  createDatabase,
  hasPgBouncer,
  openWarehouse,
  PGBOUNCER,
  type PgBouncer,
  serverUrl,
  startPgBouncer,
  type TestDatabase,
} from './support/postgres.ts'
import { startTcpProxy, type TcpProxy } from './support/proxy.ts'
import { until } from './support/serve.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* Everything behind a pooler that hands each transaction another connection of the server. */

if (!hasPgBouncer) {
  const reason = `pooler tests need PgBouncer at ${PGBOUNCER} (apt-get install pgbouncer, or set PGBOUNCER)`
  if (process.env.REQUIRE_PGBOUNCER === '1') throw new Error(reason)
  process.stderr.write(`skipped: ${reason}\n`)
}
const behindPooler = hasPgBouncer ? describe : describe.skip

behindPooler('behind PgBouncer', () => {
  let setup: Setup
  let pooler: PgBouncer
  const range = { from: '2026-03-01', to: '2026-03-31' }

  async function start(poolSize: number, { faults = NO_LIMIT, mode = 'transaction' } = {}) {
    setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 }, faults })
    pooler = await startPgBouncer(setup.database.url, poolSize, mode)
  }
  const cli = () => ({ env: { ...setup.env, DATABASE_URL: pooler.url, LOG_FORMAT: 'json' }, config: setup.fileConfig })

  test('in a pool of one connection, commands one after the other do not lock each other out, and rows are exact', async () => {
    await start(1)
    for (const command of [['sync'], ['audit', '--repair'], ['sync'], ['status'], ['check']]) {
      const result = await runCli([...command, '--json'], cli())
      expect({ command, code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({
        command,
        code: 0,
        stderr: '',
      })
    }
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
  })

  test('in a pool of one connection, two commands that create the same prompt at once create it once', async () => {
    await start(1)
    const [project] = setup.service.world.projects
    const args = ['create', 'prompt', '--project', project!.id, '--text', 'Which one is made once?', '--country', 'DE']
    await Promise.all([runCli(args, cli()), runCli(args, cli())])
    expect(project!.prompts.filter(({ text }) => text === 'Which one is made once?')).toHaveLength(1)
  })

  test('check and sync refuse statement mode without waiting, and name the setting', async () => {
    await start(4, { mode: 'statement' })
    const checked = await runCli(['check'], cli())
    expect([checked.code, checked.stdout]).toEqual([1, expect.stringContaining('statement pooling mode')])
    const synced = await runCli(['sync'], cli())
    expect([synced.code, synced.stderr]).toEqual([2, expect.stringContaining('pool_mode = transaction')])
    expect(synced.stderr).not.toContain('connection was lost')
  })

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
})

describe('the pool of pages', () => {
  let database: TestDatabase
  let proxy: TcpProxy
  let warehouse: Warehouse
  let pool: SidePool
  beforeEach(async () => {
    database = await createDatabase()
    proxy = await startTcpProxy(database.url)
    warehouse = await openWarehouse(proxy.url)
  })
  afterEach(() => pool.close())

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

  test('a read changes nothing, sees one snapshot, and leaves no setting on the connection', async () => {
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

  test('a read that takes too long is cancelled, and later ones are served', async () => {
    open({ connections: 1, limitMs: 3000 })
    await expect(ask('select pg_sleep(60)')).rejects.toThrow(TimeLimitError)
    await expect(
      pool.read(async (bound) => {
        for (;;) await bound.pool.query('select pg_sleep(0.1)')
      }),
    ).rejects.toThrow(TimeLimitError)
    expect(await ask('select 1 as n')).toEqual({ n: 1 })
  })

  test('readers beyond the queue are refused immediately, and those that waited too long as well', async () => {
    open({ patienceMs: 300 })
    const slow = [ask('select pg_sleep(2)'), ask('select pg_sleep(2)')]
    const waiting = [ask('select 1'), ask('select 1')]
    await expect(ask('select 1')).rejects.toThrow(OverloadedError)
    for (const one of waiting) await expect(one).rejects.toThrow(OverloadedError)
    await Promise.all(slow)
    expect(await ask('select 1 as n')).toEqual({ n: 1 })
  })

  test('a database that is away or unreachable is a transient error, and reads work again later', async () => {
    open({ limitMs: 1000, patienceMs: 1000 })
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
})

describe('closing the pool of pages', () => {
  test('waits neither for a read in progress nor for a network without answers', async () => {
    const database = await createDatabase()
    const proxy = await startTcpProxy(database.url)
    const name = 'closed side pool of a test'
    const options = { name, connections: 2, waiting: 2, patienceMs: 60_000, limitMs: 60_000 }
    const pool = createSidePool(await openWarehouse(proxy.url), options)
    const reading = pool.read((bound) => bound.pool.query('select pg_sleep(600)')).catch((error: unknown) => error)
    const isReading = () =>
      database.rows("select from pg_stat_activity where application_name = $1 and wait_event = 'PgSleep'", [name])
    await until(async () => (await isReading()).length > 0)
    proxy.freeze()
    pool.close()
    expect(await reading).toBeInstanceOf(TransientError)
    proxy.resume()
    await expect(pool.read((bound) => bound.pool.query('select 1'))).rejects.toThrow()
  })
})

describe('a database that cannot be used', () => {
  /* What each way of failing to use a database says, on servers that really fail so. */

  const PASSWORD = 'hunter22secret'

  let folder: ReturnType<typeof temporaryFolder>
  let server: EmbeddedPostgres
  const data = () => join(folder.path, 'postgres')
  const certificate = selfSigned()

  /** A server with TLS, a role that needs it, and roles that are not let in for one reason or another. */
  beforeAll(async () => {
    folder = temporaryFolder()
    server = await startEmbedded({ folder: folder.path })
    const client = new Client({ connectionString: server.url })
    await client.connect()
    await client.query(`
    create role guest login password '${PASSWORD}';
    create role crowded login password '${PASSWORD}' connection limit 0;
    create role statue nologin password '${PASSWORD}';
    create role secure login password '${PASSWORD}'`)
    await client.query('create database closed')
    await client.query('revoke connect on database closed from public')
    await client.end()
    await server.release()
    const { uid, gid } = statSync(data())
    for (const [name, text] of Object.entries({ 'server.crt': certificate.cert, 'server.key': certificate.key })) {
      writeFileSync(join(data(), name), text)
      chmodSync(join(data(), name), 0o600)
      if (process.getuid?.() === 0) chownSync(join(data(), name), uid, gid)
    }
    const rules = join(data(), 'pg_hba.conf')
    const usual = readFileSync(rules, 'utf8')
    writeFileSync(rules, `hostssl all secure 127.0.0.1/32 trust\nhostnossl all secure 127.0.0.1/32 reject\n${usual}`)
    server = await startEmbedded({ folder: folder.path, settings: { ssl: 'on' } })
  })

  afterAll(async () => {
    await server.release()
  })

  function urlOf(role: string, database = 'visibility', query = '', password = PASSWORD): string {
    const { host } = new URL(server.url)
    return `postgres://${role}:${password}@${host}/${database}${query}`
  }

  function failureOf(url: string): Promise<Error> {
    return openWarehouse(url, { connections: 1 }).then(
      () => new Error('it connected'),
      (error: Error) => error,
    )
  }

  describe('settings that are wrong', () => {
    const cases: [string, () => string, string][] = [
      ['a wrong password', () => urlOf('guest', 'visibility', '', 'other-secret'), 'The user or the password is wrong'],
      ['a database that is not there', () => urlOf('guest', 'nowhere'), 'There is no such database'],
      ['no TLS where the server asks for it', () => urlOf('secure'), 'add sslmode=verify-full'],
      [
        'a certificate that nobody trusted has signed',
        () => urlOf('secure', 'visibility', '?sslmode=verify-full'),
        'name the file of its certificate in NODE_EXTRA_CA_CERTS',
      ],
      [
        'a file of an authority that is not there',
        () => urlOf('secure', 'visibility', '?sslmode=verify-full&sslrootcert=/nowhere/authority.pem'),
        'A file that DATABASE_URL names is not there',
      ],
      ['TLS where the server has none', () => `${serverUrl().href}?sslmode=verify-full`, 'The server has no TLS'],
    ]
    test.each(cases)('%s', async (_, url, told) => {
      const failure = await failureOf(url())
      expect(failure.message).toContain(told)
      expect(failure).toBeInstanceOf(UsageError)
      expect(failure.message).toContain('cannot be used')
      expect(failure.message).not.toMatch(/hunter22|other-secret/)
    })

    test('are not reported if TLS works', async () => {
      const file = join(folder.path, 'authority.pem')
      writeFileSync(file, certificate.cert)
      const failure = await failureOf(urlOf('secure', 'visibility', `?sslmode=verify-full&sslrootcert=${file}`))
      expect(failure.message).toBe('it connected')
    })
  })

  test.each(['prefer', 'require', 'verify-ca'])(
    'sslmode=%s verifies the certificate, without a warning',
    async (mode) => {
      const file = join(folder.path, 'authority.pem')
      writeFileSync(file, certificate.cert)
      const check = async (query: string) => {
        const env = { DATABASE_URL: urlOf('secure', 'visibility', `?sslmode=${mode}${query}`) }
        return runCli(['status'], { env, config: {}, cwd: temporaryFolder().path })
      }
      const [trusted, other] = [await check(`&sslrootcert=${file}`), await check('')]
      expect(trusted.stderr).not.toContain('cannot be used')
      expect(other.stderr).toContain('TLS certificate is not accepted')
      expect(trusted.stderr + other.stderr).not.toMatch(/warning/i)
    },
  )

  describe('a server that is away', () => {
    const expectAway = (failure: Error, told: string) => {
      expect(failure.message).toContain(told)
      expect(failure).toBeInstanceOf(TransientError)
      expect(failure.message).not.toContain(PASSWORD)
    }

    test('has no connection left for a while: work that is under way waits for one', async () => {
      const database = await createDatabase()
      const { rows } = await database.warehouse.pool.query<{ name: string }>('select current_database() as name')
      const limit = (most: number) => database.rows(`alter database ${rows[0]!.name} connection limit ${most}`)
      const warehouse = await openWarehouse(database.url, { connections: 1, unchecked: true })
      await limit(0)
      const reasons: string[] = []
      const onWait = (reason: string) => void (reasons.push(reason) === 1 && limit(-1))
      const query = () => warehouse.pool.query('select 1')
      await withRetries({ patienceMs: 60_000, onWait }, undefined, query)
      expect(reasons[0]).toContain('too many connections')
      await limit(0)
      await warehouse.pool.query('select pg_terminate_backend(pg_backend_pid())').catch(() => {})
      // What is still away in the end is nobody's fault but the database's.
      await expect(withRetries({ patienceMs: 0 }, undefined, query)).rejects.toMatchObject({ code: 'database-away' })
    })

    test('refuses connections, or has no known name', async () => {
      const refused = await failureOf(`postgres://guest:${PASSWORD}@127.0.0.1:1/warehouse`)
      expectAway(refused, 'It cannot be reached: the connection was refused')
      expect(refused.message).toContain('docker run')
      const unknown = await failureOf(`postgres://guest:${PASSWORD}@nobody.invalid/warehouse`)
      expectAway(unknown, 'the database at nobody.invalid:5432/warehouse cannot be used')
      expect(unknown.message).toContain('The name of its host does not resolve')
      expect(unknown.message).not.toContain('docker run')
    })
  })

  test('a standby, which can only be read, is a wrong setting: check and sync name it, and read nothing', async () => {
    const setup = await setUp({ world: { projects: 1, prompts: 2 } })
    await server.release()
    const signal = join(data(), 'standby.signal')
    writeFileSync(signal, '')
    if (process.getuid?.() === 0) chownSync(signal, statSync(data()).uid, statSync(data()).gid)
    server = await startEmbedded({ folder: folder.path, settings: { hot_standby: 'on' } })
    try {
      const cli = { env: { ...setup.env, DATABASE_URL: server.url }, config: setup.fileConfig }
      const checked = await runCli(['check'], cli)
      expect([checked.code, checked.stdout]).toEqual([
        1,
        expect.stringMatching(/✗ privileges: the server can only\s+be read.*name\s+the\s+primary/s),
      ])
      const { length } = setup.service.requests
      const synced = await runCli(['sync'], cli)
      expect([synced.code, synced.stderr]).toEqual([2, expect.stringContaining('name the primary in DATABASE_URL')])
      expect(setup.service.requests.slice(length)).toEqual([])
    } finally {
      await server.release()
      rmSync(signal)
      server = await startEmbedded({ folder: folder.path, settings: { ssl: 'on' } })
    }
  })

  describe('exit codes', () => {
    const run = (url: string) => runCli(['migrate'], { env: { DATABASE_URL: url }, config: {} })

    test('1 for a database that is away, 2 for settings that are wrong', async () => {
      const away = await run(`postgres://guest:${PASSWORD}@127.0.0.1:1/warehouse`)
      expect([away.code, away.stderr]).toEqual([1, expect.stringContaining('127.0.0.1:1/warehouse cannot be used')])
      const wrong = await run(`${serverUrl().href}_nowhere`)
      expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('There is no such database')])
    })

    test.each(['koala#wombat', 'koala@emu?wombat'])(
      '2 for the password %s, which is not escaped, and nothing of it is shown',
      async (password) => {
        const result = await run(`postgres://reader:${password}@db.example.com:5432/marsupials`)
        expect(result.code).toBe(2)
        expect(result.stderr).toContain('escape the password: percent-encode @ : / ? #')
        expect(result.stderr).not.toMatch(/koala|wombat|emu|4711|reader|example|marsupials/)
      },
    )
  })

  test('an address is accepted only if its host is unambiguous, so that no message shows a password as a host', () => {
    const letters = fc.constantFrom(...'ab19@#/?:%&=[]\\ .-_~!$\'(){}"<>^`|ü')
    const password = fc.array(letters, { minLength: 1, maxLength: 12 }).map((all) => all.join(''))
    fc.assert(
      fc.property(password, (text) => {
        const url = `postgres://role:${text}@db.example.com:6543/warehouse`
        try {
          loadConfig({ file: undefined, env: { DATABASE_URL: url } })
        } catch (error) {
          expect((error as Error).message).not.toContain('example')
          return
        }
        const { message } = databaseFailure(url, new Error('Connection terminated'))
        expect(message).toMatch(
          /^the database at db\.example\.com:6543\/warehouse cannot be used \(Connection terminated\)/,
        )
      }),
      { numRuns: sized(100, 500) },
    )
  })
})
