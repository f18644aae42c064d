import type { Origin } from '../../source/parse-items.ts'
import type { Row, TemplatePaths } from '../../streams/stream.ts'
import { type InferredTemplate, inferTemplate } from './infer-template.ts'
import { type InternPool, isAt, pieceOf } from './intern-pool.ts'
import { NumberReader } from './number-reader.ts'
import type { RowTemplate, TemplateCache } from './template-cache.ts'

/*
 * Most rows of a report are like others before them: the same fields in the same order, ids and names and days that stood
 * in these fields before, and new numbers. What zod and the sifter said of those holds for these, since they judge each
 * value by its field alone, and any number like any other. Such a row is read from its bytes, at about a third of what
 * parsing and judging it anew would cost. Whatever is not like others goes the long way, and is known from then on.
 */

const QUOTE = 0x22
const LETTER_N = 0x6e

const NULL = pieceOf(Buffer.from('null'))

/** Reads those rows of one answer that are like earlier ones. In each answer a text is judged once, since what it means may depend on the answer. */
export class TemplateParser {
  /** The row that was read last. The next one overwrites it. */
  readonly row: Row
  /** Texts that mean something only together, as the stream says: a brand, its name and the day. */
  private readonly combination: readonly [InternPool, InternPool, InternPool]
  private readonly seenCombinations = new Set<number>()
  /** For each field's memory the texts of this answer, by their numbers. */
  private readonly seen: Uint8Array[] = []
  private readonly numbers = new NumberReader()
  private viewed: Buffer | undefined
  private view: DataView = new DataView(new ArrayBuffer(0))
  /** True if the row that was read last has a text that is new in this answer. */
  private isNew = false

  constructor(
    templatePaths: TemplatePaths,
    private readonly cache: TemplateCache,
  ) {
    const [first, second, third] = templatePaths.combination
    this.row = new Array<Row[number]>(templatePaths.paths.length).fill(null)
    this.combination = [cache.poolOf(first), cache.poolOf(second), cache.poolOf(third)]
  }

  /** Reads the item that begins here into `row`, and gives where it ends; -1 if it is not like others before. */
  read(bytes: Buffer, start: number): number {
    const end = this.readAny(bytes, start, false)
    return end >= 0 && !this.isNew && this.seenCombinations.has(this.combinationNumber()) ? end : -1
  }

  /** Remembers an item that was judged as sound, and the row that it came to. */
  learn({ bytes, start, end }: Origin, row: Row): void {
    if (this.readAny(bytes, start, true) < 0 && !this.learnAnew(bytes, start, end, row)) return
    this.seenCombinations.add(this.combinationNumber())
  }

  private learnAnew(bytes: Buffer, start: number, end: number, row: Row): boolean {
    const found = inferTemplate(bytes, start, end)
    if (found === undefined || !this.agrees(found, row)) return false
    const template = this.cache.templateOf(found)
    if (template === undefined) return false
    for (const [index, { written, value }] of found.fields.entries()) {
      const field = template.fields[index]!
      if (typeof value === 'string') field.texts.add(written, value)
      field.takesText ||= typeof value === 'string'
      field.takesNumber ||= typeof value === 'number'
      field.takesNull ||= value === null
    }
    return this.readAs(template, bytes, start, true) >= 0
  }

  private readAny(bytes: Buffer, start: number, learning: boolean): number {
    const { templates } = this.cache
    for (let index = 0; index < templates.length; index++) {
      const template = templates[index]!
      const end = this.readAs(template, bytes, start, learning)
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

  private readAs({ fields, pieces, missing }: RowTemplate, bytes: Buffer, start: number, learning: boolean): number {
    const { row, combination, numbers } = this
    const view = this.viewOf(bytes)
    this.isNew = false
    for (let index = 0; index < combination.length; index++) combination[index]!.lastNumber = 0
    let at = start
    for (let index = 0; index < fields.length; index++) {
      const piece = pieces[index]!
      if (!isAt(view, at, piece)) return -1
      at += piece.length
      const field = fields[index]!
      const first = bytes[at]!
      let value: Row[number]
      if (first === QUOTE) {
        const text = field.takesText ? field.texts.find(bytes, view, at) : undefined
        if (text === undefined) return -1
        if (!this.wasSeen(field.texts.index, text.number, learning)) this.isNew = true
        value = text.value
        at += text.quoted.length
      } else if (first === LETTER_N) {
        if (!field.takesNull || !isAt(view, at, NULL)) return -1
        value = null
        at += 4
      } else {
        if (!field.takesNumber) return -1
        value = numbers.read(bytes, at)
        if (numbers.end < 0) return -1
        at = numbers.end
      }
      if (field.column >= 0) row[field.column] = value
    }
    const last = pieces[fields.length]!
    if (!isAt(view, at, last)) return -1
    for (let index = 0; index < missing.length; index++) row[missing[index]!] = null
    return at + last.length
  }

  private wasSeen(pool: number, text: number, learning: boolean): boolean {
    const seen = this.seen[pool]
    if (seen !== undefined && seen[text] === 1) return true
    if (learning) this.remember(pool, text)
    return false
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

  private combinationNumber(): number {
    const [first, second, third] = this.combination
    return first.lastNumber + second.lastNumber * 2 ** 16 + third.lastNumber * 2 ** 32
  }

  /** True if the fields at the columns' paths are the row: then others of this shape may be read by them. */
  private agrees({ fields }: InferredTemplate, row: Row): boolean {
    const byPath = new Map(fields.map(({ path, value }) => [path, value]))
    return this.cache.paths.every((path, column) => Object.is(byPath.get(path) ?? null, row[column] ?? null))
  }
}
