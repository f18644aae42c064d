import { sql } from 'kysely'
import type { Day } from '../../core/day.ts'
import { type KnownDay, readDays } from '../../ledger/days.ts'
import { readRejects } from '../../ledger/quarantine.ts'
import { type ControlTotals, TOTALLED, type TotalsByDay } from '../../rows/day-totals.ts'
import { type DayStream, RowList } from '../../streams/stream.ts'
import { type Db, dataTable } from '../../warehouse/database.ts'
import type { Transaction } from '../../warehouse/transaction.ts'
import type { Run } from '../run/run.ts'
import { findOmissions } from './answer-facts.ts'
import { compareDays, type Difference, type Found, withoutOmitted, withoutRejected } from './compare-days.ts'

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
  const { warehouse, retry } = run
  const found = compareDays(stream, sorted, await readTotals(warehouse.slowDb, projectId, stream, sorted), control)
  const range = { from: sorted[0]!, to: sorted.at(-1)! }
  const dismissed = await retry(() => readRejects(warehouse, { projectId, stream: stream.name }, range, 'dismissed'))
  const differences: Difference[] = []
  // A dismissed row without a day may come with any answer, so it may explain one row of each day.
  const explained = (difference: Difference) => withoutRejected([difference], dismissed, new Set(dismissed))
  for (const difference of found.flatMap(explained)) {
    const { day } = difference
    if (!accepted.has(day)) differences.push(difference)
    else if (stream.control === 'brand totals') {
      const stored = { projectId, stream, range: { from: day, to: day }, rows: new RowList() }
      const omissions = await findOmissions(run, stored, accepted.get(day))
      differences.push(...withoutOmitted([difference], omissions))
    }
  }
  return differences
}

/**
 * Of these days, those whose stored totals are wrong: what is stored of some stream contradicts them, and what is stored of none
 * agrees. Rows of another project agree with its totals, but they are not stored where they name its prompts: so streams by
 * prompt decide, if there are any.
 */
export async function daysOfWrongTotals(
  tx: Transaction,
  projectId: string,
  compared: readonly DayStream[],
  days: readonly Day[],
  control: ControlTotals,
): Promise<Set<Day>> {
  const sorted = days.toSorted()
  const range = { from: sorted[0]!, to: sorted.at(-1)! }
  const byPrompt = compared.filter(({ splitDimensions }) => splitDimensions.includes('prompt_id'))
  const [contradicted, confirmed] = [new Set<Day>(), new Set<Day>()]
  for (const stream of byPrompt.length > 0 ? byPrompt : compared) {
    const projectStream = { projectId, stream: stream.name }
    const read = new Set((await readDays(tx, projectStream, range)).map(({ date }) => date))
    const rejects = await readRejects(tx, projectStream, range, 'all')
    const found = compareDays(stream, sorted, await readTotals(tx.db, projectId, stream, sorted), control)
    const differing = new Set(withoutRejected(found, rejects, new Set()).map(({ day }) => day))
    for (const day of sorted) if (read.has(day)) (differing.has(day) ? contradicted : confirmed).add(day)
  }
  return new Set([...contradicted].filter((day) => !confirmed.has(day)))
}

async function readTotals(db: Db, projectId: string, stream: DayStream, days: readonly Day[]): Promise<Found> {
  const rowsOfDays = sql`${dataTable(stream.table)}
    where project_id = ${projectId} and date between ${days[0]} and ${days.at(-1)}`
  if (stream.control === 'answers') {
    const { rows } = await sql<{ date: Day; rows: number }>`
      select date, count(*)::int as rows from ${rowsOfDays} group by date`.execute(db)
    return { rowsByDay: new Map(rows.map(({ date, rows: count }) => [date, count])), totals: undefined }
  }
  const total = sql.raw(stream.control === 'brand limits' ? 'max' : 'sum')
  const sums = sql.join(TOTALLED.map((name) => sql`${total}(${sql.id(name)})`))
  const { rows } = await sql<{ date: Day; brand_id: string; totals: [number, number, number] }>`
    select date, brand_id, array[${sums}]::double precision[] as totals
    from ${rowsOfDays} group by date, brand_id`.execute(db)
  const totals: TotalsByDay = new Map()
  for (const { date, brand_id, totals: sums } of rows) {
    const day = totals.get(date) ?? new Map()
    totals.set(date, day.set(brand_id, sums))
  }
  return { rowsByDay: new Map(), totals }
}
