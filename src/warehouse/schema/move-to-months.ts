import { type RawBuilder, sql } from 'kysely'
import type { ReportConfig } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { BI_VIEWS } from '../../core/vocabulary.ts'
import { EXTRA, withExtra } from '../../streams/keep-unknown.ts'
import { reportStream } from '../../streams/registry.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable } from '../database.ts'
import { inTransaction, LONG_WORK, type Transaction } from '../transaction.ts'
import { addMonth, type Month, monthBounds, readLayout } from './partitions.ts'
import { applyRestrictions, dropPolicies, runGiven } from './restrict-reader.ts'
import { createStreamTable, isNewestFirst, readRelations } from './stream-tables.ts'

/*
 * Moves a report table without partitions into monthly partitions. First the whole table becomes the default partition for everything that has
 * no partition of its own, which changes no row; then month after month leaves it, each in one transaction. The table is
 * whole at every moment, may be read and synced meanwhile, and an interrupted move continues where it stopped.
 */

interface MoveStep {
  table: string
  month: Month
  rows: number
  left: number
}

/** Makes the table a partitioned one, with all its rows in a single partition. Nothing if that was done before. */
export async function beginMove(warehouse: Warehouse, report: ReportConfig): Promise<void> {
  const table = quote(warehouse.schema, report.name)
  const work = async (tx: Transaction) => {
    const { db } = tx
    const [whole, old] = [dataTable(report.name), restOf(report.name)]
    await sql`lock table ${whole} in access exclusive mode`.execute(db)
    if ((await readLayout(tx, report.name)).layout !== 'plain') return
    await refuseDependents(tx, table, 'ours')
    await dropPolicies(tx, table)
    await refuseExtras(tx, table)
    const newestFirst = await isNewestFirst(tx, table)
    const hasExtra = (await readRelations(tx, tx.schema)).get(report.name)!.has(EXTRA)
    const stream = hasExtra ? withExtra(reportStream(report)) : reportStream(report)
    const grants = await grantsOf(tx, table)
    const foreign = await sql<{ statement: string }>`
      select format('alter table %s drop constraint %I', ${table}::text, conname) as statement from pg_constraint
      where conrelid = to_regclass(${table}) and contype = 'f'`.execute(db)
    await runGiven(db, foreign.rows)
    await sql`alter table ${whole} rename to ${sql.id(`${report.name}_rest`)}`.execute(db)
    await sql`alter table ${dataTable(`${report.name}_rest`)} set schema ${sql.id(tx.opsSchema)}`.execute(db)
    await createStreamTable(tx, stream, { partition: 'month', newestFirst })
    await sql`alter table ${whole} attach partition ${old} default`.execute(db)
    await applyRestrictions(tx)
    await runGiven(db, grants)
    // The views still read the old table, and are renewed before anything leaves it.
    await tx.db.updateTable('ops.views').set({ fingerprint: '' }).where('name', 'in', BI_VIEWS).execute()
  }
  await inTransaction(warehouse, work, undefined, LONG_WORK)
}

/** Moves month after month, oldest first, until none is left or it is asked to stop. True if all of them moved. */
export async function moveMonths(
  warehouse: Warehouse,
  report: ReportConfig,
  signal: AbortSignal,
  moved: (step: MoveStep) => void,
): Promise<boolean> {
  if ((await readLayout(warehouse, report.name)).layout !== 'moving') return true
  // A view that still reads the old table would lose the moved rows. So would a view of ours that could not be replaced.
  await refuseDependents(warehouse, quote(warehouse.opsSchema, `${report.name}_rest`), 'none')
  const { rows } = await sql<{ month: Month }>`
    select distinct to_char(date, 'YYYY-MM') as month from ${restOf(report.name)} order by 1`.execute(warehouse.slowDb)
  for (const [index, { month }] of rows.entries()) {
    if (signal.aborted) return false
    const count = await moveMonth(warehouse, report.name, month, signal)
    moved({ table: report.name, month, rows: count, left: rows.length - index - 1 })
  }
  return endMove(warehouse, report.name)
}

async function moveMonth(warehouse: Warehouse, table: string, month: Month, signal: AbortSignal): Promise<number> {
  const { from, to } = monthBounds(month)
  const isWithin = sql`date >= ${from} and date < ${to}`
  return inTransaction(
    warehouse,
    async (tx) => {
      const { db } = tx
      // Others may read, and wait with their writing.
      await sql`lock table ${dataTable(table)} in share row exclusive mode`.execute(db)
      return addMonth(tx, table, month, async (part) => {
        // By name: the old table may have its columns in another order.
        const columns = (await readRelations(tx, warehouse.schema)).get(table)!
        const names = sql.join(Array.from(columns, (name) => sql.id(name)))
        const { numAffectedRows } = await sql`
          insert into ${part} (${names}) select ${names} from ${restOf(table)} where ${isWithin}`.execute(db)
        await sql`delete from ${restOf(table)} where ${isWithin}`.execute(db)
        return Number(numAffectedRows ?? 0)
      })
    },
    signal,
    LONG_WORK,
  )
}

/** The old table is dropped once it is empty; false if rows came into it meanwhile. */
async function endMove(warehouse: Warehouse, table: string): Promise<boolean> {
  const work = async ({ db }: Transaction) => {
    await sql`lock table ${dataTable(table)} in share row exclusive mode`.execute(db)
    const { rows } = await sql`select from ${restOf(table)} limit 1`.execute(db)
    if (rows.length > 0) return false
    await sql`drop table ${restOf(table)}`.execute(db)
    return true
  }
  return inTransaction(warehouse, work, undefined, LONG_WORK)
}

function restOf(table: string): RawBuilder<unknown> {
  return sql.table(`ops.${table}_rest`)
}

/** Views and functions that go on reading the old table while its rows leave it. Ours are renewed in between. */
async function refuseDependents({ db, schema }: Warehouse, table: string, allowed: 'ours' | 'none'): Promise<void> {
  const { rows } = await sql<{ name: string }>`
    select format('%I.%I', n.nspname, v.relname) as name
    from pg_depend d join pg_rewrite r on r.oid = d.objid and d.classid = 'pg_rewrite'::regclass
    join pg_class v on v.oid = r.ev_class join pg_namespace n on n.oid = v.relnamespace
    where d.refobjid = to_regclass(${table}) and v.oid <> d.refobjid
      and not (${allowed === 'ours'} and n.nspname = ${schema} and v.relname in (select name from ops.views))
    union
    select d.objid::regprocedure::text from pg_depend d
    where d.refobjid = to_regclass(${table}) and d.classid = 'pg_proc'::regclass`.execute(db)
  if (rows.length === 0) return
  throw new UsageError(
    `${table} is read by ${rows.map(({ name }) => name).join(', ')}, which would lose the rows that move; ` +
      'drop these, move the table, and make them again',
  )
}

/** What users added to the table would be missing afterwards. */
async function refuseExtras({ db }: Transaction, table: string): Promise<void> {
  const { rows } = await sql<{ name: string }>`
    select 'row level security' as name from pg_class where oid = to_regclass(${table}) and relrowsecurity
    union all select 'the policy ' || quote_ident(polname) from pg_policy where polrelid = to_regclass(${table})
    union all select 'the trigger ' || quote_ident(tgname) from pg_trigger
      where tgrelid = to_regclass(${table}) and not tgisinternal
    union all select 'the index ' || i.indexrelid::regclass from pg_index i where i.indrelid = to_regclass(${table})
      and not (i.indisunique and i.indnullsnotdistinct)
      and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
    union all select 'the publication ' || quote_ident(p.pubname)
      from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
      where r.prrelid = to_regclass(${table})`.execute(db)
  if (rows.length === 0) return
  throw new UsageError(
    `${table} has ${rows.map(({ name }) => name).join(', ')}, which would be lost; drop it, move the table, and make it again`,
  )
}

async function grantsOf({ db }: Transaction, table: string): Promise<{ statement: string }[]> {
  const { rows } = await sql<{ statement: string }>`
    select format('grant %s on %s to %s%s', a.privilege_type || o.columns, ${table}::text,
      case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
      case when a.is_grantable then ' with grant option' end) as statement
    from pg_class c cross join lateral (
      select '' as columns, c.relacl as acl
      union all select format(' (%I)', attname), attacl from pg_attribute where attrelid = c.oid
    ) o cross join lateral aclexplode(o.acl) a
    where c.oid = to_regclass(${table}) and a.grantee <> c.relowner`.execute(db)
  return rows
}
