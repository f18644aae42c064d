import type { Day } from '../core/day.ts'
import type { ItemResult, Loaded } from '../sync/run/context.ts'

/* What a worker reports to the run: a result as JSON, with what it cost. */

export interface JobResult {
  result: ItemResult | Deferred | Returned
  cost: JobCost
}

/** The requests of the project are spent for so long that windows of others go first. */
export interface Deferred {
  kind: 'deferred'
  waitMs: number
}

/** The worker may not be the right one to do it, so the process of the run does. */
export interface Returned {
  kind: 'returned'
  reason: string
}

export interface JobCost {
  seconds: number
  /** How often each HTTP status was answered; "none" if there was no answer. */
  statuses: Record<string, number>
}

type WireLoaded = Omit<Loaded, 'rowsByDay'> & { rowsByDay: [Day, number][] }
export type WireJobResult = Omit<JobResult, 'result'> & { result: Exclude<JobResult['result'], Loaded> | WireLoaded }

/** Ready for JSON: what only the loading process needs is left out. */
export function toWire({ result, cost }: JobResult): WireJobResult {
  if (result.kind !== 'loaded') return { result, cost }
  const { inserted, updated, deleted, unchanged, held } = result.outcome.effect
  const effect = {
    ...{ inserted, updated, deleted, unchanged },
    held: held === undefined ? undefined : { present: held.present, vanishing: held.vanishing },
  }
  return { cost, result: { ...result, outcome: { ...result.outcome, effect }, rowsByDay: [...result.rowsByDay] } }
}

export function fromWire({ result, cost }: WireJobResult): JobResult {
  if (result.kind !== 'loaded') return { result, cost }
  const { pageRows, rowsByDay, outcome } = result
  return {
    cost,
    // JSON has no undefined.
    result: {
      ...result,
      pageRows: pageRows ?? undefined,
      rowsByDay: new Map(rowsByDay),
      outcome: { ...outcome, range: outcome.range ?? undefined },
    },
  }
}

/** What several attempts cost together. */
export function addCosts(first: JobCost | undefined, second: JobCost): JobCost {
  if (first === undefined) return second
  const statuses = { ...first.statuses }
  for (const [status, times] of Object.entries(second.statuses)) statuses[status] = (statuses[status] ?? 0) + times
  return { seconds: first.seconds + second.seconds, statuses }
}
