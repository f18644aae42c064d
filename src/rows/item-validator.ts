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
export function itemValidator(
  stream: Stream,
  { range, needsTextCheck, items }: Asked & { items: number },
): (raw: unknown) => Checked {
  const { item: schema, findProblem } = stream
  const dateAt = datePosition(stream)
  const nestedParts = stream.columns.some(({ type }) => type === 'jsonb')
  const isId = (name: string) => name.endsWith('_id') || stream.key.includes(name)
  const texts = stream.columns.flatMap(({ name, type, longest }, index) =>
    type === 'text' ? [{ name, index, isId: isId(name), longest: longest ?? (isId(name) ? ID_MAX : NAME_MAX) }] : [],
  )
  const isSound = needsTextCheck || items < MANY_ITEMS ? undefined : compiledCheck(schema)
  let days: ReadonlySet<string> | undefined
  return (raw) => {
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
    if (nestedParts && isTooDeep(raw)) return { reason: TOO_DEEP }
    if (needsTextCheck) {
      const reason = unstorable(item)
      if (reason !== undefined) return { reason }
    }
    const problem = findProblem?.(item)
    if (problem !== undefined) return { reason: problem }
    const row = stream.flatten(item)
    const impossible = stream.findImpossibleValue?.(row)
    if (impossible !== undefined) return { reason: impossible }
    for (let index = 0; index < texts.length; index++) {
      const { name, index: at, isId, longest } = texts[index]!
      const text = row[at] as string | null
      if (text === null) continue
      if (text.length > longest || (isId && text === '')) return { reason: wrongLength(name, text, longest) }
    }
    if (dateAt >= 0) {
      const date = row[dateAt] as string
      days ??= new Set(range && daysIn(range))
      if (!days.has(date))
        return { reason: `date: ${date} is not a day from ${range?.from} to ${range?.to}, which was asked for` }
    }
    return { row, item }
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
