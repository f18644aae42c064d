import { IncompleteError, RefusedError } from '../../core/errors.ts'
import type { Dimension, Filter } from '../../core/vocabulary.ts'
import type { Sifted } from '../../rows/sift.ts'
import type { Page } from '../../source/client.ts'
import type { DayStream, RowList } from '../../streams/stream.ts'
import type { PageLimit } from '../plan/density.ts'
import { countDifferent } from './read-pages.ts'

/** The rows that one set of filters gave; parts have no key in common. */
export interface Part {
  items: unknown[]
  needsTextCheck: boolean
}

interface SplitContext {
  stream: DayStream
  limit: PageLimit
  siftDay: (items: unknown[], needsTextCheck: boolean) => Sifted<RowList>
  about: string
  /** Takes a part at once: all of a large day together would fill the memory. */
  accept: (part: Part) => void
  /** Values of a dimension that are known from elsewhere. */
  valuesOf: (dimension: Dimension) => Promise<string[]>
}

type AskFiltered = (filters: Filter[]) => Promise<Page & { asked: number }>

// Aim below the limit: the sizes of parts are guessed from a sample.
const FILL = 0.8

/**
 * Reads a day in parts that fit a page: lists of values of the first dimension, everything but those values for the
 * rest, and if a single value overflows, its parts by the next dimension. Returns how many rows the parts have; the
 * caller proves that nothing is missing.
 */
export async function readBySplitting(context: SplitContext, ask: AskFiltered, first: string[]): Promise<number> {
  return new ValueSplit(context, ask, [], context.stream.splitDimensions).read(first)
}

/** Reads what some filters leave, by the values of one dimension. */
class ValueSplit {
  private rows = 0
  /** Values whose rows were read. */
  private readonly done = new Set<string>()
  private pending: string[] = []
  /** How many values are asked for at once, and the most that the service takes. */
  private chunk = 1
  private longest = Number.MAX_SAFE_INTEGER
  private readonly dimension: Dimension
  private readonly finer: Dimension[]

  constructor(
    private readonly context: SplitContext,
    private readonly ask: AskFiltered,
    private readonly filters: Filter[],
    dimensions: Dimension[],
  ) {
    const [dimension, ...finer] = dimensions
    if (dimension === undefined)
      throw new IncompleteError(`${context.about}: more rows than a page, and no dimension left to split by`)
    this.dimension = dimension
    this.finer = finer
  }

  /** Reads the values of the sample first, then what it did not show. Returns how many rows there were. */
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
    const values = valuesIn(context, rest.items, dimension)
    // Only rows without a value are left, and still too many: the next dimension has to separate them.
    if (values.length === 0) await this.splitFurther(this.with('not_in', [...done]), rest)
    return values
  }

  private async splitFurther(filters: Filter[], page: Page): Promise<void> {
    const { context, ask, finer } = this
    this.rows += await new ValueSplit(context, ask, filters, finer).read(valuesIn(context, page.items, finer[0]))
  }

  private with(operator: Filter['operator'], values: string[]): Filter[] {
    return [...this.filters, { field: this.dimension, operator, values }]
  }

  private isFull({ items, asked }: Page & { asked: number }): boolean {
    return items.length >= Math.min(asked, this.context.limit.current)
  }

  private accept(page: Page): void {
    const { items, needsTextCheck } = page
    this.context.accept({ items, needsTextCheck })
    this.rows += this.context.stream.adds === undefined ? countDifferent(page) : items.length
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof RefusedError && (error.status === 400 || error.status === 422)
}

/** The values of a dimension that these items show. */
function valuesIn(context: SplitContext, items: unknown[], dimension: Dimension | undefined): string[] {
  if (dimension === undefined) return []
  const values = new Set<string>()
  for (const row of context.siftDay(items, true).rows.values) {
    const value = context.stream.dimensionOf(row, dimension)
    if (value !== null) values.add(value)
  }
  return [...values].sort()
}

/** A filter that has no effect would make every part the same truncated page. */
function checkFiltered(
  context: SplitContext,
  page: Page,
  dimension: Dimension,
  belongs: (value: string | null) => boolean,
): void {
  for (const row of context.siftDay(page.items, page.needsTextCheck).rows.values) {
    if (!belongs(context.stream.dimensionOf(row, dimension))) {
      throw new IncompleteError(`${context.about}: the service ignores a filter on ${dimension}`)
    }
  }
}
