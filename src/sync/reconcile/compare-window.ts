import { type Day, daysIn, type Range } from '../../core/day.ts'
import type { Measure } from '../../ledger/control-totals.ts'
import type { DayComparison } from '../../ledger/coverage.ts'
import { digestOf, type TotalsByDay } from '../../rows/day-totals.ts'
import type { FoundDays } from '../../rows/sift.ts'
import { type DayStream, isCompared, isControl } from '../../streams/stream.ts'
import { compareDays, type Difference } from './compare-days.ts'

/** What the days of a window are compared with. */
export interface Control {
  totals: TotalsByDay
  /** Measures that were shown not to add up. */
  ignored: ReadonlySet<Measure>
}

/** How a window compares with the control totals. */
export interface WindowComparison {
  differences: Difference[]
  /** Days whose control totals this run has not read. */
  uncompared: Day[]
  /** What the ledger stores of a day. */
  of(day: Day): DayComparison
}

/** Compares a window before it is loaded. Days with rejects are left out: what was rejected is missing from their sums. */
export function compareWindow(
  stream: DayStream,
  range: Range,
  found: Omit<FoundDays, 'absent'>,
  { totals: control, ignored }: Control,
): WindowComparison {
  if (!adds(stream, ignored)) {
    const digest = (day: Day) => (isControl(stream) ? digestOf(found.totals!.get(day) ?? new Map()) : undefined)
    return { differences: [], uncompared: [], of: (day) => ({ isReconciled: true, digest: digest(day) }) }
  }
  const days = daysIn(range)
  const hasRejects = (day: Day) => found.rejects.some(({ date }) => date === undefined || date === day)
  const uncompared = days.filter((day) => !control.has(day))
  const compared = days.filter((day) => control.has(day) && !hasRejects(day))
  const differences = compareDays(stream, compared, { found, control, ignored })
  const texts = new Map(differences.map(({ day, text }) => [day, text]))
  return {
    differences,
    uncompared,
    of: (day) => ({
      isReconciled: control.has(day) && !texts.has(day),
      digest: control.has(day) ? digestOf(control.get(day)!) : undefined,
      difference: texts.get(day),
    }),
  }
}

/** True if the stream is known to add up, or nothing is known against it. */
function adds(stream: DayStream, ignored: ReadonlySet<Measure>): boolean {
  if (!isCompared(stream) || ignored.has('counts')) return false
  return stream.control !== 'answers' || !ignored.has('answers')
}

/**
 * True if the answer must be proven by asking for one row after its last: it does not add up, it cannot be compared, or it has
 * rejects. An answer that cannot be compared and has as many rows on each day as before needs no new proof.
 */
export function needsProof(
  comparison: WindowComparison,
  { stream, range, rowsBefore }: { stream: DayStream; range: Range; rowsBefore: ReadonlyMap<Day, number> },
  { rowsByDay, rejects }: FoundDays,
  ignored: ReadonlySet<Measure>,
): boolean {
  if (rejects.length > 0 || comparison.differences.length + comparison.uncompared.length > 0) return true
  if (adds(stream, ignored)) return false
  return daysIn(range).some((day) => (rowsByDay.get(day) ?? 0) !== rowsBefore.get(day))
}
