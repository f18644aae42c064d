import { addDays, type Day, dayNumber, daysIn, type Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { type ProjectStream, streamKey } from '../../core/vocabulary.ts'
import type { CoveredDay } from '../../ledger/coverage.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import type { CoverageState } from '../../warehouse/database.ts'

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

/** The coverage of a project and stream, as far as planning needs it. */
export interface CoverageSummary {
  /** Months without a due day: every day was read soundly and late enough. */
  completeMonths: ReadonlySet<string>
  /** The days of the other months, and the recent ones. */
  coverage: CoveredDay[]
}

export const NO_COVERAGE: CoverageSummary = { completeMonths: new Set(), coverage: [] }

// From these days the rows to come are predicted.
const RECENT_DAYS = 31

interface SummaryOptions {
  /** Days before are not due. */
  from: Day
  today: Day
  lookbackDays: number
}

/** A day as JSON: date, rows, state, the seconds since 1970 when it was read, and whether it is reconciled. */
type DayEntry = [Day, number, CoverageState, number, boolean]

interface KnownMonths {
  project_id: string
  stream: string
  complete: string[] | null
  /** The days of each month that is not complete, and the recent ones. */
  days: DayEntry[][] | null
}

/** The coverage of all streams of all projects. It reads only recent days and those of months that are not complete. */
export async function readCoverageSummaries(
  warehouse: Warehouse,
  projectStreams: readonly ProjectStream[],
  { from, today, lookbackDays }: SummaryOptions,
): Promise<(projectStream: ProjectStream) => CoverageSummary> {
  // `youngest` is the lowest age at which one of its days was read. The days of a month come as one value: a hundred thousand
  // small rows cost several times as much to send and receive.
  const { rows } = await warehouse.pool.query<KnownMonths>(
    `select m.project_id, m.stream, json_agg(to_char(m.month, 'YYYY-MM')) filter (where m.is_complete) as complete,
       json_agg(d.days) filter (where d.days is not null) as days
     from (
       select *, days = last_day - first_day + 1 and first_day <= greatest(month, $4::date)
         and last_day = (month + interval '1 month')::date - 1
         and days_held + days_quarantined + days_stale + days_unreconciled + days_uncompared = 0 and youngest >= $3 as is_complete
       from ${quote(warehouse.opsSchema, 'coverage_months')} where project_id = any($1) and stream = any($2)
     ) m
     left join lateral (
       select json_agg(json_build_array(c.date, c.rows, c.state, floor(extract(epoch from c.read_at)), c.reconciled_at is not null)
         order by c.date) as days
       from ${quote(warehouse.opsSchema, 'coverage')} c where c.project_id = m.project_id and c.stream = m.stream
         and c.date between case when m.is_complete then greatest(m.month, $5::date) else m.month end and m.last_day
         and (not m.is_complete or m.last_day >= $5)
     ) d on true
     group by 1, 2`,
    [
      [...new Set(projectStreams.map(({ projectId }) => projectId))],
      [...new Set(projectStreams.map(({ stream }) => stream))],
      Math.max(1, lookbackDays),
      from,
      addDays(today, -RECENT_DAYS),
    ],
  )
  const known = new Map(
    rows.map(({ project_id, stream, complete, days }): [string, CoverageSummary] => {
      const coverage = (days ?? []).flat().map(([date, count, state, readAt, isReconciled]) => {
        return { date, rows: count, state, readAt: new Date(readAt * 1000), isReconciled }
      })
      coverage.sort((a, b) => (a.date < b.date ? -1 : 1))
      return [streamKey(project_id, stream), { completeMonths: new Set(complete), coverage }]
    }),
  )
  return ({ projectId, stream }) => known.get(streamKey(projectId, stream)) ?? NO_COVERAGE
}
