import type { Day, Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { notAdditive } from '../../ledger/control-totals.ts'
import { type ControlTotals, TOTALLED, type TotalsByDay } from '../../rows/day-totals.ts'
import type { DayStream } from '../../streams/stream.ts'
import { slowQuery, tableName, type Warehouse } from '../../warehouse/connect.ts'
import { runBatch } from '../../warehouse/transaction.ts'
import { compareDays, type Difference } from './compare-window.ts'

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
  if (days.length === 0) return []
  const sorted = [...days].sort()
  const range = { from: sorted[0]!, to: sorted.at(-1)! }
  const [ignored] = await runBatch(warehouse.pool, notAdditive(warehouse, { projectId, stream: stream.name }))
  return compareDays(stream, sorted, { found: await tableDays(warehouse, projectId, stream, range), control, ignored })
}

async function tableDays(warehouse: Warehouse, projectId: string, stream: DayStream, range: Range) {
  const found = { rowsByDay: new Map<Day, number>(), totals: new Map() as TotalsByDay }
  const of = `from ${tableName(warehouse, stream.table)} where project_id = $1 and date between $2 and $3`
  const values = [projectId, range.from, range.to]
  if (stream.control === 'answers') {
    const query = slowQuery(`select date, count(*)::int as rows ${of} group by date`, values)
    const { rows } = await warehouse.pool.query<{ date: Day; rows: number }>(query)
    for (const { date, rows: count } of rows) found.rowsByDay.set(date, count)
    return found
  }
  const sums = TOTALLED.map((name) => `sum(${quote(name)})`).join(', ')
  const query = slowQuery(
    `select date, brand_id, array[${sums}]::double precision[] as totals ${of} group by date, brand_id`,
    values,
  )
  const { rows } = await warehouse.pool.query<{ date: Day; brand_id: string; totals: [number, number, number] }>(query)
  for (const { date, brand_id, totals } of rows) {
    const day = found.totals.get(date) ?? new Map()
    found.totals.set(date, day.set(brand_id, totals))
  }
  return found
}
