import { TransientError } from '../core/errors.ts'
import { monotonic } from '../core/monotonic.ts'
import { sleep } from '../core/sleep.ts'
import { isRetryable } from './retryable.ts'

const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 3000

/**
 * Runs database work again while the database is away, for as long as its patience lasts. Only for work that may be done
 * twice: a transaction that replaces a window is such work, because loading the same rows again changes nothing.
 */
export async function withRetries<T>(
  { patienceMs }: { patienceMs: number },
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  const startedAt = monotonic()
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      return await work()
    } catch (error) {
      const isLate = monotonic() - startedAt + pauseMs > patienceMs
      if (!isTransient(error) || isLate || signal?.aborted) throw error
      await sleep(pauseMs * (0.75 + Math.random() / 2), signal)
    }
  }
}

/** True if the database could not be reached, or the connection to it was lost on the way. */
export function isTransient(error: unknown): boolean {
  return error instanceof TransientError || isRetryable(error)
}
