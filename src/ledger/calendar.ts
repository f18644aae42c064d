import type { Day, Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { CoverageState } from '../warehouse/database.ts'

/** One day of one stream, as the calendar shows it. */
export interface CalendarDay {
  stream: string
  date: Day
  rows: number
  read_at: Date
  state: CoverageState
  /** How many rows later reads changed. */
  restated: number
}

/** What is known of the days of some streams of a project. Days that were never read are not among them. */
export async function readCalendar(
  warehouse: Warehouse,
  projectId: string,
  streams: readonly string[],
  range: Range,
): Promise<CalendarDay[]> {
  const ops = (table: string) => quote(warehouse.opsSchema, table)
  // By stream and day, so that the indexes are used on every version of Postgres, however many restatements there are.
  const { rows } = await warehouse.pool.query<CalendarDay>(
    `select c.stream, c.date, c.rows, c.read_at, c.state, coalesce(r.restated, 0)::bigint as restated
     from unnest($2::text[]) s(stream)
     join ${ops('coverage')} c
       on c.project_id = $1 and c.stream = s.stream collate "C" and c.date between $3 and $4
     left join lateral (
       select sum(rows_inserted + rows_updated + rows_deleted) as restated from ${ops('restatements')} r
       where r.project_id = $1 and r.stream = c.stream and r.date = c.date
     ) r on true
     order by c.stream, c.date`,
    [projectId, streams, range.from, range.to],
  )
  return rows
}
