import type { ItemResult } from '../sync/run/run.ts'

/* What a worker reports to the run: a result as JSON, with what it cost. */

export interface WindowResult {
  result:
    | ItemResult
    /** The requests of the project are spent for so long that windows of others go first. */
    | { kind: 'deferred'; waitMs: number }
    /** The worker may not be the right one to do it, so the process of the run does. */
    | { kind: 'returned'; reason: string }
  cost: WindowCost
}

export interface WindowCost {
  seconds: number
  /** How often each HTTP status was answered; "none" if there was no answer. */
  statuses: Record<string, number>
}

export const NO_COST: WindowCost = { seconds: 0, statuses: {} }

/** What several attempts cost together. */
export function addCosts(first: WindowCost, second: WindowCost): WindowCost {
  const statuses = { ...first.statuses }
  for (const [status, times] of Object.entries(second.statuses)) statuses[status] = (statuses[status] ?? 0) + times
  return { seconds: first.seconds + second.seconds, statuses }
}
