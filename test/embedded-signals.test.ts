import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { startEmbedded } from '../src/warehouse/embedded/server.ts'
import { runCli, startCli, temporaryFolder } from './support/cli.ts'
import {
  clusterTemplate,
  keeperPid,
  leaveOrphan,
  processesOf,
  query,
  serverPid,
  startDatabase,
  until,
  untilNothingRuns,
} from './support/server-processes.ts'

/* No signal, in any order or number, leaves a server behind. */

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

describe('signals as a terminal sends them, to the whole process group', () => {
  test('in any order and number, they leave no server behind', async () => {
    for (const names of [
      ['SIGINT'],
      ['SIGHUP'],
      ['SIGINT', 'SIGINT', 'SIGINT', 'SIGINT'],
      ['SIGTERM', 'SIGINT'],
      ['SIGHUP', 'SIGTERM', 'SIGINT', 'SIGHUP'],
    ] as NodeJS.Signals[][]) {
      const running = await startDatabase(folder.path)
      expect(processesOf(data()).length).toBeGreaterThan(2)
      for (const name of names) running.toGroup(name)
      // An echo of one keystroke is no wish for a hard end.
      expect([names, (await running.done).code]).toEqual([names, 0])
      await untilNothingRuns(data())
    }
  })

  test('npm run demo ends with its server, and in an orderly way, when the signal comes twice', async () => {
    const demo = startCli(['--port', '0'], { cwd: folder.path, script: 'scripts/demo.mjs', detached: true })
    await demo.saw('Serving:')
    const own = join(folder.path, '.data/demo/.data/reference')
    expect(processesOf(own).length).toBeGreaterThan(2)
    process.kill(-demo.child.pid!, 'SIGINT')
    demo.child.kill('SIGINT')
    expect((await demo.done).code).toBe(0)
    await untilNothingRuns(own)
  })

  test.each(['SIGINT', 'SIGKILL'] as const)(
    '%s while the cluster is being made leaves nothing that runs',
    async (name) => {
      rmSync(data(), { recursive: true })
      const running = startCli(['database', '--json'], { cwd: folder.path, detached: true })
      const isBeingMade = () =>
        existsSync(data()) && readdirSync(data()).some((entry) => entry.startsWith('postgres.new-'))
      await until('a cluster is being made', isBeingMade)
      process.kill(-running.child.pid!, name)
      await running.done
      await untilNothingRuns(data())
      expect(readdirSync(data()).filter((entry) => /new|lock/.test(entry))).toEqual([])
      expect((await runCli(['migrate'], { cwd: folder.path })).code).toBe(0)
    },
  )

  test('whoever repeats Ctrl-C after a moment is not kept waiting by a server that is slow to stop', async () => {
    const running = await startDatabase(folder.path)
    const pid = serverPid(data())
    process.kill(pid, 'SIGSTOP')
    running.toGroup('SIGINT')
    await delay(1200)
    expect(running.child.exitCode).toBeNull()
    running.toGroup('SIGINT')
    expect((await running.done).code).toBe(1)
    process.kill(pid, 'SIGCONT')
    await untilNothingRuns(data())
  })
})

describe('SIGKILL', () => {
  test('of the only command stops its server, and the next command starts it again', async () => {
    const running = await startDatabase(folder.path)
    running.toGroup('SIGKILL')
    await running.done
    await untilNothingRuns(data())
    expect(existsSync(join(data(), 'postgres.lock'))).toBe(false)
    const server = await startEmbedded({ folder: data() })
    expect(server.how).toMatch(/^started/)
    await server.release()
  })

  test('of one of two commands leaves the server to the other', async () => {
    const running = await startDatabase(folder.path)
    const server = await startEmbedded({ folder: data() })
    expect(server.how).toBe('already running')
    running.toGroup('SIGKILL')
    await running.done
    await delay(500)
    expect(await query(server.url, 'select 1 as one')).toEqual([{ one: 1 }])
    await server.release()
    await untilNothingRuns(data())
  })

  test('of the keeper ends its server; a command that holds it has it started again on the same port', async () => {
    const server = await startEmbedded({ folder: data() })
    const [keeper, before] = [keeperPid(data()), serverPid(data())]
    process.kill(keeper, 'SIGKILL')
    await until('a new server', () => {
      try {
        return keeperPid(data()) !== keeper && serverPid(data()) !== before
      } catch {
        return false
      }
    })
    await until('the server answers', () =>
      query(server.url, 'select 1').then(
        () => true,
        () => false,
      ),
    )
    await server.release()
    await untilNothingRuns(data())
  })

  test('of the keeper and of its guard leaves a server that the next command ends before it starts one', async () => {
    const orphan = await leaveOrphan(data(), await startDatabase(folder.path))
    const server = await startEmbedded({ folder: data() })
    expect(serverPid(data())).not.toBe(orphan)
    expect(processesOf(data()).map(({ pid }) => pid)).not.toContain(orphan)
    await server.release()
  })
})
