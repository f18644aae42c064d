/** A service that asks for a longer wait is not waited for: the run says so and the next one tries again. */
export const LONGEST_WAIT_MS = 300_000

/** Whether an attempt that ended with this status, or without any, is followed by another one. */
export function isTriedAgain(status: number | undefined): boolean {
  return status === undefined || [408, 425, 429].includes(status) || status >= 500
}

const FIRST_MS = 400
const LONGEST_MS = 20_000

/** How long to wait before attempt `attempt + 1`: what the service asked for, else doubling, with jitter on top. */
export function retryDelayMs(attempt: number, askedMs: number | undefined, random: () => number = Math.random): number {
  const base = askedMs ?? Math.min(LONGEST_MS, FIRST_MS * 2 ** (attempt - 1))
  // Jitter only adds to what the service asked for: coming back early would cost another refusal.
  return askedMs === undefined ? base * (0.5 + random() * 0.5) : base + random() * 250
}
