import { type Day, daysIn } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import { REDACTED } from '../core/redactor.ts'
import { type ProjectStream, streamKey } from '../core/vocabulary.ts'
import { adjustRows, lockOfLoads, markStale } from '../ledger/coverage.ts'
import {
  dismissEntries,
  listQuarantine,
  markDaysDue,
  type QuarantineEntry,
  type QuarantineFilter,
  reopenEntries,
  resolveEntries,
} from '../ledger/quarantine.ts'
import { PackedRows } from '../rows/packed-rows.ts'
import { safeJson } from '../rows/raw-text.ts'
import { CONTRADICTION, type Sifted, sift } from '../rows/sift.ts'
import { RowList, type Stream } from '../streams/stream.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { saveEntities } from '../warehouse/load/entities.ts'
import { replaceList } from '../warehouse/load/replace-list.ts'
import { replaceWindow, windowSnapshot } from '../warehouse/load/replace-window.ts'
import { inTransaction, runBatch, type Transaction } from '../warehouse/transaction.ts'
import type { Services } from './run/run.ts'

/** A retry reads nothing from the service. */
type Stored = Pick<Services, 'warehouse' | 'config'>
const REDACTED_ROW = 'a secret was taken out of this row when it was kept; only a new answer can bring it'

interface RetryResult {
  tried: number
  loaded: number
  still_bad: { quarantine_id: number; reason: string }[]
}

/**
 * Validates quarantined rows again and loads those that pass now, as after an upgrade that understands them. Rows of
 * one stream are sifted together, so two that contradict each other still do. Nothing is deleted.
 */
export async function retryQuarantine(
  services: Stored,
  streams: readonly Stream[],
  filter: QuarantineFilter,
): Promise<RetryResult> {
  const { warehouse } = services
  await reopenDismissed(warehouse, filter)
  const open = await listOpen(warehouse, filter, 'retry')
  const result: RetryResult = { tried: open.length, loaded: 0, still_bad: [] }
  for (const [{ stream: name }, entries] of byProjectStream(open)) {
    const stream = streams.find((one) => one.name === name)
    if (stream !== undefined) await retryGroup(services, stream, entries, result)
    else {
      const reason = `the stream ${name} is not configured`
      result.still_bad.push(...entries.map(({ quarantine_id }) => ({ quarantine_id, reason })))
    }
  }
  return result
}

/** The open entries that match. Throws if one that is named is not among them. */
async function listOpen(
  database: Pick<Warehouse, 'ops'>,
  filter: QuarantineFilter,
  action: string,
): Promise<QuarantineEntry[]> {
  const open = await listQuarantine(database, { ...filter, state: 'open' })
  const missing = (filter.ids ?? []).filter((id) => !open.some(({ quarantine_id }) => quarantine_id === id))
  if (missing.length > 0)
    throw new UsageError(`quarantine ${action}: got ${missing.join(', ')}; there is no such open entry`)
  return open
}

function byProjectStream(entries: readonly QuarantineEntry[]): [ProjectStream, QuarantineEntry[]][] {
  const groups = new Map<string, [ProjectStream, QuarantineEntry[]]>()
  for (const entry of entries) {
    const { project_id: projectId, stream } = entry
    const key = streamKey(projectId, stream)
    const group = groups.get(key) ?? [{ projectId, stream }, []]
    groups.set(key, group)
    group[1].push(entry)
  }
  return [...groups.values()]
}

const idsOf = (entries: readonly QuarantineEntry[]) => entries.map(({ quarantine_id }) => quarantine_id)

/** A retry undoes dismissals, if it names the entries or asks for the dismissed ones. */
async function reopenDismissed(warehouse: Warehouse, filter: QuarantineFilter): Promise<void> {
  if ((filter.ids ?? []).length === 0 && filter.state !== 'dismissed') return
  await inTransaction(warehouse, async (tx) => {
    const dismissed = await listQuarantine(tx, { ...filter, state: 'dismissed' })
    await reopenEntries(tx, idsOf(dismissed))
    for (const { project_id, stream, from_date, to_date } of dismissed) {
      if (from_date === null || to_date === null) continue
      await markStale(tx, project_id, { streams: [stream], days: daysIn({ from: from_date, to: to_date }) })
    }
  })
}

async function retryGroup(
  services: Stored,
  stream: Stream,
  entries: QuarantineEntry[],
  result: RetryResult,
): Promise<void> {
  const projectId = entries[0]!.project_id
  const projectStream = { projectId, stream: stream.name }
  await inTransaction(services.warehouse, async (tx) => {
    await runBatch(tx.client, lockOfLoads(services.warehouse, projectStream))
    // A sync may have resolved some of them since they were listed.
    const still = await listQuarantine(tx, { ids: idsOf(entries) })
    const bad = new Map<number, string>()
    for (const entry of still) {
      // Which of two contradicting rows is true only a new answer can show.
      if (entry.reason === CONTRADICTION) bad.set(entry.quarantine_id, entry.reason)
      // The stored part of such a row is not the row that the service sent.
      else if (safeJson(entry.raw).includes(REDACTED)) bad.set(entry.quarantine_id, REDACTED_ROW)
      else {
        const options = { needsTextCheck: true, ...rangeOf([entry]) }
        const [reject] = sift(stream, [entry.raw], options, new RowList()).rejects
        if (reject !== undefined) bad.set(entry.quarantine_id, reject.reason)
      }
    }
    const sound = still.filter(({ quarantine_id }) => !bad.has(quarantine_id))
    const raws = sound.map(({ raw }) => raw)
    const rows = new PackedRows(stream.columns, projectId)
    const sifted = sift(stream, raws, { needsTextCheck: true, ...rangeOf(sound) }, rows)
    for (const { index, reason } of sifted.rejects) bad.set(sound[index]!.quarantine_id, reason)
    const passed = sound.filter(({ quarantine_id }) => !bad.has(quarantine_id))
    await adjustRows(tx, projectStream, await load(tx, { stream, projectId }, sifted))
    const { labels } = services.config
    await saveEntities(tx, { projectId, entities: sifted.entities, labels, memory: new Map(), mayRename: false })
    await resolveEntries(tx, idsOf(passed), 'loaded by a retry')
    await markDaysDue(tx, projectStream)
    result.loaded += passed.length
    for (const [quarantine_id, reason] of bad) result.still_bad.push({ quarantine_id, reason })
  })
}

/** Each row must still lie in the window in which it was found. */
function rangeOf(entries: readonly QuarantineEntry[]): { range?: { from: string; to: string } } {
  const all = entries.flatMap(({ from_date, to_date }) => [from_date, to_date])
  const days = all.filter((day) => day !== null).sort()
  return days.length === 0 ? {} : { range: { from: days[0]!, to: days.at(-1)! } }
}

/** Gives how many rows came to each day. */
async function load(
  tx: Transaction,
  { stream, projectId }: { stream: Stream; projectId: string },
  { rows, rowsByDay, children }: Sifted<PackedRows>,
): Promise<[Day, number][]> {
  if (rows.length === 0) return []
  // Rows that are not among these stay: this is no answer, only what was missing from one.
  const none = new Set<string>()
  const insertOnly = { mayDelete: false, acceptDeletes: true, heldBefore: none, proven: none }
  if (stream.by === 'list') {
    await replaceList(tx, { projectId, stream, rows, children, ...insertOnly })
    return []
  }
  const days = [...rowsByDay.keys()].sort()
  const range = { from: days[0]!, to: days.at(-1)! }
  const window = { projectId, stream, range }
  // These are some of the rows of their days, so a digest of all would prove nothing.
  const [there] = await runBatch(tx.client, windowSnapshot(tx, window, false))
  const fencingToken = Number.MAX_SAFE_INTEGER
  const { byDay } = await replaceWindow(tx, there, { ...window, rows, rowsByDay, ...insertOnly, fencingToken })
  return [...byDay].map(([day, { inserted }]) => [day, inserted])
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
    for (const [projectStream] of byProjectStream(entries)) await markDaysDue(tx, projectStream)
    return entries
  })
}
