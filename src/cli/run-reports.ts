import type { AuditResult } from '../audit/run-audit.ts'
import { LockedError, messageOf } from '../core/errors.ts'
import { failureCodeOf, reportedCode } from '../core/failure-code.ts'
import type { RunEnd } from '../observe/metrics.ts'
import type { RunReport } from '../sync/run/report.ts'

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

export function auditReport({ remaining, repair }: AuditResult, runId: number, source: string): RunReport {
  return {
    run_id: runId,
    command: 'audit',
    outcome: remaining === 0 ? (repair?.outcome ?? 'complete') : 'partial',
    source,
    seconds: 0,
    streams: repair?.streams ?? [],
    notes: [],
    ...(remaining === 0 ? {} : { error: `${remaining} days still differ from the service` }),
  }
}
