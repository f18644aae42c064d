import { chmodSync, chownSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { Client } from 'pg'
import { loadConfig } from '../src/core/config/load.ts'
import { TransientError, UsageError } from '../src/core/errors.ts'
import { connectWarehouse } from '../src/warehouse/connect.ts'
import { databaseFailure } from '../src/warehouse/database-failure.ts'
import { type EmbeddedPostgres, startEmbedded } from '../src/warehouse/embedded/server.ts'
import { withRetries } from '../src/warehouse/retry.ts'
import { selfSigned } from './support/certificate.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { sized } from './support/long.ts'
import { createDatabase, serverUrl } from './support/postgres.ts'

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
  folder.remove()
})

function urlOf(role: string, database = 'visibility', query = '', password = PASSWORD): string {
  const { host } = new URL(server.url)
  return `postgres://${role}:${password}@${host}/${database}${query}`
}

async function failureOf(url: string): Promise<Error> {
  const warehouse = await connectWarehouse({ url, schema: 'visibility', connections: 1 }).catch((error: Error) => error)
  if (warehouse instanceof Error) return warehouse
  await warehouse.close()
  return new Error('it connected')
}

describe('settings that are wrong', () => {
  const cases: [string, () => string, string][] = [
    ['a wrong password', () => urlOf('guest', 'visibility', '', 'another-secret'), 'The password is wrong'],
    ['no password', () => urlOf('guest', 'visibility', '', ''), 'The server asks for a password'],
    ['a role that is not there', () => urlOf('nobody'), 'The password is wrong'],
    ['a role that may not log in', () => urlOf('statue'), 'The role is not let in'],
    ['a database that is not there', () => urlOf('guest', 'nowhere'), 'There is no such database'],
    ['a database that the role may not enter', () => urlOf('guest', 'closed'), 'The role may not connect'],
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
    expect(failure.message).not.toMatch(/hunter22|another-secret/)
  })

  test('are not found where TLS works', async () => {
    const file = join(folder.path, 'authority.pem')
    writeFileSync(file, certificate.cert)
    const failure = await failureOf(urlOf('secure', 'visibility', `?sslmode=verify-full&sslrootcert=${file}`))
    expect(failure.message).toBe('it connected')
  })
})

describe('a server that is away', () => {
  const expectAway = (failure: Error, told: string) => {
    expect(failure.message).toContain(told)
    expect(failure).toBeInstanceOf(TransientError)
    expect(failure.message).not.toContain(PASSWORD)
  }

  test('has no connection left', async () => {
    expectAway(await failureOf(urlOf('crowded')), 'The server has no connection left')
  })

  test('has no connection left for a while: work that is under way waits for one', async () => {
    const database = await createDatabase()
    const { rows } = await database.warehouse.pool.query<{ name: string }>('select current_database() as name')
    const limit = (most: number) => database.rows(`alter database ${rows[0]!.name} connection limit ${most}`)
    const warehouse = await connectWarehouse({
      url: database.url,
      schema: 'visibility',
      connections: 1,
      unchecked: true,
    })
    try {
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
    } finally {
      await warehouse.close()
      await database.drop()
    }
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

  test('takes connections and says nothing', async () => {
    const sockets = new Set<Socket>()
    const silent = createServer((socket) => void sockets.add(socket.on('error', () => {})))
    await new Promise<void>((done) => silent.listen(0, '127.0.0.1', done))
    const { port } = silent.address() as AddressInfo
    const failure = await failureOf(`postgres://guest:${PASSWORD}@127.0.0.1:${port}/warehouse`)
    for (const socket of sockets) socket.destroy()
    await new Promise((done) => silent.close(done))
    expectAway(failure, 'The server did not answer in time')
  })

  test('is a standby, which can only be read: that is a setting again, and nothing is written', async () => {
    await server.release()
    const signal = join(data(), 'standby.signal')
    writeFileSync(signal, '')
    if (process.getuid?.() === 0) chownSync(signal, statSync(data()).uid, statSync(data()).gid)
    server = await startEmbedded({ folder: folder.path, settings: { hot_standby: 'on' } })
    try {
      const env = { DATABASE_URL: server.url, VISIBILITY_API_URL: 'http://127.0.0.1:1/v1', VISIBILITY_API_KEY: 'x' }
      const config = { source: { patience_seconds: 1 } }
      const synced = await runCli(['migrate'], { env, config })
      expect([synced.code, synced.stderr]).toEqual([2, expect.stringContaining('name the primary in DATABASE_URL')])
      const checked = await runCli(['check'], { env, config })
      expect([checked.code, checked.stdout]).toEqual([1, expect.stringContaining('✗ privileges: the server can only')])
    } finally {
      await server.release()
      rmSync(signal)
      server = await startEmbedded({ folder: folder.path, settings: { ssl: 'on' } })
    }
  })

  // Last: the server goes down with it.
  test('is shutting down', async () => {
    // It waits for connections that are open, such as the one that keeps it up.
    const pid = Number(readFileSync(join(data(), 'postmaster.pid'), 'utf8').split('\n')[0])
    process.kill(pid, 'SIGTERM')
    const told = 'The server is starting, stopping or recovering'
    let failure = await failureOf(urlOf('guest'))
    // Those that come too early are let in, or cut off.
    for (let look = 0; look < 100 && !failure.message.includes(told); look++) failure = await failureOf(urlOf('guest'))
    expectAway(failure, told)
  })
})

describe('exit codes', () => {
  const run = (url: string) => runCli(['migrate'], { env: { DATABASE_URL: url }, config: {} })

  test('1 for a database that is away, 2 for settings that are wrong', async () => {
    const away = await run(`postgres://guest:${PASSWORD}@127.0.0.1:1/warehouse`)
    expect([away.code, away.stderr]).toEqual([1, expect.stringContaining('127.0.0.1:1/warehouse cannot be used')])
    const wrong = await run(`${serverUrl().href}_nowhere`)
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('There is no such database')])
  })

  test.each([
    'koala#wombat',
    'koala/wombat',
    'koala?wombat',
    '4711/wombat',
    '4711#wombat',
    '4711?wombat',
    'koala@emu/wombat',
    'koala@emu?wombat',
  ])('2 for the password %s, which is not escaped, and nothing of it is shown', async (password) => {
    const result = await run(`postgres://reader:${password}@db.example.com:5432/marsupials`)
    expect(result.code).toBe(2)
    expect(result.stderr).toContain('escape the password: percent-encode @ : / ? #')
    expect(result.stderr).not.toMatch(/koala|wombat|emu|4711|reader|example|marsupials/)
  })
})

test('an address is accepted only where its host is the one that was meant, so that no message shows anything else', () => {
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
