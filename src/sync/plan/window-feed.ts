import type { Config } from '../../core/config/load.ts'
import { addDays, countDays, type Day, dayNumber, daysIn, type Range, showRange } from '../../core/day.ts'
import { type Density, FIRST_DAYS } from './density.ts'

/** The due days of one stream, handed out window by window, newest first, so that people see recent days first. */
export class WindowFeed {
  private readonly waiting: Range[] = []
  private due: Day[]
  /** The windows that were handed out and did not come back yet. */
  private readonly inFlight = new Map<string, Range>()
  /** Days to read again once the window with them is back: two reads of a day at once would overtake each other. */
  private readonly later = new Set<Day>()
  /** The longest window to ask for; halved when one was too much for the service. */
  private maxDays: number
  /** True after a window was too large, until one is answered: one window at a time. */
  private cautious = false
  /** Set while nothing is known of the rows a day: the longest window to ask for, which each full page halves. */
  private learningDays: number | undefined
  private readonly planned: Set<Day>
  private readonly readTwice = new Set<Day>()

  constructor(
    due: readonly Day[],
    readonly density: Density,
    private readonly pageLimit: () => number,
    maxDays = Number.MAX_SAFE_INTEGER,
  ) {
    this.due = [...due].sort().reverse()
    this.planned = new Set(due)
    this.maxDays = maxDays
    if (!density.isKnown) this.learningDays = Number.MAX_SAFE_INTEGER
  }

  /** The next window; undefined if there is none, or none before an answer teaches how long it may be. */
  next(): Range | undefined {
    const waiting = this.waiting.pop()
    if (waiting !== undefined) return this.handOut(waiting)
    if (this.due.length === 0 || this.maxDays === 0) return undefined
    // Nothing is to be learned where windows may not be longer than the first one anyway.
    const learning = this.learningDays !== undefined && this.maxDays > FIRST_DAYS
    if (this.inFlight.size > 0 && (this.cautious || learning)) return undefined
    const stretch = adjacent(this.due, Math.min(this.maxDays, this.learningDays ?? this.maxDays))
    const length = this.density.fit(stretch, this.pageLimit())
    const days = this.due.splice(0, length)
    return this.handOut({ from: days.at(-1)!, to: days[0]! })
  }

  private handOut(range: Range): Range {
    this.inFlight.set(showRange(range), range)
    return range
  }

  /** Days wait in the order in which they are handed out: newest first. */
  private addDue(days: readonly Day[]): void {
    this.due = [...this.due, ...days].sort().reverse()
  }

  /** A window was answered or failed. If it was not loaded, its days are read again, or cannot be read. */
  private takeBack(range: Range, isLoaded = false): void {
    this.inFlight.delete(showRange(range))
    for (const day of daysIn(range)) if (this.later.delete(day) && isLoaded) this.waiting.push({ from: day, to: day })
  }

  /** The window was read. */
  markLoaded(range: Range): void {
    this.takeBack(range, true)
    this.cautious = false
    if (this.density.isKnown) this.learningDays = undefined
  }

  /** The window has more rows than a page: it is read again in two. */
  split(range: Range): void {
    this.takeBack(range)
    if (this.learningDays !== undefined) {
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
    this.takeBack(range)
    this.cautious = true
    this.maxDays = Math.max(1, Math.floor(countDays(range) / 2))
    this.addDue(daysIn(range))
  }

  /** A window failed. If even a single day is refused, so are the others. */
  fail(range: Range, isRefusal: boolean): void {
    this.takeBack(range)
    if (isRefusal && this.cautious && countDays(range) === 1) this.maxDays = 0
  }

  /** None of it can be read: nothing else is handed out. */
  drop(range: Range): void {
    this.takeBack(range)
    this.waiting.length = 0
    this.due = []
  }

  /** A window that nobody read comes back, to be handed out once more. */
  putBack(range: Range): void {
    this.takeBack(range)
    this.waiting.push(range)
  }

  /** Some days of a window do not add up: each is read alone, the days between them together, and later windows are shorter. */
  isolate(range: Range, days: readonly Day[]): void {
    this.takeBack(range)
    this.maxDays = Math.max(1, Math.floor(Math.min(this.maxDays, countDays(range)) / 2))
    const alone = new Set(days)
    const others = daysIn(range).filter((day) => !alone.has(day))
    this.addDue(others)
    for (const day of days) this.waiting.push({ from: day, to: day })
  }

  /** Other days are due than was known at first. Days that were handed out are not handed out again. */
  replan(days: readonly Day[]): void {
    const isDue = new Set(days)
    const added = days.filter((day) => !this.planned.has(day))
    this.due = this.due.filter((day) => isDue.has(day))
    this.addDue(added)
    for (const day of added) this.planned.add(day)
  }

  /** Days that may have been read too early are read alone, each once in a run at most. Returns those that were read twice already. */
  readAgain(days: readonly Day[]): Day[] {
    const twice: Day[] = []
    for (const day of days) {
      const has = ({ from, to }: Range) => from <= day && day <= to
      if (this.due.includes(day) || this.waiting.some(has) || this.later.has(day)) continue
      if (this.readTwice.has(day)) {
        twice.push(day)
        continue
      }
      this.readTwice.add(day)
      if ([...this.inFlight.values()].some(has)) this.later.add(day)
      else this.waiting.push({ from: day, to: day })
    }
    return twice
  }

  get totalDays(): number {
    return this.planned.size
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
    return this.inFlight.size === 0 && this.waiting.length === 0 && (this.due.length === 0 || this.maxDays === 0)
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

/** The windows that would be read now, by what is known now. */
export function planWindows(
  due: readonly Day[],
  density: Density,
  { page_limit, max_window_days }: Pick<Config['source'], 'page_limit' | 'max_window_days'>,
): Range[] {
  const feed = new WindowFeed(due, density, () => page_limit, max_window_days)
  const windows: Range[] = []
  for (let window = feed.next(); window !== undefined; window = feed.next()) {
    windows.push(window)
    feed.markLoaded(window)
  }
  return windows
}
