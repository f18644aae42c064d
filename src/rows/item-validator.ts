import { daysIn, type Range } from '../core/day.ts'
import { ID_MAX, NAME_MAX, wrongLength } from '../streams/defined-stream.ts'
import { datePosition, type Row, type Stream } from '../streams/stream.ts'
import { compiledCheck } from './compiled-check.ts'
import { DEPTH_MAX, isTooDeep } from './raw-text.ts'

type Checked = { row: Row; item: never } | { reason: string }

export interface Asked {
  /** Rows of another day than was asked for are rejected. */
  range?: Range | undefined
  /** True if texts may hold what Postgres cannot store. */
  needsTextCheck: boolean
}

/** From so many items on, compiling a check pays. */
const MANY_ITEMS = 200

/** Judges single items: their shape, whether Postgres can store them, and whether their day was asked for. */
export function itemValidator(stream: Stream, asked: Asked & { items: number }): (raw: unknown) => Checked {
  const parse = parserOf(stream, asked)
  const findImpossible = impossibleFinder(stream, asked.range)
  return (raw) => {
    const parsed = parse(raw)
    if ('reason' in parsed) return parsed
    const { item } = parsed
    const problem = stream.findProblem?.(item)
    if (problem !== undefined) return { reason: problem }
    const row = stream.flatten(item)
    const reason = findImpossible(row)
    return reason === undefined ? { row, item } : { reason }
  }
}

function parserOf(stream: Stream, { needsTextCheck, items }: Asked & { items: number }) {
  const { item: schema } = stream
  const hasNestedParts = stream.columns.some(({ type }) => type === 'jsonb')
  const isSound = needsTextCheck || items < MANY_ITEMS ? undefined : compiledCheck(schema)
  return (raw: unknown): { item: never } | { reason: string } => {
    let item = raw as never
    // Where the compiled check does not accept an item, zod decides, and gives the reason.
    if (!isSound?.(raw)) {
      const parsed = schema.safeParse(raw)
      if (!parsed.success) {
        const [issue] = parsed.error.issues
        return { reason: `${issue?.path.join('.') || 'row'}: ${issue?.message ?? 'invalid'}` }
      }
      item = parsed.data as never
    }
    if (hasNestedParts && isTooDeep(raw)) return { reason: TOO_DEEP }
    const reason = needsTextCheck ? unstorable(item) : undefined
    return reason === undefined ? { item } : { reason }
  }
}

function impossibleFinder(stream: Stream, range: Asked['range']): (row: Row) => string | undefined {
  const dateAt = datePosition(stream)
  const isId = (name: string) => name.endsWith('_id') || stream.key.includes(name)
  const texts = stream.columns.flatMap(({ name, type, longest }, index) =>
    type === 'text' ? [{ name, index, isId: isId(name), longest: longest ?? (isId(name) ? ID_MAX : NAME_MAX) }] : [],
  )
  const days = new Set(dateAt >= 0 && range ? daysIn(range) : [])
  return (row) => {
    const impossible = stream.findImpossibleValue?.(row)
    if (impossible !== undefined) return impossible
    for (let index = 0; index < texts.length; index++) {
      const { name, index: at, isId, longest } = texts[index]!
      const text = row[at] as string | null
      if (text === null) continue
      if (text.length > longest || (isId && text === '')) return wrongLength(name, text, longest)
    }
    if (dateAt < 0 || days.has(row[dateAt] as string)) return undefined
    return `date: ${row[dateAt]} is not a day from ${range?.from} to ${range?.to}, which was asked for`
  }
}

const TOO_DEEP = `row: nested more than ${DEPTH_MAX} levels deep`

/** JSON writes a NUL and half of a surrogate pair as escapes; an even number of backslashes before makes it plain text. */
const UNSTORABLE = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/

function unstorable(item: unknown): string | undefined {
  // Fields that nobody asked for may be of any depth.
  if (isTooDeep(item)) return TOO_DEEP
  if (!UNSTORABLE.test(JSON.stringify(item))) return undefined
  return 'a text holds a NUL character or half of a surrogate pair, which Postgres cannot store'
}
