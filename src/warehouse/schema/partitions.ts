import { type RawBuilder, sql } from 'kysely'
import type { Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable } from '../database.ts'
import { inTransaction, type Transaction } from '../transaction.ts'
import { applyRestrictions } from './restrict-reader.ts'

/* Report tables in monthly partitions. The partitions are in the ops schema, so that users see one table. */

type Layout = 'plain' | 'months' | 'moving'

export type Month = string

/** Makes the partitions that these days need and that are not there yet. A table without partitions needs none. */
export async function ensureMonths(warehouse: Warehouse, table: string, days: Iterable<Day>): Promise<void> {
  for (const month of new Set(Array.from(days, (day) => day.slice(0, 7)))) {
    await inTransaction(warehouse, async (tx) => {
      // Another process may be making it.
      await sql`select pg_advisory_xact_lock(hashtextextended(${`${tx.schema}.${table}`}, 1))`.execute(tx.db)
      const { layout, months } = await readLayout(tx, table)
      // While rows are on their way into months, new ones go where the old ones are.
      if (layout !== 'months' || months.has(month)) return
      await addMonth(tx, table, month, async () => {})
    })
  }
}

export async function readLayout(
  { db, schema }: Warehouse,
  table: string,
): Promise<{ layout: Layout; months: Set<Month> }> {
  const { rows } = await sql<{ kind: string; part: string | null; bound: string | null }>`
    select c.relkind as kind, p.relname as part, pg_get_expr(p.relpartbound, p.oid) as bound
    from pg_class c left join pg_inherits i on i.inhparent = c.oid left join pg_class p on p.oid = i.inhrelid
    where c.oid = to_regclass(${quote(schema, table)})`.execute(db)
  if (rows[0]?.kind !== 'p') return { layout: 'plain', months: new Set() }
  const months = rows.flatMap(({ bound }) => /FROM \('(\d{4}-\d{2})-01'\)/.exec(bound ?? '')?.[1] ?? [])
  return { layout: rows.some(({ bound }) => bound === 'DEFAULT') ? 'moving' : 'months', months: new Set(months) }
}

/** Adds a partition with the rows that `fill` writes to it. */
export async function addMonth<T>(
  tx: Transaction,
  table: string,
  month: Month,
  fill: (part: RawBuilder<unknown>) => Promise<T>,
): Promise<T> {
  const whole = dataTable(table)
  const part = sql.table(`ops.${table}_${month.replace('-', '_')}`)
  const { from, to } = monthBounds(month)
  // With room on each page for updates in place.
  await sql`create table ${part} (like ${whole} including defaults) with (fillfactor = 90)`.execute(tx.db)
  const filled = await fill(part)
  // Attached, not created in place: that would hold off everyone who reads.
  await sql`alter table ${whole} attach partition ${part} for values from (${from}) to (${to})`.execute(tx.db)
  await applyRestrictions(tx)
  return filled
}

/** The first day of a month, and that of the next. */
export function monthBounds(month: Month): { from: RawBuilder<Day>; to: RawBuilder<unknown> } {
  const from = sql<Day>`date ${sql.lit(`${month}-01`)}`
  return { from, to: sql`${from} + interval '1 month'` }
}
