import { parseOptionalRange } from '../../app/backfill-request.ts'
import { chooseProjects, requireDatabase } from '../../app/open-services.ts'
import { type AuditResult, runAudit } from '../../audit/run-audit.ts'
import { dayOf } from '../../core/day.ts'
import { count, listSome, streamDays } from '../../core/text.ts'
import { runReason } from '../../ledger/run-reason.ts'
import { prepareWarehouse } from '../../ledger/source.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { namesIn, type ProjectNames } from '../project-names.ts'
import { auditReport, runAndReport } from '../run-and-report.ts'
import type { Part, Selection, Session } from '../session.ts'
import { bad, good, renderTable, warning, wrap, wrapNote } from '../table.ts'

export async function audit(session: Session, options: Selection & { repair?: boolean }): Promise<number> {
  const { config, clock, signal } = session
  const { project: projects, repair = false } = options
  chooseProjects(config, clock, projects)
  const range = parseOptionalRange(options, config, dayOf(clock()))
  requireDatabase(config)
  const covered = { streams: session.streams.all, projects, coversEverything: projects === undefined }
  // Without --repair nothing changes, so no alert is sent.
  return runAndReport(session, { command: 'audit', ...covered, alerts: repair }, async (open, reporter) => {
    await prepareWarehouse(open, signal)
    const request = { projects: open.projects, range, repair, signal, execute: open.execute }
    const result = await runAudit(open, request, reporter.observer)
    const names = await withRetries(open.warehouse, signal, () =>
      namesIn(open.warehouse, open.projects, session.fullIds),
    )
    const text = render(config.redactor.value(result), repair, names, session.width)
    session.print({ source: open.source, ...result }, text)
    const report = auditReport(result, open.source)
    await reporter.ended(report)
    return report.outcome === 'complete' ? 0 : 1
  })
}

function render(result: AuditResult, repair: boolean, names: ProjectNames, width: number): Part[] {
  const compared = result.audited.filter(({ left_out }) => left_out === undefined)
  const leftOut = result.audited.filter(({ left_out }) => left_out !== undefined)
  const table = renderTable({ rows: compared, width, group: (row) => names.heading(row.project_id) }, [
    { title: 'stream', value: (row) => row.stream },
    { title: 'days compared', value: (row) => row.days_compared },
    { title: 'differ', value: (row) => row.differing.length },
    { title: 'days', value: (row) => listSome(row.differing, 4) },
  ])
  const reasons = [...new Set(leftOut.map(({ stream, left_out }) => `${stream}: ${left_out}`))]
  const days = compared.reduce((sum, row) => sum + row.days_compared, 0)
  const { repair: run } = result
  return [
    ...(compared.length > 0 ? [table, ''] : []),
    ...(reasons.length > 0 ? ['Left out:', ...reasons.map((reason) => wrap(reason, width, '  ', '    ')), ''] : []),
    wrap(verdict(result, repair, days), width),
    ...result.notes.map((note) => wrapNote(`${warning('!')} ${names.within(note)}`, width, '  ', '    ')),
    // A repair is a run, which may itself be less than complete.
    run !== undefined &&
      run.outcome !== 'complete' &&
      wrap(
        `The repair (run ${run.run_id}) was ${warning(run.outcome)}: ${runReason({ ...run, error: run.error ?? null, summary: run.streams })}`,
        width,
      ),
  ]
}

function verdict({ audited, remaining, requests }: AuditResult, repair: boolean, days: number): string {
  const total = audited.reduce((sum, stream) => sum + stream.differing.length, 0)
  if (days === 0) return `Nothing was compared: no day of a stream that can be audited was read yet.`
  if (total === 0) return `${good('No differences')}; ${count(requests, 'request')}.`
  const differ = total === 1 ? 'differs and was' : 'differ and were'
  if (!repair)
    return `${warning(streamDays(total))} ${differ} marked: the next sync reads them again, with streams that depend on them, or "npx visibility-sync audit --repair" now.`
  const now = remaining === 0 ? good('all are right now') : bad(`${streamDays(remaining)} still differ`)
  return `${streamDays(total)} differed and were read again; ${now}.`
}
