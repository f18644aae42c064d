import type { Origin } from '../../source/parse-items.ts'
import type { Entities, Row, TemplatePaths } from '../../streams/stream.ts'
import { inferTemplate } from './infer-template.ts'
import { type InternPool, isAt, pieceOf } from './intern-pool.ts'
import {
  ACCEPTS_NULL,
  ACCEPTS_NUMBER,
  ACCEPTS_TEXT,
  type Field,
  type RowTemplate,
  type TemplateCache,
} from './template-cache.ts'

const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const NINE = 0x39
const LARGEST_EXACT = Number.MAX_SAFE_INTEGER
/** Powers of ten by which the quotient of two exact numbers is the number that was written. */
const TENS = Array.from({ length: 23 }, (_, exponent) => 10 ** exponent)

/** Reads numbers from bytes, to the last bit as JSON.parse does. */
export class NumberReader {
  /** Where the number that was read last ends. */
  end = 0

  /** The number that begins here, as JSON.parse reads it. `end` is -1 if none does, or it has an exponent. */
  read(bytes: Buffer, start: number): number {
    const negative = bytes[start] === MINUS
    const first = negative ? start + 1 : start
    this.end = -1
    let at = first
    let digits = 0
    let decimals = 0
    let byte = bytes[at]!
    while (byte >= ZERO && byte <= NINE) {
      digits = digits * 10 + (byte - ZERO)
      byte = bytes[++at]!
    }
    // No digit, or more of them after a zero.
    if (at === first || (at > first + 1 && bytes[first] === ZERO)) return 0
    if (byte === POINT) {
      const point = at
      byte = bytes[++at]!
      while (byte >= ZERO && byte <= NINE) {
        digits = digits * 10 + (byte - ZERO)
        byte = bytes[++at]!
      }
      decimals = at - point - 1
      if (decimals === 0) return 0
    }
    this.end = at
    // Up to here nothing was rounded, and one division rounds as it should.
    if (digits <= LARGEST_EXACT && decimals < TENS.length) {
      const value = digits / TENS[decimals]!
      return negative ? -value : value
    }
    // More digits than can be computed exactly.
    const value = Number(bytes.toString('latin1', start, at))
    if (!Number.isFinite(value)) this.end = -1
    return value
  }
}

/*
 * Most rows of a report match earlier ones: the same fields in the same order, ids, names and days that these fields had
 * before, and new numbers. zod and the sifter validate each value by its field alone, and accept any number. So a row that
 * matches is valid, too. It is read from its bytes, at about a third of the cost of parsing and validation. Rows that match no
 * template are parsed in full, and then added to the template cache.
 */

const QUOTE = 0x22
const LETTER_N = 0x6e

const NULL = pieceOf(Buffer.from('null'))

/** Reads the rows of one answer that match a template. Each text is validated once per answer, because its meaning may depend on the answer. */
export class TemplateParser {
  /** The row that was read last. The next one overwrites it. */
  readonly row: Row
  /** Texts that mean something in combination: a brand, its name and the day. */
  private readonly combination: readonly [InternPool, InternPool, InternPool]
  private readonly seenCombinations = new Set<number>()
  /** For each field's memory the texts of this answer, by their numbers. */
  private readonly seen: Uint8Array[] = []
  private readonly numbers = new NumberReader()
  private viewed: Buffer | undefined
  private view: DataView = new DataView(new ArrayBuffer(0))

  constructor(
    private readonly templatePaths: TemplatePaths,
    private readonly cache: TemplateCache,
  ) {
    const [first, second, third] = templatePaths.combination
    this.row = new Array<Row[number]>(templatePaths.paths.length).fill(null)
    this.combination = [cache.poolOf(first), cache.poolOf(second), cache.poolOf(third)]
  }

  /** Reads the item that begins here into `row`, and gives where it ends; -1 if it is not like others before. */
  read(bytes: Buffer, start: number): number {
    const { templates } = this.cache
    for (let index = 0; index < templates.length; index++) {
      const template = templates[index]!
      const end = this.readAs(template, bytes, start)
      if (end < 0) continue
      if (index > 0) {
        // A shape that was met again goes before the one that was tried in vain.
        templates[index] = templates[index - 1]!
        templates[index - 1] = template
      }
      return end
    }
    return -1
  }

  /** Collects what texts of the row that was read last mean in combination, once in an answer for each. */
  collectCombination(entities: Entities): void {
    const number = this.combinationNumber()
    if (this.seenCombinations.has(number)) return
    this.seenCombinations.add(number)
    const [first, second, third] = this.combination
    this.templatePaths.collect(entities, first.lastValue, second.lastValue, third.lastValue)
  }

  /** Remembers an item that was validated as sound, and the row that it came to. */
  learn({ bytes, start, end }: Origin, validated: Row): void {
    const isLearned = this.cache.templates.some((template) => this.learnAs(template, bytes, start, validated))
    if (!isLearned) {
      const inferred = inferTemplate(bytes, start, end)
      const template = inferred && this.cache.templateOf(inferred)
      if (template === undefined || !this.learnAs(template, bytes, start, validated)) return
    }
    this.seenCombinations.add(this.combinationNumber())
  }

  private readAs({ fields, pieces, missing }: RowTemplate, bytes: Buffer, start: number): number {
    const { row, seen, numbers } = this
    const view = this.viewOf(bytes)
    this.forgetCombination()
    let at = start
    for (let index = 0; index < fields.length; index++) {
      const piece = pieces[index]!
      if (!isAt(view, at, piece)) return -1
      at += piece.length
      const { column, accepts, texts } = fields[index]!
      const first = bytes[at]!
      let value: Row[number]
      if (first === QUOTE) {
        const text = texts.find(bytes, view, at)
        if ((accepts & ACCEPTS_TEXT) === 0 || text === undefined || seen[texts.index]?.[text.number] !== 1) return -1
        value = text.value
        at += text.quoted.length
      } else if (first === LETTER_N) {
        if ((accepts & ACCEPTS_NULL) === 0 || !isAt(view, at, NULL)) return -1
        value = null
        at += NULL.length
      } else {
        if ((accepts & ACCEPTS_NUMBER) === 0) return -1
        value = numbers.read(bytes, at)
        if (numbers.end < 0) return -1
        at = numbers.end
      }
      if (column >= 0) row[column] = value
    }
    const last = pieces[fields.length]!
    if (!isAt(view, at, last)) return -1
    for (let index = 0; index < missing.length; index++) row[missing[index]!] = null
    return at + last.length
  }

  /** Learns what the fields of a template take. False if an item is not of its shape, or its values are not those of its row. */
  private learnAs({ fields, pieces, missing }: RowTemplate, bytes: Buffer, start: number, validated: Row): boolean {
    const view = this.viewOf(bytes)
    this.forgetCombination()
    let at = start
    for (const [index, field] of fields.entries()) {
      if (!isAt(view, at, pieces[index]!)) return false
      at = this.learnField(field, bytes, at + pieces[index]!.length, validated)
      if (at < 0) return false
    }
    return isAt(view, at, pieces[fields.length]!) && missing.every((column) => validated[column] == null)
  }

  /** Learns what a field accepts from the value that begins here. Gives where it ends; -1 if it is not the one of the row. */
  private learnField(field: Field, bytes: Buffer, start: number, validated: Row): number {
    const { column, texts } = field
    const holds = (value: Row[number]) => column < 0 || Object.is(value, validated[column] ?? null)
    if (bytes[start] === QUOTE) {
      const text = texts.findOrAdd(bytes, this.viewOf(bytes), start)
      if (text === undefined || !holds(text.value)) return -1
      this.remember(texts.index, text.number)
      field.accepts |= ACCEPTS_TEXT
      return start + text.quoted.length
    }
    if (bytes[start] === LETTER_N) {
      if (!holds(null)) return -1
      field.accepts |= ACCEPTS_NULL
      return start + NULL.length
    }
    const value = this.numbers.read(bytes, start)
    if (this.numbers.end < 0 || !holds(value)) return -1
    field.accepts |= ACCEPTS_NUMBER
    return this.numbers.end
  }

  private remember(pool: number, text: number): void {
    let seen = this.seen[pool] ?? new Uint8Array(256)
    if (text >= seen.length) {
      const longer = new Uint8Array(text * 2)
      longer.set(seen)
      seen = longer
    }
    seen[text] = 1
    this.seen[pool] = seen
  }

  private viewOf(bytes: Buffer): DataView {
    if (this.viewed !== bytes) {
      this.viewed = bytes
      this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
    }
    return this.view
  }

  private forgetCombination(): void {
    for (const pool of this.combination) pool.lastNumber = 0
  }

  private combinationNumber(): number {
    const [first, second, third] = this.combination
    return first.lastNumber + second.lastNumber * 2 ** 16 + third.lastNumber * 2 ** 32
  }
}
