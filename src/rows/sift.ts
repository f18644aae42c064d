import { type Day, isDay } from '../core/day.ts'
import { BadPageError } from '../core/errors.ts'
import { clip, count as counted } from '../core/text.ts'
import { REPEATED_KEY } from '../source/without-key.ts'
import {
  type Child,
  datePosition,
  type Entities,
  keyOf,
  keyPositions,
  noEntities,
  type Row,
  type Rows,
  type Stream,
  type Value,
} from '../streams/stream.ts'
import { addRows } from './add-rows.ts'
import { TOTALLED, type TotalsByDay, TotalsCounter } from './day-totals.ts'
import { type DriftNote, DriftNotes } from './drift-notes.ts'
import { type Asked, itemValidator } from './item-validator.ts'
import { RawTexts, safeJson } from './raw-text.ts'

/** What can be read of an item that failed. */
export interface RejectFacts {
  date?: Day
  brand?: string
  /** Its values of the columns that add up. */
  totals: (number | undefined)[]
}

export interface Reject extends RejectFacts {
  /** Its JSON, cut if it is long. */
  raw: string
  reason: string
  /** Its position among the items of the answer. */
  index: number
}

/** An item belongs to its day if that can be read and was asked for, otherwise to the whole range. */
export function factsOf(raw: unknown, range: Asked['range']): RejectFacts {
  const { date, brand, ...item } = (raw ?? {}) as Record<string, unknown> & { brand?: { id?: unknown } | null }
  const totals = TOTALLED.map((name) => (typeof item[name] === 'number' && item[name] >= 0 ? item[name] : undefined))
  const isOfRange = typeof date === 'string' && range !== undefined && date >= range.from && date <= range.to
  return {
    totals,
    ...(typeof brand?.id === 'string' && { brand: brand.id }),
    ...(isOfRange && isDay(date) && { date }),
  }
}

export const CONTRADICTION = 'the same key stands twice in one answer with different values'

export interface Sifted<R extends Rows = Rows> {
  rows: R
  /** How many rows each day has, for streams that are read by days. */
  rowsByDay: Map<Day, number>
  /** The totals of each day. Only brand reports have them. */
  totals: TotalsByDay | undefined
  /** The rows of child tables, by table. */
  children: Map<string, Row[]>
  rejects: Reject[]
  /** How many items only repeated others. */
  repeats: number
  /** Dimensions that were asked for and that no row has. */
  absent: string[]
  entities: Entities
  drift: DriftNote[]
}

export interface FoundDays {
  rowsByDay: ReadonlyMap<Day, number>
  totals: TotalsByDay | undefined
  rejects: readonly Reject[]
  absent: string[]
}

/** Sifts an answer that is at hand as a whole. */
export function sift<R extends Rows>(
  stream: Stream,
  raws: readonly unknown[],
  { range, needsTextCheck }: Asked,
  rows: R,
): Sifted<R> {
  const sifter = new Sifter(stream, range, rows)
  sifter.accept(raws, needsTextCheck)
  return sifter.finish()
}

// Tags are mentioned many times over in an answer; so many different ones are no tags.
const MOST_TAGS = 50_000

/**
 * Validates the items of an answer, part by part, and flattens them into rows. A bad item becomes a reject. Duplicates are
 * counted once. Two items with one key and different values are both rejected, because nothing shows which is correct.
 */
export class Sifter<R extends Rows> {
  private repeats = 0
  private readonly rejects: Reject[] = []
  private readonly rawTexts = new RawTexts()
  private readonly rejectedTexts = new Set<string>()
  private readonly entities = noEntities()
  private readonly notes = new DriftNotes()
  private readonly knownFields: ReadonlySet<string>
  private readonly keyAt: readonly number[]
  private readonly positionOf = new Map<string, number>()
  private readonly dateAt: number
  private readonly rowsByDay = new Map<Day, number>()
  private readonly children: { child: Child<never>; rows: Row[] }[]
  /** How many items were taken in earlier parts. */
  private taken = 0
  /** The items that each row was made of. */
  private readonly itemsOf: (number | number[])[] = []
  /** Positions of rows that another item contradicts. */
  private readonly contradicted = new Set<number>()
  private readonly totals: TotalsCounter | undefined
  /** Positions of dimensions that no row had so far. */
  private absent: readonly number[]
  /** Rows that were added up, by the position of the first of them. */
  private readonly sums = new Map<number, Row>()

  constructor(
    private readonly stream: Stream,
    private readonly range: Asked['range'],
    private readonly rows: R,
  ) {
    this.knownFields = new Set(Object.keys(stream.item.shape))
    this.keyAt = keyPositions(stream)
    this.dateAt = datePosition(stream)
    const dimensions = (stream.by === 'day' && stream.dimensions) || []
    this.absent = dimensions.map((name) => stream.columns.findIndex((column) => column.name === name))
    if (stream.by === 'day' && stream.control?.startsWith('brand')) this.totals = new TotalsCounter(stream)
    this.children = ((stream.by === 'list' && stream.children) || []).map((child) => ({ child, rows: [] }))
  }

  /** Takes a part of an answer. Only rows that add up may have keys in common with other parts. */
  accept(raws: readonly unknown[], needsTextCheck: boolean): void {
    const validate = itemValidator(this.stream, { range: this.range, needsTextCheck, items: raws.length })
    for (const [index, raw] of raws.entries()) {
      if (needsTextCheck) this.noteSecrets(raw)
      const checked = validate(raw)
      if ('reason' in checked) this.reject(raw, index, checked.reason)
      else this.addRow(raws, index, checked.item, checked.row)
    }
    this.taken += raws.length
    if (this.entities.tags.size > MOST_TAGS) {
      throw new BadPageError(`${this.stream.name}: an answer with more than ${counted(MOST_TAGS, 'different tag')}`)
    }
  }

  finish(): Sifted<R> {
    const { rejects, rowsByDay, repeats, entities, contradicted, sums } = this
    let { rows } = this
    const parents = new Set([...contradicted].map((position) => rows.get(position)[this.keyAt[0]!] ?? null))
    if (contradicted.size > 0 || sums.size > 0) {
      rows = rows.without(new Set([...contradicted, ...sums.keys()])) as R
      for (const [position, row] of sums) if (!contradicted.has(position)) rows.add(row)
    }
    return {
      rows,
      rowsByDay,
      totals: this.totals?.byDay,
      children: this.childRows(parents),
      rejects: rejects.sort((one, other) => one.index - other.index),
      repeats,
      absent: rows.length === 0 ? [] : this.absent.map((at) => this.stream.columns[at]!.name),
      entities,
      drift: this.notes.list,
    }
  }

  private addRow(raws: readonly unknown[], index: number, item: never, row: Row): void {
    const { stream, rows, notes, entities } = this
    const raw = raws[index] as Record<string, unknown>
    if (!stream.keepsUnknown)
      for (const field in raw) if (!this.knownFields.has(field)) notes.add('field', field, raw[field])
    const key = keyOf(row, this.keyAt)
    const position = this.positionOf.get(key)
    if (position !== undefined) return this.joinEqualKey(raws, index, position, row)
    this.positionOf.set(key, rows.length)
    this.itemsOf.push(this.taken + index)
    rows.add(row)
    this.count(row, 1)
    for (const { child, rows: childRows } of this.children) for (const each of child.rows(item)) childRows.push(each)
    stream.collectEntities?.(item, entities)
    for (const { kind, known, valueOf } of stream.vocabulary ?? []) {
      const value = valueOf(item)
      if (value != null && !known.has(value)) notes.add(kind, value, value)
    }
  }

  private noteSecrets(raw: unknown): void {
    for (const [field, value] of Object.entries(raw ?? {})) {
      if (safeJson(value).includes(REPEATED_KEY)) this.notes.add('secret', field, REPEATED_KEY)
    }
  }

  private joinEqualKey(raws: readonly unknown[], index: number, position: number, row: Row): void {
    const { stream, rows, sums, itemsOf } = this
    const first = rows.get(position)
    if (stream.adds === undefined) {
      if (first.every((value, at) => (value ?? null) === (row[at] ?? null))) {
        this.repeats++
        return this.notes.add('duplicate', 'row', raws[index])
      }
    } else {
      const sum = addRows(stream, sums.get(position) ?? first, row)
      if (sum !== undefined && !this.contradicted.has(position)) {
        sums.set(position, sum)
        itemsOf[position] = [itemsOf[position]!, this.taken + index].flat()
        return
      }
    }
    this.reject(raws[index], index, CONTRADICTION)
    if (this.contradicted.has(position)) return
    this.contradicted.add(position)
    this.count(first, -1)
    // Those of earlier parts are gone; their row goes, too.
    for (const earlier of [itemsOf[position]!].flat())
      if (earlier >= this.taken) this.reject(raws[earlier - this.taken], earlier - this.taken, CONTRADICTION)
  }

  private reject(raw: unknown, index: number, reason: string): void {
    const facts = factsOf(raw, this.range)
    const reject: Reject = {
      ...facts,
      raw: this.rawTexts.of(raw),
      reason: clip(reason, 200),
      index: this.taken + index,
    }
    const { id } = (raw ?? {}) as { id?: unknown }
    // Equal items that do not say what they are may be different rows.
    const isNamed = typeof id === 'string' || (reject.brand !== undefined && reject.date !== undefined)
    if (isNamed && this.rejectedTexts.has(reject.raw)) this.repeats++
    this.rejectedTexts.add(reject.raw)
    this.rejects.push(reject)
  }

  private childRows(dropped: ReadonlySet<Value>): Map<string, Row[]> {
    return new Map(
      this.children.map(({ child, rows }) => {
        const parentAt = child.columns.findIndex(({ name }) => name === child.parent)
        return [child.table, dropped.size === 0 ? rows : rows.filter((row) => !dropped.has(row[parentAt] ?? null))]
      }),
    )
  }

  private count(row: Row, change: 1 | -1): void {
    if (this.absent.length > 0) this.absent = this.absent.filter((at) => (row[at] ?? null) === null)
    if (this.dateAt < 0) return
    const date = row[this.dateAt] as Day
    this.rowsByDay.set(date, (this.rowsByDay.get(date) ?? 0) + change)
    this.totals?.add(row, change)
  }
}

type SiftedPage = Pick<Sifted, 'rejects'> & { rows: { length: number } }

/** A few bad rows go to quarantine. Many mean that the answer itself is wrong: nothing of it is loaded. */
export function refuseBadPage(about: string, sifted: SiftedPage, maxBadShare: number): void {
  const bad = sifted.rejects.length
  const all = bad + sifted.rows.length
  // One or two bad rows of a handful say nothing about the rest.
  if (bad === 0 || bad / all <= maxBadShare || (bad < 3 && bad < all)) return
  const reason = sifted.rejects[0]?.reason ?? ''
  throw new BadPageError(`${about}: ${bad} of ${all} rows are bad, more than ${maxBadShare * 100} % (first: ${reason})`)
}
