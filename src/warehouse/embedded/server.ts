import { chmodSync, mkdirSync, realpathSync, statfsSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { codeOf, messageOf, TransientError, UsageError } from '../../core/errors.ts'
import type { Log } from '../../core/logger.ts'
import { monotonic, sleep } from '../../core/waiting.ts'
import { hasCluster, passwordFile, prepareCluster, ROLE, readPassword } from './cluster.ts'
import { launch, type Running, readServer, stopServer } from './postmaster.ts'
import { findPrograms } from './programs.ts'

/*
 * A real Postgres in a folder of ours, shared by all commands that run at the same time. Each command holds a shared advisory
 * lock in a session of its own. At its end it tries to get the exclusive lock. It succeeds if no other command uses the
 * server; then it stops the server, while newcomers wait for the lock. A killed command leaves the server to the next one.
 */

export interface EmbeddedPostgres {
  /** With the password: for connections, not for people. */
  url: string
  /** "started" or "already running", and how. */
  how: string
  /** Ends the use of the server; the last user stops it. */
  release(): Promise<void>
}

export interface EmbeddedOptions {
  /** The folder that contains the data folder, `.data` in a checkout. */
  folder: string
  /** Extra server settings. */
  settings?: Record<string, string>
  /** Reports a server that ended during the command. */
  log?: Log
}

interface Use extends Running {
  session: Client
  how: string
}

/** The key of the advisory lock. Its database is "postgres"; rows are in another one. */
const LOCK = 715_200
const JOINED = 'already running'
const PATIENCE_MS = 60_000
const QUERY_MS = 70_000
const PAUSE_MS = 50
const RESTART_MS = 3000
const NEEDED_MB = 120
const FULL = /no space left on device|disk quota exceeded/i
/** Another command starts or stops the server, sessions of a killed server still end, or the port was taken meanwhile. */
const PASSES =
  /another command stopped|lock file "[^"]*" (already exists|is empty)|still in use|could not bind|could not create any TCP/

/** Uses the server until it is released. A server that ends meanwhile, by a crash for example, is started again. */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const { log } = options
  const folder = makeFolder(options.folder)
  const released = new AbortController()
  let current: Use | undefined
  let restarting: Promise<void> | undefined
  let releasing: Promise<void> | undefined
  const begin = async (): Promise<Use> => {
    const begun = await useServer(folder, options.settings ?? {})
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
  return { url: urlOf(folder, port, ROLE), how, release: () => (releasing ??= release()) }
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
    mkdirSync(path, { recursive: true })
    // As root the server runs as another user, who must be able to enter; the data folder itself stays closed.
    if (process.getuid?.() === 0) chmodSync(path, 0o755)
    return realpathSync(path)
  } catch (cause) {
    throw new UsageError(`${path}: cannot be created (${messageOf(cause)}); set DATABASE_URL to use another Postgres`)
  }
}

/** Joins the server that runs in the folder, or starts one. */
async function useServer(folder: string, settings: Record<string, string>): Promise<Use> {
  let how = JOINED
  let reason = 'another command starts or stops it'
  for (const deadline = monotonic() + PATIENCE_MS; monotonic() < deadline; await delay(PAUSE_MS)) {
    const server = readServer(folder)
    try {
      if (server === undefined) how = await start(folder, settings)
      else if (server.isReady) {
        const session = await connect(folder, server.port)
        // While another command stops the server this waits, and fails when the server is gone.
        await session.query(`select pg_advisory_lock_shared(${LOCK})`)
        return { ...server, how, session }
      }
    } catch (error) {
      reason = messageOf(error)
      // A session that fails because the server is being stopped may succeed with the next server.
      if (PASSES.test(reason) || (server !== undefined && !(error instanceof UsageError))) continue
      if (server !== undefined && how !== JOINED) await stopServer(folder, server.pid)
      throw error
    }
  }
  throw new TransientError(`${folder}: the embedded Postgres cannot be used: ${reason}`)
}

async function start(folder: string, settings: Record<string, string>): Promise<string> {
  try {
    const programs = findPrograms(folder)
    await prepareCluster(programs, folder)
    await launch(programs, folder, settings)
    return `started ${programs.how}`
  } catch (error) {
    const { bavail, blocks, bsize } = statfsSync(folder)
    const megabytes = (number: number) => Math.floor((number * bsize) / 1_048_576)
    // A full disk may also keep the reason out of the server's log.
    if (!FULL.test(messageOf(error)) && megabytes(bavail) > 0) throw error
    throw new TransientError(
      `the disk that holds ${folder} is too full (${megabytes(bavail)} MB free of ${megabytes(blocks)} MB): have at least ` +
        `${NEEDED_MB} MB free there and run the command again; nothing has to be repaired`,
    )
  }
}

function urlOf(folder: string, port: number, database: string): string {
  return `postgres://${ROLE}:${encodeURIComponent(readPassword(folder) ?? '')}@127.0.0.1:${port}/${database}`
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
      `the embedded Postgres in ${folder} refuses a connection: ${messageOf(error)}. Run "visibility-sync database stop" ` +
        `and delete ${passwordFile(folder)}: the next command sets a new password`,
    )
  }
}

/** True if no command uses the server; from then on none can. */
async function isLast(session: Client): Promise<boolean> {
  const { rows } = await session.query<{ is_last: boolean }>(`select pg_try_advisory_lock(${LOCK}) as is_last`)
  return rows[0]?.is_last ?? false
}
