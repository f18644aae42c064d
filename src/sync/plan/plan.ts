import { addDays, countDays, type Day, dayNumber, daysIn, type Range, showRange } from '../../core/day.ts'
import type { CoverageSummary, CoveredDay } from '../../ledger/coverage.ts'

/* Which days are due, and which windows read them in as few requests as their rows allow. */

export interface DueOptions {
  interest: Range
  today: Day
  lookbackDays: number
}

/** The days of interest up to today: what a future end_date promises is not there yet. */
export function readableRange(interest: Range, today: Day): Range {
  return { from: interest.from, to: interest.to < today ? interest.to : today }
}

/**
 * Due are days that were never read, the last `lookbackDays` of the range, days that are held, quarantined or marked as
 * stale, and days whose last read came too early: before the day was over, or before it left the lookback. The last
 * rule gives a day its final read though the scheduler stood still while the day was young.
 */
export function dueDays(
  { coverage, settledMonths }: CoverageSummary,
  { interest, today, lookbackDays }: DueOptions,
): Day[] {
  const range = readableRange(interest, today)
  const lookbackFrom = addDays(range.to, 1 - lookbackDays)
  const known = new Map(coverage.map((day) => [day.date, day]))
  const isDue = (day: Day) => {
    const seen = known.get(day)
    if (seen === undefined || seen.state !== 'read' || day >= lookbackFrom) return true
    return seen.readAt.getTime() < (dayNumber(day) + Math.max(1, lookbackDays)) * 86_400_000
  }
  // Days that need another look are due wherever they lie.
  const outside = coverage.filter(({ date }) => date <= today && (date < range.from || date > range.to))
  const due = outside.flatMap(({ date, state }) => (state === 'read' ? [] : [date]))
  for (const [month, days] of byMonth(range)) {
    if (settledMonths.has(month) && month < lookbackFrom.slice(0, 7)) continue
    for (const day of days) {
      if (settledMonths.has(month) ? day >= lookbackFrom : isDue(day)) due.push(day)
    }
  }
  return due
}

// The same range is asked about once for each project and stream.
let lastMonths: { name: string; months: Map<string, Day[]> } | undefined

function byMonth(range: Range): Map<string, Day[]> {
  const name = showRange(range)
  if (lastMonths?.name === name) return lastMonths.months
  const months = new Map<string, Day[]>()
  for (const day of daysIn(range)) {
    const month = day.slice(0, 7)
    const days = months.get(month)
    if (days === undefined) months.set(month, [day])
    else days.push(day)
  }
  lastMonths = { name, months }
  return months
}

// Nothing is known yet: a week is enough to learn from and small enough to fit.
const PROBE_DAYS = 7
// Where a stretch had no rows at all, the next window is this many times as long.
const EMPTY_GROWTH = 4
const LEARN_FROM_DAYS = 60

/** Predicts how many rows a stretch of days has, from the days that were read. */
export class Density {
  private readonly known = new Map<Day, number>()
  private recent: number[] = []

  constructor(
    coverage: readonly CoveredDay[],
    private readonly today: Day,
  ) {
    for (const { date, rows, state } of coverage) if (state !== 'held') this.known.set(date, rows)
    this.recent = coverage
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
    if (!this.isKnown && !days.every((day) => this.known.has(day))) return Math.min(days.length, PROBE_DAYS)
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
      if (mean === 0 && expected === 0 && index + 1 >= Math.max(PROBE_DAYS, this.known.size) * EMPTY_GROWTH)
        return index + 1
    }
    return days.length
  }
}

/** The due days of one stream, handed out window by window, newest first, so that people see recent days first. */
export class WindowFeed {
  private readonly waiting: Range[] = []
  private due: Day[]
  private inFlight = 0
  /** A window of this many days was too much for the service, so no longer one is asked for. */
  private maxDays: number
  /** Nothing came back since a window was too much: one at a time. */
  private cautious = false
  readonly totalDays: number

  constructor(
    due: readonly Day[],
    readonly density: Density,
    private readonly pageLimit: () => number,
    maxDays = Number.MAX_SAFE_INTEGER,
  ) {
    this.due = [...due].sort().reverse()
    this.totalDays = this.due.length
    this.maxDays = maxDays
  }

  /** The next window; undefined where there is none, or none before an answer teaches how long it may be. */
  next(): Range | undefined {
    const split = this.waiting.pop()
    if (split !== undefined) {
      this.inFlight++
      return split
    }
    if (this.due.length === 0 || this.maxDays === 0) return undefined
    // Nothing is to be learned where windows may not be longer than the first one anyway.
    const learning = !this.density.isKnown && this.maxDays > PROBE_DAYS
    if (this.inFlight > 0 && (this.cautious || learning)) return undefined
    const stretch = adjacent(this.due, 0, this.maxDays)
    const length = this.density.fit(stretch, this.pageLimit())
    const days = this.due.splice(0, length)
    this.inFlight++
    return { from: days.at(-1)!, to: days[0]! }
  }

  /** The window came back; `split` where it must be read again in two. */
  settle(range: Range, outcome: 'done' | 'split'): void {
    this.inFlight--
    if (outcome === 'done') {
      this.cautious = false
      return
    }
    const [older, newer] = halves(range)
    this.waiting.push(older, newer)
  }

  /** The service cannot serve so many days at once: its days go back, and windows get shorter. */
  shorten(range: Range): void {
    this.inFlight--
    this.cautious = true
    this.maxDays = Math.max(1, Math.floor(countDays(range) / 2))
    this.due = [...this.due, ...daysIn(range)].sort().reverse()
  }

  /** A window failed; where even a single day is refused, the others would be too. */
  fail(range: Range, hopeless: boolean): void {
    this.inFlight--
    if (hopeless && this.cautious && countDays(range) === 1) this.maxDays = 0
  }

  /** A window that nobody read comes back, to be handed out once more. */
  putBack(range: Range): void {
    this.inFlight--
    this.waiting.push(range)
  }

  /** A window that was taken for complete was not: read it again. */
  again(range: Range): void {
    this.waiting.push(range)
  }

  /** What was not handed out, for a run that ends early. */
  failRemaining(): Range[] {
    const left = [...this.waiting]
    while (this.due.length > 0) {
      const days = this.due.splice(0, adjacent(this.due).length)
      left.push({ from: days.at(-1)!, to: days[0]! })
    }
    this.waiting.length = 0
    return left
  }

  get isEmpty(): boolean {
    return this.due.length === 0 && this.waiting.length === 0 && this.inFlight === 0
  }
}

export function halves({ from, to }: Range): [Range, Range] {
  const middle = addDays(from, Math.floor((dayNumber(to) - dayNumber(from)) / 2))
  return [
    { from, to: middle },
    { from: addDays(middle, 1), to },
  ]
}

/** The days from a start on, newest first, that follow each other without a gap; so many at most. */
function adjacent(days: readonly Day[], start = 0, most = Number.MAX_SAFE_INTEGER): Day[] {
  let end = start + 1
  while (end < days.length && end - start < most && dayNumber(days[end - 1]!) - dayNumber(days[end]!) === 1) end++
  return days.slice(start, end)
}

/** The windows that would be read now, by what is known now. */
export function planWindows(due: readonly Day[], density: Density, pageLimit: number): Range[] {
  const days = [...due].sort().reverse()
  const windows: Range[] = []
  for (let start = 0; start < days.length; ) {
    let stretch = adjacent(days, start)
    while (stretch.length > 0) {
      const length = density.fit(stretch, pageLimit)
      windows.push({ from: stretch[length - 1]!, to: stretch[0]! })
      stretch = stretch.slice(length)
      start += length
    }
  }
  return windows
}
