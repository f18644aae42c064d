import { type FailureCode, failureRule } from '../core/failure-code.ts'

interface FailureEnd {
  /** What becomes of the window: src/README.md has a table of these. */
  end: 'discard' | 'release' | 'lose' | 'retry' | 'return' | 'report'
  /** The worker pauses before it takes another window. */
  backsOff: boolean
}

// So often a window may fail though its worker is well. In each attempt its requests are tried again, too.
const MOST_FAILURES = 3

interface Attempt {
  /** Earlier attempts that failed though the worker was well. */
  failures: number
  statuses: Readonly<Record<string, number>>
  /** True if the window was taken from the worker, which made no progress. */
  isRevoked: boolean
}

export function endOfFailure(code: FailureCode, { failures, statuses, isRevoked }: Attempt): FailureEnd {
  const { fault, isRefusal } = failureRule(code)
  if (code === 'run-over') return { end: 'discard', backsOff: false }
  if (code === 'interrupted') return { end: isRevoked ? 'lose' : 'release', backsOff: false }
  if (fault === 'access') return { end: 'return', backsOff: true }
  // Other projects and operations may still be read from here.
  if (fault === 'route') return { end: 'return', backsOff: false }
  if (isWorkersFault(code, statuses)) return { end: 'release', backsOff: true }
  // The service refuses such a request again. The run decides about newer reads.
  const isFinal = isRefusal || code === 'superseded' || failures + 1 >= MOST_FAILURES
  return { end: isFinal ? 'report' : 'retry', backsOff: false }
}

/** True if the worker is at fault and not the window: it got no answer to any request, not even to a small one. */
function isWorkersFault(code: FailureCode, statuses: Readonly<Record<string, number>>): boolean {
  const { fault } = failureRule(code)
  if (fault !== 'unknown') return fault === 'worker'
  return Object.keys(statuses).every((status) => status === 'none')
}
