import type { View } from './view.ts'

export interface Readiness {
  ready: boolean
  reason?: string
}

/** Answered from what is known already: a probe waits neither for the database nor for a large ledger. */
export function readiness(view: View, maxStalenessMs: number): Readiness {
  if (!view.database.up) return { ready: false, reason: 'the database cannot be reached' }
  if (view.latest === undefined) return { ready: false, reason: 'the ledger was not read yet' }
  const { status } = view.latest
  const now = view.ledgerNow().getTime()
  // Before the first run there is nothing to be late with: it starts with the program.
  if (status === undefined || status.runs.length === 0) return { ready: true }
  const isFresh = (time: Date | null) => time !== null && now - time.getTime() <= maxStalenessMs
  const done = status.runs.find(({ outcome, command }) => outcome === 'complete' && command === 'sync')?.ended_at
  if (done != null)
    return isFresh(done) ? { ready: true } : { ready: false, reason: 'the last success is too long ago' }
  // Without a complete run among the last ones, the reads themselves decide.
  const areFresh = status.streams.every(({ last_read_at }) => isFresh(last_read_at))
  return areFresh ? { ready: true } : { ready: false, reason: 'no run succeeded yet' }
}
