import { setTimeout as delay } from 'node:timers/promises'
import { InterruptedError } from './errors.ts'

/**
 * A monotonic clock in milliseconds, passed in so that tests can set it. For ages and time limits: the clock on the wall
 * may be set back, and what is measured with it would then look newer than it is.
 */
export type Monotonic = () => number

export const monotonic: Monotonic = () => performance.now()

/** For one of many that end with the signal. Node takes more than ten listeners of one signal for a leak. */
export function ownSignal(signal: AbortSignal | undefined): AbortSignal | undefined {
  return signal && AbortSignal.any([signal])
}

/** Waits, unless the signal says to stop: then it throws an InterruptedError at once. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await delay(ms, undefined, signal && { signal: ownSignal(signal) })
  } catch {
    throw new InterruptedError('asked to stop while waiting')
  }
}

/** Waits for work that others wait for too, unless the signal says to stop: then it throws an InterruptedError at once. */
export async function unlessStopped(work: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  const over = new AbortController()
  await Promise.race([work, untilStopped(signal, over.signal)]).finally(() => over.abort())
  if (signal?.aborted) throw new InterruptedError('asked to stop while waiting')
}

/** Resolves when the signal is aborted. `over` ends the wait: then it never resolves. */
export function untilStopped(signal: AbortSignal | undefined, over?: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal?.aborted) done()
    const stopped = () => done()
    signal?.addEventListener('abort', stopped, { once: true })
    // Not by the option `signal`: of several listeners of a signal, Node then removes only the newest after garbage was collected.
    over?.addEventListener('abort', () => signal?.removeEventListener('abort', stopped), { once: true })
  })
}

/** Waits for work, but not for longer than `ms`. True if it ended in time; work that is late goes on by itself. */
export async function waitAtMost(ms: number, work: Promise<unknown>): Promise<boolean> {
  const timer = new AbortController()
  const late = delay(ms, false, { signal: timer.signal }).catch(() => false)
  try {
    return await Promise.race([work.then(() => true), late])
  } finally {
    timer.abort()
    work.catch(() => {})
  }
}

export async function withTimeLimit<T>(ms: number, work: Promise<T>, late: () => Error): Promise<T> {
  if (!(await waitAtMost(ms, work))) throw late()
  return work
}

/** In milliseconds: sums of fractions have long decimals. */
export function addSeconds(first: number, second: number): number {
  return Math.round((first + second) * 1000) / 1000
}
