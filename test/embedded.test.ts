import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { startEmbedded } from '../src/warehouse/embedded/server.ts'
import { runCli, startCli, temporaryFolder } from './support/cli.ts'

/* The embedded Postgres: started where there is none, shared, adopted, stopped by the last. */

let folder: ReturnType<typeof temporaryFolder>
afterEach(() => folder.remove())
const pidOf = () => Number(readFileSync(join(folder.path, '.data/postgres/postmaster.pid'), 'utf8').split('\n')[0])
const isRunning = () => existsSync(join(folder.path, '.data/postgres/postmaster.pid'))
const CONFIG = {
  start_date: '2026-03-01',
  end_date: '2026-03-05',
  streams: ['prompts'],
  reports: [{ name: 'brand_daily', dimensions: ['date'] }],
}

test('without settings, sync runs on the embedded Postgres and the reference service, says so, and leaves nothing running', async () => {
  folder = temporaryFolder()
  const first = await runCli(['sync'], { cwd: folder.path, config: CONFIG })
  expect(first.code).toBe(0)
  expect(first.stdout).toContain('the reference service (synthetic data')
  expect(first.stdout).toMatch(
    /Warehouse: postgres:\/\/visibility@127\.0\.0\.1:\d+\/visibility \(embedded, \.data\/\)\nNext: +keep this database running[^\n]+\n +npx visibility-sync database/,
  )
  expect(isRunning()).toBe(false)
  const second = await runCli(['sync'], { cwd: folder.path, config: CONFIG })
  expect(second.stdout).toContain('nothing to change')
  const port = (text: string) => /127\.0\.0\.1:(\d+)/.exec(text)![1]
  expect(port(second.stdout)).toBe(port(first.stdout))
})

test('two commands at once share one server, and the last to end stops it', async () => {
  folder = temporaryFolder()
  const keeper = startCli(['database', '--json'], { cwd: folder.path })
  await keeper.saw('"url"')
  const pid = pidOf()
  const [a, b] = await Promise.all([
    runCli(['migrate'], { cwd: folder.path, config: CONFIG }),
    runCli(['status', '--json'], { cwd: folder.path, config: CONFIG }),
  ])
  expect([a.code, b.code, pidOf()]).toEqual([0, 0, pid])
  keeper.child.kill('SIGTERM')
  expect((await keeper.done).code).toBe(0)
  expect(isRunning()).toBe(false)
})

test('a server left behind by a killed command is adopted, and stopped in the end', async () => {
  folder = temporaryFolder()
  const keeper = startCli(['database', '--json'], { cwd: folder.path })
  await keeper.saw('"url"')
  const pid = pidOf()
  keeper.child.kill('SIGKILL')
  await keeper.done
  expect(isRunning()).toBe(true)
  const next = await startEmbedded({ folder: join(folder.path, '.data') })
  expect([next.how, pidOf()]).toEqual(['already running', pid])
  await next.release()
  expect(isRunning()).toBe(false)
})

test('a server that was killed itself is started again with its data', async () => {
  folder = temporaryFolder()
  const data = join(folder.path, '.data')
  const first = await startEmbedded({ folder: data })
  const client = new Client({ connectionString: first.url })
  client.on('error', () => {})
  await client.connect()
  await client.query('create table kept (a int)')
  process.kill(pidOf(), 'SIGKILL')
  await first.release()
  const second = await startEmbedded({ folder: data })
  const again = new Client({ connectionString: second.url })
  await again.connect()
  expect((await again.query('select * from kept')).rows).toEqual([])
  expect((await again.query('show server_encoding')).rows).toEqual([{ server_encoding: 'UTF8' }])
  await again.end()
  await second.release()
})

test('it starts in a folder that only its owner can enter, whoever runs it', async () => {
  folder = temporaryFolder()
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

test('only our own role can connect without a password, and it is no superuser', async () => {
  folder = temporaryFolder()
  const server = await startEmbedded({ folder: join(folder.path, '.data') })
  const client = new Client({ connectionString: server.url })
  await client.connect()
  expect((await client.query('select usesuper from pg_user where usename = current_user')).rows).toEqual([
    { usesuper: false },
  ])
  await client.end()
  const root = new Client({ connectionString: server.url.replace('visibility@', 'postgres@') })
  await expect(root.connect()).rejects.toThrow()
  await server.release()
})

test('a uid without a name can run it, where the machine allows it to be tried', async () => {
  folder = temporaryFolder()
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
