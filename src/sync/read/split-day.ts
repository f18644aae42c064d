import type { Range } from '../../core/day.ts'
import { IncompleteError, RefusedError, UsageError } from '../../core/errors.ts'
import type { Dimension, Filter } from '../../core/vocabulary.ts'
import { type Sifted, Sifter, sift } from '../../rows/sift.ts'
import type { Page } from '../../source/client.ts'
import { type DayStream, type Row, RowList, type Rows } from '../../streams/stream.ts'
import type { PageLimit } from '../plan/density.ts'
import { countDifferent, hasNoRowAfter, type ReadPage, readByOffset, readPage } from './read-pages.ts'

/** A day with more rows than a page. */
interface LargeDay {
  stream: DayStream
  range: Range
  limit: PageLimit
  about: string
  ask: (as: DayStream, filters: Filter[]) => ReadPage
  /** Values of the first dimension to split by, as far as the first page showed them. */
  seen: ReadonlySet<string>
  valuesOf: (dimension: Dimension) => Promise<string[]>
}

/**
 * Splits the day by a dimension of its own, which changes no value, and proves it complete by counting. If it has none, or not
 * enough of them, by a finer report, whose counts add up to its own. If the service refuses filters or ignores them, by
 * overlapping offset pages.
 */
export async function readLargeDay<R extends Rows>(day: LargeDay, makeRows: () => R): Promise<Sifted<R>> {
  const { stream, range, limit, ask, about } = day
  const problems: string[] = []
  const finer = stream.finer?.()
  const ways = [...(stream.splitDimensions.length > 0 ? [stream] : []), ...(finer === undefined ? [] : [finer])]
  for (const split of ways) {
    try {
      const sifter = new Sifter(stream, range, makeRows())
      const accept = ({ items, needsTextCheck }: Page) => sifter.accept(items, needsTextCheck)
      const parts = new ValueSplit({ ...day, stream: split, accept }, [], split.splitDimensions)
      const rows = await parts.read(split === stream ? [...day.seen].sort() : [])
      if (await hasNoRowAfter(ask(split, []), rows)) return sifter.finish()
      problems.push(`the parts by ${split.splitDimensions.join(', ')} do not add up to the whole`)
    } catch (error) {
      // A refused filter is a reason to try another way; anything else is not.
      const isReason = error instanceof IncompleteError || error instanceof UsageError || isRefusal(error)
      if (!isReason) throw error
      problems.push(error.message)
    }
  }
  try {
    const page = await readByOffset(ask(stream, []), limit, stream, about)
    return sift(stream, page.items, { range, needsTextCheck: page.needsTextCheck }, makeRows())
  } catch (error) {
    if (!(error instanceof IncompleteError) || problems.length === 0) throw error
    throw new IncompleteError(`${error.message} (before that: ${problems.join('; ')})`)
  }
}

interface SplitContext extends LargeDay {
  /** Takes a part at once: all of a large day together would fill the memory. Parts have no key in common. */
  accept: (part: Page) => void
}

// Aim below the limit: the sizes of parts are guessed from a sample.
const FILL = 0.8

/**
 * Reads what some filters leave, in parts that fit a page: lists of values of one dimension, everything but those values for the
 * rest, and if a single value overflows, its parts by the next dimension.
 */
class ValueSplit {
  private rows = 0
  private readonly done = new Set<string>()
  private pending: string[] = []
  /** How many values are asked for at once, and the most that the service takes. */
  private chunk = 1
  private longest = Number.MAX_SAFE_INTEGER
  private readonly dimension: Dimension
  private readonly finer: Dimension[]

  constructor(
    private readonly context: SplitContext,
    private readonly filters: Filter[],
    dimensions: Dimension[],
  ) {
    const [dimension, ...finer] = dimensions
    if (dimension === undefined)
      throw new IncompleteError(`${context.about}: more rows than a page, and no dimension left to split by`)
    this.dimension = dimension
    this.finer = finer
  }

  /** Reads the values of the sample first, then what it did not show. Returns how many rows the parts have. */
  async read(sample: string[]): Promise<number> {
    const { context, dimension } = this
    // Without "all but these", what the sample does not show must be known from elsewhere.
    this.pending = this.takesLists ? sample : [...new Set([...sample, ...(await context.valuesOf(dimension))])]
    this.chunk = this.takesLists ? Math.max(1, Math.floor(this.pending.length / 4)) : 1
    do {
      while (this.pending.length > 0) await this.readSome(this.pending.slice(0, this.chunk))
      this.pending = this.takesLists ? await this.readRest() : []
    } while (this.pending.length > 0)
    return this.rows
  }

  private get takesLists(): boolean {
    return this.context.stream.filterTakes === 'lists'
  }

  /** Reads these values, unless they are too many for a list or a page: then fewer are asked for next. */
  private async readSome(values: string[]): Promise<void> {
    const { context, dimension } = this
    const page = await this.ask(this.with('in', values)).catch((error: unknown) => {
      if (values.length > 1 && isRefusal(error)) return undefined
      throw error
    })
    if (page === undefined) {
      // The service takes shorter lists only, or none at all. A list of one shows which.
      this.chunk = this.longest = Math.max(1, Math.floor(values.length / 4))
      return
    }
    const asked = new Set(values)
    checkFiltered(context, page, dimension, (value) => value !== null && asked.has(value))
    if (this.isFull(page) && values.length > 1) {
      this.chunk = Math.max(1, Math.floor(values.length / 2))
      return
    }
    if (this.isFull(page)) await this.splitFurther(this.with('in', values), page)
    else {
      this.accept(page)
      const each = Math.max(1, page.items.length) / values.length
      const fitting = Math.max(1, Math.floor((context.limit.current * FILL) / each))
      if (this.takesLists) this.chunk = Math.min(this.longest, fitting)
    }
    for (const value of values) this.done.add(value)
    this.pending = this.pending.slice(values.length)
  }

  /** Reads everything but the values that were read. If that does not fit a page, gives the values to read next. */
  private async readRest(): Promise<string[]> {
    const { context, dimension, done } = this
    const others = done.size === 0 ? this.filters : this.with('not_in', [...done])
    const rest = await this.ask(others).catch((error: unknown) => {
      if (isRefusal(error)) return undefined
      throw error
    })
    // The `not_in` list is too long for the service. Values that are known from elsewhere are read instead. The caller
    // counts whether anything is left.
    if (rest === undefined)
      return [...new Set([...this.pending, ...(await context.valuesOf(dimension))])].filter((value) => !done.has(value))
    checkFiltered(context, rest, dimension, (value) => value === null || !done.has(value))
    if (!this.isFull(rest)) {
      this.accept(rest)
      return []
    }
    const values = valuesIn(context, rest, dimension)
    // Only rows without a value are left, and still too many: the next dimension has to separate them.
    if (values.length === 0) await this.splitFurther(this.with('not_in', [...done]), rest)
    return values
  }

  private async splitFurther(filters: Filter[], page: Page): Promise<void> {
    const { context, finer } = this
    const [next] = finer
    const sample = next === undefined ? [] : valuesIn(context, page, next)
    this.rows += await new ValueSplit(context, filters, finer).read(sample)
  }

  private ask(filters: Filter[]): Promise<Page & { asked: number }> {
    const { ask, stream, limit } = this.context
    return readPage(ask(stream, filters), limit)
  }

  private with(operator: Filter['operator'], values: string[]): Filter[] {
    return [...this.filters, { field: this.dimension, operator, values }]
  }

  private isFull({ items, asked }: Page & { asked: number }): boolean {
    return items.length >= Math.min(asked, this.context.limit.current)
  }

  private accept(page: Page): void {
    this.context.accept(page)
    this.rows += this.context.stream.adds === undefined ? countDifferent(page) : page.items.length
  }
}

function isRefusal(error: unknown): error is RefusedError {
  return error instanceof RefusedError && (error.status === 400 || error.status === 422)
}

function siftPart({ stream, range }: SplitContext, items: readonly unknown[], needsTextCheck: boolean): Row[] {
  return sift(stream, items, { range, needsTextCheck }, new RowList()).rows.values
}

function valuesIn(context: SplitContext, { items }: Page, dimension: Dimension): string[] {
  const values = siftPart(context, items, true).map((row) => context.stream.dimensionOf(row, dimension))
  return [...new Set(values)].filter((value) => value !== null).sort()
}

/** A filter that has no effect would make every part the same truncated page. */
function checkFiltered(
  context: SplitContext,
  { items, needsTextCheck }: Page,
  dimension: Dimension,
  belongs: (value: string | null) => boolean,
): void {
  const rows = siftPart(context, items, needsTextCheck)
  if (rows.some((row) => !belongs(context.stream.dimensionOf(row, dimension))))
    throw new IncompleteError(`${context.about}: the service ignores a filter on ${dimension}`)
}
