import { type Day, isDay } from '../core/day.ts'
import { BadPageError } from '../core/errors.ts'
import { clip, count as counted } from '../core/text.ts'
import type { ItemSink, Origin } from '../source/parse-items.ts'
import { REPEATED_KEY } from '../source/without-key.ts'
import {
  type Child,
  datePosition,
  type Entities,
  keyPositions,
  noEntities,
  type Row,
  type Rows,
  type Stream,
  type Value,
} from '../streams/stream.ts'
import { addRows } from './add-rows.ts'
import { type TotalsByDay, TotalsCounter } from './day-totals.ts'
import { type DriftNote, DriftNotes } from './drift-notes.ts'
import type { TemplateCaches } from './fast-path/template-cache.ts'
import { TemplateParser } from './fast-path/template-parser.ts'
import { type Asked, itemValidator } from './item-validator.ts'
import { KeyIndex } from './key-index.ts'
import { RawTexts, safeJson } from './raw-text.ts'

/** A raw item that failed, and why. */
export interface Reject {
  /** Its JSON, cut if it is long. */
  raw: string
  reason: string
  /** Its position among the items of the answer. */
  index: number
  /** The day of the row, if it can be read. */
  date?: Day
  /** Its brand, if it has one and it can be read. */
  brand?: string
}

export const CONTRADICTION = 'the same key stands twice in one answer with different values'

/** The result of sifting an answer. */
export interface Sifted<R extends Rows = Rows> {
  rows: R
  /** How many rows each day has, for streams that are read by days. */
  rowsByDay: Map<Day, number>
  /** The totals of each day. Only brand reports have them. */
  totals: TotalsByDay | undefined
  /** The rows of child tables, by table. */
  children: Map<string, Row[]>
  rejects: Reject[]
  entities: Entities
  drift: DriftNote[]
}

export interface SiftOptions extends Asked {
  /** Set if items come as bytes too: those that are like earlier ones need not be parsed. */
  templates?: TemplateCaches
  /** Called for each valid row. */
  each?: ((row: Row) => void) | undefined
}

/** Sifts an answer that is at hand as a whole. */
export function sift<R extends Rows>(
  stream: Stream,
  raws: readonly unknown[],
  options: SiftOptions,
  rows: R,
): Sifted<R> {
  const sifter = new Sifter(stream, options, rows)
  sifter.addItems(raws)
  if (sifter.needsSecondPass()) sifter.runSecondPass(raws)
  return sifter.finish()
}

interface SiftingSink<R extends Rows> extends ItemSink {
  /** How many items of the answer only repeated others. */
  repeats(): number
  /** The rows of each day so far. */
  found(): FoundDays
  finish(): Sifted<R>
  discard(): void
}

/** The rows of each day in an answer, before it is loaded. */
export interface FoundDays {
  rowsByDay: ReadonlyMap<Day, number>
  totals: TotalsByDay | undefined
  rejects: readonly Reject[]
  /** Dimensions that were asked for and that no row has. */
  absent: string[]
}

/** Sifts an answer while it is parsed. */
export function siftingSink<R extends Rows>(
  stream: Stream,
  options: Omit<SiftOptions, 'needsTextCheck'>,
  makeRows: () => R,
): SiftingSink<R> {
  const sifterOf = (needsTextCheck: boolean) => new Sifter(stream, { ...options, needsTextCheck }, makeRows())
  let sifter = sifterOf(true)
  return {
    begin: (needsTextCheck) => {
      sifter = sifterOf(needsTextCheck)
    },
    addItems: (items, origin) => sifter.addItems(items, origin),
    ...(stream.template && {
      acceptByTemplate: (bytes: Buffer, start: number) => sifter.acceptByTemplate(bytes, start),
    }),
    needsSecondPass: () => sifter.needsSecondPass(),
    runSecondPass: (items) => sifter.runSecondPass(items),
    repeats: () => sifter.repeats,
    found: () => sifter.found,
    finish: () => sifter.finish(),
    // Its memory is needed for other answers.
    discard: () => {
      sifter = sifterOf(true)
    },
  }
}

// Tags are mentioned many times over in an answer; so many different ones are no tags.
const MOST_TAGS = 50_000

/**
 * Validates the items of an answer, batch by batch, and flattens them into rows. A bad item becomes a reject. Duplicates are
 * counted once. Two items with one key and different values are both rejected, because nothing shows which is correct.
 * A validated item is packed at once: keeping ten thousand of them alive doubles the cost of a page.
 */
export class Sifter<R extends Rows> {
  /** How many items only repeated others. */
  repeats = 0
  readonly rejects: Reject[] = []
  private readonly rawTexts = new RawTexts()
  private readonly rejectedTexts = new Set<string>()
  private readonly entities = noEntities()
  private readonly notes = new DriftNotes()
  private readonly knownFields: ReadonlySet<string>
  private validate: ReturnType<typeof itemValidator>
  private checksTexts: boolean
  private readonly keyAt: readonly number[]
  /** Finds the position of a row by its key. */
  private readonly keyIndex: KeyIndex
  private readonly dateAt: number
  readonly rowsByDay = new Map<Day, number>()
  private readonly children: { child: Child<never>; rows: Row[] }[]
  /** How many items were taken, and how many of them a second time. */
  private taken = 0
  private takenAgain = 0
  /** Rows that another item contradicts, by index. The row is undefined until a second pass reaches the first item of its key. */
  private readonly contradicted = new Map<number, Row | undefined>()
  private readonly contradictingItems = new Set<number>()
  private readonly templateParser: TemplateParser | undefined
  private readonly each: SiftOptions['each']
  private readonly totals: TotalsCounter | undefined
  /** Positions of dimensions that no row had so far. */
  private absent: readonly number[]
  /** Rows that were added up, by the position of the first of them. */
  private readonly sums = new Map<number, Row>()

  constructor(
    private readonly stream: Stream,
    private readonly options: SiftOptions,
    private readonly rows: R,
  ) {
    this.knownFields = new Set(Object.keys(stream.item.shape))
    this.validate = itemValidator(stream, options)
    this.checksTexts = options.needsTextCheck
    this.keyAt = keyPositions(stream)
    this.keyIndex = new KeyIndex(this.keyAt)
    this.dateAt = datePosition(stream)
    // Looked up once, not for each row.
    this.each = options.each
    const dimensions = (stream.by === 'day' && stream.dimensions) || []
    this.absent = dimensions.map((name) => stream.columns.findIndex((column) => column.name === name))
    if (stream.by === 'day' && stream.control?.startsWith('brand')) this.totals = new TotalsCounter(stream)
    this.children = ((stream.by === 'list' && stream.children) || []).map((child) => ({ child, rows: [] }))
    const { template } = stream
    const { templates, needsTextCheck } = options
    if (template !== undefined && templates !== undefined && !needsTextCheck) {
      this.templateParser = new TemplateParser(template, templates.of(template))
    }
  }

  /** Takes the item that begins here, if it is like others before; gives its end, or -1. */
  acceptByTemplate(bytes: Buffer, start: number): number {
    const parser = this.templateParser
    const end = parser?.read(bytes, start) ?? -1
    if (parser === undefined || end < 0) return -1
    const { row } = parser
    // The slow path rejects a row that cannot be right. It also compares a row with an earlier one that has the same key.
    if (this.stream.findImpossibleValue?.(row) !== undefined || this.keyIndex.findOrAdd(row) !== undefined) return -1
    this.taken++
    this.rows.add(row)
    this.count(row, 1)
    this.each?.(row)
    parser.collectCombination(this.entities)
    return end
  }

  addItems(raws: readonly unknown[], origin?: Origin): void {
    for (const raw of raws) {
      const index = this.taken++
      if (this.checksTexts) this.noteSecrets(raw)
      const checked = this.validate(raw)
      if ('reason' in checked) this.reject(raw, index, checked.reason)
      else if (this.addRow(raw, index, checked.item, checked.row) && origin !== undefined) {
        this.templateParser?.learn(origin, checked.row)
      }
    }
    if (this.entities.tags.size > MOST_TAGS) {
      throw new BadPageError(`${this.stream.name}: an answer with more than ${counted(MOST_TAGS, 'different tag')}`)
    }
  }

  /** Takes a part of an answer. Only rows that add up may have keys in common with other parts. */
  acceptPart(raws: readonly unknown[], needsTextCheck: boolean): void {
    this.validate = itemValidator(this.stream, { ...this.options, needsTextCheck })
    this.checksTexts = needsTextCheck
    this.takenAgain = this.taken
    this.addItems(raws)
    if (this.needsSecondPass()) this.runSecondPass(raws)
  }

  /** True if a row contradicts an earlier one: both must be shown, and the earlier one is gone. */
  needsSecondPass(): boolean {
    return [...this.contradicted.values()].includes(undefined)
  }

  /** Takes the same items a second time. */
  runSecondPass(raws: readonly unknown[]): void {
    const { contradicted, keyIndex, stream } = this
    for (const raw of raws) {
      const index = this.takenAgain++
      const checked = this.validate(raw)
      if ('reason' in checked) continue
      const position = keyIndex.findOrAdd(checked.row)
      if (position === undefined || !contradicted.has(position)) continue
      const isFirst = contradicted.get(position) === undefined
      if (isFirst) {
        contradicted.set(position, checked.row)
        this.count(checked.row, -1)
      }
      // Rows that were added to the first one before the contradiction are rejected with it. Its duplicates are not.
      const isPartOfIt = isFirst || stream.adds !== undefined
      if (isPartOfIt && !this.contradictingItems.has(index)) this.reject(raw, index, CONTRADICTION)
    }
  }

  get found(): FoundDays {
    const absent = this.rows.length === 0 ? [] : this.absent.map((at) => this.stream.columns[at]!.name)
    return { rowsByDay: this.rowsByDay, totals: this.totals?.byDay, rejects: this.rejects, absent }
  }

  finish(): Sifted<R> {
    const { rejects, rowsByDay, entities, contradicted, keyIndex, stream, sums } = this
    const common = { rowsByDay, totals: this.totals?.byDay, rejects, entities, drift: this.notes.list }
    if (contradicted.size === 0 && sums.size === 0) {
      this.rows.setOrder?.(() => keyIndex.inOrder(stream.key.indexOf('date')))
      return { ...common, rows: this.rows, children: this.childRows(new Set()) }
    }
    const parents = new Set([...contradicted.values()].map((row) => row?.[this.keyAt[0]!] ?? null))
    const rows = this.rows.without(new Set([...contradicted.keys(), ...sums.keys()])) as R
    for (const [position, row] of sums) if (!contradicted.has(position)) rows.add(row)
    return { ...common, rows, children: this.childRows(parents) }
  }

  /** False for a row whose key another row has. */
  private addRow(raw: unknown, index: number, item: never, row: Row): boolean {
    const { stream, rows, notes, entities } = this
    for (const field in raw as object) {
      if (!this.knownFields.has(field)) notes.add('field', field, (raw as Record<string, unknown>)[field])
    }
    const position = this.keyIndex.findOrAdd(row)
    if (position !== undefined) {
      if (!this.joinEqualKey(raw, position, row)) {
        this.reject(raw, index, CONTRADICTION)
        this.contradictingItems.add(index)
        if (!this.contradicted.has(position)) this.contradicted.set(position, undefined)
      }
      return false
    }
    rows.add(row)
    this.count(row, 1)
    this.each?.(row)
    for (const { child, rows: childRows } of this.children) for (const each of child.rows(item)) childRows.push(each)
    stream.collectEntities?.(item, entities)
    for (const { kind, known, valueOf } of stream.vocabulary ?? []) {
      const value = valueOf(item)
      if (value != null && !known.has(value)) notes.add(kind, value, value)
    }
    return true
  }

  private noteSecrets(raw: unknown): void {
    for (const [field, value] of Object.entries(raw ?? {})) {
      if (safeJson(value).includes(REPEATED_KEY)) this.notes.add('secret', field, REPEATED_KEY)
    }
  }

  /** Adds a row to the one with the same key, or notes it as a duplicate. False if it contradicts that one. */
  private joinEqualKey(raw: unknown, position: number, row: Row): boolean {
    const { stream, rows, sums } = this
    if (stream.adds === undefined) {
      const isDuplicate = rows.get(position).every((value, at) => (value ?? null) === (row[at] ?? null))
      if (isDuplicate) {
        this.repeats++
        this.notes.add('duplicate', 'row', raw)
      }
      return isDuplicate
    }
    const sum = addRows(stream, sums.get(position) ?? rows.get(position), row)
    if (sum !== undefined) sums.set(position, sum)
    return sum !== undefined
  }

  private reject(raw: unknown, index: number, reason: string): void {
    const reject: Reject = { raw: this.rawTexts.of(raw), reason: clip(reason, 200), index }
    const { range } = this.options
    // It belongs to its day if that can still be read, otherwise to the whole window.
    const { id, date, brand } = (raw ?? {}) as { id?: unknown; date?: unknown; brand?: { id?: unknown } | null }
    if (typeof brand?.id === 'string') reject.brand = brand.id
    if (range !== undefined && typeof date === 'string' && date >= range.from && date <= range.to && isDay(date)) {
      reject.date = date
    }
    // Equal items that do not say what they are may be different rows.
    const isNamed = typeof id === 'string' || (reject.brand !== undefined && reject.date !== undefined)
    if (isNamed && this.rejectedTexts.has(reject.raw)) this.repeats++
    this.rejectedTexts.add(reject.raw)
    this.rejects.push(reject)
  }

  /** The rows of child tables, without those of these parents. */
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
