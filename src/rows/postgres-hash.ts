/*
 * The hash functions by which Postgres spreads rows over hash partitions (hashtextextended and its kin, of Bob Jenkins's
 * "lookup3"). They cannot change from one version to the next without losing rows of such tables, so both sides of a
 * connection can compute them. Of each kind the 64-bit form with a seed; the seed is the hash of what came before.
 */

const START = 0x9e3779b9 + 3923095
const INT_BYTES = 4
const DOUBLE_BYTES = 8
const BLOCK_BYTES = 12

export class PostgresHash {
  /** The upper and the lower 32 bits of the hash so far. */
  high = 0
  low = 0
  private a = 0
  private b = 0
  private c = 0

  restart(): void {
    this.high = 0
    this.low = 0
  }

  /** hashint4extended(value, hash so far) */
  addInt(value: number): void {
    this.begin(INT_BYTES)
    this.a = (this.a + value) | 0
    this.end()
  }

  /** hashfloat8extended(value, hash so far), of the halves of its bits. */
  addDouble(upper: number, lower: number): void {
    // Zero and minus zero are equal, and leave the hash as it is.
    if ((upper & 0x7fffffff) === 0 && lower === 0) return
    this.begin(DOUBLE_BYTES)
    this.a = (this.a + lower) | 0
    this.b = (this.b + upper) | 0
    this.end()
  }

  /** hashtextextended(text, hash so far), of the bytes of its UTF-8. */
  addText(view: DataView, start: number, length: number): void {
    this.begin(length)
    let at = start
    let left = length
    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, at += BLOCK_BYTES) {
      this.a = (this.a + view.getInt32(at, true)) | 0
      this.b = (this.b + view.getInt32(at + 4, true)) | 0
      this.c = (this.c + view.getInt32(at + 8, true)) | 0
      this.mix()
    }
    // The lowest byte of the third word is the length.
    this.a = (this.a + word(view, at, left)) | 0
    this.b = (this.b + word(view, at + 4, left - 4)) | 0
    this.c = (this.c + (word(view, at + 8, left - 8) << 8)) | 0
    this.end()
  }

  private begin(length: number): void {
    this.a = this.b = this.c = (START + length) | 0
    if (this.high === 0 && this.low === 0) return
    this.a = (this.a + this.high) | 0
    this.b = (this.b + this.low) | 0
    this.mix()
  }

  private mix(): void {
    let { a, b, c } = this
    a = (a - c) ^ ((c << 4) | (c >>> 28))
    c = (c + b) | 0
    b = (b - a) ^ ((a << 6) | (a >>> 26))
    a = (a + c) | 0
    c = (c - b) ^ ((b << 8) | (b >>> 24))
    b = (b + a) | 0
    a = (a - c) ^ ((c << 16) | (c >>> 16))
    c = (c + b) | 0
    b = (b - a) ^ ((a << 19) | (a >>> 13))
    a = (a + c) | 0
    c = (c - b) ^ ((b << 4) | (b >>> 28))
    b = (b + a) | 0
    this.a = a
    this.b = b
    this.c = c
  }

  private end(): void {
    let { a, b, c } = this
    c = ((c ^ b) - ((b << 14) | (b >>> 18))) | 0
    a = ((a ^ c) - ((c << 11) | (c >>> 21))) | 0
    b = ((b ^ a) - ((a << 25) | (a >>> 7))) | 0
    c = ((c ^ b) - ((b << 16) | (b >>> 16))) | 0
    a = ((a ^ c) - ((c << 4) | (c >>> 28))) | 0
    b = ((b ^ a) - ((a << 14) | (a >>> 18))) | 0
    c = ((c ^ b) - ((b << 24) | (b >>> 8))) | 0
    this.high = b
    this.low = c
  }
}

/** Up to four bytes as a number, the first of them lowest. */
function word(view: DataView, at: number, bytes: number): number {
  if (bytes >= 4) return view.getInt32(at, true)
  let value = 0
  for (let index = 0; index < bytes; index++) value |= view.getUint8(at + index) << (index * 8)
  return value
}
