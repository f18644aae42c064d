import type { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { Client } from 'pg'
import { monotonic } from '../core/waiting.ts'

/** Treated like a lost connection: the caller may try again on another one. */
class NoAnswerError extends Error {
  readonly code = 'ETIMEDOUT'
}

type Callback = (error: Error | undefined, result: unknown) => void

interface Waiting {
  timer: NodeJS.Timeout
  endsAt: number
}

// Most queries take milliseconds. Longer ones set their own deadline.
export const QUERY_DEADLINE_MS = 20_000
// As a whole: rows of one page.
const COPY_DEADLINE_MS = 180_000
// How often the server is asked whether it still works on a query that may take long.
const WATCH_MS = 15_000
// Queries with a shorter deadline are not watched.
const WATCHED_MS = 4 * WATCH_MS
// An answer may be on its way while the server is asked.
const IDLE_ANSWERS = 2

/**
 * A connection that gives up by itself. On a network that drops packets silently nothing ever fails, so a
 * query without an answer within its deadline destroys the socket, and the pool makes another connection.
 */
export class DeadlineClient extends Client {
  /** For the queries that follow; none if it is undefined. */
  deadlineMs: number | undefined = QUERY_DEADLINE_MS
  /** Called if a query got no answer in time. */
  onLate: () => void = () => {}
  /** Asks the server, over another connection, whether it works on a query of this one; undefined if nobody knows. */
  isAtWork: () => Promise<boolean | undefined> = async () => undefined
  /** How often that is asked. */
  watchMs = WATCH_MS
  private longestMs = Number.POSITIVE_INFINITY
  private readonly waiting = new Set<Waiting>()

  /** Nobody wants to wait any more: no query gets more than this, those under way included. */
  shortenDeadlines(ms: number): void {
    this.longestMs = ms
    for (const entry of this.waiting) {
      if (entry.endsAt - monotonic() <= ms) continue
      clearTimeout(entry.timer)
      this.arm(entry, ms)
    }
  }

  destroySocket(error?: Error): void {
    ;(this as unknown as { connection: { stream: Socket } }).connection.stream.destroy(error)
  }

  override query(...args: unknown[]): never {
    const [config] = args as [{ submit?: unknown; deadlineMs?: number } | string]
    const isStream = typeof config === 'object' && typeof config.submit === 'function' && 'writable' in config
    const own = typeof config === 'object' && 'deadlineMs' in config ? config.deadlineMs : this.deadlineMs
    const wanted = isStream && own !== undefined ? Math.max(own, COPY_DEADLINE_MS) : own
    const deadlineMs = Math.min(wanted ?? Number.POSITIVE_INFINITY, this.longestMs)
    const call = (...given: unknown[]) => (super.query as (...all: unknown[]) => unknown).apply(this, given) as never
    const entry = {} as Waiting
    this.waiting.add(entry)
    if (deadlineMs > WATCHED_MS) this.watch(entry, deadlineMs)
    else this.arm(entry, deadlineMs)
    const end = () => {
      clearTimeout(entry.timer)
      this.waiting.delete(entry)
    }
    if (isStream) {
      for (const event of ['finish', 'error', 'close']) (config as unknown as Writable).once(event, end)
      return call(...args)
    }
    const last = args.at(-1)
    if (typeof last === 'function') {
      const callback: Callback = (error, result) => {
        end()
        ;(last as Callback)(error, result)
      }
      return call(...args.slice(0, -1), callback)
    }
    const result = call(...args) as Promise<unknown>
    result.then(end, end)
    return result as never
  }

  private arm(entry: Waiting, ms: number, of = ms): void {
    entry.endsAt = monotonic() + ms
    entry.timer = setTimeout(() => this.giveUp(`no answer from the database within ${Math.round(of / 1000)} s`), ms)
  }

  /** For a long or no deadline: gives up as soon as the server says that it has answered, and the answer did not come. */
  private watch(entry: Waiting, deadlineMs: number): void {
    const endsAt = monotonic() + deadlineMs
    entry.endsAt = endsAt
    let idleAnswers = 0
    const ask = async (): Promise<void> => {
      const isAtWork = await this.isAtWork().catch(() => undefined)
      idleAnswers = isAtWork === false ? idleAnswers + 1 : 0
      // Meanwhile it may have got its answer, or a shorter deadline.
      if (!this.waiting.has(entry) || entry.endsAt !== endsAt) return
      if (idleAnswers >= IDLE_ANSWERS) this.giveUp('the answer of the database was lost on its way')
      else again()
    }
    const again = () => {
      const leftMs = endsAt - monotonic()
      if (leftMs > this.watchMs) entry.timer = setTimeout(() => void ask(), this.watchMs)
      else this.arm(entry, Math.max(0, leftMs), deadlineMs)
    }
    again()
  }

  private giveUp(reason: string): void {
    this.destroySocket(new NoAnswerError(reason))
    this.onLate()
  }
}
