import { RefusedError, TransientError } from '../core/errors.ts'
import { count as counted } from '../core/text.ts'
import { PAGE_LIMIT_MAX } from '../core/vocabulary.ts'
import { isEnvelopeField } from './envelope.ts'
import { withoutKey } from './without-key.ts'

export interface Answer {
  /** Without the items, if it is a page. */
  body: unknown
  items: unknown[]
  /** True if a text may hold what Postgres cannot store, or held the key; almost never, so rows need no check otherwise. */
  needsTextCheck: boolean
  /** Names of fields beside the items that the API does not document. */
  unknownFields: string[]
}

/**
 * A page with more items than were asked for counts as full: some services repeat rows, others have pages of a size of
 * their own. Beyond twice the largest page of the API the limit was ignored, and the answer is refused.
 */
const MOST_ITEMS = 2 * PAGE_LIMIT_MAX
/*
 * Each value takes memory, however short it is: 60 bytes and more. A full page of reports has a quarter of a million. So few bytes
 * cannot hold too many.
 */
const MOST_VALUES = 1_000_000
const SMALL_BYTES = 6_291_456
const MOST_UNKNOWN_FIELDS = 20

interface Asked {
  operation: string
  /** How many items were asked for; undefined if the answer is a single object. */
  limit: number | undefined
  key: string
}

export function parseAnswer(given: Buffer, { operation, limit, key }: Asked): Answer {
  const cleaned = withoutKey(given, key)
  const bytes = cleaned ?? given
  const text = bytes.toString('utf8')
  const needsTextCheck = cleaned !== undefined || (text.includes('\\u') && BAD_TEXT.test(text))
  const mayBeOdd = bytes.length > SMALL_BYTES || [...text.matchAll(DATA_MEMBER)].length > 1
  const { values, lists } = mayBeOdd ? measure(bytes) : { values: 0, lists: 1 }
  const refuse = (found: string) =>
    new RefusedError(
      `${operation}: asked for ${limit === undefined ? 'an object' : `at most ${counted(limit, 'item')}`} and got more than ` +
        `${found}; the answer was refused`,
    )
  if (values > MOST_VALUES) throw refuse(counted(MOST_VALUES, 'value'))
  const body = parse(text, operation)
  if (limit === undefined || typeof body !== 'object' || body === null || !Array.isArray(body.data))
    return { needsTextCheck, body, items: [], unknownFields: [] }
  if (lists > 1) throw new TransientError(`${operation}: the answer has two members of the name "data"`)
  const { data: items, ...members } = body
  if (items.length > MOST_ITEMS) throw refuse(counted(MOST_ITEMS, 'item'))
  const unknownFields = Object.keys(members).filter((name) => !isEnvelopeField(name))
  return {
    needsTextCheck,
    body: { ...members, data: [] },
    items,
    unknownFields: unknownFields.slice(0, MOST_UNKNOWN_FIELDS),
  }
}

function parse(text: string, operation: string): { data?: unknown } | null {
  try {
    return JSON.parse(text) as { data?: unknown } | null
  } catch {
    // The parser's own words may quote the answer.
    throw new TransientError(`${operation}: the answer is not whole JSON (${text.length} characters)`)
  }
}

/** A NUL, or half of a surrogate pair, as JSON may write them. */
const BAD_TEXT = /\\u(?:0000|[dD][89a-fA-F])/

const DATA_MEMBER = /"data"\s*:/g

const DATA = Buffer.from('"data"')
const [QUOTE, COMMA, COLON, BACKSLASH] = Buffer.from('",:\\')
const [LIST, OBJECT, LIST_END, OBJECT_END] = Buffer.from('[{]}')

/** About how many values an answer has, and how many of its own members are called `data`. */
function measure(bytes: Buffer): { values: number; lists: number } {
  let [values, lists, depth, textAt] = [1, 0, 0, -1]
  let isData = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (textAt >= 0) {
      if (byte === BACKSLASH) at++
      else if (byte === QUOTE) {
        isData = depth === 1 && bytes.compare(DATA, 0, DATA.length, textAt, at + 1) === 0
        textAt = -1
      }
    } else if (byte === QUOTE) textAt = at
    else if (byte === COMMA) values++
    else if (byte === COLON) lists += isData ? 1 : 0
    else if (byte === LIST || byte === OBJECT) {
      values++
      depth++
    } else if (byte === LIST_END || byte === OBJECT_END) depth--
  }
  return { values, lists }
}
