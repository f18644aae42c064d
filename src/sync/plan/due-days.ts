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
 * rule gives a day its final read even if no run took place while it was in the lookback. Called once for all streams of
 * a run, because they share the months of the range.
 */
export function dueDays({ interest, today, lookbackDays }: DueOptions): (known: CoverageSummary) => Day[] {
  const range = readableRange(interest, today)
  const months = byMonth(range)
  const lookbackFrom = lookbackStart(range, lookbackDays)
  return ({ coverage, completeMonths }) => {
    const known = new Map(coverage.map((day) => [day.date, day]))
    const isDue = (day: Day) => {
      const seen = known.get(day)
      if (seen === undefined || seen.state !== 'read' || !seen.isReconciled || day >= lookbackFrom) return true
      return seen.readAt.getTime() < (dayNumber(day) + Math.max(1, lookbackDays)) * 86_400_000
    }
    // Days that need another look are due wherever they lie.
    const outside = coverage.filter(({ date }) => date <= today && (date < range.from || date > range.to))
    const due = outside.flatMap(({ date, state, isReconciled }) => (state === 'read' && isReconciled ? [] : [date]))
    for (const [month, days] of months) {
      if (completeMonths.has(month) && month < lookbackFrom.slice(0, 7)) continue
      for (const day of days) {
        if (completeMonths.has(month) ? day >= lookbackFrom : isDue(day)) due.push(day)
      }
    }
    return due
  }
}

function byMonth(range: Range): Map<string, Day[]> {
  const months = new Map<string, Day[]>()
  for (const day of daysIn(range)) {
    const month = day.slice(0, 7)
    const days = months.get(month)
    if (days === undefined) months.set(month, [day])
    else days.push(day)
  }
  return months
}
