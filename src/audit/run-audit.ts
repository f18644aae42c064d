import type { Day, Range } from '../core/day.ts'
import { TransientError } from '../core/errors.ts'
import { inSpan } from '../core/logger.ts'
import { listSome } from '../core/text.ts'
import { markDamaged } from '../ledger/days.ts'
import { withRun } from '../ledger/with-run.ts'
import type { Executor } from '../sync/run/execute.ts'
import type { RunReport } from '../sync/run/report.ts'
import { newRunMemory, type Services, type SyncedProject } from '../sync/run/run.ts'
import { runSync, stopAtDeadline } from '../sync/run/run-sync.ts'
import type { Observer } from '../sync/run/task.ts'
import { modelsAlike } from '../warehouse/load/entities.ts'
import { isAway, isContention, withRetries } from '../warehouse/retry.ts'
import { recheckSummaries } from '../warehouse/schema/summaries.ts'
import { type AuditedStream, auditProject } from './audit-project.ts'

export interface AuditResult {
  requests: number
  audited: AuditedStream[]
  /** Notes that are no differences, a sentence each. */
  notes: string[]
  /** How many days differ in the end. */
  remaining: number
  repair: RunReport | undefined
}

interface AuditRequest {
  projects: SyncedProject[]
  /** Only these days; without a range, everything that was read. */
  range?: Range | undefined
  repair: boolean
  signal: AbortSignal
  /** How the windows of the repair are done; in this process by default. */
  execute?: Executor | undefined
}

/** Compares, makes what differs due, and with `repair` reads it again. A run of its own in the ledger. */
export function runAudit(services: Services, request: AuditRequest, observer: Observer = {}): Promise<AuditResult> {
  return inSpan('run', { 'visibility_sync.command': 'audit' }, () => performAudit(services, request, observer))
}

async function performAudit(services: Services, request: AuditRequest, observer: Observer): Promise<AuditResult> {
  const { warehouse, log, version, source, client, config } = services
  const { projects, signal } = request
  const ended = new AbortController()
  signal.addEventListener('abort', () => warehouse.hurry(), { once: true, signal: ended.signal })
  const late = new AbortController()
  const deadline = stopAtDeadline(config, ({ reason }) => late.abort(new TransientError(reason)))
  const start = { command: 'audit', version, source, projectStreams: [] }
  try {
    return await withRun(warehouse, start, { log, signal }, async ({ runId }) => {
      observer.started?.({ runId, command: 'audit' })
      client.resetOutages(projects.map(({ caller }) => caller))
      const own = { ...request, signal: AbortSignal.any([signal, late.signal]), runId }
      const result = await compareAndRepair(services, own, observer).catch((error: unknown) => {
        throw late.signal.aborted && !signal.aborted ? late.signal.reason : error
      })
      for (const note of result.notes) log.info(note)
      const isRepaired = result.repair === undefined || result.repair.outcome === 'complete'
      const outcome = result.remaining === 0 && isRepaired ? 'complete' : 'partial'
      return { result, outcome, summary: result.audited }
    })
  } finally {
    clearTimeout(deadline)
    ended.abort()
  }
}

async function compareAndRepair(
  services: Services,
  { projects, range, signal, runId, repair: mayRepair, execute }: AuditRequest & { runId: number },
  observer: Observer,
): Promise<AuditResult> {
  const { warehouse, config } = services
  const retry = <T>(work: () => Promise<T>) => withRetries(warehouse, signal, work)
  let requests = 0
  const onAttempt = (status: number | undefined) => {
    requests++
    observer.onRequest?.(status)
  }
  const compareAll = async () => {
    const { limit } = newRunMemory(config.source.page_limit)
    const reader = { ...services, runId, retry, limit, acceptDeletes: false }
    const found: AuditedStream[] = []
    for (const project of projects) {
      // The client has waited for the service itself.
      const audited = await retry(() =>
        auditProject(reader, { project, range }, { signal, onAttempt }).catch((error: unknown) => {
          if (isOfDatabase(error)) throw error
          return { error }
        }),
      )
      if ('error' in audited) throw audited.error
      found.push(...audited)
    }
    return found
  }
  await retry(() => recheckSummaries(warehouse, config))
  const ids = projects.map(({ id }) => id)
  // A repair forgets models that no row names any more.
  const notes = await retry(() => modelsAlike(warehouse, ids))
  const audited = await compareAll()
  for (const { stream, project_id, malformed = [] } of audited)
    if (malformed.length > 0)
      notes.push(
        `${stream} of ${project_id}: the service now sends rows that fail validation (${listSome(malformed, 4)}); the next sync puts them into quarantine`,
      )
  const wrong = wrongDays(audited)
  // First: if the repair fails or is killed, the next sync reads them. Days that the service changed are marked already.
  for (const { project_id, stream } of audited) {
    const days = wrong.get(project_id) ?? []
    if (days.length === 0) continue
    await retry(() => markDamaged(warehouse, { projectId: project_id, stream }, days))
  }
  if (wrong.size === 0 || !mayRepair)
    return { requests, audited, notes, remaining: countDiffering(audited), repair: undefined }
  const streams = services.streams.byDay
  const only = (projectId: string) => wrong.get(projectId) ?? []
  const request = { command: 'audit --repair', projects, streams, only, signal }
  const repair = await runSync(services, request, observer, execute)
  signal.throwIfAborted()
  return { requests, audited, notes, remaining: countDiffering(await compareAll()), repair }
}

function isOfDatabase(error: unknown): boolean {
  return isAway(error) || isContention(error) || isContention((error as Error).cause)
}

function countDiffering(audited: readonly AuditedStream[]): number {
  return audited.reduce((sum, stream) => sum + stream.differing.length, 0)
}

/**
 * The days of each project on which a stream differs. They are read again in all streams: columns that are not compared may be wrong,
 * too, and added and deleted chats can cancel out in their number.
 */
function wrongDays(audited: readonly AuditedStream[]): Map<string, Day[]> {
  const wrong = new Map<string, Day[]>()
  for (const { project_id, differing } of audited)
    if (differing.length > 0)
      wrong.set(project_id, [...new Set([...(wrong.get(project_id) ?? []), ...differing])].sort())
  return wrong
}
