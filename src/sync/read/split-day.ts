import { IncompleteError, RefusedError } from '../../core/errors.ts'
import { type Dimension, type Filter, MODELS } from '../../core/vocabulary.ts'
import type { Sifted } from '../../rows/sift.ts'
import type { Page } from '../../source/client.ts'
import type { DayStream, RowList } from '../../streams/stream.ts'
import type { PageLimit } from '../plan/page-limit.ts'
import { countDifferent } from './read-pages.ts'
import type { ValueSizes } from './window-request.ts'

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

// Aim below the limit: the sizes of parts are guessed, from a sample or from what another day had.
const FILL = 0.8
const FILL_BY_SIZES = 0.95

/**
 * Reads a day in parts that fit a page: lists of values of the first dimension, everything but those values for the
 * rest, and if a single value overflows, its parts by the next dimension. Gives how many rows the parts have; the
 * caller proves that nothing is missing. With the sizes of values, parts are as few as can be.
 */
export async function readBySplitting(
  context: SplitContext,
  ask: AskFiltered,
  first: string[],
  sizes?: ValueSizes,
): Promise<number> {
  return new ValueSplit(context, ask, [], context.stream.splitDimensions, sizes).read(first)
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
    /** Undefined as soon as they turn out to be wrong. */
    private sizes?: ValueSizes,
  ) {
    const [dimension, ...finer] = dimensions
    if (dimension === undefined)
      throw new IncompleteError(`${context.about}: more rows than a page, and no dimension left to split by`)
    this.dimension = dimension
    this.finer = finer
  }

  /** Reads the values of the sample first, then what it did not show. Gives how many rows there were. */
  async read(sample: string[]): Promise<number> {
    const { context, dimension } = this
    // Without "all but these", what the sample does not show must be known from elsewhere.
    this.pending = this.takesLists ? sample : [...new Set([...sample, ...(await context.valuesOf(dimension))])]
    this.chunk = this.takesLists ? Math.max(1, Math.floor(this.pending.length / 4)) : 1
    do {
      for (let values = this.nextValues(); values.length > 0; values = this.nextValues()) await this.readSome(values)
      this.pending = this.takesLists ? await this.readRest() : this.unknownModels()
    } while (this.pending.length > 0)
    return this.rows
  }

  private get takesLists(): boolean {
    return this.context.stream.filterTakes === 'lists'
  }

  /** The values to ask for next; none if the rest is asked for as everything but what was read. */
  private nextValues(): string[] {
    const { pending, sizes } = this
    if (sizes === undefined) return pending.slice(0, this.chunk)
    const most = this.context.limit.current * FILL_BY_SIZES
    const left = sizeOf(pending, sizes)
    const parts = Math.ceil(left / most)
    if (parts <= 1) return []
    const values: string[] = []
    for (let rows = 0; rows < left / parts; ) {
      const value = pending[values.length]!
      rows += sizes.get(value)!
      if (rows > most && values.length > 0) break
      values.push(value)
    }
    return values
  }

  /** Reads these values, unless they are too many for a list or a page: then fewer are asked for next. */
  private async readSome(values: string[]): Promise<void> {
    const { context, dimension } = this
    const page = await this.ask(this.with('in', values)).catch((error: unknown) => {
      if (values.length > 1 && this.sizes === undefined && isRefusal(error)) return undefined
      throw error
    })
    if (page === undefined) {
      // The service takes shorter lists only, or none at all, which a list of one will tell.
      this.chunk = this.longest = Math.max(1, Math.floor(values.length / 4))
      return
    }
    const asked = new Set(values)
    checkObeyed(context, page, dimension, (value) => value !== null && asked.has(value))
    if (this.isFull(page) && values.length > 1) {
      this.sizes = undefined
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
    // Where there are far fewer rows than expected, the rest may fit a page.
    const isSmall = this.sizes !== undefined && page.items.length < sizeOf(values, this.sizes) / 2
    this.pending = isSmall ? [] : this.pending.slice(values.length)
  }

  /** Reads everything but the values that were read. If that does not fit a page, gives the values to read next. */
  private async readRest(): Promise<string[]> {
    const { context, dimension, done } = this
    // If it does not fit a page, they were wrong.
    this.sizes = undefined
    const others = done.size === 0 ? this.filters : this.with('not_in', [...done])
    const rest = await this.ask(others).catch((error: unknown) => {
      if (isRefusal(error)) return undefined
      throw error
    })
    // The list of what to leave out is too long for the service. What is known from elsewhere is asked for instead;
    // whether anything is left then, the caller's counting shows.
    if (rest === undefined)
      return [...new Set([...this.pending, ...(await context.valuesOf(dimension))])].filter((value) => !done.has(value))
    checkObeyed(context, rest, dimension, (value) => value === null || !done.has(value))
    if (!this.isFull(rest)) {
      this.accept(rest)
      return []
    }
    const values = valuesIn(context, rest.items, dimension)
    // Only rows without a value are left, and still too many: the next dimension has to tell them apart.
    if (values.length === 0) await this.splitFurther(this.with('not_in', [...done]), rest)
    return values
  }

  /** There is no "all but these": models that the sample did not show are asked for by their names. */
  private unknownModels(): string[] {
    return this.dimension === 'model_id' ? MODELS.filter((model) => !this.done.has(model)) : []
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

function sizeOf(values: readonly string[], sizes: ValueSizes): number {
  return values.reduce((sum, value) => sum + sizes.get(value)!, 0)
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
function checkObeyed(
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
