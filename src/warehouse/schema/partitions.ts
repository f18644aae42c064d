import type { Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { inTransaction } from '../transaction.ts'
import { applyRestrictions } from './restrict-reader.ts'

/* Report tables in monthly partitions. The partitions are in the ops schema, so that users see one table. */

/** How a table is laid out: without partitions, in months, or on its way from the one to the other. */
type Layout = 'plain' | 'months' | 'moving'

/** A month as YYYY-MM. */
export type Month = string

/** Makes the partitions that these days need and that are not there yet. A table without partitions needs none. */
export async function ensureMonths(warehouse: Warehouse, table: string, days: Iterable<Day>): Promise<void> {
  for (const month of new Set(Array.from(days, (day) => day.slice(0, 7)))) {
    await inTransaction(warehouse, async (tx) => {
      // Another process may be making it.
      await tx.client.query('select pg_advisory_xact_lock(hashtextextended($1, 1))', [`${tx.schema}.${table}`])
      const { layout, months } = await readLayout(tx, table)
      // While rows are on their way into months, new ones go where the old ones are.
      if (layout !== 'months' || months.has(month)) return
      await tx.client.query(partStatement(tx, table, month))
      await tx.client.query(attachStatement(tx, table, month))
      await applyRestrictions(tx)
    })
  }
}

export async function readLayout(
  { pool, schema }: Warehouse,
  table: string,
): Promise<{ layout: Layout; months: Set<Month> }> {
  const { rows } = await pool.query<{ kind: string; part: string | null; bound: string | null }>(
    `select c.relkind as kind, p.relname as part, pg_get_expr(p.relpartbound, p.oid) as bound
     from pg_class c left join pg_inherits i on i.inhparent = c.oid left join pg_class p on p.oid = i.inhrelid
     where c.oid = to_regclass($1)`,
    [quote(schema, table)],
  )
  if (rows[0]?.kind !== 'p') return { layout: 'plain', months: new Set() }
  const months = rows.flatMap(({ bound }) => /FROM \('(\d{4}-\d{2})-01'\)/.exec(bound ?? '')?.[1] ?? [])
  return { layout: rows.some(({ bound }) => bound === 'DEFAULT') ? 'moving' : 'months', months: new Set(months) }
}

export function partOf(warehouse: Warehouse, table: string, month: Month): string {
  return quote(warehouse.opsSchema, `${table}_${month.replace('-', '_')}`)
}

/** An empty table like the others, with room on each page for updates in place. */
export function partStatement(warehouse: Warehouse, table: string, month: Month): string {
  return `create table ${partOf(warehouse, table, month)} (like ${quote(warehouse.schema, table)} including defaults) with (fillfactor = 90)`
}

/** Attached, not created in place: that would hold off everyone who reads. */
export function attachStatement(warehouse: Warehouse, table: string, month: Month): string {
  const { from, to } = monthBounds(month)
  return `alter table ${quote(warehouse.schema, table)} attach partition ${partOf(warehouse, table, month)} for values from ('${from}') to ('${to}')`
}

/** The first day of a month, and that of the next. */
export function monthBounds(month: Month): { from: Day; to: Day } {
  const [year, number] = month.split('-').map(Number) as [number, number]
  const next = number === 12 ? `${year + 1}-01` : `${year}-${String(number + 1).padStart(2, '0')}`
  return { from: `${month}-01`, to: `${next}-01` }
}
