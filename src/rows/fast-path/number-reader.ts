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
