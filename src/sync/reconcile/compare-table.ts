import type { Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { type ControlTotals, TOTALLED, type TotalsByDay } from '../../rows/day-totals.ts'
import type { DayStream } from '../../streams/stream.ts'
import { slowQuery, tableName, type Warehouse } from '../../warehouse/connect.ts'
import { compareDays, type Difference, type Found } from './compare-days.ts'

interface Compared {
  projectId: string
  stream: DayStream
  days: readonly Day[]
}

/** Compares what the table of a stream has on some days with control totals. */
export async function compareTable(
  warehouse: Warehouse,
  { projectId, stream, days }: Compared,
  control: ControlTotals,
): Promise<Difference[]> {
  if (days.length === 0 || stream.control === undefined) return []
  const sorted = [...days].sort()
  const found = await readTotals(warehouse, { projectId, stream, days: sorted })
  return compareDays(stream, sorted, found, control)
}

async function readTotals(warehouse: Warehouse, { projectId, stream, days }: Compared): Promise<Found> {
  const of = `from ${tableName(warehouse, stream.table)} where project_id = $1 and date between $2 and $3`
  const values = [projectId, days[0], days.at(-1)]
  if (stream.control === 'answers') {
    const query = slowQuery(`select date, count(*)::int as rows ${of} group by date`, values)
    const { rows } = await warehouse.pool.query<{ date: Day; rows: number }>(query)
    return { rowsByDay: new Map(rows.map(({ date, rows: count }) => [date, count])), totals: undefined }
  }
  const sum = stream.control === 'brand limits' ? 'max' : 'sum'
  const sums = TOTALLED.map((name) => `${sum}(${quote(name)})`).join(', ')
  const query = slowQuery(
    `select date, brand_id, array[${sums}]::double precision[] as totals ${of} group by date, brand_id`,
    values,
  )
  const { rows } = await warehouse.pool.query<{ date: Day; brand_id: string; totals: [number, number, number] }>(query)
  const totals: TotalsByDay = new Map()
  for (const { date, brand_id, totals: sums } of rows) {
    const day = totals.get(date) ?? new Map()
    totals.set(date, day.set(brand_id, sums))
  }
  return { rowsByDay: new Map(), totals }
}
