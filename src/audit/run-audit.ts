import type { Range } from '../core/day.ts'
import { messageOf, TransientError } from '../core/errors.ts'
import { inSpan } from '../core/trace.ts'
import { streamKey } from '../core/vocabulary.ts'
import { markStale } from '../ledger/coverage.ts'
import { lockRun } from '../ledger/run-lock.ts'
import { closeRun } from '../ledger/runs.ts'
import type { Executor } from '../sync/run/execute.ts'
import type { RunReport } from '../sync/run/report.ts'
import { newRunMemory, type Services, type SyncedProject } from '../sync/run/run.ts'
import { runSync, stopAtDeadline } from '../sync/run/run-sync.ts'
import type { Observer } from '../sync/run/task.ts'
import { recheckSummaries } from '../warehouse/schema/summaries.ts'
import { type AuditedStream, auditProject } from './audit-project.ts'

export interface AuditResult {
  requests: number
  audited: AuditedStream[]
  /** How many days differ in the end. */
  remaining: number
  repair: RunReport | undefined
}

export interface AuditRequest {
  projects: SyncedProject[]
  /** Only these days; without a range, everything that was read. */
  range?: Range | undefined
  repair: boolean
  signal: AbortSignal
  /** How the windows of the repair are done; in this process by default. */
  execute?: Executor | undefined
}

/** Compares, marks what differs as stale, and with `repair` reads it again. A run of its own in the ledger. */
export function runAudit(services: Services, request: AuditRequest, observer: Observer = {}): Promise<AuditResult> {
  return inSpan('run', { 'visibility_sync.command': 'audit' }, () => performAudit(services, request, observer))
}

async function performAudit(
  services: Services,
  { projects, range, repair, signal, execute }: AuditRequest,
  observer: Observer,
): Promise<AuditResult> {
  const start = { command: 'audit', version: services.version, source: services.source }
  signal.addEventListener('abort', () => services.warehouse.shortenDeadlines(), { once: true })
  const lock = await lockRun(services.warehouse, [], start, { log: services.log, signal })
  observer.started?.({ runId: lock.runId, command: 'audit' })
  services.client.resetOutages(projects.map(({ caller }) => caller))
  const late = new AbortController()
  const deadline = stopAtDeadline(services.config, ({ reason }) => late.abort(new TransientError(reason)))
  let requests = 0
  const { limit } = newRunMemory(services.config.source.page_limit)
  const call = {
    signal: AbortSignal.any([signal, late.signal]),
    onAttempt: (status: number | undefined) => {
      requests++
      observer.asked?.(status)
    },
  }
  const reader = { ...services, limit, runId: lock.runId, signal: call.signal }
  const auditAll = async () => {
    const found: AuditedStream[] = []
    for (const project of projects) found.push(...(await auditProject(reader, { project, range }, call)))
    return found
  }
  const differing = (audited: AuditedStream[]) => audited.reduce((sum, stream) => sum + stream.differing.length, 0)
  try {
    await recheckSummaries(services.warehouse, services.config)
    const audited = await auditAll()
    let remaining = differing(audited)
    // Marked first: should the repair fail or be killed, the next sync reads them.
    const days = daysToRepair(audited)
    for (const [key, marked] of days) {
      const [projectId, stream] = key.split('\0') as [string, string]
      await markStale(services.warehouse, { projectId, stream }, marked)
    }
    let repaired: RunReport | undefined
    if (remaining > 0 && repair) {
      const names = [...new Set([...days.keys()].map((key) => key.split('\0')[1]!))]
      const daysOf = (projectId: string, stream: string) => days.get(streamKey(projectId, stream)) ?? []
      repaired = await runSync(
        services,
        {
          command: 'audit --repair',
          projects,
          streams: services.streams.named(names),
          only: daysOf,
          signal: call.signal,
        },
        observer,
        execute,
      )
      call.signal.throwIfAborted()
      remaining = differing(await auditAll())
    }
    await closeRun(services.warehouse, lock.runId, {
      outcome: remaining === 0 ? 'complete' : 'partial',
      summary: audited,
      error: null,
    })
    return { requests, audited, remaining, repair: repaired }
  } catch (cause) {
    const error = late.signal.aborted && !signal.aborted ? (late.signal.reason as Error) : cause
    await closeRun(services.warehouse, lock.runId, {
      outcome: signal.aborted ? 'interrupted' : 'failed',
      summary: [],
      error: messageOf(error),
    }).catch(() => {})
    throw error
  } finally {
    clearTimeout(deadline)
    await lock.release()
  }
}

/**
 * The differing days of each stream; and if a total differs, the same days of what has no total to compare, or, as
 * chats, may have lost as many rows as it gained.
 */
function daysToRepair(audited: AuditedStream[]): Map<string, string[]> {
  const days = new Map<string, Set<string>>()
  const add = ({ project_id, stream }: AuditedStream, more: string[]) => {
    const key = streamKey(project_id, stream)
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
