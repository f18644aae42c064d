import { countDays, type Range } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import { refusesLimit } from '../source/client.ts'

/** Sizes that services like to cut pages to. */
const USUAL_CAPS = new Set([100, 200, 250, 500])
const FALLBACK = 1000
const WORTH_COMPARING = 100

/**
 * The page limit in force. It starts from the configuration and is lowered when the service refuses it, or is found to
 * cut answers to fewer rows without a word.
 */
export class PageLimit {
  private readonly sizes = new Map<string, Range[]>()

  constructor(public current: number) {}

  /** Learns from a refusal; false where it was not about the limit. */
  learnRefusal(error: unknown, asked: number): boolean {
    if (!refusesLimit(error, asked)) return false
    // Another request may have learned it meanwhile.
    if (this.current < asked) return true
    const named = (messageOf(error).match(/\d+/g) ?? [])
      .map(Number)
      .filter((number) => number >= 10 && number < asked && number !== 400)
    this.current =
      named.length > 0 ? Math.max(...named) : asked > FALLBACK ? FALLBACK : Math.max(1, Math.floor(asked / 10))
    return this.current < asked
  }

  /**
   * True where an answer shorter than the limit may still have been cut: its size is a usual cap, or windows of another
   * length of the same stream had the very same size.
   */
  isSuspicious(stream: string, range: Range, rows: number): boolean {
    if (isUsualCap(rows)) return true
    if (rows < WORTH_COMPARING) return false
    const same = this.sizes.get(`${stream} ${rows}`) ?? []
    this.sizes.set(`${stream} ${rows}`, [...same, range])
    return same.some((other) => countDays(other) !== countDays(range))
  }

  /** The service cuts answers to so many rows. Returns the windows of the stream that had this size and passed for complete. */
  learnCut(stream: string, range: Range, rows: number): Range[] {
    this.current = Math.min(this.current, rows)
    return (this.sizes.get(`${stream} ${rows}`) ?? []).filter((other) => other !== range)
  }
}

function isUsualCap(rows: number): boolean {
  return rows > 0 && (rows % 1000 === 0 || USUAL_CAPS.has(rows))
}
