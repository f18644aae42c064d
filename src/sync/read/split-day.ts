import { IncompleteError, RefusedError } from '../../core/errors.ts'
import { type Dimension, type Filter, MODELS } from '../../core/vocabulary.ts'
import type { Sifted } from '../../rows/sift.ts'
import type { Page } from '../../source/client.ts'
import type { DayStream, RowList } from '../../streams/stream.ts'
import type { PageLimit } from '../plan/page-limit.ts'

/** The rows that one set of filters gave; parts have no key in common. */
export interface Part {
  items: unknown[]
  needsTextCheck: boolean
}

interface Context {
  stream: DayStream
  limit: PageLimit
  siftDay: (items: unknown[], needsTextCheck: boolean) => Sifted<RowList>
  about: string
  /** Takes a part at once: all of a large day together would fill the memory. */
  accept: (part: Part) => void
  /** Values of a dimension that are known from elsewhere. */
  valuesOf: (dimension: Dimension) => Promise<string[]>
}

type Ask = (filters: Filter[]) => Promise<Page & { asked: number }>

// Aim below the limit: the sizes of parts are guessed from a sample.
const FILL = 0.8

/**
 * Reads a day in parts that fit a page: lists of values of the first dimension, everything but those values for the
 * rest, and if a single value overflows, its parts by the next dimension. Gives how many rows the parts have; the
 * caller proves that nothing is missing.
 */
export async function readBySplitting(context: Context, ask: Ask, first: string[]): Promise<number> {
  return split(context, ask, [], context.stream.splitDimensions, first)
}

async function split(
  context: Context,
  ask: Ask,
  filters: Filter[],
  dimensions: Dimension[],
  sample: string[],
): Promise<number> {
  const [dimension, ...finer] = dimensions
  if (dimension === undefined)
    throw new IncompleteError(`${context.about}: more rows than a page, and no dimension left to split by`)
  const { stream, limit } = context
  let rows = 0
  const accept = ({ items, needsTextCheck }: Page) => {
    context.accept({ items, needsTextCheck })
    rows += items.length
  }
  const done = new Set<string>()
  let pending = sample
  // Without "all but these", what the sample does not show must be known from elsewhere.
  if (stream.filterTakes === 'single') pending = [...new Set([...pending, ...(await context.valuesOf(dimension))])]
  let chunk = stream.filterTakes === 'single' ? 1 : Math.max(1, Math.floor(pending.length / 4))
  let longest = Number.MAX_SAFE_INTEGER
  const within = (operator: Filter['operator'], values: string[]): Filter[] => [
    ...filters,
    { field: dimension, operator, values },
  ]
  const isFull = (page: Page & { asked: number }) => page.items.length >= Math.min(page.asked, limit.current)

  for (;;) {
    while (pending.length > 0) {
      const values = pending.slice(0, chunk)
      const page = await ask(within('in', values)).catch((error: unknown) => {
        if (values.length > 1 && isRefusal(error)) return undefined
        throw error
      })
      if (page === undefined) {
        // The service takes shorter lists only, or none at all, which a list of one will tell.
        chunk = longest = Math.max(1, Math.floor(values.length / 4))
        continue
      }
      checkObeyed(context, page, dimension, (value) => value !== null && values.includes(value))
      if (isFull(page)) {
        if (values.length > 1) {
          chunk = Math.max(1, Math.floor(values.length / 2))
          continue
        }
        rows += await split(context, ask, within('in', values), finer, valuesIn(context, page.items, finer[0]))
      } else {
        accept(page)
        const each = Math.max(1, page.items.length) / values.length
        if (stream.filterTakes === 'lists')
          chunk = Math.min(longest, Math.max(1, Math.floor((limit.current * FILL) / each)))
      }
      for (const value of values) done.add(value)
      pending = pending.slice(values.length)
    }
    if (stream.filterTakes === 'single') {
      // There is no "all but these": models that the sample did not show are asked for by their names.
      pending = dimension === 'model_id' ? MODELS.filter((model) => !done.has(model)) : []
      if (pending.length === 0) return rows
      continue
    }
    const rest = await ask(done.size === 0 ? filters : within('not_in', [...done])).catch((error: unknown) => {
      if (isRefusal(error)) return undefined
      throw error
    })
    if (rest === undefined) {
      // The list of what to leave out is too long for the service. What is known from elsewhere is asked for instead;
      // whether anything is left then, the caller's counting shows.
      pending = (await context.valuesOf(dimension)).filter((value) => !done.has(value))
      if (pending.length === 0) return rows
      continue
    }
    checkObeyed(context, rest, dimension, (value) => value === null || !done.has(value))
    if (!isFull(rest)) {
      accept(rest)
      return rows
    }
    pending = valuesIn(context, rest.items, dimension)
    // Only rows without a value are left, and still too many: the next dimension has to tell them apart.
    if (pending.length === 0) {
      const values = valuesIn(context, rest.items, finer[0])
      return rows + (await split(context, ask, within('not_in', [...done]), finer, values))
    }
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof RefusedError && (error.status === 400 || error.status === 422)
}

/** The values of a dimension that these items show. */
function valuesIn(context: Context, items: unknown[], dimension: Dimension | undefined): string[] {
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
  context: Context,
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
