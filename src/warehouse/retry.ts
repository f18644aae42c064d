import { codeOf, messageOf, TransientError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { monotonic, sleep } from '../core/waiting.ts'

class DatabaseAwayError extends TransientError {
  override readonly code = 'database-away'
}

// No server, no route to it, no connection left on it (53300), or it is starting or stopping: any of these may pass.
const GONE = new Set([
  ...['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'],
  ...['EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN', '53300', '57P01', '57P02', '57P03'],
])
/** A serialization failure, a deadlock, a lock that was not to be had. */
const CONTENTION = new Set(['40001', '40P01', '55P03'])
const PROTOCOL_VIOLATION = '08P01'

export function isContention(error: unknown): boolean {
  return CONTENTION.has(codeOf(error) ?? '')
}

/** True if a pooler refuses transactions, which no wait changes. */
export function isStatementPooling(error: unknown): boolean {
  return /statement pooling mode/i.test(messageOf(error))
}

export function isUnanswered(error: unknown): boolean {
  return messageOf(error) === 'Query read timeout'
}

/** True if the connection or the server is gone. A wrong password or a server that is too old does not pass by itself. */
export function isAway(error: unknown): boolean {
  if (error instanceof DatabaseAwayError) return true
  const code = codeOf(error) ?? ''
  // A message that Postgres does not understand, such as one with too many values, is our fault and will not pass. A
  // pooler that loses its server reports it under the same code, but ends the connection with it.
  if (code === PROTOCOL_VIOLATION)
    return (error as { severity?: unknown }).severity === 'FATAL' && !isStatementPooling(error)
  return (
    isUnanswered(error) ||
    GONE.has(code) ||
    code.startsWith('08') ||
    // These errors of pg have no code.
    /Connection terminated|Client has encountered a connection error|not queryable|timeout exceeded when trying to connect/i.test(
      messageOf(error),
    )
  )
}

export function isTransient(error: unknown): boolean {
  return error instanceof TransientError || isContention(error) || isAway(error)
}

export function awayError(what: string, cause: unknown): DatabaseAwayError {
  return new DatabaseAwayError(`${what}: ${clip(messageOf(cause) || (codeOf(cause) ?? ''), 200)}`, { cause })
}

const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 3000

interface Patience {
  patienceMs: number
  onWait?: (reason: string) => void
}

/**
 * Runs database work again while the database is away, for as long as the patience lasts. Only for work that may be done
 * twice: a transaction that replaces a window is such work, because loading the same rows again changes nothing.
 */
export async function withRetries<T>(
  { patienceMs, onWait }: Patience,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  const startedAt = monotonic()
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      return await work()
    } catch (error) {
      if (!isTransient(error) || signal?.aborted) throw error
      if (monotonic() - startedAt + pauseMs > patienceMs)
        throw isAway(error) && !(error instanceof TransientError) ? awayError('the database is away', error) : error
      onWait?.(messageOf(error))
      await sleep(pauseMs * (0.75 + Math.random() / 2), signal)
    }
  }
}
