import { addDays, countDays, type Day, dayNumber, daysIn, type Range, showRange } from '../../core/day.ts'
import { DownError, KeyError, ProjectError, RefusedError, TransientError } from '../../core/errors.ts'
import type { Dimension, Filter } from '../../core/vocabulary.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import { type FoundDays, type Sifted, sift } from '../../rows/sift.ts'
import type { CallContext, Caller } from '../../source/client.ts'
import { type DayStream, isCompared, type Rows } from '../../streams/stream.ts'
import { halves } from '../plan/window-feed.ts'
import { answerNotes, compareWithTotal, hasNoRowAfter, type Reader, type ReadPage, readPage } from './read-pages.ts'
import { readLargeDay } from './split-day.ts'

interface WindowRequest {
  caller: Caller
  stream: DayStream
  range: Range
  known: KnownWindow
}

interface KnownWindow {
  /** How many rows each day of the window had that was read before. */
  rowsByDay: ReadonlyMap<Day, number>
  provisionalFrom: Day
  /** True if rows that are gone were accepted as deleted. */
  acceptDeletes: boolean
  /** Throws if the answer is not what was asked for. */
  validate: (found: FoundDays) => Promise<void>
  /** True if nothing shows yet that the answer has all rows: then the service is asked for one row after the last. */
  needsProof: (found: FoundDays) => boolean
  /** Values of a dimension that are known from elsewhere. */
  valuesOf: (dimension: Dimension) => Promise<string[]>
}

/** A window of which nothing is known: its answer is always proven. */
export const UNKNOWN_WINDOW: KnownWindow = {
  rowsByDay: new Map(),
  provisionalFrom: '9999-12-31',
  acceptDeletes: false,
  validate: async () => {},
  needsProof: () => true,
  valuesOf: async () => [],
}

type WindowAnswer<R extends Rows> =
  /** `pageRows` is undefined if the day was read in parts. */
  | { kind: 'rows'; sifted: Sifted<R>; pageRows: number | undefined }
  /** The window has more rows than a page: read its halves instead. */
  | { kind: 'split'; notes: DriftNote[] }
  /** The service truncates answers to so long a range: read shorter windows instead. */
  | { kind: 'too-long'; notes: DriftNote[] }

// A truncated answer is asked for again before shorter windows, or parts of a day, are read instead.
const WINDOW_ATTEMPTS = 2
const DAY_ATTEMPTS = 3

/** Reads one window as one page. A day that had more rows than a page is read in parts at once. */
export async function readWindow<R extends Rows>(
  reader: Reader,
  request: WindowRequest,
  context: CallContext,
  makeRows: () => R,
): Promise<WindowAnswer<R>> {
  const { client, limit } = reader
  const { caller, stream, range, known } = request
  const about = `${stream.name} ${showRange(range)}`
  const ask = (as: DayStream, filters: Filter[]) => (page: { limit: number; offset: number }) =>
    as.read(client, caller, { range, page, filters }, context)
  const isSingleDay = countDays(range) === 1
  const askPart = (part: Range) => (page: { limit: number; offset: number }) =>
    stream.read(client, caller, { range: part, page, filters: [] }, context)
  let smallest = Number.MAX_SAFE_INTEGER
  for (let attempt = 1; ; attempt++) {
    const page = await readPage(askPart(range), limit)
    const { items, total, needsTextCheck } = page
    const notes = answerNotes(page)
    const isFull = items.length >= Math.min(page.asked, limit.current)
    if (isFull && !isSingleDay) return { kind: 'split', notes }
    const sifted = sift(stream, items, { range, needsTextCheck }, makeRows())
    const rows = items.length - sifted.repeats
    await known.validate(sifted)
    const isWhole = !isFull && (await isComplete(request, askPart, { ...sifted, count: rows, total }))
    if (isWhole) {
      // Days that are compared with the control totals need no count.
      if (!isCompared(stream) || stream.control === 'brand limits') {
        const before = daysIn(range).reduce((sum, day) => sum + (known.rowsByDay.get(day) ?? 0), 0)
        notes.push(...compareWithTotal(about, { rows, before, total, acceptDeletes: known.acceptDeletes }))
      }
      sifted.drift.push(...notes)
      return { kind: 'rows', sifted, pageRows: rows }
    }
    smallest = Math.min(smallest, rows)
    if (!isFull && attempt < (isSingleDay ? DAY_ATTEMPTS : WINDOW_ATTEMPTS)) continue
    if (!isFull) {
      const example = `asked for ${page.asked} rows, got ${rows}, and there were more`
      notes.push({ kind: 'short_page', name: 'limit', example })
    }
    if (!isSingleDay) return { kind: 'too-long', notes }
    if (!isFull) limit.lowerTo(smallest)
    const seen = valuesOf(stream, sifted.rows, stream.splitDimensions[0])
    const whole = await readLargeDay({ ...request, limit, about, ask, seen, valuesOf: known.valuesOf }, makeRows)
    whole.drift.push(...notes)
    return { kind: 'rows', sifted: whole, pageRows: undefined }
  }
}

function valuesOf(stream: DayStream, rows: Rows, dimension: Dimension | undefined): Set<string> {
  const values = new Set<string>()
  for (let at = 0; dimension !== undefined && at < rows.length; at++) {
    const value = stream.dimensionOf(rows.get(at), dimension)
    if (value !== null) values.add(value)
  }
  return values
}

interface ReceivedPage extends FoundDays {
  /** How many different rows it has. */
  count: number
  /** How many there are, if the service says so. */
  total: number | undefined
}

/** True if a page that is not full has all rows of its window. Where nothing shows it, the service is asked for more. */
async function isComplete(
  { range, known }: WindowRequest,
  askFor: (part: Range) => ReadPage,
  page: ReceivedPage,
): Promise<boolean> {
  for (const gap of unexplainedGaps(range, page, known)) if (!(await hasNoRowAfter(askFor(gap), 0))) return false
  const isShortOfTotal = page.total !== undefined && page.total > page.count
  return !(isShortOfTotal || known.needsProof(page)) || (await hasNoRowAfter(askFor(range), page.count))
}

/**
 * A service may answer only the first or the last days of a long range, or both. Days at the edges of the range that have no
 * rows, and the longest gap between days that have some, are asked for alone, unless they are known to be empty. Of a range
 * without any rows, the older half is.
 */
function unexplainedGaps(range: Range, { rowsByDay, rejects }: FoundDays, known: KnownWindow): Range[] {
  const rejected = new Set(rejects.map(({ date }) => date))
  if (rejected.has(undefined)) return []
  const days = daysIn(range)
  const hasRows = (day: Day) => (rowsByDay.get(day) ?? 0) > 0 || rejected.has(day)
  const first = days.findIndex(hasRows)
  const gaps: Range[] = []
  if (first < 0) gaps.push(days.length === 1 ? range : halves(range)[0])
  else {
    const last = days.findLast(hasRows)!
    if (first > 0) gaps.push({ from: range.from, to: days[first - 1]! })
    if (last < range.to) gaps.push({ from: addDays(last, 1), to: range.to })
    const inner = longestGap(days.slice(first).filter(hasRows))
    if (inner !== undefined) gaps.push(inner)
  }
  // The newest days may be empty because the service has not written them yet. They are read again by later runs.
  const isUnexplained = (day: Day) => day < known.provisionalFrom && known.rowsByDay.get(day) !== 0
  return gaps.filter((gap) => daysIn(gap).some(isUnexplained))
}

/** The longest stretch between two of these days that has none of them. */
function longestGap(days: readonly Day[]): Range | undefined {
  const numbers = days.map(dayNumber)
  const lengths = numbers.map((number, at) => number - (numbers[at - 1] ?? number) - 1)
  const longest = Math.max(0, ...lengths)
  const at = lengths.indexOf(longest)
  return longest > 0 ? { from: addDays(days[at]!, -longest), to: addDays(days[at]!, -1) } : undefined
}

/** Errors by which a service says, or shows, that a window is too long for it. */
export function isTooMuch(error: unknown): boolean {
  if (error instanceof KeyError || error instanceof ProjectError || error instanceof DownError) return false
  if (error instanceof RefusedError) return [undefined, 400, 413, 422].includes(error.status)
  return error instanceof TransientError && (error.timedOut || [408, 504].includes(error.status ?? 0))
}
