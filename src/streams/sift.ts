import { type Day, isDay, type Range } from '../core/day.ts'
import { BadPageError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { KeyIndex, keyPositions, type Mentions, noMentions, type Row, type Stream } from './stream.ts'

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
export function sift(stream: Stream, raws: readonly unknown[], options: SiftOptions): Sifted {
  const rejects: Reject[] = []
  const mentions = noMentions()
  const { drift, note } = driftNotes()
  const knownFields = new Set(Object.keys(stream.item.shape))
  const validate = validator(stream, options)
  const vocabulary = stream.vocabulary ?? []
  /** The sound rows and where they came from, by place; `places` finds one by its key. */
  const rows: Row[] = []
  const origins: unknown[] = []
  const places = new KeyIndex(keyPositions(stream))
  const contradicted = new Set<number>()

  for (const raw of raws) {
    const verdict = validate(raw)
    if ('reason' in verdict) {
      rejects.push({ raw, reason: clip(verdict.reason, 200) })
      continue
    }
    // The validated item is used up here: keeping ten thousand of them alive doubles the cost of a page.
    const { row, item } = verdict
    for (const field in raw as object) {
      if (!knownFields.has(field)) note('field', field, (raw as Record<string, unknown>)[field])
    }
    const place = places.place(row, rows.length)
    if (place === undefined) {
      rows.push(row)
      origins.push(raw)
      stream.mention?.(item, mentions)
      for (const { kind, known, valueOf } of vocabulary) {
        const value = valueOf(item)
        if (value != null && !known.has(value)) note(kind, value, value)
      }
    } else if (sameRow(rows[place]!, row)) {
      note('duplicate', 'row', raw)
    } else {
      contradicted.add(place)
      rejects.push({ raw, reason: CONTRADICTION })
    }
  }

  for (const place of contradicted) rejects.push({ raw: origins[place], reason: CONTRADICTION })
  if (options.range !== undefined) for (const reject of rejects) dateReject(reject, options.range)
  const stays = (_: unknown, place: number) => !contradicted.has(place)
  const whole = contradicted.size === 0
  const children = childRows(stream, whole ? origins : origins.filter(stays))
  return { rows: whole ? rows : rows.filter(stays), children, rejects, mentions, drift }
}

/** Collects notes, each kind and name once. */
function driftNotes(): { drift: DriftNote[]; note(kind: DriftNote['kind'], name: string, example: unknown): void } {
  const drift: DriftNote[] = []
  const noted = new Set<string>()
  return {
    drift,
    note(kind, name, example) {
      if (noted.has(`${kind} ${name}`)) return
      noted.add(`${kind} ${name}`)
      drift.push({ kind, name: clip(name, 100), example: clip(safeJson(example), 300) })
    },
  }
}

type Verdict = { row: Row; item: never } | { reason: string }

/** Judges single items: their shape, whether Postgres can store them, and whether their day was asked for. */
function validator(stream: Stream, { range, suspectText }: SiftOptions): (raw: unknown) => Verdict {
  const { item: schema } = stream
  const dateAt = stream.by === 'day' ? stream.columns.findIndex(({ name }) => name === 'date') : -1
  const nestedParts = stream.columns.some(({ type }) => type === 'jsonb')
  const { from, to } = range ?? { from: '', to: '' }
  return (raw) => {
    const parsed = schema.safeParse(raw)
    if (!parsed.success) {
      const [issue] = parsed.error.issues
      return { reason: `${issue?.path.join('.') || 'row'}: ${issue?.message ?? 'invalid'}` }
    }
    const item = parsed.data as never
    if (nestedParts && depth(raw) > DEPTH_MAX) return { reason: `row: nested more than ${DEPTH_MAX} levels deep` }
    if (suspectText && holdsUnstorable(item)) {
      return { reason: 'a text holds a NUL character or half of a surrogate pair, which Postgres cannot store' }
    }
    const row = stream.flatten(item)
    if (dateAt >= 0) {
      const date = row[dateAt] as string
      if (date < from || date > to || !isRealDay(date)) {
        return { reason: `date: ${date} is not a day from ${from} to ${to}, which was asked for` }
      }
    }
    return { row, item }
  }
}

// Far more than any real answer, and far less than what would exhaust a stack here or in Postgres.
const DEPTH_MAX = 100

function depth(value: unknown): number {
  let level: unknown[] = [value]
  for (let deep = 0; ; deep++) {
    const next = level.flatMap((item) => (typeof item === 'object' && item !== null ? Object.values(item) : []))
    if (next.length === 0 || deep > DEPTH_MAX) return deep
    level = next
  }
}

/** Only lists have children, and they are short: their items are validated once more. */
function childRows(stream: Stream, origins: readonly unknown[]): Map<string, Row[]> {
  const children = (stream.by === 'list' && stream.children) || []
  const items = children.length === 0 ? [] : origins.map((raw) => stream.item.parse(raw) as never)
  return new Map(children.map((child) => [child.table, items.flatMap((item) => child.rows(item))]))
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
