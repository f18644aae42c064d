import { type RawBuilder, type Selectable, sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import { type DayOfStream, readDayOfStreams } from './days.ts'

type Coverage = Selectable<OpsTables['coverage']>

export type CalendarDay = Pick<Coverage, 'stream' | 'date' | 'rows' | 'read_at' | 'state'> & {
  /** How many rows later reads changed. */
  restated: number
}

/** One day over all streams of a project, as the year shows it: how many streams were read, how many are in each state, and rows. */
export type YearDay = { date: Day } & Record<
  'streams' | 'held' | 'unreconciled' | 'quarantined' | 'stale' | 'rows' | 'restated',
  number
>

/** SQL for the known days of some streams of a project. Days that were never read are not among them. */
function calendar(projectId: string, streams: readonly string[], range: Range): RawBuilder<CalendarDay> {
  // By stream and day, so that the indexes are used on every version of Postgres, however many restatements there are.
  return sql`
    select c.stream, c.date, c.rows, c.read_at, c.state, coalesce(r.restated, 0)::bigint as restated
    from unnest(${streams}::text[]) s(stream)
    join ops.coverage c on c.project_id = ${projectId} and c.stream = s.stream collate "C"
      and c.date between ${range.from} and ${range.to}
    left join lateral (
      select sum(rows_inserted + rows_updated + rows_deleted) as restated from ops.restatements r
      where r.project_id = ${projectId} and r.stream = c.stream and r.date = c.date
    ) r on true`
}

export async function readCalendar(
  { db }: Warehouse,
  projectId: string,
  streams: readonly string[],
  range: Range,
): Promise<CalendarDay[]> {
  const { rows } = await sql<CalendarDay>`${calendar(projectId, streams, range)} order by c.stream, c.date`.execute(db)
  return rows
}

export async function readYear(
  { db }: Warehouse,
  projectId: string,
  streams: readonly string[],
  range: Range,
): Promise<YearDay[]> {
  const counts = ['held', 'unreconciled', 'quarantined', 'stale'].map(
    (state) => sql`count(*) filter (where state = ${state})::int as ${sql.id(state)}`,
  )
  const { rows } = await sql<YearDay>`
    select date, count(*)::int as streams, ${sql.join(counts)}, sum(rows)::bigint as rows, sum(restated)::bigint as restated
    from (${calendar(projectId, streams, range)}) days group by date order by date`.execute(db)
  return rows
}

const MOST_CHANGES = 100

export interface DayDetail {
  streams: (DayOfStream & {
    /** The changes that the held answer would have made, as its run stored them; null if the day is not held, or the run was pruned. */
    held_because: { rows_present: number; rows_vanishing: number } | null
  })[]
  /** The last changes, the newest first. */
  changes: Omit<Selectable<OpsTables['restatements']>, 'project_id' | 'date' | 'cause'>[]
  /** Rows of the day, and rows without a readable day that came in answers with this day. */
  quarantine: { stream: string; rows: number; undated: number; reason: string }[]
}

export async function readDay(
  warehouse: Warehouse,
  projectId: string,
  streams: readonly string[],
  day: Day,
): Promise<DayDetail> {
  const known = await readDayOfStreams(warehouse, projectId, streams, day)
  const reviewed = known.filter(({ state }) => state === 'held')
  type Because = NonNullable<DayDetail['streams'][number]['held_because']>
  const because = await sql<Because & { stream: string; run_id: number }>`
    select entry->>'stream' as stream, run_id, (held->>'rows_present')::int as rows_present,
      (held->>'rows_vanishing')::int as rows_vanishing
    from ops.runs run
    cross join lateral jsonb_array_elements(case jsonb_typeof(summary) when 'array' then summary else '[]' end) entry
    cross join lateral jsonb_array_elements(case jsonb_typeof(entry->'held') when 'array' then entry->'held' else '[]' end) held
    where run_id = any(${reviewed.map(({ run_id }) => run_id)}) and entry->>'project_id' = ${projectId}
      and ${day}::date::text collate "C" between split_part(held->>'range', '..', 1) and split_part(held->>'range', '..', -1)`.execute(
    warehouse.db,
  )
  const covered = known.map((row) => {
    const found = because.rows.find(({ stream, run_id }) => stream === row.stream && run_id === row.run_id)
    if (found === undefined) return { ...row, held_because: null }
    const { rows_present, rows_vanishing } = found
    return { ...row, held_because: { rows_present, rows_vanishing } }
  })
  const changes = await sql<DayDetail['changes'][number]>`
    select stream, rows_inserted, rows_updated, rows_deleted, seen_at, run_id from ops.restatements
    where project_id = ${projectId} and stream = any(${streams}::text[]) and date = ${day}
    order by seen_at desc limit ${MOST_CHANGES}`.execute(warehouse.db)
  const quarantine = await sql<DayDetail['quarantine'][number]>`
    select stream, coalesce(sum(occurrences) filter (where from_date = to_date), 0)::int as rows,
      coalesce(sum(occurrences) filter (where from_date <> to_date), 0)::int as undated, min(reason) as reason
    from ops.quarantine
    where project_id = ${projectId} and stream = any(${streams}::text[]) and resolved_at is null
      and ${day}::date between from_date and to_date
    group by stream order by stream`.execute(warehouse.db)
  return { streams: covered, changes: changes.rows, quarantine: quarantine.rows }
}
