import { execFileSync } from 'node:child_process'
import { existsSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { folderIdentity } from '../src/warehouse/embedded/folder-identity.ts'
import { startEmbedded } from '../src/warehouse/embedded/server.ts'
import { temporaryFolder } from './support/cli.ts'
import {
  clusterTemplate,
  leaveOrphan,
  query,
  serverPid,
  startByPath,
  startDatabase,
  until,
  untilNothingRuns,
} from './support/server-processes.ts'

/* A server never writes into a folder that is not its own, and is never taken for that of another folder. */

let folder: ReturnType<typeof temporaryFolder>
const data = () => join(folder.path, '.data/reference')
const template = clusterTemplate()
beforeAll(() => template.make())
afterAll(() => template.remove())
beforeEach(() => {
  folder = temporaryFolder()
  template.copyTo(data())
})
afterEach(() => folder.remove())

describe('a data folder that is moved or deleted under a running server', () => {
  test('is noticed: the server ends, a new one starts in a new folder, and both folders stay whole', async () => {
    const first = await startEmbedded({ folder: data() })
    await query(first.url, 'create table kept as select 1 as a')
    const old = folderIdentity(join(data(), 'postgres'))
    const aside = join(folder.path, 'aside')
    renameSync(data(), aside)
    const second = await startEmbedded({ folder: data() })
    expect(second.how).toMatch(/^started/)
    await query(second.url, 'create table made as select 2 as b')
    await untilNothingRuns(aside, old)
    await first.release()
    await second.release()
    const [moved, made] = [await startEmbedded({ folder: aside }), await startEmbedded({ folder: data() })]
    expect(await query(moved.url, 'select * from kept')).toEqual([{ a: 1 }])
    expect(await query(made.url, 'select * from made')).toEqual([{ b: 2 }])
    await moved.release()
    await made.release()
  })

  test('is not made anew by a command that still runs', async () => {
    const logs: string[] = []
    const log = { error: (_: object, text: string) => logs.push(text), warn: () => {} } as never
    const server = await startEmbedded({ folder: data(), log })
    const pid = serverPid(data())
    const old = folderIdentity(join(data(), 'postgres'))
    rmSync(data(), { recursive: true, force: true })
    await untilNothingRuns(`${data()}/`, old)
    await until('it is said', () => logs.some((text) => text.includes('was moved or deleted; start the command again')))
    expect(existsSync(data())).toBe(false)
    await server.release()
    const next = await startEmbedded({ folder: data() })
    expect(serverPid(data())).not.toBe(pid)
    await next.release()
  })

  test('an orphan of a moved folder writes nothing into the cluster that took its place', async () => {
    const orphan = await leaveOrphan(data(), await startDatabase(folder.path))
    const aside = join(folder.path, 'aside')
    renameSync(data(), aside)
    const made = await startEmbedded({ folder: data() })
    await query(made.url, 'create table made as select 2 as b')
    await made.release()
    // Its last checkpoint: by path it would go into the new cluster.
    process.kill(orphan, 'SIGINT')
    await untilNothingRuns(aside, folderIdentity(join(aside, 'postgres')))
    const again = await startEmbedded({ folder: data() })
    expect(await query(again.url, 'select * from made')).toEqual([{ b: 2 }])
    await again.release()
  })

  test('a server that knows its folder by path, as those of version 0.2.0 do, is ended before a cluster takes its place', async () => {
    const server = await startByPath(data())
    const aside = join(folder.path, 'aside')
    renameSync(data(), aside)
    const made = await startEmbedded({ folder: data() })
    await until('the old server is gone', () => server.exitCode !== null || server.signalCode !== null)
    await made.release()
    const again = await startEmbedded({ folder: data() })
    await again.release()
  })

  test('a server that runs in the original is not taken for that of a copy in its place', async () => {
    const first = await startEmbedded({ folder: data() })
    const copy = join(folder.path, 'copy')
    const before = serverPid(data())
    execFileSync('cp', ['-a', data(), copy])
    renameSync(data(), join(folder.path, 'aside'))
    renameSync(copy, data())
    const second = await startEmbedded({ folder: data() })
    expect(second.how).toMatch(/^started/)
    expect(serverPid(data())).not.toBe(before)
    await first.release()
    await second.release()
  })
})
