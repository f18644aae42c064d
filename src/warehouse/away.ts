import { codeOf, TransientError } from '../core/errors.ts'
import { isRetryable } from './retryable.ts'

// No such host, no way to it, or more connections than the server takes: all of it may be different in a minute.
const AWAY = new Set(['ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN', '53300'])

/** True if waiting for the database may help. A wrong password or a server that is too old does not pass by itself. */
export function isAway(error: unknown): boolean {
  if (error instanceof TransientError || isRetryable(error) || AWAY.has(codeOf(error) ?? '')) return true
  return error instanceof Error && error.cause !== undefined && isAway(error.cause)
}
