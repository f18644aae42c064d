const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const NINE = 0x39
/** Powers of ten by which the quotient of two exact numbers is the number that was written. */
const TENS = Array.from({ length: 23 }, (_, exponent) => 10 ** exponent)

const LONG_KEPT = 1024
const FIRST_DIGITS = 15

/** Reads numbers from bytes, to the last bit as JSON.parse does. */
export class NumberReader {
  /** Where the number that was read last ends. */
  end = 0
  private readonly values = new Float64Array(LONG_KEPT)
  /** What was written for each: its first digits, the others, and how long it is with its sign and point. */
  private readonly firsts = new Float64Array(LONG_KEPT)
  private readonly others = new Float64Array(LONG_KEPT)
  private readonly forms = new Int32Array(LONG_KEPT)

  /** The number that begins here, as JSON.parse reads it. `end` is -1 where none does, or it has an exponent. */
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
    if (digits <= Number.MAX_SAFE_INTEGER && decimals < TENS.length) {
      const value = digits / TENS[decimals]!
      return negative ? -value : value
    }
    const value = this.readLong(bytes, start, at)
    if (!Number.isFinite(value)) this.end = -1
    return value
  }

  /** One with more digits than can be computed exactly. Fractions of small counts come again and again. */
  private readLong(bytes: Buffer, start: number, end: number): number {
    let first = 0
    let other = 0
    let count = 0
    let point = 0
    for (let at = start; at < end; at++) {
      const byte = bytes[at]!
      if (byte === POINT) point = at - start
      else if (byte === MINUS) continue
      else if (count++ < FIRST_DIGITS) first = first * 10 + (byte - ZERO)
      else other = other * 10 + (byte - ZERO)
    }
    const negative = bytes[start] === MINUS
    if (count > 2 * FIRST_DIGITS) return Number(bytes.toString('latin1', start, end))
    const form = (end - start) * 128 + point * 2 + (negative ? 1 : 0)
    const slot = ((first % 1021) ^ other) & (LONG_KEPT - 1)
    if (this.forms[slot] === form && this.firsts[slot] === first && this.others[slot] === other)
      return this.values[slot]!
    const value = Number(bytes.toString('latin1', start, end))
    this.values[slot] = value
    this.firsts[slot] = first
    this.others[slot] = other
    this.forms[slot] = form
    return value
  }
}
