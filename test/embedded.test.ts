import { spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { processIdentity } from '../src/core/process-identity.ts'
import { folderIdentity } from '../src/warehouse/embedded/folder-identity.ts'
import { readLock, takeLock } from '../src/warehouse/embedded/folder-lock.ts'
import { readPassword } from '../src/warehouse/embedded/password.ts'
import { startEmbedded } from '../src/warehouse/embedded/server.ts'
import { ServerLog } from '../src/warehouse/embedded/server-log.ts'
import { runCli, startCli, temporaryFolder } from './support/cli.ts'
import { clusterTemplate, query, serverPid, startByPath, until, untilNothingRuns } from './support/server-processes.ts'

/* The embedded Postgres: started where there is none, shared, closed to others, stopped by the last. */

let folder: ReturnType<typeof temporaryFolder>
const data = () => join(folder.path, '.data/reference')
const isRunning = () => existsSync(join(data(), 'postgres/postmaster.pid'))
const template = clusterTemplate()
beforeAll(() => template.make())
afterAll(() => template.remove())
beforeEach(() => {
  folder = temporaryFolder()
})
afterEach(() => folder.remove())
const CONFIG = {
  start_date: '2026-03-01',
  end_date: '2026-03-05',
  streams: ['prompts'],
  reports: [{ name: 'brand_daily', dimensions: ['date'] }],
}

test('without settings, sync runs on the embedded Postgres and the reference service, says so, and leaves nothing running', async () => {
  const first = await runCli(['sync'], { cwd: folder.path, config: CONFIG })
  expect({ code: first.code, stderr: first.code === 0 ? '' : first.stderr }).toEqual({ code: 0, stderr: '' })
  expect(first.stdout).toContain('the reference service (synthetic data')
  expect(first.stdout).toMatch(
    /Warehouse: postgres:\/\/visibility@127\.0\.0\.1:\d+\/visibility \(in \.data\/reference\)\nNext: +keep this database running[^\n]+\n +npx visibility-sync database/,
  )
  await untilNothingRuns(data())
  const second = await runCli(['sync'], { cwd: folder.path, config: CONFIG })
  expect(second.stdout).toContain('nothing to change')
  const port = (text: string) => /127\.0\.0\.1:(\d+)/.exec(text)![1]
  expect(port(second.stdout)).toBe(port(first.stdout))
})

test('two commands at once share one server, and the last to end stops it', async () => {
  template.copyTo(data())
  const keeper = startCli(['database', '--json'], { cwd: folder.path })
  await keeper.saw('"url"')
  const pid = serverPid(data())
  const [a, b] = await Promise.all([
    runCli(['migrate'], { cwd: folder.path, config: CONFIG }),
    runCli(['status', '--json'], { cwd: folder.path, config: CONFIG }),
  ])
  expect([a.code, b.code, serverPid(data())]).toEqual([0, 0, pid])
  keeper.child.kill('SIGTERM')
  expect((await keeper.done).code).toBe(0)
  expect(isRunning()).toBe(false)
})

test('commands that start and end at the same moments all work, and leave nothing running', async () => {
  const one = async (pauseMs: number) => {
    await new Promise((done) => setTimeout(done, pauseMs))
    const server = await startEmbedded({ folder: data() })
    const rows = await query(server.url, 'select 1 as one')
    await server.release()
    return rows
  }
  // The first make the cluster; later ones come while others let go.
  const pauses = [0, 0, 0, 2500, 2700, 2900, 3100, 3300, 3500, 3700, 3900]
  expect(await Promise.all(pauses.map(one))).toEqual(pauses.map(() => [{ one: 1 }]))
  await untilNothingRuns(data())
})

test('a command that only holds the server goes on until it is asked to stop', async () => {
  template.copyTo(data())
  const server = new URL('../dist/warehouse/embedded/server.js', import.meta.url).href
  const script = `import { startEmbedded } from '${server}'
    const held = await startEmbedded({ folder: process.argv[1] })
    process.once('SIGTERM', () => held.release())
    process.stdout.write('held')`
  const child = spawn(process.execPath, ['--input-type=module', '-e', script, data()])
  await new Promise((done) => child.stdout.once('data', done))
  const ended = new Promise((done) => child.on('exit', done))
  // Without anything else to wait for, Node would end it at once.
  expect(await Promise.race([ended, new Promise((done) => setTimeout(done, 500, 'goes on'))])).toBe('goes on')
  child.kill('SIGTERM')
  expect(await ended).toBe(0)
  await untilNothingRuns(data())
})

test('a server that was killed itself is started again with its data', async () => {
  template.copyTo(data())
  const server = await startEmbedded({ folder: data() })
  await query(server.url, 'create table kept as select 1 as a')
  const pid = serverPid(data())
  process.kill(pid, 'SIGKILL')
  // The command that holds it needs to do nothing for it.
  const rows = () => query(server.url, 'select * from kept').catch(() => [])
  await until('it is back', async () => (await rows()).length === 1)
  expect(serverPid(data())).not.toBe(pid)
  expect(await query(server.url, 'show server_encoding')).toEqual([{ server_encoding: 'UTF8' }])
  await server.release()
  expect(isRunning()).toBe(false)
})

describe('a lock file', () => {
  const lockOf = (process: string, folder = folderIdentity(data())) =>
    JSON.stringify({ process, folder, port: 1, token: 'a'.repeat(32) })
  const stale: [string, () => string][] = [
    ['empty', () => ''],
    ['half-written', () => '{"process": "'],
    ['of version 0.2.0, with the number of a process that lives', () => String(process.pid)],
    ['of a dead process whose number another one has now', () => lockOf(processIdentity().replace(/\d+$/, '1'))],
    ['of a machine that was started again since', () => lockOf(processIdentity().replace(/^[^/]+/, 'earlier'))],
    ['of another folder, of which this one is a copy', () => lockOf(processIdentity(), '1:1')],
  ]
  const writeStale = (lock: string, text: string) => {
    // As if those who wanted to clear it had been killed as well.
    for (const path of [lock, `${lock}.clear`, `${lock}.clear.clear`]) {
      writeFileSync(path, text)
      utimesSync(path, new Date(0), new Date(0))
    }
  }
  test.each(stale)('that is %s can be taken', (_name, text) => {
    mkdirSync(data(), { recursive: true })
    const lock = join(data(), 'postgres.lock')
    writeStale(lock, text())
    expect(readLock(lock)).toBeUndefined()
    const own = JSON.parse(lockOf(processIdentity()))
    expect(takeLock(lock, own)).toBe(true)
    expect(readLock(lock)).toEqual(own)
    expect(takeLock(lock, { ...own, token: 'b'.repeat(32) })).toBe(false)
    expect(readdirSync(data())).toEqual(['postgres.lock'])
  })

  test('that a full disk left empty, as it did the one of the server, blocks no command', async () => {
    template.copyTo(data())
    writeStale(join(data(), 'postgres.lock'), '')
    writeFileSync(join(data(), 'postgres/postmaster.pid'), '')
    const server = await startEmbedded({ folder: data() })
    expect(server.how).toMatch(/^started/)
    await server.release()
    expect(existsSync(join(data(), 'postgres.lock'))).toBe(false)
  })

  test('of a live process in another container is respected while it is fresh', () => {
    mkdirSync(data(), { recursive: true })
    const lock = join(data(), 'postgres.lock')
    writeFileSync(lock, lockOf('another-boot/pid:[1]/1/1'))
    expect(readLock(lock)).toBeDefined()
    expect(takeLock(lock, JSON.parse(lockOf(processIdentity())))).toBe(false)
    utimesSync(lock, new Date(0), new Date(0))
    expect(readLock(lock)).toBeUndefined()
    expect(takeLock(lock, JSON.parse(lockOf(processIdentity())))).toBe(true)
  })

  test('that is stale is taken over by exactly one of many', async () => {
    mkdirSync(data(), { recursive: true })
    const lock = join(data(), 'postgres.lock')
    const script = `
      import { randomBytes } from 'node:crypto'
      import { takeLock } from '${new URL('../dist/warehouse/embedded/folder-lock.js', import.meta.url).href}'
      import { processIdentity } from '${new URL('../dist/core/process-identity.js', import.meta.url).href}'
      const [lock, folder] = process.argv.slice(1)
      process.stdout.write('ready')
      process.stdin.on('data', () => {
        const own = { process: processIdentity(), folder, port: 1, token: randomBytes(16).toString('hex') }
        process.stdout.write(takeLock(lock, own) ? 'taken' : 'refused')
      })`
    const args = ['--input-type=module', '-e', script, lock, folderIdentity(data())!]
    const children = Array.from({ length: 6 }, () =>
      spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] }),
    )
    const next = () =>
      Promise.all(
        children.map(({ stdout }) => new Promise((done) => stdout.once('data', (text) => done(String(text))))),
      )
    try {
      await next()
      for (let round = 0; round < 10; round++) {
        writeFileSync(lock, round % 2 === 0 ? '' : '1')
        const answers = next()
        for (const { stdin } of children) stdin.write('go')
        expect((await answers).filter((answer) => answer === 'taken')).toHaveLength(1)
        rmSync(lock)
      }
    } finally {
      for (const child of children) child.kill()
    }
  })
})

test('it starts in a folder that only its owner can enter, whoever runs it', async () => {
  const closed = join(folder.path, 'closed')
  mkdirSync(closed)
  chmodSync(closed, 0o700)
  const server = await startEmbedded({ folder: join(closed, '.data') }).catch((error: Error) => error)
  if (server instanceof Error) {
    // As root this needs a user namespace; where the machine forbids those, the message says what to do.
    expect(server.message).toContain('user namespaces are not allowed')
    return
  }
  expect(server.url).toMatch(/^postgres:/)
  await server.release()
})

describe('access', () => {
  const refused = (url: string) =>
    query(url, 'select 1').then(
      () => 'let in',
      (error: Error) => error.message,
    )

  test('over loopback needs the password, for which there is a file that psql, JDBC and others read; none is a superuser', async () => {
    template.copyTo(data())
    const server = await startEmbedded({ folder: data() })
    expect(await query(server.url, 'select usesuper from pg_user where usename = current_user')).toEqual([
      { usesuper: false },
    ])
    const bare = new URL(server.url)
    bare.password = ''
    expect(await refused(bare.href)).toMatch(/password/)
    bare.password = 'wrong'
    expect(await refused(bare.href)).toContain('password authentication failed')
    bare.username = 'postgres'
    expect(await refused(bare.href)).toContain('password authentication failed')
    const file = join(data(), 'pgpass')
    for (const path of [file, join(data(), 'postgres.log')]) expect(statSync(path).mode & 0o777).toBe(0o600)
    // The driver reads the file as libpq does.
    const script = "import pg from 'pg'; const c = new pg.Client(process.argv[1]); await c.connect(); await c.end()"
    bare.username = 'visibility'
    bare.password = ''
    const result = spawnSync(process.execPath, ['--input-type=module', '-e', script, bare.href], {
      env: { PATH: process.env.PATH, PGPASSFILE: file },
      encoding: 'utf8',
    })
    expect(result).toMatchObject({ status: 0 })
    await server.release()
  })

  test('the password is in no output, and the connection string says where it is', async () => {
    template.copyTo(data())
    const options = { cwd: folder.path, config: CONFIG, env: { LOG_LEVEL: 'trace' } }
    const keeper = startCli(['database'], options)
    await keeper.saw('Ctrl-C')
    const outputs = [
      await runCli(['sync'], options),
      await runCli(['status', '--json'], options),
      await runCli(['check'], options),
    ]
    keeper.child.kill('SIGINT')
    const printed = await keeper.done
    const password = readPassword(data())!
    expect(password.length).toBeGreaterThan(20)
    for (const { stdout, stderr } of [...outputs, printed]) expect(stdout + stderr).not.toContain(password)
    expect(readFileSync(join(data(), 'postgres.log'), 'utf8')).not.toContain(password)
    const line = /PGPASSFILE=(\S+) psql (\S+) -c/.exec(printed.stdout)!
    expect(line[1]).toBe('.data/reference/pgpass')
    expect(line[2]).toMatch(/^postgres:\/\/visibility@127\.0\.0\.1:\d+\/visibility$/)
  })

  test('a folder of version 0.2.0, which trusted everyone here, needs the password from the next start on, even while its server runs', async () => {
    template.copyTo(data())
    const server = await startEmbedded({ folder: data() })
    await query(server.url, 'create table kept as select 1 as a')
    await query(server.url, 'alter role visibility password null')
    await server.release()
    const rules = ['127.0.0.1/32', '::1/128'].map((address) => `host all visibility ${address} trust\n`).join('')
    const theirs = 'host all reporting 10.0.0.0/8 scram-sha-256\n'
    const own = join(data(), 'postgres/pg_hba.conf')
    writeFileSync(own, rules + theirs)
    rmSync(join(data(), 'pgpass'))
    rmSync(join(data(), 'postgres/visibility.password'))
    writeFileSync(join(data(), 'postgres.log'), 'old', { mode: 0o644 })
    const trusting = await startByPath(data())
    const bare = new URL(server.url)
    bare.password = ''
    expect(await refused(bare.href)).toBe('let in')
    const next = await startEmbedded({ folder: data() })
    await until('the old server is gone', () => trusting.exitCode !== null || trusting.signalCode !== null)
    expect(await query(next.url, 'select * from kept')).toEqual([{ a: 1 }])
    bare.port = new URL(next.url).port
    expect(await refused(bare.href)).toMatch(/password/)
    expect(readFileSync(own, 'utf8')).toBe(rules.replaceAll('trust', 'scram-sha-256') + theirs)
    expect(statSync(join(data(), 'postgres.log')).mode & 0o777).toBe(0o600)
    await next.release()
  })

  test('a password that someone changed in the database is said, and deleting the file sets a new one', async () => {
    template.copyTo(data())
    const server = await startEmbedded({ folder: data() })
    await query(server.url, "alter role visibility password 'mine'")
    await server.release()
    const file = join(data(), 'pgpass')
    await expect(startEmbedded({ folder: data() })).rejects.toThrow(`Delete ${file}`)
    rmSync(file)
    const next = await startEmbedded({ folder: data() })
    await next.release()
    // Or one of their own, with what such files escape.
    writeFileSync(file, '127.0.0.1:*:*:visibility:a\\:b\\\\c@d\n')
    const own = await startEmbedded({ folder: data() })
    expect(decodeURIComponent(new URL(own.url).password)).toBe('a:b\\c@d')
    await own.release()
  })

  test('the variables of a command do not reach the server, which may run as another user', async () => {
    if (process.platform !== 'linux') return console.info('not tried: only Linux shows the variables of a process')
    template.copyTo(data())
    const keeper = startCli(['database', '--json'], {
      cwd: folder.path,
      env: { VISIBILITY_API_URL: 'reference', VISIBILITY_API_KEY: 'sk-secret' },
    })
    await keeper.saw('"url"')
    expect(readFileSync(`/proc/${serverPid(data())}/environ`, 'utf8')).not.toContain('sk-secret')
    keeper.child.kill('SIGINT')
    await keeper.done
  })
})

test('as root, a cluster of another user is given to the one who runs it now', async () => {
  if (process.getuid?.() !== 0) return console.info('not tried: it takes root')
  template.copyTo(data())
  chmodSync(folder.path, 0o755)
  const first = await startEmbedded({ folder: data() })
  await query(first.url, 'create table kept as select 1 as a')
  await first.release()
  chmodSync(folder.path, 0o700)
  const server = await startEmbedded({ folder: data() }).catch((error: Error) => error)
  // Where nobody else can enter, it takes a user namespace.
  if (server instanceof Error) return expect(server.message).toContain('user namespaces are not allowed')
  expect(server.how).not.toBe(first.how)
  expect(await query(server.url, 'select * from kept')).toEqual([{ a: 1 }])
  await server.release()
})

test('the log of the server is rotated by size', () => {
  const path = join(folder.path, 'postgres.log')
  const noticed: string[] = []
  const log = new ServerLog(path, (text) => void noticed.push(text), 1000)
  for (let line = 1; line <= 100; line++) log.write(Buffer.from(`${String(line).padStart(49)}\n`))
  log.close()
  expect(noticed).toHaveLength(100)
  expect(statSync(path).size + statSync(`${path}.1`).size).toBeLessThanOrEqual(2100)
  expect(readFileSync(path, 'utf8')).toContain('100\n')
  for (const file of [path, `${path}.1`]) expect(statSync(file).mode & 0o777).toBe(0o600)
  expect(log.tail(2)).toMatch(/^ *99\n *100$/)
})

test('a uid without a name can run it, where the machine allows it to be tried', async () => {
  const bin = new URL('../bin/visibility-sync.js', import.meta.url).pathname
  const nameless = { uid: 54_321, gid: 54_321 }
  if (
    process.getuid?.() !== 0 ||
    spawnSync(process.execPath, [bin, '--version'], { ...nameless, cwd: '/' }).status !== 0
  ) {
    console.info('not tried: it takes root, and a checkout that other users can read')
    return
  }
  chmodSync(folder.path, 0o777)
  const child = spawn(process.execPath, [bin, 'migrate', '--json'], {
    cwd: folder.path,
    ...nameless,
    env: { PATH: process.env.PATH ?? '', HOME: folder.path },
  })
  let output = ''
  child.stdout.on('data', (data) => (output += data))
  child.stderr.on('data', (data) => (output += data))
  const code = await new Promise((done) => child.on('close', done))
  if (code === 2) expect(output).toContain('user namespaces are not allowed')
  else expect({ code, output }).toMatchObject({ code: 0 })
})
