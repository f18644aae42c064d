import { type RawBuilder, sql } from 'kysely'
import type { Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable } from '../database.ts'
import { inTransaction, type Transaction } from '../transaction.ts'
import { applyRestrictions } from './restrict-reader.ts'

/* Report tables in monthly partitions. The partitions are in the ops schema, so that users see one table. */

/** How a table is laid out: without partitions, in months, or on its way from the one to the other. */
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
      await makePart(tx, table, month)
      await attachPart(tx, table, month)
      await applyRestrictions(tx)
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

export function partOf(table: string, month: Month): RawBuilder<unknown> {
  return sql.table(`ops.${table}_${month.replace('-', '_')}`)
}

/** An empty table like the others, with room on each page for updates in place. */
export async function makePart({ db }: Transaction, table: string, month: Month): Promise<void> {
  await sql`
    create table ${partOf(table, month)} (like ${dataTable(table)} including defaults)
    with (fillfactor = 90)`.execute(db)
}

/** Attached, not created in place: that would hold off everyone who reads. */
export async function attachPart({ db }: Transaction, table: string, month: Month): Promise<void> {
  const { from, to } = monthBounds(month)
  await sql`
    alter table ${dataTable(table)} attach partition ${partOf(table, month)}
    for values from (${sql.lit(from)}) to (${sql.lit(to)})`.execute(db)
}

export function monthBounds(month: Month): { from: Day; to: Day } {
  const [year, number] = month.split('-').map(Number) as [number, number]
  const next = number === 12 ? `${year + 1}-01` : `${year}-${String(number + 1).padStart(2, '0')}`
  return { from: `${month}-01`, to: `${next}-01` }
}
