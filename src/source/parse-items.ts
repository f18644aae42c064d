import { RefusedError } from '../core/errors.ts'
import { count as counted } from '../core/text.ts'
import { PAGE_LIMIT_MAX } from '../core/vocabulary.ts'
import { LARGE_BYTES, reclaimMemory } from './body.ts'
import { isEnvelopeField } from './envelope.ts'
import { JsonScanner } from './json-scanner.ts'

/** Takes the items of an answer while it is being parsed, so that only a batch of them is alive at once. */
export interface ItemSink {
  /** An answer begins; what an earlier attempt gave does not count. */
  begin(needsTextCheck: boolean): void
  /** `origin` is where a single item was read. */
  addItems(items: unknown[], origin?: Origin): void
  /** Takes the item that begins here without parsing it, and gives where it ends; -1 if it has to be parsed. */
  acceptByTemplate?(bytes: Buffer, start: number): number
  /** Asked at the end: true if all items are to be shown once more, in the same order. */
  needsSecondPass?(): boolean
  runSecondPass?(items: unknown[]): void
}

export interface Origin {
  bytes: Buffer
  start: number
  end: number
}

/** The limits of an answer. */
export interface Bounds {
  /** How many items were asked for. */
  limit: number
  /** Set if all items are kept: how many values they may have in all, since each takes memory however short it is. */
  values?: number
  /** How many bytes make a batch; by default as many as measured best. */
  batchBytes?: number
}

interface ParsedAnswer {
  /** The answer without its items and unknown fields. */
  body: unknown
  count: number
  /** Names of other fields. */
  unknownFields: string[]
}

/**
 * A page with more items than were asked for counts as full: some services repeat rows, others have pages of a size of
 * their own. Beyond twice the largest page of the API the limit was ignored, and the answer is refused.
 */
const MOST_ITEMS = 2 * PAGE_LIMIT_MAX

// Far more than any item of the service needs. A larger one is not parsed, and rejected alone.
export const ITEM_BYTES = 262_144
// Measured: smaller batches cost more calls, larger ones survive long enough to be copied by the garbage collector.
const BATCH_BYTES = 196_608
// So many items may have to be parsed one by one before it is judged whether that pays.
const FIRST_ITEMS = 100
// Between so many bytes others are served: what the database answers should not wait long.
const PAUSE_BYTES = 32_768

const MOST_UNKNOWN_FIELDS = 20
// A name of twelve letters, each of them escaped.
const LONGEST_NAME = 74
const LONGEST_MEMBER = 1000

const BETWEEN_ITEMS = Buffer.from('},{')
const COMMA = 0x2c
const LIST_START = 0x5b
const LIST_END = 0x5d
const OBJECT_START = 0x7b
const OBJECT_END = 0x7d

/**
 * Parses `{"data": […], …}` in batches of whole items. It accepts what JSON.parse accepts, whichever way the items are
 * read, except for an answer with two members of the name `data`: nothing says which is meant. Throws a SyntaxError for
 * anything else, and a RefusedError for an answer out of bounds.
 */
export async function parseItems(
  bytes: Buffer,
  needsTextCheck: boolean,
  sink: ItemSink,
  bounds: Bounds,
): Promise<ParsedAnswer> {
  return new PageParser(bytes, sink, bounds).parse(needsTextCheck)
}

type AddItems = (items: unknown[]) => void

class PageParser {
  private readonly scanner: JsonScanner
  private count = 0
  private parsedAlone = 0
  private goesOneByOne: boolean
  /** False once a batch was cut inside an item: from then on the ends of items are looked for, not guessed. */
  private guesses: boolean
  private readonly batchBytes: number

  constructor(
    private readonly bytes: Buffer,
    private readonly sink: ItemSink,
    private readonly bounds: Bounds,
  ) {
    this.scanner = new JsonScanner(bytes)
    this.goesOneByOne = sink.acceptByTemplate !== undefined
    this.guesses = bounds.values === undefined
    this.batchBytes = bounds.batchBytes ?? BATCH_BYTES
  }

  async parse(needsTextCheck: boolean): Promise<ParsedAnswer> {
    const { bytes, scanner, sink } = this
    sink.begin(needsTextCheck)
    const first = scanner.skipSpace(0)
    if (bytes[first] !== OBJECT_START) {
      const end = scanner.endOfValue(first)
      this.expectEnd(end)
      return { body: this.shortValue(first, end), count: 0, unknownFields: [] }
    }
    const unknownFields: string[] = []
    const members = new Map<string, unknown>()
    let list: number | undefined
    let at = scanner.skipSpace(first + 1)
    while (bytes[at] !== OBJECT_END) {
      const start = scanner.skipSpace(scanner.endOfKey(at))
      const name = this.nameAt(at)
      if (name === 'data' && members.has(name)) throw new SyntaxError('"data" occurs twice')
      if (name === 'data' && bytes[start] === LIST_START) {
        list = start + 1
        at = await this.readItems(list)
        members.set(name, [])
      } else {
        at = scanner.endOfValue(start)
        if (isEnvelopeField(name)) members.set(name, this.shortValue(start, at))
        else if (unknownFields.length < MOST_UNKNOWN_FIELDS) unknownFields.push(name)
      }
      at = scanner.skipSpace(at)
      if (bytes[at] === OBJECT_END) break
      if (bytes[at] !== COMMA) throw scanner.errorAt(at, 'a comma or an end')
      at = scanner.skipSpace(at + 1)
      if (bytes[at] === OBJECT_END) throw scanner.errorAt(at, 'a key')
    }
    this.expectEnd(at + 1)
    if (list !== undefined && sink.needsSecondPass?.()) await this.runSecondPass(list)
    return { body: Object.fromEntries(members), count: this.count, unknownFields }
  }

  /** Reads the items of the list whose first one begins here, and gives where it ends. */
  private async readItems(start: number): Promise<number> {
    const { bytes, scanner } = this
    const add: AddItems = (items) => {
      this.count += items.length
      this.checkCount()
      this.sink.addItems(items)
    }
    let at = scanner.skipSpace(start)
    if (bytes[at] === LIST_END) return at + 1
    let pauseAt = at + PAUSE_BYTES
    let reclaimAt = at + LARGE_BYTES
    for (;;) {
      at = scanner.skipSpace(this.goesOneByOne ? this.readOneByOne(at, pauseAt) : this.readBatch(at, add))
      if (bytes[at] === LIST_END) return at + 1
      if (bytes[at] !== COMMA) throw scanner.errorAt(at, 'a comma or an end')
      at = scanner.skipSpace(at + 1)
      if (at < pauseAt) continue
      pauseAt = at + PAUSE_BYTES
      if (at >= reclaimAt) {
        reclaimMemory()
        reclaimAt = at + LARGE_BYTES
      }
      // Sockets are served in between: the database gets the page before this one while this one is parsed.
      await new Promise(setImmediate)
    }
  }

  private async runSecondPass(list: number): Promise<void> {
    const { bytes, scanner } = this
    let at = scanner.skipSpace(list)
    while (bytes[at] !== LIST_END) {
      at = scanner.skipSpace(this.readBatch(at, (items) => this.sink.runSecondPass?.(items)))
      if (bytes[at] === COMMA) at = scanner.skipSpace(at + 1)
      await new Promise(setImmediate)
    }
  }

  /** Takes items that are like earlier ones, and the first one that is not, up to this place; gives where the last of them ends. */
  private readOneByOne(start: number, until: number): number {
    const { bytes, scanner, sink } = this
    let at = start
    for (;;) {
      const end = sink.acceptByTemplate!(bytes, at)
      if (end < 0) return this.readParsed(at)
      this.count++
      if (end >= until || bytes[end] !== COMMA) {
        this.checkCount()
        return end
      }
      at = scanner.skipSpace(end + 1)
    }
  }

  private readParsed(start: number): number {
    const { bytes } = this
    const end = this.scanner.endOfValue(start)
    this.sink.addItems([this.itemAt(start, end)], { bytes, start, end })
    this.count++
    this.checkCount()
    this.parsedAlone++
    this.goesOneByOne = this.parsedAlone <= FIRST_ITEMS || this.parsedAlone * 3 <= this.count
    return end
  }

  /** Takes as many items as make a batch, and gives where the last of them ends. */
  private readBatch(start: number, add: AddItems): number {
    const end = this.guesses ? this.guessEnd(start) : -1
    if (end > start) {
      const items = this.parseGuess(start, end)
      if (items !== undefined) {
        add(items)
        return end
      }
    }
    return this.readScanned(start, add)
  }

  /**
   * At `},{` an item most likely ends, and the last bracket most likely ends the list. If the text up to there
   * is a valid list, these are its items: JSON has only one way to read a valid prefix.
   */
  private guessEnd(start: number): number {
    const { bytes } = this
    if (start + this.batchBytes >= bytes.length) return bytes.lastIndexOf(LIST_END)
    const cut = bytes.subarray(0, start + ITEM_BYTES).indexOf(BETWEEN_ITEMS, start + this.batchBytes)
    return cut < 0 ? -1 : cut + 1
  }

  private parseGuess(start: number, end: number): unknown[] | undefined {
    try {
      return this.itemsAt(start, end)
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error
      this.guesses = false
      return undefined
    }
  }

  /** Looks for the ends of items instead of guessing them. */
  private readScanned(start: number, add: AddItems): number {
    const { bytes, scanner } = this
    let at = start
    let end = start
    for (;;) {
      const itemEnd = scanner.endOfValue(at)
      this.checkValues()
      if (itemEnd - at > ITEM_BYTES) {
        if (end > start) add(this.itemsAt(start, end))
        add([LargeItem.at(bytes, at, itemEnd)])
        return itemEnd
      }
      end = itemEnd
      at = scanner.skipSpace(end)
      if (bytes[at] !== COMMA) break
      at = scanner.skipSpace(at + 1)
      if (at - start >= this.batchBytes) break
    }
    add(this.itemsAt(start, end))
    return end
  }

  private itemsAt(start: number, end: number): unknown[] {
    return JSON.parse(`[${this.bytes.toString('utf8', start, end)}]`) as unknown[]
  }

  private itemAt(start: number, end: number): unknown {
    if (end - start > ITEM_BYTES) return LargeItem.at(this.bytes, start, end)
    return JSON.parse(this.bytes.toString('utf8', start, end))
  }

  private checkCount(): void {
    if (this.count <= MOST_ITEMS) return
    throw new RefusedError(
      `asked for at most ${counted(this.bounds.limit, 'item')} and got more than ${counted(MOST_ITEMS, 'item')}; ` +
        'the service ignores the limit, so the answer was refused',
    )
  }

  private checkValues(): void {
    const { values } = this.bounds
    if (values === undefined || this.scanner.values <= values) return
    throw new RefusedError(`the answer holds more than ${counted(values, 'value')}; it was refused`)
  }

  /** The name of a member, if it is short enough to be one of ours. */
  private nameAt(start: number): string {
    const end = this.scanner.endOfText(start)
    return end - start > LONGEST_NAME ? '' : (JSON.parse(this.bytes.toString('utf8', start, end)) as string)
  }

  /** A long value as the text of its beginning: it is shown, not understood. */
  private shortValue(start: number, end: number): unknown {
    if (end - start > LONGEST_MEMBER) return this.bytes.toString('utf8', start, start + LONGEST_MEMBER)
    return JSON.parse(this.bytes.toString('utf8', start, end))
  }

  private expectEnd(at: number): void {
    const end = this.scanner.skipSpace(at)
    if (end < this.bytes.length) throw new SyntaxError(`something follows the answer at byte ${end}`)
  }
}

const EXCERPT_BYTES = 2000

/** Stands for an item that is sound JSON but too large to be worth parsing: it can only be rejected. */
export class LargeItem {
  private constructor(
    readonly bytes: number,
    private readonly excerpt: string,
  ) {}

  static at(answer: Buffer, start: number, end: number): LargeItem {
    return new LargeItem(end - start, answer.toString('utf8', start, start + EXCERPT_BYTES))
  }

  /** How it begins. */
  toJSON(): string {
    return `${this.excerpt}… (cut: ${this.bytes} bytes)`
  }
}
