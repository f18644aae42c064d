import { chmodSync, closeSync, existsSync, openSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { codeOf, messageOf, TransientError, UsageError } from '../../core/errors.ts'
import { monotonic } from '../../core/waiting.ts'
import { isAlive } from './cluster.ts'
import { dataPath, type Programs, startProgram } from './programs.ts'

/** What postmaster.pid in the data folder says of the server. The file is also the lock of the folder. */
export interface Running {
  pid: number
  port: number
  isReady: boolean
}

const WORKING_FOLDER = '/proc/self/cwd'
const hasProc = existsSync(WORKING_FOLDER)
// Recovery after a crash reads up to max_wal_size of log.
const START_MS = 300_000
const STOP_MS = 60_000
const EMPTY_MS = 1000
const PAUSE_MS = 20
const LOG_BYTES = 5 * 1_048_576

/** The server that runs in a folder, also one that is starting or stopping. */
export function readServer(folder: string): Running | undefined {
  const lines = readLock(folder)?.split('\n') ?? []
  const pid = pidOf(lines[0])
  if (!(pid > 0) || !runsIn(pid, dataPath(folder), lines[1])) return undefined
  return { pid, port: Number(lines[3]), isReady: lines[7]?.trim() === 'ready' }
}

const lockPath = (folder: string) => join(dataPath(folder), 'postmaster.pid')
/** Single-user mode writes a negative number. */
const pidOf = (lock: string | undefined) => Math.abs(Number.parseInt(lock ?? '', 10))

function readLock(folder: string): string | undefined {
  try {
    return readFileSync(lockPath(folder), 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw new UsageError(`${folder}: cannot be read (${messageOf(error)}); does it belong to another user?`)
  }
}

/** False for a process that got the number of a dead server, and for the server of the folder that this one is a copy of. */
function runsIn(pid: number, data: string, path: string | undefined): boolean {
  if (!hasProc) return path === data && isAlive(pid)
  try {
    const [at, own] = [statSync(`/proc/${pid}/cwd`), statSync(data)]
    return at.dev === own.dev && at.ino === own.ino
  } catch {
    return false
  }
}

/** Postgres itself clears the lock of a dead process. The others that block every start are cleared here. */
async function clearStaleLock(folder: string): Promise<void> {
  // A full disk leaves an empty file. A server that starts fills it at once.
  if (readLock(folder) === '') await delay(EMPTY_MS)
  const lock = readLock(folder)
  const isOfAnother = hasProc && isAlive(pidOf(lock)) && readServer(folder) === undefined
  if (lock === '' || isOfAnother) rmSync(lockPath(folder), { force: true })
}

/** Starts the server and waits until it accepts connections. It outlives this process; its last user stops it. */
export async function launch(programs: Programs, folder: string, settings: Record<string, string>): Promise<void> {
  const data = dataPath(folder)
  await clearStaleLock(folder)
  const port = await choosePort(data)
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const path = join(folder, 'postgres.log')
  if (existsSync(path) && statSync(path).size > LOG_BYTES) renameSync(path, `${path}.1`)
  const log = openSync(path, 'a')
  // Statements contain data.
  chmodSync(path, 0o600)
  const start = statSync(path).size
  // Postgres writes pg_control by the path that it was given. A server whose folder was moved away must not write into a new
  // cluster under the same path, so it gets its working folder where the system allows it.
  const at = hasProc ? WORKING_FOLDER : data
  const stdio = ['ignore' as const, log, log]
  const child = startProgram(programs, ['postgres', '-D', at, '-p', String(port), ...options], { cwd: data, stdio })
  closeSync(log)
  child.unref()
  let problem: Error | undefined
  child.on('error', (error) => {
    problem = error
  })
  const hasEnded = () => problem !== undefined || child.exitCode !== null || child.signalCode !== null
  for (const deadline = monotonic() + START_MS; !hasEnded() && monotonic() < deadline; await delay(PAUSE_MS)) {
    const server = readServer(folder)
    if (server?.pid === child.pid && server?.isReady) return
  }
  if (child.exitCode === 0) throw new TransientError('another command stopped the embedded Postgres')
  const reason = problem?.message ?? reasonIn(readFileSync(path).subarray(start).toString(), child.pid!)
  throw new TransientError(`the embedded Postgres does not start (see ${path}):\n${reason}`)
}

/** Why a server ended: its own fatal error, or the last lines of the log. Servers of other commands write to the log, too. */
export function reasonIn(log: string, pid: number): string {
  const own = log.split('\n').filter((line) => line.includes(`[${pid}]`))
  const fatal = own.findIndex((line) => line.includes('FATAL'))
  return fatal < 0 ? log.trim().slice(-1200) : own.slice(fatal).join('\n').slice(0, 1200)
}

/** Ends all sessions and the server, and waits until it is gone. A server that another command started meanwhile goes on. */
export async function stopServer(folder: string, pid: number): Promise<void> {
  if (readServer(folder)?.pid === pid) process.kill(pid, 'SIGINT')
  for (const deadline = monotonic() + STOP_MS; readServer(folder)?.pid === pid; await delay(PAUSE_MS))
    if (monotonic() > deadline) throw new TransientError(`the embedded Postgres (process ${pid}) does not stop`)
}

/** The port of the last start if it is free, so that saved connections of BI tools keep working. */
async function choosePort(data: string): Promise<number> {
  const file = join(data, 'postmaster.opts')
  const last = existsSync(file) ? /"-p" "(\d+)"/.exec(readFileSync(file, 'utf8'))?.[1] : undefined
  return (await freePort(Number(last ?? 0))) ?? (await freePort(0))!
}

function freePort(wanted: number): Promise<number | undefined> {
  return new Promise((done) => {
    const server = createServer().once('error', () => done(undefined))
    server.listen(wanted, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => done(port))
    })
  })
}
