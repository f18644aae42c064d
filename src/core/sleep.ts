import { setTimeout as delay } from 'node:timers/promises'
import { InterruptedError } from './errors.ts'

/** Waits, unless the signal says to stop: then it throws an InterruptedError at once. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await delay(ms, undefined, { signal: signal ?? undefined } as { signal?: AbortSignal })
  } catch {
    throw new InterruptedError('asked to stop while waiting')
  }
}
