import { chmodSync, mkdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { Client } from 'pg'
import { codeOf, messageOf, TransientError, UsageError } from '../../core/errors.ts'
import type { Log } from '../../core/logger.ts'
import { sleep } from '../../core/sleep.ts'
import { folderIdentity } from './folder-identity.ts'
import { type Hold, holdServer } from './hold.ts'
import { dataPath } from './layout.ts'
import { passwordFile, ROLE, readPassword } from './password.ts'

/*
 * A real Postgres in a folder of ours, shared by all commands that run at the same time. A process of its own, the keeper,
 * runs it for as long as a command holds it; the last to let go, or to be killed, stops it.
 */

export interface EmbeddedPostgres {
  /** With the password: for connections, not for people. */
  url: string
  /** "started" or "already running", and how. */
  how: string
  /** Lets go of the server; the last one stops it. */
  release(): Promise<void>
}

export interface EmbeddedOptions {
  /** The folder that holds the data folder, `.data` in a checkout. */
  folder: string
  /** Extra server settings. */
  settings?: Record<string, string>
  /** Called for a full disk, and of a server that ended and was started again. */
  log?: Log
}

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 15_000

export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const folder = resolve(options.folder)
  makeFolder(folder)
  const held = new HeldServer({ ...options, folder })
  const first = await held.start()
  try {
    return { url: await checkedUrl(folder, first.port), how: first.how, release: () => held.release() }
  } catch (error) {
    await held.release()
    throw error
  }
}

function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true })
    // As root the server runs as another user, who must be able to enter; the data folder itself stays closed.
    if (process.getuid?.() === 0) chmodSync(folder, 0o755)
  } catch (cause) {
    throw new UsageError(
      `${folder}: cannot be made for the embedded Postgres: ${messageOf(cause)}; set DATABASE_URL instead`,
    )
  }
}

/** The connection string, once it has worked: people can change the password of our role. */
async function checkedUrl(folder: string, port: number): Promise<string> {
  const password = encodeURIComponent(readPassword(folder) ?? '')
  const url = `postgres://${ROLE}:${password}@127.0.0.1:${port}/${ROLE}`
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 30_000 })
  client.on('error', () => {})
  try {
    await client.connect()
  } catch (cause) {
    const problem = `the embedded Postgres in ${folder} refuses a connection: ${messageOf(cause)}`
    if (!codeOf(cause)?.startsWith('28')) throw new TransientError(problem)
    throw new UsageError(`${problem}. Delete ${passwordFile(folder)} and the next command sets a new password`)
  } finally {
    await client.end().catch(() => {})
  }
  return url
}

/** The hold of one command. A server that ends under it, by a crash for example, is started again on the same port. */
class HeldServer {
  readonly #options: EmbeddedOptions
  readonly #released = new AbortController()
  #hold: Hold | undefined
  #restarting: Promise<void> = Promise.resolve()
  #releasing: Promise<void> | undefined

  constructor(options: EmbeddedOptions) {
    this.#options = options
  }

  async start(): Promise<Hold> {
    const { folder, settings = {}, log } = this.#options
    const onFull = (reason: string) => log?.error({ reason }, 'the disk of the embedded Postgres is full')
    const hold = await holdServer({ folder, settings }, onFull)
    this.#hold = hold
    void hold.lost.then(() => {
      this.#hold = undefined
      if (!this.#released.signal.aborted) this.#restarting = this.#restart(hold.data)
    })
    return hold
  }

  release(): Promise<void> {
    this.#releasing ??= this.#release()
    return this.#releasing
  }

  async #release(): Promise<void> {
    this.#released.abort()
    await this.#restarting
    await this.#hold?.release()
  }

  async #restart(identity: string): Promise<void> {
    const { folder, log } = this.#options
    for (let pauseMs = FIRST_PAUSE_MS; !this.#released.signal.aborted; pauseMs *= 2) {
      // Nothing is made anew in the paths of a folder that someone moved away.
      if (folderIdentity(dataPath(folder)) !== identity) {
        log?.error({ folder }, 'the data folder of the embedded Postgres was moved or deleted; start the command again')
        return
      }
      try {
        await this.start()
        log?.warn({ folder }, 'the embedded Postgres had ended and was started again')
        return
      } catch (error) {
        log?.error({ reason: messageOf(error) }, 'the embedded Postgres has ended and cannot be started')
      }
      await sleep(Math.min(pauseMs, LONGEST_PAUSE_MS), this.#released.signal).catch(() => {})
    }
  }
}
