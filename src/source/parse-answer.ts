import { RefusedError, TransientError } from '../core/errors.ts'
import { count as counted } from '../core/text.ts'
import { JsonScanner } from './json-scanner.ts'
import { type ItemSink, parseItems } from './parse-items.ts'
import { withoutKey } from './without-key.ts'

/** The parsed body of a success. */
export interface Answer {
  /** Without the items, if it is a page. */
  body: unknown
  /** The items of a page that no sink took. */
  items: unknown[]
  /** How many items there were. */
  count: number
  /** True if a text may hold what Postgres cannot store, or held the key; almost never, so rows need no check otherwise. */
  needsTextCheck: boolean
  /** Names of fields beside the items that the API does not document. */
  unknownFields: string[]
}

/*
 * Each value takes memory, however short it is: 60 bytes and more. If all values of an answer live at once, their
 * number and length are bounded. A full page of reports has a quarter of a million, and no other object of the service a thousand.
 */
const MOST_VALUES = 1_000_000
const LARGEST_KEPT_PAGE = 16_777_216
const MOST_VALUES_OF_OBJECT = 200_000
const LARGEST_OBJECT = 8_388_608

interface Asked {
  operation: string
  /** How many items were asked for; undefined if the answer is a single object. */
  limit: number | undefined
  key: string
}

export async function parseAnswer(
  given: Buffer,
  { operation, limit, key }: Asked,
  sink: ItemSink | undefined,
): Promise<Answer> {
  const cleaned = withoutKey(given, key)
  const bytes = cleaned ?? given
  const needsTextCheck = cleaned !== undefined || mayHoldBadText(bytes)
  try {
    if (limit === undefined) return { needsTextCheck, body: parseObject(bytes), items: [], count: 0, unknownFields: [] }
    if (sink !== undefined)
      return { needsTextCheck, items: [], ...(await parseItems(bytes, needsTextCheck, sink, { limit })) }
    if (bytes.length > LARGEST_KEPT_PAGE) {
      // Reported as a 413, so that the caller tries a lower limit.
      throw new RefusedError(
        `the page has ${bytes.length} bytes, more than the ${LARGEST_KEPT_PAGE} that can be kept at once; a lower source.page_limit would help`,
        { status: 413 },
      )
    }
    const all = new Collected()
    const parsed = await parseItems(bytes, needsTextCheck, all, { limit, values: MOST_VALUES })
    return { needsTextCheck, items: all.items, ...parsed }
  } catch (error) {
    if (error instanceof RefusedError) {
      const { message, status } = error
      throw new RefusedError(`${operation}: ${message}`, status === undefined ? {} : { status })
    }
    if (!(error instanceof SyntaxError)) throw error
    // The parser's own words may quote the answer.
    throw new TransientError(`${operation}: the answer is not whole JSON (${bytes.length} bytes)`)
  }
}

class Collected implements ItemSink {
  items: unknown[] = []

  begin(): void {
    this.items = []
  }

  addItems(items: unknown[]): void {
    for (const item of items) this.items.push(item)
  }
}

function parseObject(bytes: Buffer): unknown {
  if (bytes.length > LARGEST_OBJECT) {
    throw new RefusedError(`the answer has ${bytes.length} bytes, more than ${LARGEST_OBJECT}; it was refused`)
  }
  const scanner = new JsonScanner(bytes)
  scanner.endOfValue(0)
  if (scanner.values > MOST_VALUES_OF_OBJECT) {
    throw new RefusedError(`the answer holds more than ${counted(MOST_VALUES_OF_OBJECT, 'value')}; it was refused`)
  }
  return JSON.parse(bytes.toString('utf8'))
}

const NUL_OR_SURROGATE = /\\u(?:0000|[dD][89a-fA-F])/
const ESCAPE = Buffer.from('\\u')
const ESCAPE_LENGTH = 6
const CHUNK_BYTES = 1_048_576

/** Most answers hold no escaped character at all, which bytes show faster than a pattern. */
function mayHoldBadText(bytes: Buffer): boolean {
  let at = bytes.indexOf(ESCAPE)
  while (at >= 0) {
    if (NUL_OR_SURROGATE.test(bytes.toString('latin1', at, at + CHUNK_BYTES + ESCAPE_LENGTH))) return true
    at = bytes.indexOf(ESCAPE, at + CHUNK_BYTES)
  }
  return false
}
