import type { Day, Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { filtersText, notAdditive } from '../../ledger/control-totals.ts'
import { type ControlTotals, TOTALLED, type TotalsByDay } from '../../rows/day-totals.ts'
import type { DayStream } from '../../streams/stream.ts'
import { slowQuery, tableName, type Warehouse } from '../../warehouse/connect.ts'
import { runBatch, type Transaction } from '../../warehouse/transaction.ts'
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

/** Days that were read and never compared, as in a warehouse that an older version filled. */
export async function uncomparedDays(
  { pool, opsSchema }: Warehouse,
  { projectId, stream }: { projectId: string; stream: DayStream },
  { from, to }: Range,
): Promise<Day[]> {
  const { rows } = await pool.query<{ date: Day }>(
    `select date from ${quote(opsSchema, 'coverage')}
     where project_id = $1 and stream = $2 and date between $3 and $4 and state = 'read' and reconciled_at is null`,
    [projectId, stream.name, from, to],
  )
  return rows.map(({ date }) => date)
}

/** Writes down that these days add up to the stored control totals, if the stream can be compared with any. */
export async function markReconciled(
  { pool, opsSchema }: Warehouse,
  { projectId, stream, days }: Compared,
): Promise<void> {
  await pool.query(
    `update ${quote(opsSchema, 'coverage')} c
     set reconciled_at = now(), counts_digest = t.counts_digest, answers_digest = t.answers_digest
     from unnest($3::date[]) d(date) left join ${quote(opsSchema, 'control_totals')} t
       on t.project_id = $1 and t.filters = $4 and t.date = d.date
     where c.project_id = $1 and c.stream = $2 and c.date = d.date and c.state = 'read' and c.reconciled_at is null`,
    [projectId, stream.name, days, filtersText(stream.filters)],
  )
}

interface Differing {
  projectId: string
  streams: readonly DayStream[]
  days: readonly Day[]
}

/**
 * Marks the days of streams that no longer add up to the stored control totals as stale, so that they are read again. Reports
 * that cannot be compared are marked on all of these days.
 */
export async function markDiffering(
  { client }: Transaction,
  warehouse: Warehouse,
  { projectId, streams, days }: Differing,
): Promise<void> {
  if (days.length === 0) return
  for (const stream of streams) {
    await client.query(
      `update ${quote(warehouse.opsSchema, 'coverage')} c set state = 'stale'
       where c.project_id = $1 and c.stream = $2 and c.date = any($3::date[]) and c.state = 'read'
         and $4::text is not null and ${stream.control === undefined ? 'true' : differs(warehouse, stream)}`,
      [projectId, stream.name, days, filtersText(stream.filters)],
    )
  }
}

/** True in SQL if the coverage `c` of a day differs from the control totals of project $1 under the filters $4. */
export function differs(warehouse: Warehouse, { control, name }: DayStream): string {
  const isAdditive = (measure: string) =>
    `not exists (select from ${quote(warehouse.opsSchema, 'not_additive')} n
       where n.project_id = $1 and n.stream = '${name}' and n.measure in ('counts', '${measure}'))`
  const condition =
    control === 'answers'
      ? `c.rows <> t.answers and ${isAdditive('answers')}`
      : `(c.counts_digest is distinct from t.counts_digest and ${isAdditive('counts')}
          or c.answers_digest is distinct from t.answers_digest and ${isAdditive('answers')})`
  return `exists (select from ${quote(warehouse.opsSchema, 'control_totals')} t
    where t.project_id = $1 and t.filters = $4 and t.date = c.date and t.totals is not null and ${condition})`
}
