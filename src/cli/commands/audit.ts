import { count, listSome } from '../../core/text.ts'
import { markStale } from '../../ledger/coverage.ts'
import { lockRun } from '../../ledger/locks.ts'
import { closeRun } from '../../ledger/runs.ts'
import { streamsOf } from '../../streams/registry.ts'
import { type AuditedStream, auditProject } from '../../sync/audit.ts'
import { PageLimit } from '../../sync/page-limit.ts'
import type { RunReport } from '../../sync/report.ts'
import { runSync } from '../../sync/run.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { type Open, withServices } from '../open.ts'
import type { Session } from '../session.ts'
import { renderTable } from '../table.ts'

export interface AuditOptions {
  repair?: boolean
  project?: string[]
}

interface AuditResult {
  requests: number
  audited: AuditedStream[]
  remaining: number
  repair: RunReport | undefined
}

/** `audit`: days whose warehouse sums differ from the service; with --repair they are read again. */
export async function audit(session: Session, options: AuditOptions): Promise<number> {
  const { config, log, clock, version } = session
  return withServices({ config, log, clock, version, projects: options.project ?? [] }, async (open) => {
    await migrate(open.warehouse, config)
    const result = await runAudit(open, options.repair ?? false, session)
    session.print({ source: open.source, ...result }, render(result, options.repair ?? false))
    return result.remaining === 0 && (result.repair === undefined || result.repair.outcome === 'complete') ? 0 : 1
  })
}

async function runAudit(open: Open, repair: boolean, session: Session): Promise<AuditResult> {
  const held = await lockRun(open.warehouse, [], { command: 'audit', version: open.version, source: open.source })
  let requests = 0
  const limit = new PageLimit(open.config.source.page_limit)
  const call = { signal: session.signal, onAttempt: () => void requests++ }
  const auditAll = async (only?: (stream: AuditedStream[]) => Set<string>, before: AuditedStream[] = []) => {
    const found: AuditedStream[] = []
    for (const project of open.projects) {
      const days = only?.(before.filter(({ project_id }) => project_id === project.id))
      if (days === undefined || days.size > 0)
        found.push(...(await auditProject({ services: open, project, limit, call }, days)))
    }
    return found
  }
  const differing = (audited: AuditedStream[]) => audited.reduce((sum, stream) => sum + stream.differing.length, 0)
  try {
    const audited = await auditAll()
    let remaining = differing(audited)
    // Marked first: should the repair fail or be killed, the next sync reads them.
    const days = daysToRepair(audited)
    for (const [key, marked] of days) {
      const [projectId, stream] = key.split('\0') as [string, string]
      await markStale(open.warehouse, { projectId, stream }, marked)
    }
    let repaired: RunReport | undefined
    if (remaining > 0 && repair) {
      const names = [...new Set([...days.keys()].map((key) => key.split('\0')[1]!))]
      const daysOf = (projectId: string, stream: string) => days.get(`${projectId}\0${stream}`) ?? []
      repaired = await runSync(
        open,
        {
          command: 'audit --repair',
          projects: open.projects,
          streams: streamsOf(open.config, names),
          only: daysOf,
          signal: session.signal,
        },
        session.observer,
      )
      remaining = differing(
        await auditAll((streams) => new Set(streams.flatMap((stream) => stream.differing)), audited),
      )
    }
    await closeRun(open.warehouse, held.runId, {
      outcome: remaining === 0 ? 'complete' : 'partial',
      summary: audited,
      error: null,
    })
    return { requests, audited, remaining, repair: repaired }
  } catch (error) {
    await closeRun(open.warehouse, held.runId, {
      outcome: session.signal.aborted ? 'interrupted' : 'failed',
      summary: [],
      error: String((error as Error).message),
    }).catch(() => {})
    throw error
  } finally {
    await held.release()
  }
}

/**
 * The differing days of each stream; and where a total differs, the same days of what has no total to compare, or, as
 * chats, may have lost as many rows as it gained.
 */
function daysToRepair(audited: AuditedStream[]): Map<string, string[]> {
  const days = new Map<string, Set<string>>()
  const add = ({ project_id, stream }: AuditedStream, more: string[]) => {
    const key = `${project_id}\0${stream}`
    days.set(key, new Set([...(days.get(key) ?? []), ...more]))
  }
  for (const entry of audited) {
    add(entry, entry.differing)
    const blind = audited.filter(
      (other) => other.project_id === entry.project_id && (other.left_out !== undefined || other.stream === 'chats'),
    )
    for (const other of blind) add(other, entry.differing)
  }
  return new Map([...days].filter(([, set]) => set.size > 0).map(([key, set]) => [key, [...set].sort()]))
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
