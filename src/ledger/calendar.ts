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

/** What is known of the days of a project. Days that were never read are not among them. */
export async function readCalendar(warehouse: Warehouse, projectId: string, range: Range): Promise<CalendarDay[]> {
  const ops = (table: string) => quote(warehouse.opsSchema, table)
  const { rows } = await warehouse.pool.query<CalendarDay>(
    `select c.stream, c.date, c.rows, c.read_at, c.state, coalesce(r.restated, 0)::int as restated
     from ${ops('coverage')} c
     left join (
       select stream, date, sum(rows_inserted + rows_updated + rows_deleted) as restated from ${ops('restatements')}
       where project_id = $1 and date between $2 and $3 group by stream, date
     ) r on r.stream = c.stream and r.date = c.date
     where c.project_id = $1 and c.date between $2 and $3
     order by c.stream, c.date`,
    [projectId, range.from, range.to],
  )
  return rows
}
