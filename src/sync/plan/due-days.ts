import { addDays, type Day, dayNumber, daysIn, type Range } from '../../core/day.ts'
import type { CoverageSummary } from '../../ledger/coverage-summaries.ts'

export interface DueOptions {
  /** The configured days, from `start_date` to `end_date` or today. */
  interest: Range
  today: Day
  lookbackDays: number
}

/** The days of interest up to today: what a future end_date promises is not there yet. */
export function readableRange(interest: Range, today: Day): Range {
  return { from: interest.from, to: interest.to < today ? interest.to : today }
}

/** The first of the days that every run reads again. */
export function lookbackStart({ to }: Range, lookbackDays: number): Day {
  return addDays(to, 1 - lookbackDays)
}

/**
 * Due are: days that were never read; the last `lookbackDays` of the range; days that are held, quarantined, stale or not
 * reconciled; and days whose last read came too early, before the day was over or before it left the lookback. The last
 * rule gives a day its final read even if no run took place while it was in the lookback.
 */
export function dueDays({ interest, today, lookbackDays }: DueOptions): (known: CoverageSummary) => Day[] {
  const range = readableRange(interest, today)
  const days = daysIn(range)
  const lookbackFrom = lookbackStart(range, lookbackDays)
  return ({ coverage, completeMonths }) => {
    const known = new Map(coverage.map((day) => [day.date, day]))
    const isDue = (day: Day) => {
      if (day >= lookbackFrom) return true
      if (completeMonths.has(day.slice(0, 7))) return false
      const seen = known.get(day)
      if (seen === undefined || seen.state !== 'read' || !seen.isReconciled) return true
      return seen.readAt.getTime() < (dayNumber(day) + Math.max(1, lookbackDays)) * 86_400_000
    }
    // Days that need another look are due wherever they lie.
    const outside = coverage.filter(({ date }) => date <= today && (date < range.from || date > range.to))
    const due = outside.flatMap(({ date, state, isReconciled }) => (state === 'read' && isReconciled ? [] : [date]))
    return [...due, ...days.filter(isDue)]
  }
}
