import { TransientError } from '../core/errors.ts'
import { sleep } from '../core/sleep.ts'
import { isLostConnection } from './connect.ts'

const ATTEMPTS = 4

/**
 * Work that a lost connection leaves undone, or that may be done twice, is tried again over another one. A transaction
 * is such work here: loading the same rows twice changes nothing.
 */
export async function withRetries<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (!mayPass(error) || attempt >= ATTEMPTS || signal?.aborted) throw error
      await sleep(200 * 3 ** attempt, signal)
    }
  }
}

/** True where the database could not be reached, or the connection to it was lost on the way. */
export function mayPass(error: unknown): boolean {
  return error instanceof TransientError || isLostConnection(error)
}
