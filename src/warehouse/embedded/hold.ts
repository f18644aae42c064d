import { spawn } from 'node:child_process'
import { connect } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { codeOf, messageOf, TransientError, UsageError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import { packageFile } from '../../core/package-files.ts'
import { clip } from '../../core/text.ts'
import { folderIdentity } from './folder-identity.ts'
import { isReachable, readLock } from './folder-lock.ts'
import { dataPath, lockPath } from './layout.ts'
import {
  type CommandMessage,
  type Failed,
  type KeeperGreeting,
  type KeeperMessage,
  type KeeperOptions,
  lineOf,
  onMessages,
  type Ready,
} from './messages.ts'

/** One command's claim to the server: it runs at least until this is released or the process ends. */
export interface Hold {
  port: number
  how: string
  /** The data folder as device and inode. */
  data: string
  /** Resolves when the server is gone though nobody released it. */
  lost: Promise<void>
  /** Lets go, and waits for the server's end where nobody else holds it. */
  release(): Promise<void>
}

// Both src/ and dist/ are as far from bin/.
const KEEPER = fileURLToPath(packageFile('bin/postgres-keeper.js'))
// Longer than a keeper takes to stop a server that does not want to.
const PATIENCE_MS = 120_000
const RELEASE_MS = 100_000
const HELLO_MS = 60_000
const PAUSE_MS = 50

/** Holds the server of a folder: that of a running keeper, or of a new one. `onFull` is called when its disk is full. */
export async function holdServer(options: KeeperOptions, onFull: (message: string) => void): Promise<Hold> {
  const deadline = monotonic() + PATIENCE_MS
  for (;;) {
    const lock = readLock(lockPath(options.folder))
    const hold =
      lock === undefined
        ? await startKeeper(options, onFull)
        : isReachable(lock)
          ? await join(lock, options.folder, 'already running', onFull)
          : undefined
    if (hold !== undefined) return hold
    if (monotonic() > deadline) throw busy(options.folder)
    await delay(PAUSE_MS)
  }
}

function busy(folder: string): TransientError {
  const holder = readLock(lockPath(folder))
  const where = holder !== undefined && !isReachable(holder) ? 'in another container or on another machine' : 'here'
  return new TransientError(
    `${folder}: another process ${where} is starting or stopping the embedded Postgres; try again when it has ended`,
  )
}

/** Starts a keeper and holds its server; undefined if another keeper was faster. */
async function startKeeper(options: KeeperOptions, onFull: (message: string) => void): Promise<Hold | undefined> {
  const child = spawn(process.execPath, [KEEPER, JSON.stringify(options)], {
    cwd: '/',
    // A session of its own: signals of the terminal are for us.
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  let output = ''
  child.stderr.on('data', (chunk: Buffer) => {
    output += chunk.toString()
  })
  child.stdin.on('error', () => {})
  try {
    const greeting = await new Promise<KeeperGreeting>((done, fail) => {
      onMessages<KeeperGreeting>(child.stdout, done)
      child.on('error', fail)
      child.on('close', () =>
        fail(new UsageError(`the embedded Postgres cannot be started: ${clip(output.trim(), 800)}`)),
      )
    })
    if (greeting.is === 'busy') return undefined
    if (greeting.is === 'failed') throw errorOf(greeting)
    return await join(greeting, options.folder, undefined, onFull)
  } finally {
    // From here on the connection holds the server, and this process may end before the keeper.
    child.unref()
    for (const stream of child.stdio) stream?.destroy()
  }
}

/** Connects to a keeper and waits until its server is ready; undefined if it is being stopped. */
async function join(
  keeper: { port: number; token: string },
  folder: string,
  how: string | undefined,
  onFull: (message: string) => void,
): Promise<Hold | undefined> {
  const socket = connect({ port: keeper.port, host: '127.0.0.1' })
  const send = (message: CommandMessage) => socket.write(lineOf(message))
  let isReleased = false
  let lose: () => void = () => {}
  const lost = new Promise<void>((done) => {
    lose = done
  })
  const closed = new Promise<void>((done) => socket.on('close', () => done()))
  const ready = await new Promise<Ready | undefined>((done, fail) => {
    const silence = setTimeout(() => {
      socket.destroy()
      fail(new TransientError(`${folder}: the process that runs the embedded Postgres does not answer; try again`))
    }, HELLO_MS)
    socket.on('error', (error) => {
      if (codeOf(error) === 'ECONNREFUSED' || codeOf(error) === 'ECONNRESET') done(undefined)
      else fail(new TransientError(`the embedded Postgres cannot be reached: ${messageOf(error)}`))
    })
    socket.on('close', () => {
      clearTimeout(silence)
      done(undefined)
      if (!isReleased) lose()
    })
    onMessages<KeeperMessage>(socket, (message) => {
      clearTimeout(silence)
      if (message.is === 'ready') done(message)
      else if (message.is === 'failed') fail(errorOf(message))
      else if (message.is === 'full') onFull(message.message)
    })
    socket.on('connect', () => send({ is: 'hold', token: keeper.token }))
  }).catch((error: unknown) => {
    socket.destroy()
    throw error
  })
  if (ready === undefined || ready.data !== folderIdentity(dataPath(folder))) {
    // A server of a folder that was moved is being stopped by its keeper, which watches the folder too.
    socket.destroy()
    return undefined
  }
  return {
    port: ready.port,
    how: how ?? `started ${ready.how}`,
    data: ready.data,
    lost,
    async release() {
      isReleased = true
      send({ is: 'release' })
      await Promise.race([closed, delay(RELEASE_MS, undefined, { ref: false })])
      socket.destroy()
    },
  }
}

function errorOf({ message, usage }: Failed): Error {
  return usage ? new UsageError(message) : new TransientError(message)
}
