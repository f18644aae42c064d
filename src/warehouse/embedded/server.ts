import { randomInt } from 'node:crypto'
import fs from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { codeOf, messageOf, TransientError, UsageError } from '../../core/errors.ts'
import type { Log } from '../../core/logger.ts'
import { isRunning } from '../../core/process-identity.ts'
import { monotonic, sleep } from '../../core/waiting.ts'
import { dataPath, hasCluster, passwordFile, prepareCluster, readPassword, urlOf } from './cluster.ts'

/*
 * A real Postgres in a folder of ours, shared by all commands that run at the same time. Each command holds a shared advisory
 * lock in a session of its own. At its end it tries to get the exclusive lock. It succeeds if no other command uses the
 * server; then it stops the server, while newcomers wait for the lock. A killed command leaves the server to the next one.
 */

export type EmbeddedPostgres = Awaited<ReturnType<typeof startEmbedded>>

interface EmbeddedOptions {
  /** Contains the data folder; `.data` in a checkout. */
  folder: string
  settings?: Record<string, string>
  log?: Log
}

/** The key of the advisory lock. Its database is "postgres"; rows are in another one. */
const LOCK = 715_200
const JOINED = 'already running'
const PATIENCE_MS = 60_000
const QUERY_MS = 70_000
const RESTART_MS = 3000
const NEEDED_MB = 120
const FULL = /no space left on device|disk quota exceeded/i
const WORKING_FOLDER = '/proc/self/cwd'
const hasProc = fs.existsSync(WORKING_FOLDER)
// Recovery after a crash reads up to max_wal_size of log.
const START_MS = 300_000
const STOP_MS = 60_000
const EMPTY_MS = 1000
const POLL_MS = 20
const LOG_BYTES = 5 * 1_048_576
const PORT_TAKEN = /could not bind|could not create any TCP/
/** Another command starts or stops the server, or sessions of a killed server still end. */
const PASSES = /another command stopped|lock file "[^"]*" (already exists|is empty)|still in use/

/** Uses the server until it is released. A server that ends meanwhile, by a crash for example, is started again. */
export async function startEmbedded({ folder: path, settings = {}, log }: EmbeddedOptions) {
  const folder = makeFolder(path)
  const released = new AbortController()
  let current: (Running & { session: Client }) | undefined
  let restarting: Promise<void> | undefined
  let releasing: Promise<void> | undefined
  const begin = async () => {
    const begun = await useServer(folder, settings)
    current = begun
    begun.session.once('end', () => {
      current = undefined
      if (!released.signal.aborted) restarting = restart()
    })
    return begun
  }
  const restart = async () => {
    while (!released.signal.aborted && hasCluster(folder)) {
      try {
        const { how } = await begin()
        if (how !== JOINED) log?.warn({ folder }, 'the embedded Postgres had ended and was started again')
        return
      } catch (error) {
        log?.error({ reason: messageOf(error) }, 'the embedded Postgres has ended and cannot be started')
      }
      await sleep(RESTART_MS, released.signal).catch(() => {})
    }
    if (!released.signal.aborted)
      log?.error({ folder }, 'the data folder of the embedded Postgres was moved or deleted; start the command again')
  }
  const release = async () => {
    released.abort()
    await restarting
    if (current === undefined) return
    const { session, pid } = current
    try {
      await session.query(`select pg_advisory_unlock_shared(${LOCK})`)
      if (await isLast(session)) await stopServer(folder, pid)
    } catch (error) {
      log?.warn({ reason: messageOf(error) }, 'the embedded Postgres was not stopped')
    } finally {
      await session.end().catch(() => {})
    }
  }
  const { how, port } = await begin()
  return {
    /** With the password: for connections, not for people. */
    url: urlOf(folder, port),
    how,
    /** The last user stops it. */
    release: () => (releasing ??= release()),
  }
}

/** Stops a server that a killed command left behind; false if none runs. A server that commands use is not stopped. */
export async function stopEmbedded(path: string): Promise<boolean> {
  const server = hasCluster(path) ? readServer(path) : undefined
  if (server === undefined) return false
  // A server that cannot be asked, since its password is not known for example, is stopped all the same.
  const session = await connect(path, server.port).catch(() => undefined)
  try {
    if (session !== undefined && !(await isLast(session)))
      throw new TransientError(`${path}: other commands use the embedded Postgres; stop them first`)
    await stopServer(path, server.pid)
    return true
  } finally {
    await session?.end().catch(() => {})
  }
}

function makeFolder(path: string): string {
  try {
    fs.mkdirSync(path, { recursive: true })
    // As root the server runs as another user, who must be able to enter; the data folder itself stays closed.
    if (process.getuid?.() === 0) fs.chmodSync(path, 0o755)
    return fs.realpathSync(path)
  } catch (cause) {
    throw new UsageError(`${path}: cannot be created (${messageOf(cause)}); set DATABASE_URL to use another Postgres`)
  }
}

async function useServer(
  folder: string,
  settings: Record<string, string>,
): Promise<Running & { session: Client; how: string }> {
  let how = JOINED
  let reason = 'another command starts or stops it'
  for (const deadline = monotonic() + PATIENCE_MS; monotonic() < deadline; await delay(POLL_MS)) {
    const server = readServer(folder)
    try {
      if (server === undefined) how = await start(folder, settings, PORT_TAKEN.test(reason))
      else if (server.isReady) {
        const session = await connect(folder, server.port)
        // While another command stops the server this waits, and fails when the server is gone.
        await session.query(`select pg_advisory_lock_shared(${LOCK})`)
        return { ...server, how, session }
      }
    } catch (error) {
      reason = messageOf(error)
      // A session that fails because the server is being stopped may succeed with the next server.
      if (PASSES.test(reason) || PORT_TAKEN.test(reason) || (server !== undefined && !(error instanceof UsageError)))
        continue
      if (server !== undefined && how !== JOINED) await stopServer(folder, server.pid)
      throw error
    }
  }
  throw new TransientError(`${folder}: the embedded Postgres cannot be used: ${reason}`)
}

async function start(folder: string, settings: Record<string, string>, isPortTaken: boolean): Promise<string> {
  try {
    const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    return await launch(folder, ['-p', String(choosePort(folder, isPortTaken)), ...options])
  } catch (error) {
    const { bavail, blocks, bsize } = fs.statfsSync(folder)
    const megabytes = (number: number) => Math.floor((number * bsize) / 1_048_576)
    // A full disk may also keep the reason out of the server's log.
    if (!FULL.test(messageOf(error)) && megabytes(bavail) > 0) throw error
    throw new TransientError(
      `the disk that holds ${folder} is too full (${megabytes(bavail)} MB free of ${megabytes(blocks)} MB): have at least ` +
        `${NEEDED_MB} MB free there and run the command again; nothing has to be repaired`,
    )
  }
}

async function connect(folder: string, port: number): Promise<Client> {
  const connectionString = urlOf(folder, port, 'postgres')
  const limits = { connectionTimeoutMillis: QUERY_MS, query_timeout: QUERY_MS, options: '-c idle_session_timeout=0' }
  const session = new Client({ connectionString, ...limits })
  session.on('error', () => {})
  try {
    await session.connect()
    return session
  } catch (error) {
    await session.end().catch(() => {})
    if (!codeOf(error)?.startsWith('28') && readPassword(folder) !== undefined) throw error
    throw new UsageError(
      `the embedded Postgres in ${folder} refuses a connection: ${messageOf(error)}. Run "npx visibility-sync database stop" ` +
        `and delete ${passwordFile(folder)}: the next command sets a new password`,
    )
  }
}

/** True if no command uses the server; from then on none can. */
async function isLast(session: Client): Promise<boolean> {
  const { rows } = await session.query<{ is_last: boolean }>(`select pg_try_advisory_lock(${LOCK}) as is_last`)
  return rows[0]?.is_last ?? false
}

const lockPath = (folder: string) => join(dataPath(folder), 'postmaster.pid')

/** postmaster.pid is also the lock of the folder. */
function readLock(folder: string) {
  let text: string
  try {
    text = fs.readFileSync(lockPath(folder), 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    throw new UsageError(`${folder}: cannot be read (${messageOf(error)}); does it belong to another user?`)
  }
  const [first = '', path, , port, , , , state] = text.split('\n')
  // Single-user mode writes a negative number.
  const pid = Math.abs(Number.parseInt(first, 10))
  const isRunning = pid > 0 && runsIn(pid, dataPath(folder), path)
  return { pid, port: Number(port), isReady: state?.trim() === 'ready', isRunning, isEmpty: text === '' }
}

type Running = NonNullable<ReturnType<typeof readLock>>

/** The server that runs in a folder, also one that is starting or stopping. */
export function readServer(folder: string): Running | undefined {
  const lock = readLock(folder)
  return lock?.isRunning ? lock : undefined
}

/** False for a process that got the number of a dead server, and for the server of the folder that this one is a copy of. */
function runsIn(pid: number, data: string, path: string | undefined): boolean {
  if (!hasProc) return path === data && isRunning(pid, false)
  try {
    const [at, own] = [fs.statSync(`/proc/${pid}/cwd`), fs.statSync(data)]
    return at.dev === own.dev && at.ino === own.ino
  } catch {
    return false
  }
}

/** Postgres itself clears the lock of a dead process. The others that block every start are cleared here. */
async function clearStaleLock(folder: string): Promise<void> {
  // A full disk leaves an empty file. A server that starts fills it at once.
  if (readLock(folder)?.isEmpty) await delay(EMPTY_MS)
  const lock = readLock(folder)
  const isOfAnother = hasProc && lock?.isRunning === false && isRunning(lock.pid)
  if (lock?.isEmpty || isOfAnother) fs.rmSync(lockPath(folder), { force: true })
}

/** It outlives this process; its last user stops it. */
async function launch(folder: string, options: readonly string[]): Promise<string> {
  await clearStaleLock(folder)
  const programs = await prepareCluster(folder)
  const data = dataPath(folder)
  const path = join(folder, 'postgres.log')
  if (fs.existsSync(path) && fs.statSync(path).size > LOG_BYTES) fs.renameSync(path, `${path}.1`)
  const log = fs.openSync(path, 'a')
  // Statements contain data.
  fs.chmodSync(path, 0o600)
  const start = fs.statSync(path).size
  // Postgres writes pg_control by the path that it was given. A server whose folder was moved away must not write into a new
  // cluster under the same path, so it gets its working folder where the system allows it.
  const at = hasProc ? WORKING_FOLDER : data
  const stdio = ['ignore' as const, log, log]
  const child = programs.start(['postgres', '-D', at, ...options], { cwd: data, stdio })
  fs.closeSync(log)
  child.unref()
  let ended: Error | number | null | undefined
  child.on('error', (error) => {
    ended = error
  })
  child.on('exit', (code) => {
    ended ??= code
  })
  for (const deadline = monotonic() + START_MS; ended === undefined && monotonic() < deadline; await delay(POLL_MS)) {
    const server = readServer(folder)
    if (server?.pid === child.pid && server?.isReady) return `started ${programs.how}`
  }
  const reason = () => {
    if (ended instanceof Error) return ended.message
    if (ended === 0) return 'another command stopped it'
    return reasonIn(fs.readFileSync(path).subarray(start).toString(), child.pid!)
  }
  throw new TransientError(`the embedded Postgres does not start (see ${path}):\n${reason()}`)
}

/** Why a server ended: its own fatal error, or the last lines of the log. Servers of other commands write to the log, too. */
function reasonIn(log: string, pid: number): string {
  const own = log.split('\n').filter((line) => line.includes(`[${pid}]`))
  const fatal = own.findIndex((line) => line.includes('FATAL'))
  return fatal < 0 ? log.trim().slice(-1200) : own.slice(fatal).join('\n').slice(0, 1200)
}

/** Ends all sessions and the server, and waits until it is gone. A server that another command started meanwhile goes on. */
async function stopServer(folder: string, pid: number): Promise<void> {
  if (readServer(folder)?.pid === pid) process.kill(pid, 'SIGINT')
  for (const deadline = monotonic() + STOP_MS; readServer(folder)?.pid === pid; await delay(POLL_MS))
    if (monotonic() > deadline) throw new TransientError(`the embedded Postgres (process ${pid}) does not stop`)
}

/** The port of the last start, so that saved connections of BI tools keep working; another one if it was taken. */
function choosePort(folder: string, isTaken: boolean): number {
  const file = join(dataPath(folder), 'postmaster.opts')
  const last = fs.existsSync(file) ? /"-p" "(\d+)"/.exec(fs.readFileSync(file, 'utf8'))?.[1] : undefined
  return isTaken || last === undefined ? randomInt(20_000, 32_000) : Number(last)
}
