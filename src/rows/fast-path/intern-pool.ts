import { JsonScanner } from '../../source/json-scanner.ts'

/* Texts that were met before, found by their bytes instead of being decoded. */

const QUOTE = 0x22
const BACKSLASH = 0x5c
// Combinations are counted with sixteen bits for each.
const TEXTS_KEPT = 60_000
// Long texts seldom come again.
const LONGEST_KEPT = 1024
// The memory of a text besides its bytes.
const OVERHEAD_BYTES = 300

/** How much memory the texts of one stream may take, all fields together. */
export class TextBudget {
  private left = 8_388_608

  get isSpent(): boolean {
    return this.left <= 0
  }

  spend(bytes: number): void {
    this.left -= bytes + OVERHEAD_BYTES
  }
}

/** Bytes to compare with, four at a time. */
export interface Piece {
  bytes: Buffer
  length: number
  words: Int32Array
  /** The last four bytes, or fewer if there are no four. */
  tail: number
}

export function pieceOf(bytes: Buffer): Piece {
  const words = Int32Array.from({ length: bytes.length >> 2 }, (_, index) => bytes.readInt32LE(index * 4))
  return { bytes, length: bytes.length, words, tail: bytes.length < 4 ? 0 : bytes.readInt32LE(bytes.length - 4) }
}

/** True if the piece begins here. */
export function isAt(view: DataView, at: number, { bytes, length, words, tail }: Piece): boolean {
  if (at + length > view.byteLength) return false
  if (length < 4) {
    for (let index = 0; index < length; index++) if (view.getUint8(at + index) !== bytes[index]) return false
    return true
  }
  for (let index = 0; index < words.length; index++) {
    if (view.getInt32(at + index * 4, true) !== words[index]) return false
  }
  return view.getInt32(at + length - 4, true) === tail
}

interface Text {
  /** The bytes of the answer, with the quotes. */
  quoted: Piece
  value: string
  /** From 1 on. */
  number: number
  /** The text that followed it in the same field the last time. */
  next: Text | undefined
}

/** Texts that were accepted in a field, found by their bytes. */
export class InternPool {
  /** The number of the text that was found last. */
  lastNumber = 0
  private last: Text | undefined
  private readonly texts: Text[] = []
  private readonly byHash = new Map<number, Text[]>()

  /** @param index its number among the memories of a stream */
  constructor(
    readonly index: number,
    private readonly budget: TextBudget,
  ) {}

  /** The text that was found last; null after `lastNumber` was set to 0. */
  get lastValue(): string | null {
    return this.texts[this.lastNumber - 1]?.value ?? null
  }

  get isFull(): boolean {
    return this.texts.length >= TEXTS_KEPT || this.budget.isSpent
  }

  /** The text that begins here with its quote; undefined if it is new. */
  find(bytes: Buffer, view: DataView, start: number): Text | undefined {
    // Rows come in some order: what followed the last time most likely follows again.
    const likely = this.last?.next
    const text = likely !== undefined && isAt(view, start, likely.quoted) ? likely : this.search(bytes, view, start)
    if (text !== undefined) this.rememberLast(text)
    return text
  }

  /** The same, but a text that is new is kept; undefined if there is no room for it. */
  findOrAdd(bytes: Buffer, view: DataView, start: number): Text | undefined {
    const text = this.search(bytes, view, start) ?? this.add(bytes, start)
    if (text !== undefined) this.rememberLast(text)
    return text
  }

  private rememberLast(text: Text): void {
    if (this.last !== undefined) this.last.next = text
    this.last = text
    this.lastNumber = text.number
  }

  private add(bytes: Buffer, start: number): Text | undefined {
    const length = new JsonScanner(bytes).endOfText(start) - start
    if (this.isFull || length > LONGEST_KEPT) return undefined
    // The memory of the answer is used again for others.
    const written = Buffer.from(bytes.subarray(start, start + length))
    const value = JSON.parse(written.toString('utf8')) as string
    const text: Text = { quoted: pieceOf(written), value, number: this.texts.length + 1, next: undefined }
    this.texts.push(text)
    this.budget.spend(length)
    const hash = hashOf(written, 0)
    const others = this.byHash.get(hash)
    if (others === undefined) this.byHash.set(hash, [text])
    else others.push(text)
    return text
  }

  private search(bytes: Buffer, view: DataView, start: number): Text | undefined {
    return this.byHash.get(hashOf(bytes, start))?.find(({ quoted }) => isAt(view, start, quoted))
  }
}

/** Of a text from its quote to the next one. */
function hashOf(bytes: Buffer, start: number): number {
  let hash = 0
  for (let at = start + 1; at < bytes.length && bytes[at] !== QUOTE; at++) {
    hash = ((hash << 5) - hash + bytes[at]!) | 0
    // The byte after it does not end the text.
    if (bytes[at] === BACKSLASH) at++
  }
  return hash
}
