import type { Config } from '../../core/config/load.ts'
import { addDays, countDays, type Day, dayNumber, daysIn, type Range } from '../../core/day.ts'
import { type Density, FIRST_DAYS } from './density.ts'

/**
 * How a feed chooses the length of its windows. It begins in `learning` if nothing is known of the rows a day, else in `known`.
 *
 *   learning   one window at a time, the longest first; a full page halves it. After an answer that is not full: `known`
 *   known      windows as long as the rows a day predict to fill a page, any number at a time
 *   careful    a window was too much for the service: windows are half as long, one at a time. After an answer: `known`
 *   refused    the service refuses single days: nothing else is handed out
 */
type Mode = 'learning' | 'known' | 'careful' | 'refused'

/** The due days of one stream, handed out window by window, newest first, so that people see recent days first. */
export class WindowFeed {
  private mode: Mode
  private readonly waiting: Range[] = []
  private due: Day[]
  private inFlight = 0
  private maxDays: number
  private learningDays = Number.MAX_SAFE_INTEGER

  constructor(
    due: readonly Day[],
    readonly density: Density,
    private readonly pageLimit: () => number,
    maxDays = Number.MAX_SAFE_INTEGER,
    /** True if windows may have days that are not due, where that saves requests. */
    private bridgesGaps = false,
  ) {
    this.due = [...due].sort().reverse()
    this.maxDays = maxDays
    // Nothing is to be learned where windows may not be longer than the first one anyway.
    this.mode = density.isKnown || maxDays <= FIRST_DAYS ? 'known' : 'learning'
  }

  /** The next window; undefined if there is none, or none before an answer teaches how long it may be. */
  next(): Range | undefined {
    const waiting = this.waiting.pop()
    if (waiting !== undefined) return this.handOut(waiting)
    if (this.due.length === 0 || this.mode === 'refused') return undefined
    if (this.inFlight > 0 && this.mode !== 'known') return undefined
    const most = this.mode === 'learning' ? Math.min(this.maxDays, this.learningDays) : this.maxDays
    const stretch = this.bridgesGaps ? bridged(this.due, most) : adjacent(this.due, most)
    const fitting = stretch.slice(0, this.density.fit(stretch, this.pageLimit()))
    const from = this.due.findLast((day) => day >= fitting.at(-1)!)!
    const range = { from, to: fitting[0]! }
    this.due = this.due.filter((day) => day < from)
    return this.handOut(range)
  }

  private handOut(range: Range): Range {
    this.inFlight++
    return range
  }

  /** Days wait in the order in which they are handed out: newest first. */
  private addDue(days: readonly Day[]): void {
    this.due = [...this.due, ...days].sort().reverse()
  }

  markLoaded(): void {
    this.inFlight--
    if (this.mode === 'careful' || this.density.isKnown) this.mode = 'known'
  }

  /** The window has more rows than a page: it is read again in two. */
  split(range: Range): void {
    this.inFlight--
    if (this.mode === 'learning') {
      // Both halves may be full again; after the first answer that is not, the length of the others is known.
      this.learningDays = Math.max(1, Math.floor(countDays(range) / 2))
      this.addDue(daysIn(range))
      return
    }
    this.density.learnFull(countDays(range), this.pageLimit())
    const [older, newer] = halves(range)
    this.waiting.push(older, newer)
  }

  /** The service cannot serve so many days at once: its days go back, and windows get shorter. */
  shorten(range: Range): void {
    this.inFlight--
    this.mode = 'careful'
    this.maxDays = Math.max(1, Math.floor(countDays(range) / 2))
    this.addDue(daysIn(range))
  }

  /** A window failed. If even a single day is refused, so are the others. */
  fail(range: Range, isRefusal: boolean): void {
    this.inFlight--
    if (isRefusal && this.mode === 'careful' && countDays(range) === 1) this.mode = 'refused'
  }

  /** None of it can be read: nothing else is handed out. */
  drop(): void {
    this.inFlight--
    this.waiting.length = 0
    this.due = []
  }

  /** A window that nobody read comes back, to be handed out once more. */
  putBack(range: Range): void {
    this.inFlight--
    this.waiting.push(range)
  }

  /** Some days of a window do not add up: each is read alone, the days between them together, and later windows are shorter. */
  isolate(range: Range, days: readonly Day[]): void {
    this.inFlight--
    this.maxDays = Math.max(1, Math.floor(Math.min(this.maxDays, countDays(range)) / 2))
    const alone = new Set(days)
    this.addDue(daysIn(range).filter((day) => !alone.has(day)))
    for (const day of days) this.waiting.push({ from: day, to: day })
    // Days that are read alone must not be read with others, too.
    this.bridgesGaps = false
  }

  /** The days that were not handed out yet. */
  get dueDays(): readonly Day[] {
    return this.due
  }

  /** Takes out what was not handed out, for a run that ends early. */
  removeRest(): Range[] {
    const left = [...this.waiting]
    while (this.due.length > 0) {
      const days = this.due.splice(0, adjacent(this.due).length)
      left.push({ from: days.at(-1)!, to: days[0]! })
    }
    this.waiting.length = 0
    return left
  }

  get isExhausted(): boolean {
    return this.inFlight === 0 && this.waiting.length === 0 && (this.due.length === 0 || this.mode === 'refused')
  }
}

export function halves({ from, to }: Range): [Range, Range] {
  const middle = addDays(from, Math.floor((dayNumber(to) - dayNumber(from)) / 2))
  return [
    { from, to: middle },
    { from: addDays(middle, 1), to },
  ]
}

/** The first days, newest first, that follow each other without a gap; so many at most. */
function adjacent(days: readonly Day[], most = Number.MAX_SAFE_INTEGER): Day[] {
  let end = 1
  while (end < days.length && end < most && dayNumber(days[end - 1]!) - dayNumber(days[end]!) === 1) end++
  return days.slice(0, end)
}

/**
 * The first days, newest first, without a gap: days between that are not due are read again with them, as long as they are no more
 * than the due days before them. Scattered days would take a request each.
 */
function bridged(due: readonly Day[], most: number): Day[] {
  let last = 0
  for (let at = 1; at < due.length; at++) {
    const gap = dayNumber(due[at - 1]!) - dayNumber(due[at]!) - 1
    if (gap > at) break
    last = at
  }
  return daysIn({ from: due[last]!, to: due[0]! }).reverse().slice(0, most)
}

/**
 * The windows that would be read now, by what is known now. Without any known day they are the fewest possible: those after the first
 * one are as long as if a day had one row.
 */
export function planWindows(
  due: readonly Day[],
  density: Density,
  { page_limit, max_window_days }: Pick<Config['source'], 'page_limit' | 'max_window_days'>,
  bridgesGaps = false,
): Range[] {
  const feed = new WindowFeed(due, density, () => page_limit, max_window_days, bridgesGaps)
  const { isKnown } = density
  const windows: Range[] = []
  for (let window = feed.next(); window !== undefined; window = feed.next()) {
    windows.push(window)
    if (!isKnown) density.learn(window, new Map(daysIn(window).map((day) => [day, 1])))
    feed.markLoaded()
  }
  return windows
}
