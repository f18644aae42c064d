import { sql } from 'kysely'
import type { Day } from '../../core/day.ts'
import type { KnownDay } from '../../ledger/days.ts'
import { type ControlTotals, TOTALLED, type TotalsByDay } from '../../rows/day-totals.ts'
import { type DayStream, RowList } from '../../streams/stream.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { dataTable } from '../../warehouse/database.ts'
import type { Run } from '../run/run.ts'
import { findOmissions } from './answer-facts.ts'
import { compareDays, type Difference, type Found, withoutOmitted } from './compare-days.ts'

interface Compared {
  projectId: string
  stream: DayStream
  days: readonly Pick<KnownDay, 'date' | 'state' | 'readAt' | 'difference'>[]
}

/**
 * Compares what the table of a stream has on some days with control totals. Days that were settled with a difference differ only if the
 * table got rows since then which show that the service sends such rows.
 */
export async function compareTable(
  run: Pick<Run, 'warehouse' | 'retry'>,
  { projectId, stream, days }: Compared,
  control: ControlTotals,
): Promise<Difference[]> {
  if (days.length === 0 || stream.control === undefined) return []
  const accepted = new Map(
    days.flatMap(({ date, state, readAt, difference }) =>
      state === 'settled' && difference != null ? [[date, readAt] as const] : [],
    ),
  )
  const sorted = days.map(({ date }) => date).sort()
  const differences: Difference[] = []
  for (const found of compareDays(
    stream,
    sorted,
    await readTotals(run.warehouse, projectId, stream, sorted),
    control,
  )) {
    const { day } = found
    if (!accepted.has(day)) differences.push(found)
    else if (stream.control === 'brand totals') {
      const stored = { projectId, stream, range: { from: day, to: day }, rows: new RowList() }
      const omissions = await findOmissions(run, stored, accepted.get(day))
      differences.push(...withoutOmitted([found], omissions))
    }
  }
  return differences
}

async function readTotals(
  warehouse: Warehouse,
  projectId: string,
  stream: DayStream,
  days: readonly Day[],
): Promise<Found> {
  const rowsOfDays = sql`${dataTable(stream.table)}
    where project_id = ${projectId} and date between ${days[0]} and ${days.at(-1)}`
  if (stream.control === 'answers') {
    const { rows } = await sql<{ date: Day; rows: number }>`
      select date, count(*)::int as rows from ${rowsOfDays} group by date`.execute(warehouse.slowDb)
    return { rowsByDay: new Map(rows.map(({ date, rows: count }) => [date, count])), totals: undefined }
  }
  const total = sql.raw(stream.control === 'brand limits' ? 'max' : 'sum')
  const sums = sql.join(TOTALLED.map((name) => sql`${total}(${sql.id(name)})`))
  const { rows } = await sql<{ date: Day; brand_id: string; totals: [number, number, number] }>`
    select date, brand_id, array[${sums}]::double precision[] as totals
    from ${rowsOfDays} group by date, brand_id`.execute(warehouse.slowDb)
  const totals: TotalsByDay = new Map()
  for (const { date, brand_id, totals: sums } of rows) {
    const day = totals.get(date) ?? new Map()
    totals.set(date, day.set(brand_id, sums))
  }
  return { rowsByDay: new Map(), totals }
}
