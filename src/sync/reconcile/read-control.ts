import { daysOfInterest } from '../../core/config/load.ts'
import { addDays, countDays, type Day, dayOf, daysIn, type Range } from '../../core/day.ts'
import { IncompleteError } from '../../core/errors.ts'
import {
  type ControlDays,
  type ControlKey,
  controlOf,
  controlRows,
  controlSizes,
  filtersText,
  historyState,
  isSameControl,
  type ReadControlDay,
  type StoredControlDay,
  saveHistoryCheck,
  storeControl,
} from '../../ledger/control-totals.ts'
import { markChanged, readDays, settleDays } from '../../ledger/days.ts'
import { digestText, type TotalsByDay } from '../../rows/day-totals.ts'
import type { FoundDays, Reject } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, datePosition, isCompared, type Row, RowList } from '../../streams/stream.ts'
import { inTransactionWith, type Transaction } from '../../warehouse/transaction.ts'
import { Density, firstDaysOf } from '../plan/density.ts'
import { readableRange } from '../plan/due-days.ts'
import { WindowFeed } from '../plan/window-feed.ts'
import { isTooMuch, readWindow, UNKNOWN_WINDOW } from '../read/read-window.ts'
import type { Run, SyncedProject } from '../run/run.ts'
import { hasDropped } from './compare-days.ts'
import { compareTable, daysOfWrongTotals } from './compare-table.ts'

export type ControlReader = Pick<
  Run,
  'client' | 'limit' | 'warehouse' | 'streams' | 'runId' | 'clock' | 'retry' | 'acceptDeletes'
>

interface ControlRequest {
  project: SyncedProject
  filters: ControlKey['filters']
  range: Range
}

/** Reads the report by date alone for a range, and stores it. Days that the service changed become due in every stream. */
export async function readControl(
  reader: ControlReader,
  { project, filters, range }: ControlRequest,
  context: CallContext,
): Promise<ControlDays> {
  const { warehouse } = reader
  const key = { projectId: project.id, filters }
  const stream = reader.streams.controlFor(filters)
  const found: [Day, ReadControlDay][] = []
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
    feed.markLoaded()
  }
  const totals = await reader.retry(() =>
    inTransactionWith(warehouse, [controlRows(key, range)], (tx, [before]) =>
      acceptControl(reader, tx, { key, found: new Map(found), before: controlOf(before) }),
    ),
  )
  // The rejects of a stream with a table are in quarantine. Those of a report without one would be reported by nobody.
  if (rejects.length > 0 && reader.streams.get(stream.name) === undefined)
    throw new IncompleteError(`control totals: ${rejects[0]!.reason}`)
  return totals
}

interface ControlAnswer {
  key: ControlKey
  found: ReadonlyMap<Day, ReadControlDay>
  /** The stored totals of these days. */
  before: ControlDays
  /** The stream that is loaded from the same answer, if there is one: it does not become due. */
  loaded?: string
}

/**
 * Stores control totals that were read. A day of which most dropped goes into review, and keeps its totals, unless these are wrong:
 * right totals must replace them.
 */
export async function acceptControl(
  { streams, runId, acceptDeletes }: Pick<ControlReader, 'streams' | 'runId' | 'acceptDeletes'>,
  tx: Transaction,
  { key, found, before, loaded }: ControlAnswer,
): Promise<ControlDays> {
  const dropped = [...found].filter(([day, { brands }]) => hasDropped(before.get(day)?.brands ?? new Map(), brands))
  const days = dropped.map(([day]) => day)
  const isOfKey = ({ filters }: DayStream) => filtersText(filters) === filtersText(key.filters)
  const compared = streams.byDay.filter((stream) => isCompared(stream) && stream.control !== 'brand limits')
  const wrong =
    days.length === 0 || acceptDeletes
      ? new Set<Day>()
      : await daysOfWrongTotals(tx, key.projectId, compared.filter(isOfKey), days, before)
  const inReview = new Set(acceptDeletes ? [] : days.filter((day) => !wrong.has(day)))
  const accepted: ControlDays = new Map(
    [...found].map(([day, answer]): [Day, StoredControlDay] => {
      if (!inReview.has(day)) return [day, { ...answer, isInReview: false }]
      const known = before.get(day)!
      if (answer.isWhole) return [day, { ...known, isInReview: true }]
      // Malformed rows did not drop: their totals stay, and the day is read again.
      return [day, { ...answer, brands: known.brands, isInReview: known.isInReview }]
    }),
  )
  const changed = [...accepted].flatMap(([day, answer]) => {
    const known = before.get(day)
    return known === undefined || isSameControl(known, answer) ? [] : [day]
  })
  await storeControl(tx, key, accepted, runId)
  // Streams that are not compared, or that others read, follow the totals without filters.
  const follows = (stream: DayStream) => (stream.control === undefined ? key.filters.length === 0 : isOfKey(stream))
  const others = streams.byDay.filter((stream) => stream.name !== loaded && follows(stream))
  await markChanged(tx, key.projectId, {
    streams: others.map(({ name }) => name),
    ...(key.filters.length === 0 && { besides: streams.byDay.map(({ name }) => name) }),
    days: changed,
  })
  return accepted
}

export function controlDays(
  stream: DayStream,
  range: Range,
  { totals, rejects, rows }: { totals: TotalsByDay | undefined; rejects: readonly Reject[]; rows: readonly Row[] },
): Map<Day, ReadControlDay> {
  // A brand has one row a day. So a rejected row of a known brand can only be of a day without that brand.
  const mayLack = (day: Day, { date, brand }: Reject) =>
    date === day || (date === undefined && (brand === undefined || !totals?.get(day)?.has(brand)))
  const texts = new Map<Day, string[]>(daysIn(range).map((day) => [day, []]))
  const at = datePosition(stream)
  // Sums of fractions vary in their last digits.
  const rounded = (_: string, value: unknown) => (typeof value === 'number' ? Number(value.toPrecision(12)) : value)
  // The database writes JSON in another way than the service. Its column is the last one.
  const plain = stream.columns.filter(({ type }) => type !== 'jsonb').length
  for (const row of rows) texts.get(row[at] as Day)?.push(JSON.stringify(row.slice(0, plain), rounded))
  return new Map(
    [...texts].map(([day, of]) => {
      const brands = totals?.get(day) ?? new Map()
      return [
        day,
        { brands, isWhole: !rejects.some((reject) => mayLack(day, reject)), rowsDigest: digestText(of.sort()) },
      ]
    }),
  )
}

/**
 * Once in `reconcile.history_hours`, reads the control totals of all configured days. Days whose totals changed become due. Days
 * that were never compared, as in a warehouse of an older version, are compared in their tables. The first run reads everything anyway.
 */
export async function checkHistory(run: Run, project: SyncedProject, context: CallContext): Promise<void> {
  const { warehouse, config, clock } = run
  const now = clock()
  const { checkedAt, isRead } = await run.retry(() => historyState(warehouse, project.id, run.runId))
  const hours = config.reconcile.history_hours
  if (checkedAt !== null && now.getTime() - checkedAt.getTime() < hours * 3_600_000) return
  const today = dayOf(now)
  if (isRead) await checkRange(run, project, readableRange(daysOfInterest(config, today), today), context)
  await run.retry(() => saveHistoryCheck(warehouse, project.id, now))
}

async function checkRange(run: Run, project: SyncedProject, range: Range, context: CallContext): Promise<void> {
  const { warehouse, streams } = run
  const controls = await readControls(run, project, range, context)
  for (const stream of streams.byDay) {
    const projectStream = { projectId: project.id, stream: stream.name }
    await run.retry(async () => {
      const known = await readDays(warehouse, projectStream, range)
      const days = known.filter(
        ({ state, difference }) => state === 'open' || (state === 'settled' && difference !== null),
      )
      const differing = await compareTable(
        run,
        { projectId: project.id, stream, days },
        controlOfStream(controls, stream),
      )
      const differs = new Set(differing.map(({ day }) => day))
      const settled = days.flatMap(({ state, date }) => (state === 'open' && !differs.has(date) ? [date] : []))
      await settleDays(warehouse, projectStream, settled)
      await markChanged(warehouse, project.id, { streams: [stream.name], days: [...differs] })
    })
  }
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
    controls.set(filtersText(filters), await readControl(reader, { project, filters, range }, context))
  }
  return controls
}

export function controlOfStream(controls: Controls, { control, filters }: DayStream): ControlDays {
  return (control === undefined ? undefined : controls.get(filtersText(filters))) ?? new Map()
}
