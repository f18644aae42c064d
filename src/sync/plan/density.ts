import { addDays, type Day, type Range } from '../../core/day.ts'
import { messageOf, RefusedError } from '../../core/errors.ts'
import type { KnownDay } from '../../ledger/days.ts'
import { type DayStream, isControl } from '../../streams/stream.ts'

// Nothing is known yet: a week is enough to learn from and small enough to fit.
export const FIRST_DAYS = 7
// If a stretch had no rows at all, the next window is this many times as long.
const EMPTY_GROWTH = 4
const LEARN_FROM_DAYS = 60
// Rejected rows are not counted in the ledger.
const WITH_REJECTS = 1.05

type SizedDay = Pick<KnownDay, 'date' | 'rows'> & Partial<Pick<KnownDay, 'state'>>

/** The length of the first window of a stream. The report by date alone has few rows a day: a year of it fits a page. */
export function firstDaysOf(stream: DayStream): number {
  return isControl(stream) ? 366 : FIRST_DAYS
}

/** Predicts how many rows a stretch of days has, from the days that were read. */
export class Density {
  private readonly known = new Map<Day, number>()
  private recent: number[] = []

  constructor(
    days: readonly SizedDay[],
    private readonly today: Day,
    private readonly firstDays = FIRST_DAYS,
  ) {
    for (const { date, rows, state } of days) {
      if (state !== 'vanishing') this.known.set(date, state === 'rejects' ? rows * WITH_REJECTS : rows)
    }
    this.recent = days
      .filter(({ date }) => date < today)
      .slice(-LEARN_FROM_DAYS)
      .map(({ rows }) => rows)
  }

  get isKnown(): boolean {
    return this.recent.length > 0
  }

  learn(range: Range, rowsByDay: ReadonlyMap<Day, number>): void {
    for (let day = range.from; day <= range.to; day = addDays(day, 1)) {
      const rows = rowsByDay.get(day) ?? 0
      this.known.set(day, rows)
      // Today is not over: its rows would make every day look smaller.
      if (day < this.today) this.recent.push(rows)
    }
    this.recent = this.recent.slice(-LEARN_FROM_DAYS)
  }

  /** A full page of so many days: they have at least these rows. */
  learnFull(days: number, rows: number): void {
    this.recent = this.recent
      .slice(-days)
      .concat(Array.from({ length: Math.min(days, LEARN_FROM_DAYS) }, () => rows / days))
    this.recent = this.recent.slice(-LEARN_FROM_DAYS)
  }

  /** How many of these days, in their order, fit one page; at least one. */
  fit(days: readonly Day[], pageLimit: number): number {
    if (!this.isKnown && !days.every((day) => this.known.has(day))) return Math.min(days.length, this.firstDays)
    const mean = this.recent.reduce((sum, rows) => sum + rows, 0) / Math.max(1, this.recent.length)
    const variance =
      this.recent.reduce((sum, rows) => sum + (rows - mean) ** 2, 0) / Math.max(1, this.recent.length - 1)
    let expected = 0
    let guessed = 0
    for (let index = 0; index < days.length; index++) {
      const known = this.known.get(days[index]!)
      expected += known ?? mean
      if (known === undefined) guessed++
      // Two standard deviations of the guessed part, and a hundredth for rows that were added since.
      const needed = expected * 1.01 + 2 * Math.sqrt(guessed * variance)
      if (needed > pageLimit - 1) return Math.max(1, index)
      if (mean === 0 && expected === 0 && index + 1 >= Math.max(FIRST_DAYS, this.known.size) * EMPTY_GROWTH)
        return index + 1
    }
    return days.length
  }
}

const FALLBACKS = [1000, 100]
// A page this small would prove nothing.
const SMALLEST = 10

/** The page limit in force: lowered if the service refuses it, or is found to return fewer rows than it. */
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
