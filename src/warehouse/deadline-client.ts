import type { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { Client } from 'pg'

/** Lost like a connection that was cut: whoever asked may try again on another one. */
class NoAnswerError extends Error {
  readonly code = 'ETIMEDOUT'
}

type Callback = (error: Error | undefined, result: unknown) => void

interface Waiting {
  timer: NodeJS.Timeout
  endsAt: number
}

// Most of ours take milliseconds. Whoever knows of a longer one says so.
export const QUERY_DEADLINE_MS = 20_000
// As a whole: rows of one page.
const COPY_DEADLINE_MS = 180_000

/**
 * A connection that gives up by itself. On a network that swallows packets without a word nothing ever fails, so a
 * query without an answer within its deadline destroys the socket, and the pool makes another connection.
 */
export class DeadlineClient extends Client {
  /** For the queries that follow; none where it is undefined. */
  deadlineMs: number | undefined = QUERY_DEADLINE_MS
  /** Called where a query got no answer in time. */
  onLate: () => void = () => {}
  private longestMs = Number.POSITIVE_INFINITY
  private readonly waiting = new Set<Waiting>()

  /** Nobody wants to wait any more: no query gets more than this, those under way included. */
  hurry(ms: number): void {
    this.longestMs = ms
    for (const entry of this.waiting) {
      if (entry.endsAt - performance.now() <= ms) continue
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
    if (deadlineMs === Number.POSITIVE_INFINITY) return call(...args)
    const entry = {} as Waiting
    this.waiting.add(entry)
    this.arm(entry, deadlineMs)
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

  private arm(entry: Waiting, ms: number): void {
    entry.endsAt = performance.now() + ms
    entry.timer = setTimeout(() => {
      this.destroySocket(new NoAnswerError(`no answer from the database within ${Math.round(ms / 1000)} s`))
      this.onLate()
    }, ms)
  }
}
