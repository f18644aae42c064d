import { type Day, isDay, type Range } from '../core/day.ts'
import { BadPageError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { keyOf, keyPositions, type Mentions, noMentions, type Row, type Stream } from './stream.ts'

/** A raw item that failed, and why. */
export interface Reject {
  raw: unknown
  reason: string
  /** The day of the row, where it can be read. */
  date?: Day
}

/** Something in an answer that the interface does not mention: noted once, never an error. */
export interface DriftNote {
  kind: 'field' | 'model' | 'colour' | 'country' | 'total' | 'short_page' | 'duplicate'
  name: string
  example: string
}

export const CONTRADICTION = 'the same key stands twice in one answer with different values'

export interface Sifted {
  rows: Row[]
  /** The rows of child tables, by table. */
  children: Map<string, Row[]>
  rejects: Reject[]
  mentions: Mentions
  drift: DriftNote[]
}

export interface SiftOptions {
  /** Rows of another day than was asked for are rejected. */
  range?: Range
  /** True where texts may hold what Postgres cannot store. */
  suspectText: boolean
}

/**
 * Validates the items of an answer and flattens them into rows. A bad item becomes a reject; an item that stands twice
 * counts once; two items with one key and different values are both rejected, since nothing tells which is true.
 */
export function sift(stream: Stream, items: readonly unknown[], options: SiftOptions): Sifted {
  const result: Sifted = { rows: [], children: new Map(), rejects: [], mentions: noMentions(), drift: [] }
  for (const child of (stream.by === 'list' && stream.children) || []) result.children.set(child.table, [])
  const known = new Set(Object.keys(stream.item.shape))
  const noted = new Set<string>()
  const note = (kind: DriftNote['kind'], name: string, example: unknown) => {
    if (noted.has(`${kind} ${name}`)) return
    noted.add(`${kind} ${name}`)
    result.drift.push({ kind, name: clip(name, 100), example: clip(safeJson(example), 300) })
  }
  const positions = keyPositions(stream)
  const dateAt = stream.by === 'day' ? stream.columns.findIndex(({ name }) => name === 'date') : -1
  const { from, to } = options.range ?? { from: '', to: '' }
  /** The accepted items by key, and the keys whose items contradict each other. */
  const accepted = new Map<string, { row: Row; item: never }>()
  const contradicted = new Map<string, unknown[]>()
  const { item: schema } = stream

  for (const raw of items) {
    const parsed = schema.safeParse(raw)
    if (!parsed.success) {
      const [issue] = parsed.error.issues
      result.rejects.push({
        raw,
        reason: clip(`${issue?.path.join('.') || 'row'}: ${issue?.message ?? 'invalid'}`, 200),
      })
      continue
    }
    for (const field in raw as object)
      if (!known.has(field)) note('field', field, (raw as Record<string, unknown>)[field])
    const item = parsed.data as never
    const row = stream.flatten(item)
    if (options.suspectText && holdsUnstorable(item)) {
      result.rejects.push({
        raw,
        reason: 'a text holds a NUL character or half of a surrogate pair, which Postgres cannot store',
      })
      continue
    }
    if (dateAt >= 0) {
      const date = row[dateAt] as string
      if (date < from || date > to || !isRealDay(date)) {
        result.rejects.push({
          raw,
          reason: clip(`date: ${date} is not a day from ${from} to ${to}, which was asked for`, 200),
        })
        continue
      }
    }
    const key = keyOf(row, positions)
    const other = accepted.get(key)
    if (other !== undefined || contradicted.has(key)) {
      if (other !== undefined && sameRow(other.row, row)) {
        note('duplicate', 'row', raw)
        continue
      }
      const rivals = contradicted.get(key) ?? []
      contradicted.set(key, [...rivals, raw])
      continue
    }
    accepted.set(key, { row, item })
  }

  for (const [key, { row, item }] of accepted) {
    if (contradicted.has(key)) {
      contradicted.get(key)!.push(rowAsObject(stream, row))
      continue
    }
    result.rows.push(row)
    stream.mention?.(item, result.mentions)
    if (stream.by === 'list')
      for (const child of stream.children ?? []) result.children.get(child.table)!.push(...child.rows(item))
    for (const { kind, known: values, valueOf } of stream.vocabulary ?? []) {
      const value = valueOf(item)
      if (value != null && !values.has(value)) note(kind, value, value)
    }
  }
  for (const rivals of contradicted.values()) {
    for (const raw of rivals) result.rejects.push({ raw, reason: CONTRADICTION })
  }
  if (options.range !== undefined) for (const reject of result.rejects) dateReject(reject, options.range)
  return result
}

/** A rejected row belongs to its day where that can still be read, otherwise to the whole window. */
function dateReject(reject: Reject, { from, to }: Range): void {
  const date = (reject.raw as { date?: unknown } | null)?.date
  if (typeof date === 'string' && date >= from && date <= to && isRealDay(date)) reject.date = date
}

// The days of windows repeat on thousands of rows; checking each distinct one once is enough.
const realDays = new Map<string, boolean>()

function isRealDay(date: string): boolean {
  let real = realDays.get(date)
  if (real === undefined) {
    real = isDay(date)
    if (realDays.size > 20_000) realDays.clear()
    realDays.set(date, real)
  }
  return real
}

/** JSON writes a NUL and half of a surrogate pair as escapes; an even number of backslashes before makes it plain text. */
const UNSTORABLE = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/

function holdsUnstorable(item: unknown): boolean {
  return UNSTORABLE.test(JSON.stringify(item))
}

function sameRow(a: Row, b: Row): boolean {
  return a.every((value, index) => value === b[index])
}

function rowAsObject(stream: Stream, row: Row): Record<string, unknown> {
  return Object.fromEntries(stream.columns.map(({ name }, index) => [name, row[index]]))
}

/** JSON of anything that was parsed from JSON, however deep. */
export function safeJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null'
  } catch {
    return '"(nested too deeply to show)"'
  }
}

/** Few bad rows wait in quarantine; many mean that the answer itself is wrong, and nothing of it is loaded. */
export function refuseBadPage(place: string, sifted: Sifted, maxBadShare: number): void {
  const bad = sifted.rejects.length
  const all = bad + sifted.rows.length
  // One or two bad rows of a handful say nothing about the rest.
  if (bad === 0 || bad / all <= maxBadShare || (bad < 3 && bad < all)) return
  const reason = sifted.rejects[0]?.reason ?? ''
  throw new BadPageError(`${place}: ${bad} of ${all} rows are bad, more than ${maxBadShare * 100} % (first: ${reason})`)
}
