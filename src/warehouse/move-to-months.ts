import type { PoolClient } from 'pg'
import type { ReportConfig } from '../core/config/load.ts'
import { UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import { inTransaction, type Warehouse } from './connect.ts'
import {
  attachStatement,
  forgetLayouts,
  type Month,
  monthBounds,
  partOf,
  partStatement,
  readLayout,
} from './partitions.ts'
import { createReportTable } from './report-table.ts'

/*
 * Moves a report table in one piece into monthly parts. First the whole table becomes the part for everything that has
 * no part of its own, which changes no row; then month after month leaves it, each in one transaction. The table is
 * whole at every moment, may be read and synced meanwhile, and whoever is interrupted goes on where it stopped.
 */

export interface MoveStep {
  table: string
  month: Month
  rows: number
  /** Months that are left after this one. */
  left: number
}

/** Makes the table one that has parts, with all its rows in a single one. Nothing where that was done before. */
export async function beginMove(warehouse: Warehouse, report: ReportConfig): Promise<void> {
  const { schema, opsSchema } = warehouse
  const table = quote(schema, report.name)
  await inTransaction(warehouse, async ({ client, ops }) => {
    await client.query(`lock table ${table} in access exclusive mode`)
    if ((await readLayout(client, warehouse, report.name)).layout !== 'plain') return
    await refuseDependents(client, warehouse, report.name)
    const grants = await grantsOf(client, table)
    const foreign = await client.query<{ name: string }>(
      "select conname as name from pg_constraint where conrelid = to_regclass($1) and contype = 'f'",
      [table],
    )
    for (const { name } of foreign.rows) await client.query(`alter table ${table} drop constraint ${quote(name)}`)
    await client.query(`alter table ${table} set schema ${quote(opsSchema)}`)
    await client.query(`alter table ${quote(opsSchema, report.name)} rename to ${quote(restName(report.name))}`)
    await createReportTable(client, warehouse, report, 'month')
    await client.query(`alter table ${table} attach partition ${rest(warehouse, report.name)} default`)
    for (const grant of grants) await client.query(grant)
    // The views still read the old piece, and are renewed before anything leaves it.
    await ops.updateTable('views').set({ fingerprint: '' }).execute()
  })
  forgetLayouts(warehouse)
}

/** Moves month after month, oldest first, until none is left or it is told to stop. True where all of them moved. */
export async function moveMonths(
  warehouse: Warehouse,
  report: ReportConfig,
  signal: AbortSignal,
  moved: (step: MoveStep) => void,
): Promise<boolean> {
  if ((await readLayout(warehouse.pool, warehouse, report.name)).layout !== 'moving') return true
  const { rows } = await warehouse.pool.query<{ month: Month }>(
    `select distinct to_char(date, 'YYYY-MM') as month from ${rest(warehouse, report.name)} order by 1`,
  )
  for (const [index, { month }] of rows.entries()) {
    if (signal.aborted) return false
    const count = await moveMonth(warehouse, report.name, month, signal)
    moved({ table: report.name, month, rows: count, left: rows.length - index - 1 })
  }
  return endMove(warehouse, report.name)
}

async function moveMonth(warehouse: Warehouse, table: string, month: Month, signal: AbortSignal): Promise<number> {
  const { from, to } = monthBounds(month)
  const within = `date >= '${from}' and date < '${to}'`
  return inTransaction(
    warehouse,
    async ({ client }) => {
      // Others may read, and wait with their writing.
      await client.query(`lock table ${quote(warehouse.schema, table)} in share row exclusive mode`)
      await client.query(partStatement(warehouse, table, month))
      const { rowCount } = await client.query(
        `insert into ${partOf(warehouse, table, month)} select * from ${rest(warehouse, table)} where ${within}`,
      )
      await client.query(`delete from ${rest(warehouse, table)} where ${within}`)
      await client.query(attachStatement(warehouse, table, month))
      return rowCount ?? 0
    },
    signal,
  )
}

/** The piece that everything left is dropped; false where rows came into it meanwhile. */
async function endMove(warehouse: Warehouse, table: string): Promise<boolean> {
  const done = await inTransaction(warehouse, async ({ client }) => {
    await client.query(`lock table ${quote(warehouse.schema, table)} in share row exclusive mode`)
    const { rowCount } = await client.query(`select 1 from ${rest(warehouse, table)} limit 1`)
    if (rowCount !== 0) return false
    await client.query(`drop table ${rest(warehouse, table)}`)
    return true
  })
  forgetLayouts(warehouse)
  return done
}

function restName(table: string): string {
  return `${table}_rest`
}

function rest(warehouse: Warehouse, table: string): string {
  return quote(warehouse.opsSchema, restName(table))
}

/** Views of others would go on reading the old piece while its rows leave it. */
async function refuseDependents(client: PoolClient, warehouse: Warehouse, table: string): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select distinct format('%I.%I', n.nspname, v.relname) as name
     from pg_depend d join pg_rewrite r on r.oid = d.objid and d.classid = 'pg_rewrite'::regclass
     join pg_class v on v.oid = r.ev_class join pg_namespace n on n.oid = v.relnamespace
     where d.refobjid = to_regclass($1) and v.oid <> d.refobjid
       and not (n.nspname = $2 and v.relname in (select name from ${quote(warehouse.opsSchema, 'views')}))`,
    [quote(warehouse.schema, table), warehouse.schema],
  )
  if (rows.length === 0) return
  throw new UsageError(
    `${warehouse.schema}.${table} is read by ${rows.map(({ name }) => name).join(', ')}, which would lose the rows that move; ` +
      'drop these views, move the table, and make them again',
  )
}

/** The statements that give the same rights on the new table. */
async function grantsOf(client: PoolClient, table: string): Promise<string[]> {
  const { rows } = await client.query<{ privilege: string; grantee: string; grantable: boolean }>(
    `select a.privilege_type as privilege, a.is_grantable as grantable,
       case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as grantee
     from pg_class c, aclexplode(c.relacl) a where c.oid = to_regclass($1) and a.grantee <> c.relowner`,
    [table],
  )
  return rows.map(
    ({ privilege, grantee, grantable }) =>
      `grant ${privilege} on ${table} to ${grantee}${grantable ? ' with grant option' : ''}`,
  )
}
