import { addDays, type Day, dayOf, daysIn, type Range } from '../../core/day.ts'
import { IncompleteError } from '../../core/errors.ts'
import { type ControlKey, controlEntry, controlSizes } from '../../ledger/control-totals.ts'
import { type DayTotals, digestText, type TotalsByDay } from '../../rows/day-totals.ts'
import type { FoundDays } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, datePosition, type Row, RowList } from '../../streams/stream.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { inTransactionWith } from '../../warehouse/transaction.ts'
import { Density } from '../plan/density.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import { readWindow } from '../read/read-window.ts'
import { UNKNOWN_WINDOW } from '../read/window-request.ts'
import type { Run, SyncedProject } from '../run/run-types.ts'
import { markDiffering } from './mark-differing.ts'

/** What reading control totals needs of a run. */
export type ControlReader = Pick<
  Run,
  'client' | 'limit' | 'templates' | 'warehouse' | 'streams' | 'runId' | 'clock' | 'signal'
>

export interface ControlRequest {
  project: SyncedProject
  filters: ControlKey['filters']
  range: Range
}

/**
 * Reads the report by date alone for a range, and stores it. Days that had other rows before were changed by the service:
 * they are marked as stale in every stream that no longer adds up to them, and returned.
 */
export async function readControl(
  reader: ControlReader,
  { project, filters, range }: ControlRequest,
  context: CallContext,
): Promise<{ totals: TotalsByDay; changed: Day[] }> {
  const { warehouse, signal } = reader
  const key = { projectId: project.id, filters }
  const stream = reader.streams.controlFor(filters)
  const totals: TotalsByDay = new Map(daysIn(range).map((day) => [day, new Map() as DayTotals]))
  const rows: Row[] = []
  const sizes = await withRetries(warehouse, signal, () => controlSizes(warehouse, key))
  const today = dayOf(reader.clock())
  const feed = new WindowFeed(daysIn(range), new Density(sizes, today), () => reader.limit.current)
  const rowsByDay = new Map(sizes.map(({ date, rows: count }) => [date, count]))
  for (let window = feed.next(); window !== undefined; window = feed.next()) {
    const isChanged = (found: FoundDays) =>
      daysIn(window!).some((day) => (found.rowsByDay.get(day) ?? 0) !== rowsByDay.get(day))
    const known = { ...UNKNOWN_WINDOW, rowsByDay, provisionalFrom: addDays(today, -1), needsProof: isChanged }
    const request = { caller: project.caller, stream, range: window, known }
    const answer = await readWindow(reader, request, context, () => new RowList())
    if (answer.kind !== 'rows') {
      feed.split(window)
      continue
    }
    const { sifted } = answer
    if (sifted.rejects.length > 0) throw new IncompleteError(`control totals: ${sifted.rejects[0]!.reason}`)
    for (const [day, found] of sifted.totals!) totals.set(day, found)
    rows.push(...sifted.rows.values)
    feed.density.learn(window, sifted.rowsByDay)
    feed.markLoaded()
  }
  const entry = controlEntry(warehouse, key, { range, totals, rowDigests: rowDigests(stream, rows) }, reader.runId)
  const changed = await withRetries(warehouse, signal, () =>
    inTransactionWith(warehouse, [entry], async (tx, [found]) => {
      await markDiffering(tx, warehouse, { projectId: project.id, streams: reader.streams.byDay, days: found })
      return found
    }),
  )
  return { totals, changed }
}

/** A digest of all columns of the rows of each day: any change of it is a restatement. */
export function rowDigests(stream: DayStream, rows: readonly Row[]): Map<Day, bigint> {
  const at = datePosition(stream)
  const byDay = new Map<Day, string[]>()
  for (const row of rows) {
    const day = row[at] as Day
    byDay.set(day, [...(byDay.get(day) ?? []), JSON.stringify(row)])
  }
  return new Map([...byDay].map(([day, texts]) => [day, digestText(texts.sort())]))
}
