import { execFileSync, spawnSync } from 'node:child_process'
import { closeSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { startReference } from '../src/reference/server.ts'
import { COMPANY_KEY, createWorld } from '../src/reference/world.ts'
import { readPassword } from '../src/warehouse/embedded/cluster.ts'
import { startEmbedded } from '../src/warehouse/embedded/server.ts'
import { runCli, startCli, temporaryFolder } from './support/cli.ts'
import { clusterTemplate, query, runningIn, until } from './support/server-processes.ts'

/* A full disk under the embedded Postgres: every command ends, says what to free, and works again once there is room. */

const MB = 1_048_576
const reason = whyNotMount()
if (reason !== undefined) process.stderr.write(`skipped: the tests of a full disk: ${reason}\n`)
const onSmallDisk = reason === undefined ? test : test.skip

/** A file system of a few megabytes of its own takes the right to mount one. */
function whyNotMount(): string | undefined {
  const at = temporaryFolder()
  const { status, stderr } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', at.path], {
    encoding: 'utf8',
  })
  if (status === 0) execFileSync('umount', [at.path])
  at.remove()
  return status === 0 ? undefined : `no file system can be mounted here (${stderr?.trim() ?? 'no mount command'})`
}

let folder: ReturnType<typeof temporaryFolder>
const data = () => join(folder.path, '.data')
const template = clusterTemplate()
beforeAll(async () => {
  if (reason === undefined) await template.make()
})
afterAll(() => template.remove())
beforeEach(() => {
  folder = temporaryFolder()
  if (reason !== undefined) return
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=30m,mode=0755', 'tmpfs', folder.path])
})
afterEach(() => {
  if (reason === undefined) execFileSync('umount', ['--lazy', folder.path])
  folder.remove()
})
const resize = (megabytes: number) => execFileSync('mount', ['-o', `remount,size=${megabytes}m`, folder.path])

/** Writes until nothing fits any more, since the server may write meanwhile. The file is what people would delete. */
function fillDisk(): { free(): void } {
  const path = join(folder.path, 'ballast')
  const file = openSync(path, 'w')
  const block = Buffer.alloc(MB)
  try {
    for (;;) writeSync(file, block)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  } finally {
    closeSync(file)
  }
  return { free: () => rmSync(path) }
}

const config = {
  start_date: '2026-03-01',
  end_date: '2026-03-10',
  reports: [{ name: 'brand_daily', dimensions: ['date'] }],
  source: { requests_per_minute: 100_000 },
  warehouse: { patience_seconds: 3 },
}

async function startService(latencyMs = 0) {
  const clock = () => new Date('2026-03-10T12:00:00Z')
  const world = createWorld({ projects: 1, prompts: 5, clock })
  const service = await startReference({ world, faults: { rate_limit: null, latency_ms: latencyMs } })
  const env = {
    VISIBILITY_API_URL: service.url,
    VISIBILITY_API_KEY: COMPANY_KEY,
    VISIBILITY_PROJECTS: world.projects.map(({ id }) => id).join(','),
  }
  return { service, env }
}

const whatToFree = (megabytes: number) =>
  new RegExp(
    `the disk that holds ${data()} is too full \\(\\d+ MB free of ${megabytes} MB\\): have at least \\d+ MB free there`,
  )

onSmallDisk(
  'no room for a cluster: it is said with path and size, exit 1, and the same command works with room',
  async () => {
    const { service, env } = await startService()
    const options = { cwd: folder.path, env }
    const result = await runCli(['sync', '--json'], { ...options, config })
    expect(result.code).toBe(1)
    expect(result.json().error.message).toMatch(whatToFree(30))
    expect(runningIn(data())).toBeUndefined()
    expect(readdirSync(data()).filter((name) => /new|^postgres$/.test(name))).toEqual([])
    resize(200)
    expect((await runCli(['sync', '--json'], { ...options, config })).code).toBe(0)
    await service.close()
  },
)

onSmallDisk(
  'no room at all at the start: each command says so at once, and leaves nothing that blocks the next',
  async () => {
    resize(100)
    template.copyTo(data())
    const ballast = fillDisk()
    const options = { cwd: folder.path, env: { VISIBILITY_API_URL: 'https://127.0.0.1:9/v1', VISIBILITY_API_KEY: 'k' } }
    for (let attempt = 1; attempt <= 2; attempt++) {
      const result = await runCli(['migrate', '--json'], options)
      expect(result.code).toBe(1)
      expect(result.json().error.message).toMatch(whatToFree(100))
      expect(runningIn(data())).toBeUndefined()
    }
    ballast.free()
    expect((await runCli(['migrate'], options)).code).toBe(0)
  },
)

onSmallDisk(
  'no room left in the middle of a sync: it ends with exit 1 and says what to free, and the next one completes',
  async () => {
    resize(120)
    template.copyTo(data())
    const { service, env } = await startService(150)
    const options = { cwd: folder.path, env }
    const running = startCli(['sync', '--json'], { ...options, config })
    await running.saw('loaded')
    const ballast = fillDisk()
    await exhaustLog()
    const result = await running.done
    expect(result.code).toBe(1)
    expect(['partial', 'failed']).toContain(result.json().outcome)
    expect(result.stderr).toMatch(whatToFree(120))
    expect(runningIn(data())).toBeUndefined()
    ballast.free()
    const next = await runCli(['sync', '--json'], { ...options, config })
    expect({ code: next.code, stderr: next.code === 0 ? '' : next.stderr }).toEqual({ code: 0, stderr: '' })
    expect(next.json().outcome).toBe('complete')
    await service.close()
  },
  120_000,
)

onSmallDisk('a server that a full disk ended comes back by itself under a command that goes on', async () => {
  resize(100)
  template.copyTo(data())
  const server = await startEmbedded({ folder: data() })
  await query(server.url, 'create table kept as select 1 as a')
  const ballast = fillDisk()
  await exhaustLog()
  expect(await query(server.url, 'select * from kept').catch(() => 'away')).toBe('away')
  ballast.free()
  const rows = () => query(server.url, 'select * from kept').catch(() => [])
  await until('it is back', async () => (await rows()).length === 1)
  await server.release()
  expect(runningIn(data())).toBeUndefined()
})

onSmallDisk('output that the full disk does not take ends the command in order, with exit 1', async () => {
  fillDisk()
  const bin = new URL('../bin/visibility-sync.js', import.meta.url).pathname
  const file = openSync(join(folder.path, 'out.txt'), 'w')
  const result = spawnSync(process.execPath, [bin, '--help'], { stdio: ['ignore', file, 'pipe'], encoding: 'utf8' })
  closeSync(file)
  expect([result.status, result.stderr]).toEqual([1, ''])
})

/** Writes into the server's log of changes until the server cannot go on: where tables find no room, they only fail. */
async function exhaustLog(): Promise<void> {
  const password = encodeURIComponent(readPassword(data())!)
  const client = new Client(`postgres://visibility:${password}@127.0.0.1:${runningIn(data())!.port}/visibility`)
  client.on('error', () => {})
  await client.connect()
  const much = "select pg_logical_emit_message(false, 'x', repeat('x', 1000000)) from generate_series(1, 60)"
  await expect(client.query(much)).rejects.toThrow()
  await client.end().catch(() => {})
}
