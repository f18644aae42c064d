import { type Day, isDay, type Range } from '../core/day.ts'
import { BadPageError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import type { Origin } from '../source/parse-items.ts'
import { FamiliarRows } from './familiar-rows.ts'
import { KeyIndex } from './key-index.ts'
import { datePosition, keyPositions, type Mentions, noMentions, type Row, type Rows, type Stream } from './stream.ts'

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

/** What an answer comes to. */
export interface Sifted<R extends Rows = Rows> {
  rows: R
  /** How many rows each day has, for streams that are read by days. */
  rowsByDay: Map<Day, number>
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
  /** True where all items come at once, so that they may be kept until the end. */
  whole?: boolean
  /** Told of each sound row. */
  each?: ((row: Row) => void) | undefined
}

/** Sifts an answer that is at hand as a whole. */
export function sift<R extends Rows>(
  stream: Stream,
  raws: readonly unknown[],
  options: SiftOptions,
  rows: R,
): Sifted<R> {
  const sifter = new Sifter(stream, { ...options, whole: true }, rows)
  sifter.take(raws)
  return sifter.finish()
}

/**
 * Validates the items of an answer, batch by batch, and flattens them into rows. A bad item becomes a reject; an item that
 * stands twice counts once; two items with one key and different values are both rejected, since nothing tells which is
 * true. A validated item is used up at once: keeping ten thousand of them alive doubles the cost of a page.
 */
export class Sifter<R extends Rows> {
  private readonly rejects: Reject[] = []
  private readonly mentions = noMentions()
  private readonly notes = driftNotes()
  private readonly knownFields: ReadonlySet<string>
  private readonly validate: (raw: unknown) => Verdict
  /** Finds the place of a row by its key. */
  private readonly places: KeyIndex
  private readonly dateAt: number
  private readonly rowsByDay = new Map<Day, number>()
  /** Where the rows came from, by place, if that can be kept. */
  private readonly origins: unknown[] = []
  private readonly contradicted = new Set<number>()
  private readonly familiar: FamiliarRows | undefined

  constructor(
    private readonly stream: Stream,
    private readonly options: SiftOptions,
    private readonly rows: R,
  ) {
    this.knownFields = new Set(Object.keys(stream.item.shape))
    this.validate = validator(stream, options)
    this.places = new KeyIndex(keyPositions(stream))
    this.dateAt = datePosition(stream)
    const { familiar } = stream
    if (familiar !== undefined && !options.whole && !options.suspectText) this.familiar = new FamiliarRows(familiar)
  }

  /** Takes the item that begins here, where it is like others before; gives its end, or -1. */
  takeFamiliar(bytes: Buffer, start: number): number {
    const { familiar, rows } = this
    const end = familiar?.read(bytes, start) ?? -1
    // One with a known key goes the long way, on which it is compared with the other.
    if (end < 0 || this.places.place(familiar!.row) !== undefined) return -1
    rows.add(familiar!.row)
    this.count(familiar!.row, 1)
    this.options.each?.(familiar!.row)
    return end
  }

  /** False where a row contradicts one of an earlier batch: both must be shown, so all items are needed at once. */
  take(raws: readonly unknown[], origin?: Origin): boolean {
    for (const raw of raws) {
      const verdict = this.validate(raw)
      if ('reason' in verdict) this.rejects.push({ raw, reason: clip(verdict.reason, 200) })
      else if (this.keep(raw, verdict.item, verdict.row) && origin !== undefined) {
        this.familiar?.learn(origin, verdict.row)
      }
    }
    return this.contradicted.size === 0 || this.options.whole === true
  }

  finish(): Sifted<R> {
    const { rejects, rowsByDay, mentions, contradicted, origins, options } = this
    for (const place of contradicted) {
      rejects.push({ raw: origins[place], reason: CONTRADICTION })
      this.count(this.stream.flatten(this.stream.item.parse(origins[place]) as never), -1)
    }
    if (options.range !== undefined) for (const reject of rejects) dateReject(reject, options.range)
    const rows = contradicted.size === 0 ? this.rows : (this.rows.without(contradicted) as R)
    const { places, stream } = this
    if (contradicted.size === 0) {
      rows.keepOrder?.({
        find: () => places.inOrder(stream.key.indexOf('date')),
        release: () => places.release(),
      })
    }
    const sound = contradicted.size === 0 ? origins : origins.filter((_, place) => !contradicted.has(place))
    return { rows, rowsByDay, children: childRows(stream, sound), rejects, mentions, drift: this.notes.drift }
  }

  /** False for a row whose key stands in another. */
  private keep(raw: unknown, item: never, row: Row): boolean {
    const { stream, rows, notes, mentions } = this
    for (const field in raw as object) {
      if (!this.knownFields.has(field)) notes.add('field', field, (raw as Record<string, unknown>)[field])
    }
    const place = this.places.place(row)
    if (place !== undefined) {
      if (rows.holds(place, row)) notes.add('duplicate', 'row', raw)
      else this.contradict(place, raw)
      return false
    }
    rows.add(row)
    this.count(row, 1)
    this.options.each?.(row)
    if (this.options.whole) this.origins.push(raw)
    stream.mention?.(item, mentions)
    for (const { kind, known, valueOf } of stream.vocabulary ?? []) {
      const value = valueOf(item)
      if (value != null && !known.has(value)) notes.add(kind, value, value)
    }
    return true
  }

  private contradict(place: number, raw: unknown): void {
    this.rejects.push({ raw, reason: CONTRADICTION })
    this.contradicted.add(place)
  }

  private count(row: Row, change: number): void {
    if (this.dateAt < 0) return
    const date = row[this.dateAt] as Day
    this.rowsByDay.set(date, (this.rowsByDay.get(date) ?? 0) + change)
  }
}

/** Collects notes, each kind and name once. */
function driftNotes(): { drift: DriftNote[]; add(kind: DriftNote['kind'], name: string, example: unknown): void } {
  const drift: DriftNote[] = []
  const noted = new Set<string>()
  return {
    drift,
    add(kind, name, example) {
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
  const dateAt = datePosition(stream)
  const nestedParts = stream.columns.some(({ type }) => type === 'jsonb')
  const ids = stream.columns.flatMap(({ name, type }, index) =>
    type === 'text' && (name.endsWith('_id') || stream.key.includes(name)) ? [index] : [],
  )
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
    for (let index = 0; index < ids.length; index++) {
      const id = row[ids[index]!] as string | null
      if (id !== null && (id.length === 0 || id.length > ID_MAX)) {
        return { reason: `${stream.columns[ids[index]!]!.name}: has ${id.length} characters; allowed: 1 to ${ID_MAX}` }
      }
    }
    if (dateAt >= 0) {
      const date = row[dateAt] as string
      if (date < from || date > to || !isRealDay(date)) {
        return { reason: `date: ${date} is not a day from ${from} to ${to}, which was asked for` }
      }
    }
    return { row, item }
  }
}

// Ids are indexed, and an index entry has a size limit in Postgres.
const ID_MAX = 255

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

/** JSON of anything that was parsed from JSON, however deep. */
export function safeJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null'
  } catch {
    return '"(nested too deeply to show)"'
  }
}

type Judged = Pick<Sifted, 'rejects'> & { rows: { length: number } }

/** Few bad rows wait in quarantine; many mean that the answer itself is wrong, and nothing of it is loaded. */
export function refuseBadPage(place: string, sifted: Judged, maxBadShare: number): void {
  const bad = sifted.rejects.length
  const all = bad + sifted.rows.length
  // One or two bad rows of a handful say nothing about the rest.
  if (bad === 0 || bad / all <= maxBadShare || (bad < 3 && bad < all)) return
  const reason = sifted.rejects[0]?.reason ?? ''
  throw new BadPageError(`${place}: ${bad} of ${all} rows are bad, more than ${maxBadShare * 100} % (first: ${reason})`)
}
