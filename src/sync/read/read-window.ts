import { addDays, countDays, type Range, showRange } from '../../core/day.ts'
import { IncompleteError, RefusedError, UsageError } from '../../core/errors.ts'
import type { Dimension, Filter } from '../../core/vocabulary.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import type { TemplateCaches } from '../../rows/fast-path/template-cache.ts'
import { type Sifted, Sifter, sift, siftingSink } from '../../rows/sift.ts'
import type { CallContext, Client } from '../../source/client.ts'
import { type DayStream, keyOf, keyPositions, type Row, RowList, type Rows } from '../../streams/stream.ts'
import type { PageLimit } from '../plan/page-limit.ts'
import { type RangeRequest, servedIn } from './count-rows.ts'
import { hasNoMoreThan, longPage, type ReadPage, rawKeys, readByOffset, readPage } from './read-pages.ts'
import { type Part, readBySplitting } from './split-day.ts'

export interface Reader {
  client: Client
  limit: PageLimit
  templates: TemplateCaches
}

/** What is asked for: one window of one stream. */
export interface WindowRequest extends RangeRequest {
  known: KnownWindow
}

export type WindowAnswer<R extends Rows> =
  | { kind: 'rows'; sifted: Sifted<R>; cappedAt: number | undefined; pageRows: number | undefined }
  /** More rows than a page: read the halves instead. `cappedAt` is set if the service capped it without saying so. */
  | { kind: 'split'; cappedAt: number | undefined; notes: DriftNote[] }

export interface KnownWindow {
  /** The project and the stream. */
  name: string
  /** How many rows the window had before. */
  rows: number
  /** No window may have more days. */
  maxDays: number
  /** Values of a dimension that are known from elsewhere. */
  valuesOf: (dimension: Dimension) => Promise<string[]>
}

/**
 * Reads one window as one page, sifting it into `makeRows` while it is parsed. A page that may be truncated is never
 * loaded.
 */
export async function readWindow<R extends Rows>(
  { client, limit, templates }: Reader,
  { caller, stream, range, known }: WindowRequest,
  context: CallContext,
  makeRows: () => R,
): Promise<WindowAnswer<R>> {
  const place = `${stream.name} ${showRange(range)}`
  const ask = (as: DayStream, filters: Filter[]) => (page: { limit: number; offset: number }) =>
    as.read(client, caller, { range, page, filters }, context)
  // A day that turns out too large is split by the values that were seen of its first dimension.
  const splitBy = countDays(range) === 1 ? stream.splitDimensions[0] : undefined
  const seen = new Set<string>()
  const each = (row: Row) => {
    const value = stream.dimensionOf(row, splitBy!)
    if (value !== null) seen.add(value)
  }
  const sink = siftingSink(stream, { range, templates, each: splitBy && each }, makeRows)
  const page = await readPage(
    (part) => stream.read(client, caller, { range, page: part, filters: [] }, { ...context, sink }),
    limit,
  )
  const read = ask(stream, [])
  const rows = page.count
  limit.learnServed(stream.name, rows)
  const notes: DriftNote[] = rows > page.asked ? [longPage(page.asked, rows)] : []
  let cappedAt: number | undefined
  let whole = rows < Math.min(page.asked, limit.current)
  const window = { name: known.name, range }
  // Fewer rows than there were, or than the service says there are: worth a proof before it is believed.
  const isShort = page.total !== undefined && page.total > rows
  const suspicious = whole && limit.isSuspicious(window, rows)
  if (whole && (isShort || rows < known.rows || suspicious)) {
    const longer = longerRange(range, known.maxDays)
    const probe = async () => (longer ? servedIn({ client, limit }, { caller, stream, range: longer }, context) : 0)
    const prove = async () => {
      const isProven = await hasNoMoreThan(read, rows)
      if (isProven) limit.learnWhole(rows)
      return isProven
    }
    const isUncapped = async () => !isShort && (await limit.servesMoreThan(stream.name, rows, probe))
    const checked = rows < known.rows ? await limit.checkLoss(prove) : undefined
    whole = checked ?? ((await isUncapped()) || (await prove()))
    if (!whole) {
      cappedAt = rows
      limit.lowerTo(rows)
      const example = `asked for ${page.asked} rows, got ${rows}, and there were more`
      notes.push({ kind: 'short_page', name: 'limit', example })
    }
  }
  if (whole) return { kind: 'rows', sifted: sink.finish(), cappedAt, pageRows: rows }
  if (countDays(range) > 1) return { kind: 'split', cappedAt, notes }
  sink.discard()
  const sifted = await readLargeDay({ stream, range, limit, ask, place, seen, valuesOf: known.valuesOf }, makeRows)
  sifted.drift.push(...notes)
  return { kind: 'rows', sifted, cappedAt, pageRows: undefined }
}

/** Twice as many days, or as many as a window may have: where the service shows whether it gives more rows. */
function longerRange(range: Range, maxDays: number): Range | undefined {
  const days = Math.min(countDays(range), maxDays - countDays(range))
  return days > 0 ? { from: addDays(range.from, -days), to: range.to } : undefined
}

interface LargeDay {
  stream: DayStream
  range: Range
  limit: PageLimit
  ask: (as: DayStream, filters: Filter[]) => ReadPage
  place: string
  /** Values of the first dimension to split by, as far as the first page showed them. */
  seen: ReadonlySet<string>
  valuesOf: KnownWindow['valuesOf']
}

/**
 * A day with more rows than a page: split by a dimension of its own, which changes no value, and proven complete by
 * counting. If it has none, or not enough of them, by a finer report, whose counts add up to its own. If the service refuses
 * filters or ignores them, by overlapping offset pages.
 */
async function readLargeDay<R extends Rows>(day: LargeDay, makeRows: () => R): Promise<Sifted<R>> {
  const { stream, range, limit, ask, place } = day
  const problems: string[] = []
  const finer = stream.finer?.()
  const ways = [...(stream.splitDimensions.length > 0 ? [stream] : []), ...(finer === undefined ? [] : [finer])]
  for (const split of ways) {
    const found = await readInParts(day, split, makeRows)
    if (typeof found !== 'string') return found
    problems.push(found)
  }
  try {
    const positions = keyPositions(stream)
    const keys = rawKeys(stream.item, (item) => keyOf(stream.flatten(item), positions))
    const page = await readByOffset(ask(stream, []), limit, keys, place)
    return sift(stream, page.items, { range, needsTextCheck: page.needsTextCheck }, makeRows())
  } catch (error) {
    if (!(error instanceof IncompleteError) || problems.length === 0) throw error
    throw new IncompleteError(`${error.message} (before that: ${problems.join('; ')})`)
  }
}

/** Reads the day by the report `split`, in parts that fit a page, and sums it up as rows of the stream; or says why it cannot. */
async function readInParts<R extends Rows>(
  { stream, range, limit, ask, place, seen, valuesOf }: LargeDay,
  split: DayStream,
  makeRows: () => R,
): Promise<Sifted<R> | string> {
  const siftDay = (items: unknown[], needsTextCheck: boolean) =>
    sift(split, items, { range, needsTextCheck }, new RowList())
  try {
    const sifter = new Sifter(stream, { range, needsTextCheck: true }, makeRows())
    const accept = ({ items, needsTextCheck }: Part) => sifter.takePart(items, needsTextCheck)
    const rows = await readBySplitting(
      { stream: split, limit, siftDay, place, accept, valuesOf },
      (filters) => readPage(ask(split, filters), limit),
      split === stream ? [...seen].sort() : [],
    )
    if (await hasNoMoreThan(ask(split, []), rows)) return sifter.finish()
    return `the parts by ${split.splitDimensions.join(', ')} do not add up to the whole`
  } catch (error) {
    // A refused filter is a reason to try another way; anything else is not.
    if (
      error instanceof IncompleteError ||
      error instanceof UsageError ||
      (error instanceof RefusedError && (error.status === 400 || error.status === 422))
    )
      return error.message
    throw error
  }
}
