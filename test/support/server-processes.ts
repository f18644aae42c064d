import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { findBinaries } from '../../src/warehouse/embedded/binaries.ts'
import { folderIdentity, workingFolder } from '../../src/warehouse/embedded/folder-identity.ts'
import { readPostmaster } from '../../src/warehouse/embedded/postmaster.ts'
import { chooseUser, ownDataFolder } from '../../src/warehouse/embedded/run-as.ts'
import { startEmbedded } from '../../src/warehouse/embedded/server.ts'
import { type RunningCli, startCli, temporaryFolder } from './cli.ts'

/* What runs for an embedded Postgres, seen from outside. */

const NEVER_MS = 40_000

interface SeenProcess {
  pid: number
  args: string
}

function allProcesses(): SeenProcess[] {
  const { stdout } = spawnSync('ps', ['-A', '-ww', '-o', 'pid=,state=,args='], { encoding: 'utf8' })
  return stdout
    .split('\n')
    .map((line) => /^\s*(\d+) (\S+)\s+(.*)$/.exec(line))
    .flatMap((found) => (found === null || found[2]!.startsWith('Z') ? [] : { pid: Number(found[1]), args: found[3]! }))
}

/** Those who work in the data folder, wherever it was moved, and those who name the folder. */
export function processesOf(folder: string, data = folderIdentity(join(folder, 'postgres'))): SeenProcess[] {
  return allProcesses().filter(
    ({ pid, args }) =>
      pid !== process.pid &&
      (args.includes(folder) || (/postgres/.test(args) && data !== undefined && workingFolder(pid) === data)),
  )
}

/** Waits until nothing of it runs; fails with what still does. */
export async function untilNothingRuns(folder: string, data?: string): Promise<void> {
  const deadline = Date.now() + NEVER_MS
  for (;;) {
    const left = processesOf(folder, data)
    if (left.length === 0) return
    if (Date.now() > deadline) throw new Error(`still running: ${JSON.stringify(left)}`)
    await delay(50)
  }
}

/** Waits until something holds. */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + NEVER_MS
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`never: ${what}`)
    await delay(20)
  }
}

/** The process of the server itself. */
export function serverPid(folder: string): number {
  return Number(readFileSync(join(folder, 'postgres/postmaster.pid'), 'utf8').split('\n')[0])
}

/** The process that runs the server. */
export function keeperPid(folder: string): number {
  const lock = JSON.parse(readFileSync(join(folder, 'postgres.lock'), 'utf8')) as { process: string }
  return Number(lock.process.split('/')[2])
}

/** The shell that stops the server when its keeper was killed. */
export function guardPid(folder: string): number | undefined {
  const data = folderIdentity(join(folder, 'postgres'))
  return allProcesses().find(({ pid, args }) => args.startsWith('/bin/sh -c') && workingFolder(pid) === data)?.pid
}

/** A server whose keeper and guard were killed together with the command that held it. */
export async function leaveOrphan(folder: string, command: RunningCli): Promise<number> {
  const pid = serverPid(folder)
  const [keeper, guard] = [keeperPid(folder), guardPid(folder)!]
  for (const victim of [guard, keeper, command.child.pid!]) process.kill(victim, 'SIGKILL')
  await command.done
  return pid
}

/** The binaries, and the user who runs them for a folder. */
export function placeOf(folder: string) {
  const binaries = findBinaries(folder)
  return { binaries, runAs: chooseUser(binaries.postgres, folder) }
}

/** Runs a server as version 0.2.0 did: it knows its data folder by path, and nobody looks after it. */
export async function startByPath(folder: string): Promise<ChildProcess> {
  const { binaries, runAs } = placeOf(folder)
  const data = join(folder, 'postgres')
  const port = readFileSync(join(folder, 'postgres.port'), 'utf8')
  ownDataFolder(runAs, data)
  const [program, ...args] = [...runAs.prefix, binaries.postgres, '-D', data, '-p', port]
  const child = spawn(program!, args, { cwd: folder, stdio: 'ignore', detached: true, ...(runAs.user ?? {}) })
  await until('it is ready', () => readPostmaster(data).status === 'ready')
  return child
}

/** A folder with a cluster that was made before: much faster than making one. */
export function clusterTemplate() {
  const own = temporaryFolder()
  return {
    async make(): Promise<void> {
      await (await startEmbedded({ folder: own.path })).release()
    },
    copyTo(folder: string): void {
      mkdirSync(dirname(folder), { recursive: true })
      // Only cp keeps the owner, who as root is another user.
      execFileSync('cp', ['-a', own.path, folder])
    },
    remove: own.remove,
  }
}

/** Rows of one statement. */
export async function query<T>(url: string, sql: string): Promise<T[]> {
  const client = new Client({ connectionString: url })
  client.on('error', () => {})
  try {
    await client.connect()
    return (await client.query(sql)).rows as T[]
  } finally {
    await client.end().catch(() => {})
  }
}

/** A command in a process group of its own that keeps the server of its folder up. */
export async function startDatabase(cwd: string) {
  const running = startCli(['database', '--json'], { cwd, detached: true })
  await running.saw('"url"')
  return { ...running, toGroup: (name: NodeJS.Signals) => process.kill(-running.child.pid!, name) }
}

/** The port of the server, also before anyone was told. */
export function lastPort(folder: string): number {
  return Number(readFileSync(join(folder, 'postgres.port'), 'utf8'))
}
