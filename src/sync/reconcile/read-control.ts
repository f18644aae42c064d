import { daysOfInterest } from '../../core/config/load.ts'
import { addDays, countDays, type Day, dayOf, daysIn, type Range } from '../../core/day.ts'
import { IncompleteError } from '../../core/errors.ts'
import {
  type ControlDays,
  type ControlKey,
  controlEntry,
  controlOf,
  controlSizes,
  filtersText,
  historyState,
  markDiffering,
  markReconciled,
  saveHistoryCheck,
  uncomparedDays,
} from '../../ledger/control-totals.ts'
import { markStale } from '../../ledger/coverage.ts'
import { type ControlDay, digestText, type TotalsByDay } from '../../rows/day-totals.ts'
import type { FoundDays, Reject } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, datePosition, type Row, RowList } from '../../streams/stream.ts'
import { inTransaction, inTransactionWith, runBatch } from '../../warehouse/transaction.ts'
import { Density, firstDaysOf } from '../plan/density.ts'
import { readableRange } from '../plan/due-days.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import { isTooMuch, readWindow, UNKNOWN_WINDOW } from '../read/read-window.ts'
import type { Run, SyncedProject } from '../run/run.ts'
import { compareTable } from './compare-window.ts'

/** The parts of a run that reading control totals needs. */
export type ControlReader = Pick<
  Run,
  'client' | 'limit' | 'templates' | 'warehouse' | 'streams' | 'runId' | 'clock' | 'retry' | 'lookbackFrom'
>

interface ControlRequest {
  project: SyncedProject
  filters: ControlKey['filters']
  range: Range
}

/**
 * Reads the report by date alone for a range, and stores it. Days that had other rows before were changed by the service,
 * and are returned. They are marked as stale in every stream that no longer adds up to them. Days before the lookback are marked in
 * all streams under the same filters: their other columns may have changed.
 */
export async function readControl(
  reader: ControlReader,
  { project, filters, range }: ControlRequest,
  context: CallContext,
): Promise<{ totals: ControlDays; changed: Day[] }> {
  const { warehouse } = reader
  const key = { projectId: project.id, filters }
  const stream = reader.streams.controlFor(filters)
  const found: [Day, ControlDay & { rowsDigest: bigint }][] = []
  const rejects: Reject[] = []
  const sizes = await reader.retry(() => controlSizes(warehouse, key))
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
    const isDivisible = countDays(window) > 1
    const answer = await readWindow(reader, request, { ...context, isDivisible }, () => new RowList()).catch(
      (error: unknown) => {
        if (!isDivisible || !isTooMuch(error)) throw error
        return { kind: 'too-long' as const }
      },
    )
    if (answer.kind === 'too-long') feed.shorten(window)
    else if (answer.kind === 'split') feed.split(window)
    if (answer.kind !== 'rows') continue
    const { sifted } = answer
    found.push(...controlDays(stream, window, { ...sifted, rows: sifted.rows.values }))
    rejects.push(...sifted.rejects)
    feed.density.learn(window, sifted.rowsByDay)
    feed.markLoaded(window)
  }
  const totals: ControlDays = new Map(found)
  const changed = await reader.retry(() =>
    inTransactionWith(warehouse, [controlEntry(warehouse, key, totals, reader.runId)], async (tx, [days]) => {
      await markDiffering(tx, { projectId: project.id, streams: reader.streams.byDay, days })
      const streams = reader.streams.byDay.filter((one) => filtersText(one.filters) === filtersText(filters))
      const older = days.filter((day) => day < reader.lookbackFrom)
      const marked = { streams: streams.map(({ name }) => name), days: older, runId: reader.runId }
      await markStale(tx, project.id, marked)
      return days
    }),
  )
  // The rejects of a stream with a table are in quarantine. Those of a report without one would be reported by nobody.
  if (rejects.length > 0 && reader.streams.get(stream.name) === undefined)
    throw new IncompleteError(`control totals: ${rejects[0]!.reason}`)
  return { totals, changed }
}

/** The control totals of an answer. */
export function controlDays(
  stream: DayStream,
  range: Range,
  { totals, rejects, rows }: { totals: TotalsByDay | undefined; rejects: readonly Reject[]; rows: readonly Row[] },
): ControlDays {
  const hasRejects = (day: Day) => rejects.some(({ date }) => date === undefined || date === day)
  const texts = new Map<Day, string[]>(daysIn(range).map((day) => [day, []]))
  const at = datePosition(stream)
  // Sums of fractions vary in their last digits.
  const rounded = (_: string, value: unknown) => (typeof value === 'number' ? Number(value.toPrecision(12)) : value)
  for (const row of rows) texts.get(row[at] as Day)?.push(JSON.stringify(row, rounded))
  return new Map(
    [...texts].map(([day, of]) => {
      const brands = totals?.get(day) ?? new Map()
      return [day, { brands, isWhole: !hasRejects(day), rowsDigest: digestText(of.sort()) }]
    }),
  )
}

/**
 * Once in `reconcile.history_hours`, reads the control totals of all configured days. Days whose totals changed, or that no
 * longer add up to them, become due. The first run of a project reads everything anyway. Gives whether days were compared.
 */
export async function checkHistory(run: Run, project: SyncedProject, context: CallContext): Promise<boolean> {
  const { warehouse, config, clock } = run
  const now = clock()
  const { checkedAt, isRead } = await run.retry(() => historyState(warehouse, project.id))
  const hours = config.reconcile.history_hours
  if (checkedAt !== null && now.getTime() - checkedAt.getTime() < hours * 3_600_000) return false
  const today = dayOf(now)
  if (isRead) await checkRange(run, project, readableRange(daysOfInterest(config, today), today), context)
  await run.retry(() => saveHistoryCheck(warehouse, project.id, now))
  return isRead
}

async function checkRange(run: Run, project: SyncedProject, range: Range, context: CallContext): Promise<void> {
  const { warehouse, streams } = run
  const controls = await readControls(run, project, range, context)
  for (const stream of streams.byDay) {
    const days = await run.retry(() => uncomparedDays(warehouse, { projectId: project.id, stream }, range))
    if (days.length === 0) continue
    const control = controlOfStream(controls, stream)
    const compared = { projectId: project.id, stream, days }
    await run.retry(async () => {
      const differing = control === undefined ? [] : await compareTable(warehouse, compared, control)
      const differs = new Set(differing.map(({ day }) => day))
      await markReconciled(warehouse, { ...compared, days: days.filter((day) => !differs.has(day)) })
    })
  }
  const compared = streams.byDay.filter(({ control }) => control !== undefined)
  await run.retry(() =>
    inTransaction(warehouse, (tx) =>
      markDiffering(tx, { projectId: project.id, streams: compared, days: daysIn(range) }),
    ),
  )
}

/** Control totals of a range, by the filters under which they were read. */
export type Controls = Map<string, ControlDays>

/** Reads the control totals that the configured streams are compared with. */
export async function readControls(
  reader: ControlReader,
  project: SyncedProject,
  range: Range,
  context: CallContext,
): Promise<Controls> {
  const controls: Controls = new Map()
  for (const stream of reader.streams.byDay) {
    const { filters = [] } = stream
    if (stream.control === undefined || controls.has(filtersText(filters))) continue
    controls.set(filtersText(filters), (await readControl(reader, { project, filters, range }, context)).totals)
  }
  return controls
}

export function controlOfStream(controls: Controls, { control, filters }: DayStream): ControlDays | undefined {
  return control === undefined ? undefined : controls.get(filtersText(filters))
}

/** Reads the control totals of days that are due in streams which are compared, as far as the run has not read them yet. */
export async function readDueControls(
  run: Run,
  project: SyncedProject,
  due: ReadonlyMap<DayStream, readonly Day[]>,
  context: CallContext,
): Promise<Day[]> {
  const { warehouse, runId } = run
  const changed: Day[] = []
  const compared = [...due].filter(([{ control }]) => control !== undefined)
  for (const text of new Set(compared.map(([{ filters }]) => filtersText(filters)))) {
    const same = compared.filter(([{ filters }]) => filtersText(filters) === text)
    const days = [...new Set(same.flatMap(([, of]) => of))].sort()
    if (days.length === 0) continue
    const key = { projectId: project.id, filters: same[0]![0].filters ?? [] }
    const controls = controlOf(warehouse, key, { from: days[0]!, to: days.at(-1)! }, runId)
    const [known] = await run.retry(() => runBatch(warehouse.pool, controls))
    const missing = days.filter((day) => !known.has(day))
    const range = { from: missing[0]!, to: missing.at(-1)! }
    if (missing.length === 0) continue
    const read = await readControl(run, { project, filters: key.filters, range }, context)
    if (key.filters.length === 0) changed.push(...read.changed)
  }
  return changed
}
