import { countDays, type Range } from '../../core/day.ts'

/** Sizes at which services like to cap their answers. */
const USUAL_CAPS = new Set([100, 200, 250, 500])
// Equal sizes of small windows mean nothing.
const WORTH_COMPARING = 50

/** A window of one project and stream. */
export interface SizedWindow {
  /** The key of its task. */
  task: string
  range: Range
}

interface Size {
  /** The windows that passed for complete with so many rows. */
  complete: SizedWindow[]
  /** How many days the first window of each task with so many rows had. */
  days: Map<string, number>
}

/**
 * How many rows the answers of a run had, and what that says of a cap: a service may give fewer rows than were asked for
 * though there are more, without saying so.
 */
export class AnswerSizes {
  private readonly sizes = new Map<number, Size>()
  /** The largest answer of each stream: a service that gave so many rows caps no answer at fewer. */
  private readonly largestOf = new Map<string, number>()
  private readonly largerAnswers = new Map<string, Promise<void>>()
  /** Windows of this many rows were counted in another way, and were complete. */
  private proven = 0
  private firstLoss: Promise<boolean> | undefined

  /** An answer had so many rows, complete or not. */
  add(stream: string, rows: number): void {
    this.largestOf.set(stream, Math.max(rows, this.largestOf.get(stream) ?? 0))
  }

  /**
   * True if an answer shorter than the limit may still have been capped: its size is a usual cap, or a window of another
   * length of the same task had the very same size.
   */
  mayBeCapped(window: SizedWindow, rows: number): boolean {
    if (isUsualCap(rows)) return true
    const days = this.sizes.get(rows)?.days.get(window.task)
    return days !== undefined && days !== countDays(window.range)
  }

  /** A window had so many rows: one of another length that has as many is suspicious. */
  addWindow(window: SizedWindow, rows: number): void {
    if (rows < WORTH_COMPARING) return
    const { days } = this.sizeOf(rows)
    if (!days.has(window.task)) days.set(window.task, countDays(window.range))
  }

  /** A window passed for complete with so many rows. */
  addComplete(window: SizedWindow, rows: number): void {
    if (rows < WORTH_COMPARING) return
    this.addWindow(window, rows)
    this.sizeOf(rows).complete.push(window)
  }

  private sizeOf(rows: number): Size {
    const size = this.sizes.get(rows) ?? { complete: [], days: new Map<string, number>() }
    this.sizes.set(rows, size)
    return size
  }

  /**
   * True if an answer to the same stream had more rows than these, so that no answer of so many was capped. If none had,
   * `askForMore` says how many rows a longer window gets, once for all windows of a size: one answer proves it for the
   * whole run.
   */
  async hadMoreThan(stream: string, rows: number, askForMore: () => Promise<number>): Promise<boolean> {
    const hadMore = () => (this.largestOf.get(stream) ?? 0) > rows
    if (hadMore()) return true
    const key = `${stream} ${rows}`
    const asked = this.largerAnswers.get(key) ?? askForMore().then((found) => this.add(stream, found))
    this.largerAnswers.set(key, asked)
    await asked
    return hadMore()
  }

  /**
   * A window lost rows, and they would be deleted. The first such window of a run is checked by itself. If it was
   * complete, others are believed (undefined); if it was not, each is checked.
   */
  async checkLoss(isComplete: () => Promise<boolean>): Promise<boolean | undefined> {
    const first = this.firstLoss
    if (first !== undefined && (await first.catch(() => false))) return undefined
    const check = isComplete()
    if (first === undefined) this.firstLoss = check
    return check
  }

  /** Windows of so many rows are proven complete. */
  addProof(rows: number): void {
    this.proven = Math.max(this.proven, rows)
  }

  /**
   * The windows with the largest answer, which passed for complete without filling a page: where a cap would show. None if
   * a larger answer was given, or they are proven.
   */
  largest(): { rows: number; windows: SizedWindow[] } | undefined {
    let rows = 0
    for (const [size, { complete }] of this.sizes) if (complete.length > 0) rows = Math.max(rows, size)
    if (rows <= Math.max(this.proven, ...[...this.largestOf.values()].map((most) => most - 1))) return undefined
    return { rows, windows: this.sizes.get(rows)!.complete }
  }

  /** Forgets the windows that passed for complete with so many rows, because answers are capped there, and returns them. */
  removeEqual(rows: number): SizedWindow[] {
    const { complete = [] } = this.sizes.get(rows) ?? {}
    this.sizes.delete(rows)
    return complete
  }

  /** The same for windows of at least so many rows. */
  removeFrom(rows: number): SizedWindow[] {
    return [...this.sizes.keys()].filter((size) => size >= rows).flatMap((size) => this.removeEqual(size))
  }
}

/** A size at which services like to cap their answers. */
export function isUsualCap(rows: number): boolean {
  return rows > 0 && (rows % 1000 === 0 || USUAL_CAPS.has(rows))
}
