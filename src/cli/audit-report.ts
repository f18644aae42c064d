import type { RunReport } from '../sync/report.ts'
import type { AuditResult } from '../sync/run-audit.ts'

/** What an audit with repair came to, as a run. */
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
