/*
 * The bytes of an answer, gathered as they come, in memory that serves one answer after the other: left to the garbage
 * collector, the pieces of answers that were read long ago pile up to several times what those in hand need.
 */

const FIRST_BYTES = 65_536
const LARGEST_KEPT = 8_388_608
const KEPT = 8

const spare: Buffer[] = []

export class Body {
  private memory = spare.pop() ?? Buffer.allocUnsafeSlow(FIRST_BYTES)
  private used = 0

  get length(): number {
    return this.used
  }

  /** What was gathered. It stands until `release`. */
  get bytes(): Buffer {
    return this.memory.subarray(0, this.used)
  }

  add(piece: Buffer): void {
    const needed = this.used + piece.length
    if (needed > this.memory.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.memory.length * 2))
      this.bytes.copy(larger)
      this.memory = larger
    }
    piece.copy(this.memory, this.used)
    this.used = needed
  }

  /** Gives the memory to the next answer. */
  release(): void {
    if (this.memory.length <= LARGEST_KEPT && spare.length < KEPT) spare.push(this.memory)
    this.memory = Buffer.alloc(0)
    this.used = 0
  }
}
