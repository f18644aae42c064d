import { type Day, daysIn } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import { type ProjectStream, streamKey } from '../core/vocabulary.ts'
import { markResolved } from '../ledger/days.ts'
import {
  dismissEntries,
  listQuarantine,
  type QuarantineEntry,
  type QuarantineFilter,
  reopenEntries,
  rowsIn,
} from '../ledger/quarantine.ts'
import type { Stream } from '../streams/stream.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { inTransaction } from '../warehouse/transaction.ts'
import { askRejectedAgain, CONTENTS } from './run/read-chat-contents.ts'

/** The open entries that match. Throws if one that is named is not among them. */
async function listOpen(
  database: Pick<Warehouse, 'db'>,
  filter: QuarantineFilter,
  action: string,
): Promise<QuarantineEntry[]> {
  const open = await listQuarantine(database, { ...filter, state: 'open' })
  const missing = (filter.ids ?? []).filter((id) => !open.some(({ quarantine_id }) => quarantine_id === id))
  if (missing.length > 0)
    throw new UsageError(`quarantine ${action}: got ${missing.join(', ')}; there is no such open entry`)
  return open
}

const idsOf = (entries: readonly QuarantineEntry[]) => entries.map(({ quarantine_id }) => quarantine_id)

/** The open entries to read again. A retry undoes dismissals, if it names the entries or asks for the dismissed ones. */
export async function reopenForRetry(warehouse: Warehouse, filter: QuarantineFilter): Promise<QuarantineEntry[]> {
  const asksForDismissed = filter.state === 'dismissed'
  if ((filter.ids ?? []).length > 0 || asksForDismissed) {
    await inTransaction(warehouse, async (tx) => {
      await reopenEntries(tx, idsOf(await listQuarantine(tx, { ...filter, state: 'dismissed' })))
    })
  }
  const open = await listOpen(warehouse, filter, 'retry')
  const contents = open.filter(({ stream }) => stream === CONTENTS)
  if (contents.length > 0)
    await askRejectedAgain(
      warehouse,
      contents.map(({ project_id }) => project_id),
    )
  return open
}

/** What a run reads to try entries again: their streams, and their days. Lists have no days. */
export function readingOf(
  entries: readonly QuarantineEntry[],
  streams: readonly Stream[],
): { streams: Stream[]; only: (projectId: string, stream: string) => Day[] } {
  const days = new Map<string, Set<Day>>()
  for (const { project_id, stream, from_date, to_date } of entries) {
    const key = streamKey(project_id, stream)
    const known = days.get(key) ?? new Set()
    days.set(key, known)
    if (from_date === null || to_date === null) continue
    for (const day of daysIn({ from: from_date, to: to_date })) known.add(day)
  }
  return {
    streams: streams.filter(({ name }) => entries.some(({ stream }) => stream === name)),
    only: (projectId, stream) => [...(days.get(streamKey(projectId, stream)) ?? [])].sort(),
  }
}

const NOT_SENT = 'the service did not send it again; it goes once the other days of its answer are read without a doubt'

/** `tried` and `loaded` are rows; identical ones share an entry. */
export interface RetryResult {
  tried: number
  loaded: number
  still_bad: { quarantine_id: number; reason: string }[]
}

export function listStillOpen(warehouse: Warehouse, entries: readonly QuarantineEntry[]): Promise<QuarantineEntry[]> {
  return listQuarantine(warehouse, { ids: idsOf(entries) })
}

/** What became of entries whose days were read again, if some are still open. */
export function retryResult(
  entries: readonly QuarantineEntry[],
  open: readonly QuarantineEntry[],
  streams: readonly Stream[],
  runId?: number,
): RetryResult {
  const isRead = ({ stream }: QuarantineEntry) => streams.some(({ name }) => name === stream)
  const still_bad = open.map((entry) => {
    const isSent = runId === undefined || entry.run_id === runId
    const known = isSent ? entry.reason : NOT_SENT
    const reason = isRead(entry) ? known : `the stream ${entry.stream} is not configured`
    return { quarantine_id: entry.quarantine_id, reason }
  })
  const isBad = new Set(idsOf(open))
  const done = entries.filter(({ quarantine_id }) => !isBad.has(quarantine_id))
  return { tried: rowsIn(entries), loaded: rowsIn(done), still_bad }
}

/** Dismisses open entries, so that they no longer make runs partial. Their days are read again by the next run. */
export async function dismissQuarantine(
  warehouse: Warehouse,
  filter: QuarantineFilter,
  because: string,
): Promise<QuarantineEntry[]> {
  return inTransaction(warehouse, async (tx) => {
    const entries = await listOpen(tx, filter, 'dismiss')
    await dismissEntries(tx, idsOf(entries), because)
    const affected = new Map(
      entries.map(({ project_id, stream }): [string, ProjectStream] => [
        streamKey(project_id, stream),
        { projectId: project_id, stream },
      ]),
    )
    for (const projectStream of affected.values()) await markResolved(tx, projectStream)
    return entries
  })
}
