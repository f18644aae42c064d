import { count, listSome } from '../../core/text.ts'
import { claimSource } from '../../ledger/source.ts'
import type { AuditedStream } from '../../sync/audit.ts'
import { type AuditResult, runAudit } from '../../sync/run-audit.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { withServices } from '../open.ts'
import type { Session } from '../session.ts'
import { renderTable } from '../table.ts'

export interface AuditOptions {
  repair?: boolean
  project?: string[]
}

/** `audit`: days whose warehouse sums differ from the service; with --repair they are read again. */
export async function audit(session: Session, options: AuditOptions): Promise<number> {
  const { config, log, clock, version } = session
  return withServices({ config, log, clock, version, projects: options.project ?? [] }, async (open) => {
    await migrate(open.warehouse, config)
    await claimSource(open.warehouse, open.sourceAddress)
    const { projects, drain } = open
    const request = { projects, repair: options.repair ?? false, signal: session.signal, drain }
    const result = await runAudit(open, request, session.observer)
    session.print({ source: open.source, ...result }, render(result, options.repair ?? false))
    return result.remaining === 0 && (result.repair === undefined || result.repair.outcome === 'complete') ? 0 : 1
  })
}

function render(result: AuditResult, repair: boolean): string {
  const total = result.audited.reduce((sum, stream) => sum + stream.differing.length, 0)
  const compared = result.audited.filter(({ left_out }) => left_out === undefined)
  const leftOut = result.audited.filter(({ left_out }) => left_out !== undefined)
  return [
    renderTable<AuditedStream>(
      [
        { title: 'project', value: (row) => row.project_id },
        { title: 'stream', value: (row) => row.stream },
        { title: 'days compared', align: 'right', value: (row) => row.days_compared },
        { title: 'differ', align: 'right', value: (row) => row.differing.length },
        { title: 'days', value: (row) => listSome(row.differing, 4) },
      ],
      compared,
    ),
    ...(leftOut.length > 0
      ? ['', 'Left out:', ...[...new Set(leftOut.map(({ stream, left_out }) => `  ${stream}: ${left_out}`))]]
      : []),
    '',
    total === 0
      ? `No differences; ${count(result.requests, 'request')}.`
      : repair
        ? `${count(total, 'day')} differed and were read again; ${result.remaining === 0 ? 'all are right now' : `${count(result.remaining, 'day')} still differ`}.`
        : `${count(total, 'day')} differ and were marked: the next sync reads them again, or "visibility-sync audit --repair" now.`,
  ].join('\n')
}
