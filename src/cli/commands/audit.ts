import { parseOptionalRange } from '../../app/backfill-request.ts'
import { type Open, requireDatabase, withServices } from '../../app/open-services.ts'
import type { AuditedStream } from '../../audit/audit-project.ts'
import { type AuditResult, runAudit } from '../../audit/run-audit.ts'
import { dayOf, type Range } from '../../core/day.ts'
import { count, listSome } from '../../core/text.ts'
import { runReason } from '../../ledger/run-reason.ts'
import { prepareWarehouse } from '../../ledger/source.ts'
import { NO_RUN } from '../../observe/findings.ts'
import { refuseUnknownProjects } from '../choose-projects.ts'
import { namesIn, type ProjectNames } from '../project-names.ts'
import { auditReport, type RunReporter, runAndReport } from '../run-and-report.ts'
import type { Session } from '../session.ts'
import { bad, good, renderTable, warning, wrap } from '../table.ts'

export interface AuditOptions {
  from?: string
  to?: string
  repair?: boolean
  project?: string[]
}

/** `audit`: days whose warehouse sums differ from the service; with --repair they are read again. */
export async function audit(session: Session, options: AuditOptions): Promise<number> {
  const { config, log, clock, version } = session
  refuseUnknownProjects(config, options.project)
  const range = parseOptionalRange(options, config, dayOf(clock()))
  requireDatabase(config)
  const request = {
    command: 'audit',
    streams: session.streams.all,
    coversEverything: options.project === undefined,
    // Without --repair nothing changes, so no alert is sent.
    alerts: options.repair ?? false,
  }
  return runAndReport(session, request, (reporter) =>
    withServices({ config, log, clock, version, projects: options.project ?? [] }, (open) =>
      reporter.run(open, async () => {
        await prepareWarehouse(open, session.signal)
        return auditAndPrint(session, { ...options, range }, open, reporter)
      }),
    ),
  )
}

async function auditAndPrint(
  session: Session,
  options: AuditOptions & { range: Range | undefined },
  open: Open,
  reporter: RunReporter,
): Promise<number> {
  const { projects, execute } = open
  const { range, repair = false } = options
  const request = { projects, range, repair, signal: session.signal, execute }
  const result = await runAudit(open, request, reporter.observer)
  const names = await namesIn(open.warehouse, open.projects)
  session.print(
    { source: open.source, ...result },
    render(session.config.redactor.value(result), repair, names, session.width),
  )
  await reporter.ended(auditReport(result, reporter.runId ?? NO_RUN, open.source))
  return result.remaining === 0 && (result.repair === undefined || result.repair.outcome === 'complete') ? 0 : 1
}

function render(result: AuditResult, repair: boolean, names: ProjectNames, width: number): string {
  const total = result.audited.reduce((sum, stream) => sum + stream.differing.length, 0)
  const compared = result.audited.filter(({ left_out }) => left_out === undefined)
  const leftOut = result.audited.filter(({ left_out }) => left_out !== undefined)
  const table = renderTable<AuditedStream>(
    [
      { title: 'stream', value: (row) => row.stream },
      { title: 'days compared', align: 'right', value: (row) => row.days_compared },
      { title: 'differ', align: 'right', value: (row) => row.differing.length },
      { title: 'days', value: (row) => listSome(row.differing, 4) },
    ],
    compared,
    { width, group: (row) => names.heading(row.project_id) },
  )
  const reasons = [...new Set(leftOut.map(({ stream, left_out }) => `${stream}: ${left_out}`))]
  return [
    ...(compared.length > 0 ? [table, ''] : []),
    ...(reasons.length > 0 ? ['Left out:', ...reasons.map((reason) => wrap(reason, width, '  ', '    ')), ''] : []),
    wrap(verdict(result, repair, { days: compared.reduce((sum, row) => sum + row.days_compared, 0), total }), width),
    ...repairTold(result, width),
  ].join('\n')
}

function verdict(
  { remaining, requests }: AuditResult,
  repair: boolean,
  { days, total }: { days: number; total: number },
): string {
  if (days === 0) return `Nothing was compared: no day of a stream that can be audited was read yet.`
  if (total === 0) return `${good('No differences')}; ${count(requests, 'request')}.`
  const differ = total === 1 ? 'differs and was' : 'differ and were'
  if (!repair)
    return `${warning(count(total, 'day'))} ${differ} marked: the next sync reads them again, or "visibility-sync audit --repair" now.`
  const now = remaining === 0 ? good('all are right now') : bad(`${count(remaining, 'day')} still differ`)
  return `${count(total, 'day')} differed and were read again; ${now}.`
}

/** A repair is a run, which may itself be less than complete. */
function repairTold({ repair }: AuditResult, width: number): string[] {
  if (repair === undefined || repair.outcome === 'complete') return []
  const reason = runReason({ outcome: repair.outcome, error: repair.error ?? null, summary: repair.streams })
  return [wrap(`The repair (run ${repair.run_id}) was ${warning(repair.outcome)}: ${reason}`, width)]
}
