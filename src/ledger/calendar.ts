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

/** One day over all streams of a project, as the year shows it. */
export interface YearDay {
  date: Day
  /** How many streams were read, and how many of them are in each state. */
  streams: number
  held: number
  unreconciled: number
  quarantined: number
  stale: number
  rows: number
  /** How many rows later reads changed. */
  restated: number
}

/** The days of a range over some streams of a project. Days on which none was read are not among them. */
export async function readYear(
  warehouse: Warehouse,
  projectId: string,
  streams: readonly string[],
  range: Range,
): Promise<YearDay[]> {
  const ops = (table: string) => quote(warehouse.opsSchema, table)
  const { rows } = await warehouse.pool.query<YearDay>(
    `with changed as (
       select r.date, sum(r.restated) as restated
       from unnest($2::text[]) s(stream)
       cross join lateral (
         select date, sum(rows_inserted + rows_updated + rows_deleted) as restated from ${ops('restatements')}
         where project_id = $1 and stream = s.stream collate "C" and date between $3 and $4 group by date
       ) r group by r.date
     )
     select c.date, count(*)::int as streams, count(*) filter (where c.state = 'held')::int as held,
       count(*) filter (where c.state = 'unreconciled')::int as unreconciled,
       count(*) filter (where c.state = 'quarantined')::int as quarantined,
       count(*) filter (where c.state = 'stale')::int as stale, sum(c.rows)::bigint as rows,
       coalesce(min(changed.restated), 0)::bigint as restated
     from unnest($2::text[]) s(stream)
     join ${ops('coverage')} c
       on c.project_id = $1 and c.stream = s.stream collate "C" and c.date between $3 and $4
     left join changed on changed.date = c.date
     group by c.date order by c.date`,
    [projectId, streams, range.from, range.to],
  )
  return rows
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
