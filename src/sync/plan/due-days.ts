import { addDays, type Day, dayNumber, daysIn, type Range } from '../../core/day.ts'
import { type ProjectStream, streamKey } from '../../core/vocabulary.ts'
import { type DaysByMonth, readDaysByMonth } from '../../ledger/days.ts'
import type { Warehouse } from '../../warehouse/connect.ts'

interface DueOptions {
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
 * Due are: days that were never read; the last `lookbackDays` of the range; days that are not settled; and days whose last read came
 * too early, before the day was over or before it left the lookback. The last rule gives a day its final read even if no run took
 * place while it was in the lookback.
 */
export function dueDays({ interest, today, lookbackDays }: DueOptions): (known: DaysByMonth) => Day[] {
  const range = readableRange(interest, today)
  const days = daysIn(range)
  const lookbackFrom = lookbackStart(range, lookbackDays)
  return ({ days: read, completeMonths }) => {
    const known = new Map(read.map((day) => [day.date, day]))
    const isDue = (day: Day) => {
      if (day >= lookbackFrom) return true
      if (completeMonths.has(day.slice(0, 7))) return false
      const seen = known.get(day)
      if (seen === undefined || seen.state !== 'settled') return true
      return seen.readAt.getTime() < (dayNumber(day) + Math.max(1, lookbackDays)) * 86_400_000
    }
    // Days that need another look are due wherever they lie.
    const outside = read.filter(({ date }) => date <= today && (date < range.from || date > range.to))
    const due = outside.flatMap(({ date, state }) => (state === 'settled' ? [] : [date]))
    return [...due, ...days.filter(isDue)]
  }
}

export const NO_DAYS: DaysByMonth = { completeMonths: new Set(), days: [] }

// From these days the rows to come are predicted.
const RECENT_DAYS = 31

/** The known days of all streams of all projects. It reads only recent days and those of months that are not complete. */
export async function readKnownDays(
  warehouse: Warehouse,
  projectStreams: readonly ProjectStream[],
  { from, today, lookbackDays }: { from: Day; today: Day; lookbackDays: number },
): Promise<(projectStream: ProjectStream) => DaysByMonth> {
  const recentFrom = addDays(today, -RECENT_DAYS)
  const request = { from, recentFrom, finalAfterDays: Math.max(1, lookbackDays) }
  const found = await readDaysByMonth(warehouse, projectStreams, request)
  const known = new Map(found.map((days) => [streamKey(days.projectId, days.stream), days]))
  return ({ projectId, stream }) => known.get(streamKey(projectId, stream)) ?? NO_DAYS
}
