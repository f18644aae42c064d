import { countDays, type Range } from '../../core/day.ts'
import { messageOf, RefusedError } from '../../core/errors.ts'

/** Sizes at which services like to cap pages. */
const USUAL_CAPS = new Set([100, 200, 250, 500])
const FALLBACKS = [1000, 100]
// Equal sizes of small windows mean nothing, and a page this small would prove nothing either.
const SMALLEST = 10
const WORTH_COMPARING = 50

/** A window of one project and stream. */
export interface SizedWindow {
  /** The project and the stream. */
  name: string
  range: Range
}

/**
 * The page limit in force. It starts from the configuration and is lowered when the service refuses it and accepts a
 * lower one, or is found to cap answers at fewer rows without saying so.
 */
export class PageLimit {
  private readonly sizes = new Map<number, { windows: SizedWindow[]; lengths: Map<string, number> }>()
  /** The largest answer to each stream: a service that gave so many rows caps no answer at fewer. */
  private readonly served = new Map<string, number>()
  private readonly probes = new Map<string, Promise<void>>()
  /** Windows of this many rows were counted in another way, and were whole. */
  private proven = 0
  private firstLoss: Promise<boolean> | undefined

  constructor(public current: number) {}

  /** Lower limits that are worth trying after a refusal; none if it was not about the limit. */
  lowerThan(asked: number, error: unknown): number[] {
    if (!(error instanceof RefusedError) || ![400, 413, 422].includes(error.status ?? 0)) return []
    const message = messageOf(error)
    // Not every service names the field that it refuses.
    if (!/limit/i.test(message)) return asked > FALLBACKS[0]! ? [FALLBACKS[0]!] : []
    const named = (message.match(/\d+/g) ?? []).map(Number).filter((number) => number !== error.status)
    const candidates = [this.current, ...named.sort((a, b) => b - a), ...FALLBACKS]
    return [...new Set(candidates)].filter((limit) => limit >= SMALLEST && limit < asked)
  }

  /** A lower limit was accepted, after a higher one was refused. */
  learnAccepted(limit: number): void {
    this.current = Math.min(this.current, limit)
  }

  /**
   * True if an answer shorter than the limit may still have been capped: its size is a usual cap, or a window of another
   * length of the same stream had the very same size.
   */
  isSuspicious({ name, range }: SizedWindow, rows: number): boolean {
    if (isUsualCap(rows)) return true
    if (rows < WORTH_COMPARING) return false
    const { lengths } = this.sizeOf(rows)
    const length = lengths.get(name)
    if (length === undefined) lengths.set(name, countDays(range))
    return length !== undefined && length !== countDays(range)
  }

  /**
   * A window lost rows, and they would be deleted. The first such window of a run is checked by itself. If it was whole,
   * others are believed (undefined); if it was not, each is checked.
   */
  async checkLoss(isWhole: () => Promise<boolean>): Promise<boolean | undefined> {
    const first = this.firstLoss
    if (first !== undefined && (await first.catch(() => false))) return undefined
    const check = isWhole()
    if (first === undefined) this.firstLoss = check
    return check
  }

  /** An answer had so many rows. */
  learnServed(stream: string, rows: number): void {
    this.served.set(stream, Math.max(rows, this.served.get(stream) ?? 0))
  }

  /**
   * True if an answer to the same stream had more rows than these, so that no answer of so many was capped. If none had,
   * `probe` asks for more, once for all windows of a size: one answer proves it for the whole run.
   */
  async servesMoreThan(stream: string, rows: number, probe: () => Promise<number>): Promise<boolean> {
    const hasServed = () => (this.served.get(stream) ?? 0) > rows
    if (hasServed()) return true
    const name = `${stream} ${rows}`
    const begun = this.probes.get(name) ?? probe().then((served) => this.learnServed(stream, served))
    this.probes.set(name, begun)
    await begun
    return hasServed()
  }

  /** A window passed for complete with so many rows. */
  remember(window: SizedWindow, rows: number): void {
    if (rows < WORTH_COMPARING) return
    const { windows, lengths } = this.sizeOf(rows)
    windows.push(window)
    if (!lengths.has(window.name)) lengths.set(window.name, countDays(window.range))
  }

  private sizeOf(rows: number): { windows: SizedWindow[]; lengths: Map<string, number> } {
    const size = this.sizes.get(rows) ?? { windows: [], lengths: new Map<string, number>() }
    this.sizes.set(rows, size)
    return size
  }

  /** Somebody else learned a lower limit. Returns the windows that passed for complete with as many rows or more. */
  learnLower(limit: number): SizedWindow[] {
    if (limit >= this.current) return []
    this.current = limit
    const again = [...this.sizes].filter(([rows]) => rows >= limit)
    for (const [rows] of again) this.sizes.delete(rows)
    return again.flatMap(([, { windows }]) => windows)
  }

  /**
   * The windows with the largest answer, which passed for complete without filling a page: where a cap would show. None if
   * a larger answer was served.
   */
  largest(): { rows: number; windows: SizedWindow[] } | undefined {
    let rows = 0
    for (const [size, { windows }] of this.sizes) if (windows.length > 0) rows = Math.max(rows, size)
    if (rows <= Math.max(this.proven, ...[...this.served.values()].map((most) => most - 1))) return undefined
    return { rows, windows: this.sizes.get(rows)!.windows }
  }

  learnWhole(rows: number): void {
    this.proven = Math.max(this.proven, rows)
  }

  /** The service caps answers at so many rows: larger pages need not be asked for. */
  lowerTo(rows: number): void {
    if (rows >= SMALLEST) this.current = Math.min(this.current, rows)
  }

  /** The service caps answers at so many rows. Returns the other windows of this size, which passed for complete. */
  learnCap(window: SizedWindow, rows: number): SizedWindow[] {
    this.lowerTo(rows)
    const same = this.sizes.get(rows)?.windows ?? []
    this.sizes.delete(rows)
    return same.filter((other) => other !== window)
  }
}

/** A size at which services like to cap their pages. */
export function isUsualCap(rows: number): boolean {
  return rows > 0 && (rows % 1000 === 0 || USUAL_CAPS.has(rows))
}
