import { messageOf, RefusedError } from '../../core/errors.ts'

const FALLBACKS = [1000, 100]
// A page this small would prove nothing.
const SMALLEST = 10

/**
 * The page limit in force. It starts from the configuration and is lowered when the service refuses it and accepts a
 * lower one, or is found to cap answers at fewer rows without saying so.
 */
export class PageLimit {
  constructor(private limit: number) {}

  get current(): number {
    return this.limit
  }

  /** Lower limits that are worth trying after a refusal; none if it was not about the limit. */
  fallbacks(asked: number, refusal: unknown): number[] {
    if (!(refusal instanceof RefusedError) || ![400, 413, 422].includes(refusal.status ?? 0)) return []
    const message = messageOf(refusal)
    // Not every service names the field that it refuses.
    if (!/limit/i.test(message)) return asked > FALLBACKS[0]! ? [FALLBACKS[0]!] : []
    const named = (message.match(/\d+/g) ?? []).map(Number).filter((number) => number !== refusal.status)
    const candidates = [this.limit, ...named.sort((a, b) => b - a), ...FALLBACKS]
    return [...new Set(candidates)].filter((limit) => limit >= SMALLEST && limit < asked)
  }

  /** The service gives no more rows than these at once. True if the limit was higher. */
  lowerTo(rows: number): boolean {
    const isLower = rows >= SMALLEST && rows < this.limit
    if (isLower) this.limit = rows
    return isLower
  }
}
