import type { Day } from '../core/day.ts'
import type { Redactor } from '../core/redactor.ts'
import type { Loaded, StepResult } from '../sync/context.ts'

/* What a worker tells the run: a result as JSON, with what it cost. */

export interface Told {
  result: StepResult
  seconds: number
  /** How often each HTTP status was answered; "none" where there was no answer. */
  statuses: Record<string, number>
  /** The page limit that the worker ended with: lower where the service taught it so. */
  pageLimit: number
  /** Why the worker thinks that another process should try. */
  doubt?: string | undefined
}

export type Sent = Omit<Told, 'result'> & {
  result?: StepResult | (Omit<Loaded, 'rowsByDay'> & { rowsByDay: [Day, number][] })
}

/** Ready for JSON: what only the loading process needs is left out; the run finds cut answers by what all of them tell. */
export function toSent(told: Told): Sent {
  const { result } = told
  if (result.kind === 'split') return { ...told, result: { kind: 'split', again: [] } }
  if (result.kind !== 'loaded') return told
  const { inserted, updated, deleted, unchanged, held } = result.outcome.effect
  const effect = {
    ...{ inserted, updated, deleted, unchanged },
    held: held === undefined ? undefined : { present: held.present, vanishing: held.vanishing },
  }
  const outcome = { ...result.outcome, effect }
  return { ...told, result: { ...result, outcome, again: [], rowsByDay: [...result.rowsByDay] } }
}

/** Words of the service may repeat a secret. The rest is of our own making, and stays as it is whatever the secrets are. */
export function cleanWords<T extends Partial<Pick<Sent, 'result' | 'doubt'>>>(sent: T, redactor: Redactor): T {
  const { result, doubt } = sent
  return {
    ...sent,
    ...(doubt === undefined ? {} : { doubt: redactor.text(doubt) }),
    ...(result?.kind === 'failed' ? { result: { ...result, reason: redactor.text(result.reason) } } : {}),
  }
}

/** Without a result where it only counts an attempt that failed. */
export function fromSent(sent: Sent): Omit<Told, 'result'> & { result: StepResult | undefined } {
  const { result } = sent
  if (result?.kind !== 'loaded') return { ...sent, result: result as StepResult | undefined }
  const rowsByDay = new Map(result.rowsByDay as [Day, number][])
  const outcome = { ...result.outcome, range: result.outcome.range ?? undefined }
  return { ...sent, result: { ...result, outcome, pageRows: result.pageRows ?? undefined, rowsByDay } as Loaded }
}
