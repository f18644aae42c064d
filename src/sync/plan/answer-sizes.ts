import { countDays, type Range } from '../../core/day.ts'

// Besides whole thousands.
const USUAL_CAPS = new Set([10, 20, 25, 50, 100, 200, 250, 500])
// Equal sizes of small windows mean nothing.
const WORTH_COMPARING = 50

/** A window of one project and stream. */
export interface SizedWindow {
  /** The key of its task. */
  task: string
  operation: string
  range: Range
}

interface AnsweredStream {
  name: string
  operation: string
}

/** The windows whose answers had the same number of rows. */
interface Size {
  /** Those that passed for complete. */
  complete: SizedWindow[]
  /** How many days the first such window of each task had. */
  days: Map<string, number>
}

/**
 * How many rows the answers of a run had, and what that says of a cap: a service may give fewer rows than were asked for
 * though there are more, without saying so.
 */
export class AnswerSizes {
  private readonly sizes = new Map<number, Size>()
  /** The largest answer of each stream: a service that gave so many rows caps no answer at fewer. */
  private readonly largestOfStream = new Map<string, number>()
  private readonly largestOfOperation = new Map<string, number>()
  /** Of each operation, the largest size that was checked in another way. */
  private readonly checked = new Map<string, number>()
  private readonly longerAnswers = new Map<string, Promise<void>>()
  private firstShrunk: Promise<boolean> | undefined

  /** An answer had so many rows, complete or not. */
  add({ name, operation }: AnsweredStream, rows: number): void {
    raise(this.largestOfStream, name, rows)
    raise(this.largestOfOperation, operation, rows)
  }

  /**
   * True if an answer shorter than the limit may still have been capped: its size is a usual cap, or a window of another
   * length of the same task had the very same size.
   */
  looksCapped(window: SizedWindow, rows: number): boolean {
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
   * True if another answer to the stream had more rows than these, so that no answer of so many was capped. If none had,
   * `askForLongerRange` is called, and says how many rows a longer range has: once for all windows of a size, unless it
   * fails; then the others ask for themselves.
   */
  async findLargerAnswer(
    stream: AnsweredStream,
    rows: number,
    askForLongerRange: () => Promise<number>,
  ): Promise<boolean> {
    const gaveMore = () => (this.largestOfStream.get(stream.name) ?? 0) > rows
    const key = `${stream.name} ${rows}`
    while (!gaveMore()) {
      const begun = this.longerAnswers.get(key)
      if (begun === undefined) {
        const asked = askForLongerRange().then((found) => this.add(stream, found))
        this.longerAnswers.set(key, asked)
        asked.catch(() => this.longerAnswers.delete(key))
        await asked
        return gaveMore()
      }
      const isAnswered = await begun.then(
        () => true,
        () => false,
      )
      if (isAnswered) return gaveMore()
    }
    return true
  }

  /**
   * A window has fewer rows than before, and the others would be deleted. The first such window of a run is checked by
   * itself. If it was complete, later ones are not checked here (undefined); otherwise each is.
   */
  async checkShrunk(isComplete: () => Promise<boolean>): Promise<boolean | undefined> {
    const first = this.firstShrunk
    if (first !== undefined && (await first.catch(() => false))) return undefined
    const check = isComplete()
    if (first === undefined) this.firstShrunk = check
    return check
  }

  /** A window of the operation with so many rows was checked, and is complete. */
  markChecked(operation: string, rows: number): void {
    raise(this.checked, operation, rows)
  }

  /** Answers of so many rows were cut, so they say nothing of smaller ones. */
  forgetLargest(rows: number): void {
    for (const largest of [this.largestOfStream, this.largestOfOperation]) {
      for (const [key, most] of largest) if (most === rows) largest.delete(key)
    }
  }

  /**
   * For each operation, the window with the largest answer that was believed without a proof: where a cap would show.
   * There is none if the operation gave a larger answer, or if one at least as large was checked.
   */
  largestUnchecked(): { rows: number; window: SizedWindow }[] {
    const largest = new Map<string, { rows: number; window: SizedWindow }>()
    for (const [rows, { complete }] of this.sizes) {
      for (const window of complete) {
        if (rows > (largest.get(window.operation)?.rows ?? 0)) largest.set(window.operation, { rows, window })
      }
    }
    return [...largest.values()].filter(
      ({ rows, window: { operation } }) =>
        rows > (this.checked.get(operation) ?? 0) && rows >= (this.largestOfOperation.get(operation) ?? 0),
    )
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

function raise(most: Map<string, number>, key: string, rows: number): void {
  most.set(key, Math.max(rows, most.get(key) ?? 0))
}

/** A size at which services like to cap their answers: whole thousands, and some smaller ones. */
export function isUsualCap(rows: number): boolean {
  return rows > 0 && (rows % 1000 === 0 || USUAL_CAPS.has(rows))
}
