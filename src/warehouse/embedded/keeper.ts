import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf, UsageError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import { processIdentity } from '../../core/process-identity.ts'
import { findBinaries } from './binaries.ts'
import { prepareCluster } from './cluster.ts'
import { diskFullError, isDiskFull, RUNNING_MB } from './disk-space.ts'
import { folderIdentity } from './folder-identity.ts'
import { dropLock, type FolderLock, refreshLock, takeLock, tidyLock } from './folder-lock.ts'
import { Holders } from './holders.ts'
import { dataPath, lockPath } from './layout.ts'
import { type Failed, type KeeperGreeting, type KeeperOptions, lineOf } from './messages.ts'
import { endServerIn, endServersMovedFrom } from './orphans.ts'
import { type Postmaster, startPostmaster } from './postmaster.ts'
import { chooseUser } from './run-as.ts'
import { ServerLog } from './server-log.ts'

/*
 * The keeper: a process of its own that runs the server of one folder for as long as a command holds it. It has a
 * session of its own, so that signals of a terminal do not reach it, and it notices when a command ends, however that
 * happens: the last one's end stops the server. The lock file of the folder is there for as long as the keeper lives.
 */

const WATCH_MS = 250
const REFRESH_MS = 3000
const REPORT_FULL_MS = 60_000
const HEAR_MS = 10_000

/** Runs until nobody holds the server. What it has to say goes to those who do. */
export async function runKeeper(options: KeeperOptions): Promise<void> {
  const { folder } = options
  const token = randomBytes(16).toString('hex')
  const stop = new AbortController()
  const end = () => {
    // At once: a process that came between the decision and the end would hold a server that is being stopped.
    holders.refuse()
    stop.abort()
  }
  // The command that started us holds the server by this pipe until it is connected.
  let isStarterHere = true
  const leave = () => {
    if (!isStarterHere && holders.count === 0) end()
  }
  const holders = new Holders(token, leave)
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, end)
  process.stdout.on('error', () => {})
  process.stdin.on('error', () => {})
  process.stdin.on('close', () => {
    isStarterHere = false
    leave()
  })
  process.stdin.resume()
  const greet = (greeting: KeeperGreeting) =>
    new Promise<void>((done) => process.stdout.write(lineOf(greeting), () => done()))

  const lock: FolderLock = {
    process: processIdentity(),
    folder: folderIdentity(folder) ?? '',
    port: await holders.listen(),
    token,
  }
  try {
    if (!takeLock(lockPath(folder), lock)) {
      await greet({ is: 'busy' })
      return
    }
  } catch (error) {
    await greet(failureOf(error, folder))
    return
  }
  const refreshing = setInterval(() => refreshLock(lockPath(folder)), REFRESH_MS)
  try {
    await greet({ is: 'listening', port: lock.port, token })
    await keep(options, holders, stop.signal)
  } catch (error) {
    holders.announce(failureOf(error, folder))
    // Until all who wait have heard it.
    await until(stop.signal, HEAR_MS)
  } finally {
    clearInterval(refreshing)
    holders.refuse()
    dropLock(lockPath(folder), lock)
    await holders.close()
  }
}

async function keep(options: KeeperOptions, holders: Holders, signal: AbortSignal): Promise<void> {
  const { folder, settings } = options
  const data = dataPath(folder)
  tidyLock(lockPath(folder))
  const binaries = findBinaries(folder)
  const paths = { folder, data, binaries, runAs: chooseUser(binaries.postgres, folder) }
  await endServerIn(data)
  await endServersMovedFrom(data)
  await prepareCluster(paths, signal)
  const identity = folderIdentity(data)
  if (identity === undefined) throw new UsageError(`${data}: was moved or deleted while it was being started`)
  const notice = fullDiskNotice(folder, holders)
  const log = new ServerLog(join(folder, 'postgres.log'), (text) => {
    // Until the server is ready, what it says becomes the error of the start.
    if (holders.isReady) notice(text)
  })
  const server = await startPostmaster(paths, log, settings, signal)
  holders.announce({ is: 'ready', port: server.port, how: paths.runAs.how, data: identity })
  const isMoved = () => folderIdentity(data) !== identity
  await watch(server, isMoved, signal)
  holders.refuse()
  // An orderly end writes a checkpoint, so the folder is watched until then.
  if (!isMoved()) {
    void server.stop('fast')
    await watch(server, isMoved)
  }
  await server.stop('immediate')
  log.close()
}

/** Waits until the server has ended, its data folder is no longer the one that it was started in, or the signal. */
async function watch(server: Postmaster, isMoved: () => boolean, signal?: AbortSignal): Promise<void> {
  while (!server.hasEnded() && !isMoved() && !signal?.aborted) {
    await Promise.race([server.ended, until(signal, WATCH_MS)])
  }
}

/** Tells those who hold the server that its disk is full, as soon as the server says so. */
function fullDiskNotice(folder: string, holders: Holders): (text: string) => void {
  let reportedAt = Number.NEGATIVE_INFINITY
  return (text) => {
    if (!isDiskFull(text) || monotonic() - reportedAt < REPORT_FULL_MS) return
    reportedAt = monotonic()
    holders.notify({ is: 'full', message: messageOf(diskFullError(folder, RUNNING_MB)) })
  }
}

function failureOf(error: unknown, folder: string): Failed {
  const cause = isDiskFull(error) ? diskFullError(folder, RUNNING_MB) : error
  return { is: 'failed', message: messageOf(cause), usage: cause instanceof UsageError }
}

/** Waits for a signal, but not longer than so many milliseconds. */
async function until(signal: AbortSignal | undefined, ms: number): Promise<void> {
  await delay(ms, undefined, signal && { signal }).catch(() => {})
}
