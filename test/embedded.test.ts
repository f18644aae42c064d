import { execFileSync, spawnSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import type { Log } from '../src/core/logger.ts'
import { linkLibraries, readPassword } from '../src/warehouse/embedded/cluster.ts'
import { readServer, startEmbedded, stopEmbedded } from '../src/warehouse/embedded/server.ts'
import {
  clusterTemplate,
  query,
  runCli,
  runningIn,
  startDatabase,
  startProcess,
  temporaryFolder,
  until,
} from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { longGroup, longTest, sized } from './support/long.ts'
import { NO_LIMIT, setUp } from './support/setup.ts'

/* The embedded Postgres: started where there is none, shared, closed to others, stopped by its last user. */

let folder: ReturnType<typeof temporaryFolder>
const data = () => join(folder.path, '.data/reference')
const lock = () => join(data(), 'postgres/postmaster.pid')
const template = clusterTemplate()
beforeAll(() => template.make())
beforeEach(() => {
  folder = temporaryFolder()
  closeLater(() => stopEmbedded(data()))
})
const CONFIG = {
  start_date: '2026-03-01',
  end_date: '2026-03-05',
  streams: ['prompts'],
  reports: [{ name: 'brand_daily', dimensions: ['date'] }],
}
const cli = (...args: string[]) => runCli(args, { cwd: folder.path, config: CONFIG })
const isRoot = process.getuid?.() === 0

test('without settings, sync uses the embedded Postgres and the reference service, prints so, and leaves nothing running', async () => {
  const first = await cli('sync')
  expect({ code: first.code, stderr: first.code === 0 ? '' : first.stderr }).toEqual({ code: 0, stderr: '' })
  expect(first.stdout).toContain('the reference service (synthetic data')
  expect(first.stdout).toMatch(
    /Warehouse: postgres:\/\/visibility@127\.0\.0\.1:\d+\/visibility \(in \.data\/reference\)\nNext: +keep this database running[^\n]+\n +npx visibility-sync database/,
  )
  expect(runningIn(data())).toBeUndefined()
  const second = await cli('sync')
  expect(second.stdout).toContain('nothing to change')
  const port = (text: string) => /127\.0\.0\.1:(\d+)/.exec(text)![1]
  expect(port(second.stdout)).toBe(port(first.stdout))
})

test('commands that read create no database, and report that there is none', async () => {
  const result = await cli('status', '--json')
  expect([result.code, result.json().error?.message]).toEqual([
    2,
    expect.stringContaining('there is no database: nothing was synced into'),
  ])
  expect((await cli('plan')).code).toBe(0)
  expect((await cli('check')).stdout).toContain('none yet; the first sync creates an embedded Postgres in')
  expect(existsSync(join(folder.path, '.data'))).toBe(false)
})

test('a server that has stopped keeps little beside its data', async () => {
  const server = await startEmbedded({ folder: folder.path })
  await query(
    server.url,
    "select pg_logical_emit_message(false, '', repeat('x', 1000000)) from generate_series(1, 200)",
  )
  await server.release()
  const wal = join(folder.path, 'postgres/pg_wal')
  const bytes = readdirSync(wal).map((name) => statSync(join(wal, name)).size)
  expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThan(64_000_000)
})

test('commands that start and end at the same time all work, and leave nothing running', async () => {
  const one = async () => {
    for (let round = 0; round < sized(2, 4); round++) {
      const server = await startEmbedded({ folder: data() })
      expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }])
      await server.release()
    }
  }
  // The first round also creates the cluster.
  await Promise.all([one(), one(), one(), one()])
  expect(runningIn(data())).toBeUndefined()
  expect(readdirSync(data()).sort()).toEqual(['pgpass', 'postgres', 'postgres.log'])
})

describe('a command that is killed', () => {
  beforeEach(() => template.copyTo(data()))

  test('leaves its server to the next command, or to "database stop", which stops none that is used', async () => {
    const killed = await startDatabase(folder.path)
    const { pid } = runningIn(data())!
    killed.toGroup('SIGKILL')
    await killed.done
    const next = await startEmbedded({ folder: data() })
    expect([next.how, runningIn(data())?.pid]).toEqual(['already running', pid])
    const refused = await cli('database', 'stop')
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('other commands use the embedded')])
    await next.release()
    expect(runningIn(data())).toBeUndefined()
    const again = await startDatabase(folder.path)
    again.toGroup('SIGKILL')
    await again.done
    expect((await cli('database', 'stop', '--json')).json()).toEqual({ stopped: true })
    expect(runningIn(data())).toBeUndefined()
  })

  longTest('while it creates the cluster leaves nothing in the way of the next command', async () => {
    rmSync(data(), { recursive: true })
    const running = startProcess(['database', '--json'], { cwd: folder.path })
    const drafts = () => readdirSync(data()).filter((name) => name.startsWith('postgres.new-'))
    await until('a cluster is being created', () => existsSync(data()) && drafts().length > 0)
    running.child.kill('SIGKILL')
    await running.done
    expect(await cli('migrate')).toMatchObject({ code: 0, stderr: '' })
    expect(drafts()).toEqual([])
  })
})

test('signals as a terminal sends them, to the whole process group, end the command and its server in order', async () => {
  template.copyTo(data())
  const running = await startDatabase(folder.path)
  for (const name of ['SIGINT', 'SIGINT', 'SIGTERM'] as const) running.toGroup(name)
  expect((await running.done).code).toBe(0)
  expect(runningIn(data())).toBeUndefined()
})

test('a server that is killed under a command is started again with its data, on the same port', async () => {
  template.copyTo(data())
  const server = await startEmbedded({ folder: data() })
  await query(server.url, 'create table kept as select 1 as a')
  const { pid } = runningIn(data())!
  process.kill(pid, 'SIGKILL')
  const rows = () => query(server.url, 'select * from kept').catch(() => [])
  await until('it is back', async () => (await rows()).length === 1)
  expect(runningIn(data())!.pid).not.toBe(pid)
  await server.release()
  expect(runningIn(data())).toBeUndefined()
})

test('a data folder that is deleted under a command is reported, and does not end the command', async () => {
  template.copyTo(data())
  const errors: string[] = []
  const log = { warn() {}, error: (_fields: unknown, message: string) => errors.push(message) } as unknown as Log
  const server = await startEmbedded({ folder: data(), log })
  const { pid } = readServer(data())!
  rmSync(data(), { recursive: true })
  process.kill(pid, 'SIGKILL')
  await until('it is reported', () => errors.some((text) => text.includes('was moved or deleted')))
  await server.release()
})

describe('the lock file of the server', () => {
  test.each([
    ['empty, as a full disk leaves it', () => ''],
    ['of a dead server whose number another process has now', () => `${process.pid}\n/elsewhere\n1\n1\n`],
  ])('that is %s blocks no command', async (_name, text) => {
    template.copyTo(data())
    writeFileSync(lock(), text())
    const server = await startEmbedded({ folder: data() })
    expect(server.how).toMatch(/^started/)
    await server.release()
    expect(existsSync(lock())).toBe(false)
  })

  test('in a copied folder is not taken for a running server of the copy', async () => {
    template.copyTo(data())
    const first = await startEmbedded({ folder: data() })
    const copy = join(folder.path, 'copy')
    execFileSync('cp', ['-a', data(), copy])
    const second = await startEmbedded({ folder: copy })
    expect([second.how, second.url]).toEqual([
      expect.stringMatching(/^started/),
      expect.not.stringContaining(first.url),
    ])
    await first.release()
    await second.release()
  })
})

test('libraries without their links are found, where npm ran no install script', async () => {
  const native = join(folder.path, 'package/native')
  mkdirSync(join(native, 'lib'), { recursive: true })
  writeFileSync(join(native, 'lib/libx.so.1.2'), 'library')
  const links = [{ source: 'native/lib/libx.so.1.2', target: 'native/lib/libx.so.1' }]
  writeFileSync(join(native, 'pg-symlinks.json'), JSON.stringify(links))
  for (let start = 1; start <= 2; start++) {
    const path = Object.values(linkLibraries(native, folder.path))[0]!
    expect(readFileSync(join(path.split(':')[0]!, 'libx.so.1'), 'utf8')).toBe('library')
  }
  copyFileSync(join(native, 'lib/libx.so.1.2'), join(native, 'lib/libx.so.1'))
  expect(linkLibraries(native, folder.path)).toEqual({})
})

describe('access', () => {
  const refusal = (url: string) =>
    query(url, 'select 1').then(
      () => 'let in',
      (error: Error) => error.message,
    )

  test('over loopback needs the password, and nobody is superuser', async () => {
    template.copyTo(data())
    const server = await startEmbedded({ folder: data() })
    expect(
      await query(
        server.url,
        "select usesuper, current_setting('server_encoding') as encoding from pg_user where usename = current_user",
      ),
    ).toEqual([{ usesuper: false, encoding: 'UTF8' }])
    const bare = new URL(server.url)
    bare.password = ''
    expect(await refusal(bare.href)).toMatch(/password/)
    bare.password = 'wrong'
    expect(await refusal(bare.href)).toContain('password authentication failed')
    bare.username = 'postgres'
    expect(await refusal(bare.href)).toContain('password authentication failed')
    for (const name of ['pgpass', 'postgres.log']) expect(statSync(join(data(), name)).mode & 0o777).toBe(0o600)
    await server.release()
  })

  test('does not reveal the password or the variables of a command', async () => {
    template.copyTo(data())
    const env = { LOG_LEVEL: 'trace', VISIBILITY_API_URL: 'reference', VISIBILITY_API_KEY: 'sk-secret' }
    const options = { cwd: folder.path, config: CONFIG, env }
    const holder = startProcess(['database'], options)
    await holder.saw('Ctrl-C')
    if (process.platform === 'linux')
      expect(readFileSync(`/proc/${runningIn(data())!.pid}/environ`, 'utf8')).not.toContain('sk-secret')
    const synced = await runCli(['sync'], options)
    holder.child.kill('SIGINT')
    const printed = await holder.done
    const password = readPassword(data())!
    expect(password.length).toBeGreaterThan(20)
    for (const { stdout, stderr } of [synced, printed]) expect(stdout + stderr).not.toContain(password)
    expect(readFileSync(join(data(), 'postgres.log'), 'utf8')).not.toContain(password)
  })

  test('to a folder of version 0.2.0, which trusted everyone here, needs a password from the next start on', async () => {
    template.copyTo(data())
    const rules = ['127.0.0.1/32', '::1/128'].map((address) => `host all visibility ${address} trust\n`).join('')
    writeFileSync(join(data(), 'postgres/pg_hba.conf'), rules)
    writeFileSync(join(data(), 'postgres.log'), 'old', { mode: 0o644 })
    rmSync(join(data(), 'pgpass'))
    const server = await startEmbedded({ folder: data() })
    const bare = new URL(server.url)
    bare.password = ''
    expect(await refusal(bare.href)).toMatch(/password/)
    expect(statSync(join(data(), 'postgres.log')).mode & 0o777).toBe(0o600)
    await server.release()
  })
})

describe('whoever runs it', () => {
  const NO_NAMESPACE = 'user namespaces are not allowed'

  test('it starts in a folder that only its owner can enter', async () => {
    chmodSync(folder.path, 0o700)
    template.copyTo(data())
    const server = await startEmbedded({ folder: data() }).catch((error: Error) => error)
    // As root this needs a user namespace; where the machine forbids those, the message says what to do.
    if (server instanceof Error) return expect(server.message).toContain(NO_NAMESPACE)
    await server.release()
  })

  test('as root, a cluster of another user is given to the user who runs it now', async () => {
    if (!isRoot) return console.info('not tried: it takes root')
    template.copyTo(data())
    execFileSync('chown', ['-R', '54321:54321', join(data(), 'postgres')])
    const server = await startEmbedded({ folder: data() }).catch((error: Error) => error)
    if (server instanceof Error) return expect(server.message).toContain(NO_NAMESPACE)
    expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }])
    await server.release()
  })
})

longGroup('on a small disk', () => {
  /* A full disk under the embedded Postgres: every command ends, says what to free, and works again once there is room. */

  const reason = whyNotMount()

  /** A file system of a few megabytes of its own takes the right to mount one. */
  function whyNotMount(): string | undefined {
    const at = temporaryFolder()
    const mount = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', at.path], { encoding: 'utf8' })
    if (mount.status === 0) execFileSync('umount', [at.path])
    at.remove()
    return mount.status === 0 ? undefined : `no file system can be mounted here (${mount.stderr?.trim()})`
  }

  let folder: ReturnType<typeof temporaryFolder>
  const data = () => join(folder.path, '.data')
  beforeEach(() => {
    folder = temporaryFolder()
    if (reason === undefined) execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=30m,mode=0755', 'tmpfs', folder.path])
  })
  afterEach(() => {
    if (reason === undefined) execFileSync('umount', ['--lazy', folder.path])
  })
  const resize = (megabytes: number) => execFileSync('mount', ['-o', `remount,size=${megabytes}m`, folder.path])

  /** Writes until nothing fits any more, since the server may write meanwhile. The file is what people would delete. */
  function fillDisk(): { free(): void } {
    const path = join(folder.path, 'ballast')
    const file = openSync(path, 'w')
    const block = Buffer.alloc(1_048_576)
    try {
      for (;;) writeSync(file, block)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
    } finally {
      closeSync(file)
    }
    return { free: () => rmSync(path) }
  }

  const whatToFree = (megabytes: number) =>
    new RegExp(
      `the disk that holds ${data()} is too full \\(\\d+ MB free of ${megabytes} MB\\): have at least \\d+ MB free there`,
    )

  test('no room for a cluster, or to start: the path and the room are said, exit 1; with room it works', async () => {
    if (reason !== undefined) return console.info(`not tried: ${reason}`)
    const env = { VISIBILITY_API_URL: 'https://127.0.0.1:9/v1', VISIBILITY_API_KEY: 'k' }
    const migrate = () => runCli(['migrate', '--json'], { cwd: folder.path, env })
    const refused = async (megabytes: number) => {
      const result = await migrate()
      expect([result.code, result.json().error?.message]).toEqual([1, expect.stringMatching(whatToFree(megabytes))])
      expect(runningIn(data())).toBeUndefined()
    }
    // The least of these is not enough for a cluster, the most for the files of its database.
    for (const megabytes of [30, 39]) {
      resize(megabytes)
      await refused(megabytes)
      expect(readdirSync(data())).toEqual([])
    }
    resize(100)
    rmSync(data(), { recursive: true })
    template.copyTo(data())
    const ballast = fillDisk()
    await refused(100)
    ballast.free()
    expect((await migrate()).code).toBe(0)
  })

  test('no room left in the middle of a sync: it ends with exit 1 and says what to free, and the next one completes', async () => {
    if (reason !== undefined) return console.info(`not tried: ${reason}`)
    resize(120)
    template.copyTo(data())
    const setup = await setUp({ world: { projects: 1, prompts: 5 }, faults: { ...NO_LIMIT, latency_ms: 150 } })
    const { DATABASE_URL: _, ...env } = setup.env
    const options = { cwd: folder.path, env, config: { ...setup.fileConfig, warehouse: { patience_seconds: 3 } } }
    const running = startProcess(['sync', '--json'], options)
    await running.saw('loaded')
    const ballast = fillDisk()
    // Fills the log of changes, without which the server cannot go on: where tables find no room, they only fail.
    const url = `postgres://visibility:${readPassword(data())}@127.0.0.1:${runningIn(data())!.port}/visibility`
    const much = "select pg_logical_emit_message(false, 'x', repeat('x', 1000000)) from generate_series(1, 60)"
    await expect(query(url, much)).rejects.toThrow()
    const result = await running.done
    expect(result.code).toBe(1)
    expect(['partial', 'failed']).toContain(result.json().outcome)
    expect(result.stderr).toMatch(whatToFree(120))
    expect(runningIn(data())).toBeUndefined()
    ballast.free()
    const next = await runCli(['sync', '--json'], options)
    expect({ code: next.code, stderr: next.code === 0 ? '' : next.stderr }).toEqual({ code: 0, stderr: '' })
    expect(next.json().outcome).toBe('complete')
  }, 120_000)
})
