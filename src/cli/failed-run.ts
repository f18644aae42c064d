import { LockedError, messageOf } from '../core/errors.ts'
import { failureCodeOf, reportedCode } from '../core/failure-code.ts'
import type { RunEnd } from '../observe/metrics.ts'
import type { RunReport } from '../sync/run/report.ts'

/** How a run ended that threw instead of giving a report, and the report for those who are notified of it. */
export function failedRun(
  error: unknown,
  isStopped: boolean,
  about: Pick<RunReport, 'run_id' | 'command' | 'source' | 'seconds'>,
): { report: RunReport; end: RunEnd } {
  const end = isStopped ? 'interrupted' : error instanceof LockedError ? 'locked' : 'failed'
  const outcome = end === 'interrupted' ? 'interrupted' : 'failed'
  const code = reportedCode(failureCodeOf(error))
  return { end, report: { ...about, outcome, streams: [], notes: [], error: messageOf(error), code } }
}
