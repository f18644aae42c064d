import { execFileSync, spawnSync } from 'node:child_process'
import { closeSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals'
import { readPassword } from '../src/warehouse/embedded/cluster.ts'
import { runCli, startProcess, temporaryFolder } from './support/cli.ts'
import { clusterTemplate, query, runningIn } from './support/server-processes.ts'
import { NO_LIMIT, setUp } from './support/setup.ts'

/* A full disk under the embedded Postgres: every command ends, says what to free, and works again once there is room. */

const reason = whyNotMount()
if (reason !== undefined) process.stderr.write(`skipped: the tests of a full disk: ${reason}\n`)
const onSmallDisk = reason === undefined ? test : test.skip

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
const template = clusterTemplate()
beforeAll(async () => {
  if (reason === undefined) await template.make()
})
afterAll(() => template.remove())
beforeEach(() => {
  folder = temporaryFolder()
  if (reason === undefined) execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=30m,mode=0755', 'tmpfs', folder.path])
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

onSmallDisk(
  'no room for a cluster, or to start: the path and the room are said, exit 1; with room it works',
  async () => {
    const env = { VISIBILITY_API_URL: 'https://127.0.0.1:9/v1', VISIBILITY_API_KEY: 'k' }
    const migrate = () => runCli(['migrate', '--json'], { cwd: folder.path, env })
    const refused = async (megabytes: number) => {
      const result = await migrate()
      expect([result.code, result.json().error?.message]).toEqual([1, expect.stringMatching(whatToFree(megabytes))])
      expect(runningIn(data())).toBeUndefined()
    }
    await refused(30)
    expect(readdirSync(data())).toEqual([])
    resize(100)
    rmSync(data(), { recursive: true })
    template.copyTo(data())
    const ballast = fillDisk()
    await refused(100)
    await refused(100)
    ballast.free()
    expect((await migrate()).code).toBe(0)
  },
)

onSmallDisk(
  'no room left in the middle of a sync: it ends with exit 1 and says what to free, and the next one completes',
  async () => {
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
    await setup.close()
  },
  120_000,
)

onSmallDisk('output that the full disk does not take ends the command in order, with exit 1', async () => {
  fillDisk()
  const bin = new URL('../bin/visibility-sync.js', import.meta.url).pathname
  const file = openSync(join(folder.path, 'out.txt'), 'w')
  const result = spawnSync(process.execPath, [bin, '--help'], { stdio: ['ignore', file, 'pipe'], encoding: 'utf8' })
  closeSync(file)
  expect([result.status, result.stderr]).toEqual([1, ''])
})
