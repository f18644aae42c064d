import { addDays, type Day, dayOf, daysIn, type Range } from '../../core/day.ts'
import { IncompleteError } from '../../core/errors.ts'
import { type ControlDays, type ControlKey, controlEntry, controlSizes } from '../../ledger/control-totals.ts'
import { digestText, type TotalsByDay } from '../../rows/day-totals.ts'
import type { FoundDays, Reject } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, datePosition, type Row, RowList } from '../../streams/stream.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { inTransactionWith } from '../../warehouse/transaction.ts'
import { Density, firstDaysOf } from '../plan/density.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import { readWindow, UNKNOWN_WINDOW } from '../read/read-window.ts'
import type { Run, SyncedProject } from '../run/run.ts'
import { markDiffering } from './compare-tables.ts'

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
): Promise<ControlDays & { changed: Day[] }> {
  const { warehouse, signal } = reader
  const key = { projectId: project.id, filters }
  const stream = reader.streams.controlFor(filters)
  const found: ControlDays[] = []
  const rejects: Reject[] = []
  const sizes = await withRetries(warehouse, signal, () => controlSizes(warehouse, key))
  const today = dayOf(reader.clock())
  const feed = new WindowFeed(daysIn(range), new Density(sizes, today, firstDaysOf(stream)), () => reader.limit.current)
  const rowsByDay = new Map(sizes.map(({ date, rows: count }) => [date, count]))
  for (let window = feed.next(); window !== undefined; window = feed.next()) {
    // Days that are new here are compared with other streams.
    const isChanged = (found: FoundDays) =>
      rowsByDay.size === 0 ||
      daysIn(window!).some((day) => rowsByDay.has(day) && (found.rowsByDay.get(day) ?? 0) !== rowsByDay.get(day))
    const known = { ...UNKNOWN_WINDOW, rowsByDay, provisionalFrom: addDays(today, -1), needsProof: isChanged }
    const request = { caller: project.caller, stream, range: window, known }
    const answer = await readWindow(reader, request, context, () => new RowList())
    if (answer.kind !== 'rows') {
      feed.split(window)
      continue
    }
    const { sifted } = answer
    found.push(controlDays(stream, window, { ...sifted, rows: sifted.rows.values }))
    rejects.push(...sifted.rejects)
    feed.density.learn(window, sifted.rowsByDay)
    feed.markLoaded()
  }
  const control: ControlDays = {
    totals: new Map(found.flatMap(({ totals }) => [...totals])),
    rowDigests: new Map(found.flatMap(({ rowDigests }) => [...rowDigests])),
  }
  const changed = await withRetries(warehouse, signal, () =>
    inTransactionWith(warehouse, [controlEntry(warehouse, key, control, reader.runId)], async (tx, [days]) => {
      await markDiffering(tx, warehouse, { projectId: project.id, streams: reader.streams.byDay, days })
      return days
    }),
  )
  // The rejects of a stream with a table are in quarantine. Those of a report without one would be reported by nobody.
  if (rejects.length > 0 && reader.streams.get(stream.name) === undefined)
    throw new IncompleteError(`control totals: ${rejects[0]!.reason}`)
  return { ...control, changed }
}

/** The control totals of an answer. */
export function controlDays(
  stream: DayStream,
  range: Range,
  { totals, rejects, rows }: { totals: TotalsByDay | undefined; rejects: readonly Reject[]; rows: readonly Row[] },
): ControlDays {
  const hasRejects = (day: Day) => rejects.some(({ date }) => date === undefined || date === day)
  const days = daysIn(range)
  const texts = new Map<Day, string[]>(days.map((day) => [day, []]))
  const at = datePosition(stream)
  for (const row of rows) texts.get(row[at] as Day)?.push(JSON.stringify(row))
  return {
    totals: new Map(days.map((day) => [day, hasRejects(day) ? undefined : (totals?.get(day) ?? new Map())])),
    rowDigests: new Map([...texts].map(([day, of]) => [day, digestText(of.sort())])),
  }
}
