import { addDays, type Day, dayFromNumber, daysIn } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import { type ProjectStream, streamKey } from '../core/vocabulary.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { CoverageState } from '../warehouse/database.ts'
import type { CoveredDay } from './coverage.ts'

/** What planning needs to know of a project and stream. */
export interface CoverageSummary {
  /** Months without a due day: every day was read soundly and late enough. */
  completeMonths: ReadonlySet<string>
  /** The days of the other months, and the recent ones. */
  coverage: CoveredDay[]
}

export const NO_COVERAGE: CoverageSummary = { completeMonths: new Set(), coverage: [] }

/** The first and last complete month of a stream, and all of them if some are missing in between. */
interface CompleteMonths {
  project_id: string
  stream: string
  first: string
  last: string
  months: string[] | null
}

/** Days of a month of a stream, column by column; dates are days since 1970. */
interface DayColumns {
  project_id: string
  stream: string
  dates: number[]
  rows: number[]
  states: CoverageState[]
  read_at: number[]
  reconciled: boolean[]
}

// From these days the rows to come are predicted.
const RECENT_DAYS = 31

export interface SummaryOptions {
  /** Days before are not due. */
  from: Day
  today: Day
  lookbackDays: number
}

/** What is known of all streams of all projects, looking only at the recent days and at those of months that are not complete. */
export async function readCoverageSummaries(
  warehouse: Warehouse,
  projectStreams: readonly ProjectStream[],
  { from, today, lookbackDays }: SummaryOptions,
): Promise<(projectStream: ProjectStream) => CoverageSummary> {
  // `youngest` is the lowest age at which one of its days was read.
  const months = `(select *, days = last_day - first_day + 1 and first_day <= greatest(month, $4::date)
      and last_day = (month + interval '1 month')::date - 1
      and days_held + days_quarantined + days_stale + days_unreconciled + days_uncompared = 0 and youngest >= $3 as is_complete
    from ${quote(warehouse.opsSchema, 'coverage_months')} where project_id = any($1) and stream = any($2)) m`
  const values = [
    [...new Set(projectStreams.map(({ projectId }) => projectId))],
    [...new Set(projectStreams.map(({ stream }) => stream))],
    Math.max(1, lookbackDays),
    from,
  ]
  const known = new Map<string, { completeMonths: ReadonlySet<string>; coverage: CoveredDay[] }>()
  const entry = (key: string) => {
    const found = known.get(key) ?? { completeMonths: NO_COVERAGE.completeMonths, coverage: [] }
    known.set(key, found)
    return found
  }
  const [{ rows: complete }, { rows: open }] = await Promise.all([
    warehouse.pool.query<CompleteMonths>(
      `select project_id, stream, to_char(first, 'YYYY-MM') as first, to_char(last, 'YYYY-MM') as last,
         case when count <> extract(year from age(last, first)) * 12 + extract(month from age(last, first)) + 1 then (
           select array_agg(to_char(m.month, 'YYYY-MM')) from ${months}
           where m.project_id = s.project_id and m.stream = s.stream and m.is_complete
         ) end as months
       from (
         select project_id, stream, min(month) as first, max(month) as last, count(*) as count
         from ${months} where is_complete group by 1, 2
       ) s`,
      values,
    ),
    // Few rows with whole columns in them: a hundred thousand small rows cost several times as much to send and receive.
    warehouse.pool.query<DayColumns>(
      `select m.project_id, m.stream, d.* from ${months} cross join lateral (
         select json_agg(c.date - date '1970-01-01') as dates, json_agg(c.rows) as rows, json_agg(c.state) as states,
           json_agg(floor(extract(epoch from c.read_at))::bigint) as read_at, json_agg(c.reconciled_at is not null) as reconciled
         from ${quote(warehouse.opsSchema, 'coverage')} c where c.project_id = m.project_id and c.stream = m.stream
           and c.date between (case when m.is_complete then $5 else m.month end) and m.last_day
       ) d where d.dates is not null and (not m.is_complete or m.last_day >= $5::date)`,
      [...values, addDays(today, -RECENT_DAYS)],
    ),
  ])
  const stretches = new Map<string, ReadonlySet<string>>()
  for (const row of complete) entry(streamKey(row.project_id, row.stream)).completeMonths = monthsOf(row, stretches)
  const texts = new Map<number, Day>()
  for (const row of open) {
    const { coverage } = entry(streamKey(row.project_id, row.stream))
    row.dates.forEach((date, at) => {
      const readAt = new Date(row.read_at[at]! * 1000)
      const text = texts.get(date) ?? dayFromNumber(date)
      texts.set(date, text)
      coverage.push({
        ...{ date: text, rows: row.rows[at]!, state: row.states[at]!, readAt },
        isReconciled: row.reconciled[at]!,
      })
    })
  }
  for (const { coverage } of known.values()) coverage.sort((a, b) => (a.date < b.date ? -1 : a.date > b.date ? 1 : 0))
  return ({ projectId, stream }) => known.get(streamKey(projectId, stream)) ?? NO_COVERAGE
}

/** Streams that were read over the same stretch share its months. */
function monthsOf({ first, last, months }: CompleteMonths, stretches: Map<string, ReadonlySet<string>>) {
  if (months !== null) return new Set(months)
  const name = `${first} ${last}`
  const shared =
    stretches.get(name) ?? new Set(daysIn({ from: `${first}-01`, to: `${last}-01` }).map((day) => day.slice(0, 7)))
  stretches.set(name, shared)
  return shared
}
