import { codeOf, messageOf } from '../core/errors.ts'

/** The connection or the server is gone. */
const GONE = new Set(['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', '57P01', '57P02', '57P03'])
/** Another transaction was in the way: a serialization failure, a deadlock, a lock that was not to be had. */
const LOCK_TIMEOUT = '55P03'
const CONTENTION = new Set(['40001', '40P01', LOCK_TIMEOUT])
const PROTOCOL_VIOLATION = '08P01'

/** True if trying again, perhaps on another connection, may work. */
export function isRetryable(error: unknown): boolean {
  return isContention(error) || isLostConnection(error)
}

export function isLockTimeout(error: unknown): boolean {
  return codeOf(error) === LOCK_TIMEOUT
}

export function isContention(error: unknown): boolean {
  return CONTENTION.has(codeOf(error) ?? '')
}

function isLostConnection(error: unknown): boolean {
  const code = codeOf(error) ?? ''
  // A message that Postgres does not understand, such as one with too many values, is our fault and will not pass. A
  // pooler that loses its server reports it under the same code, but ends the connection with it.
  if (code === PROTOCOL_VIOLATION) return (error as { severity?: unknown }).severity === 'FATAL'
  return (
    GONE.has(code) ||
    code.startsWith('08') ||
    // These errors of pg have no code.
    /Connection terminated|Client has encountered a connection error|not queryable|timeout exceeded when trying to connect/i.test(
      messageOf(error),
    )
  )
}
