import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { addDays, type Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { inTransaction } from '../transaction.ts'
import type { Database } from './report-table.ts'
import { reportBy } from './views.ts'
import { follow } from './watch-table.ts'

/*
 * Sums of the report by prompt and model, for views that would otherwise read all of it. Triggers open the weeks and
 * months whose rows change, in the same transaction. The views sum open periods on the fly, so they are right at every
 * moment; summing them for good only makes them fast.
 */

const NEEDS = ['date', 'prompt_id', 'model_id'] as const
const CHATS = 'chats'
const FUNCTIONS = ['sums_of', 'counts_of']

/**
 * Brings functions and triggers in line with the configuration. New ones open every period that there is. If the
 * report is no longer configured, views go on reading what they were made for.
 */
export async function applyPromptSums(database: Database, warehouse: Warehouse, config: Config): Promise<void> {
  const report = reportBy(config.reports, NEEDS)
  if (report === undefined) return
  const tables = [report.name, CHATS]
  const isNew = await follow(database, warehouse, {
    watcher: 'periods',
    tables,
    functions: FUNCTIONS,
    report: report.name,
  })
  if (isNew) await openEverything(database.client, warehouse, tables)
}

async function openEverything(client: PoolClient, warehouse: Warehouse, tables: string[]): Promise<void> {
  const ops = (name: string) => quote(warehouse.opsSchema, name)
  // A load that is not committed yet may rely on an entry that is about to go.
  await client.query(`lock table ${ops('open_periods')} in exclusive mode`)
  await client.query(
    `delete from ${ops('prompt_sums')}; delete from ${ops('prompt_days')}; delete from ${ops('open_periods')}`,
  )
  for (const table of tables) {
    await client.query(
      `insert into ${ops('open_periods')}
       select d.project_id, $1, p.unit, p.start
       from (select distinct project_id, date from ${quote(warehouse.schema, table)}) d
       cross join lateral ${ops('periods_of')}(d.date) p group by 1, 3, 4`,
      [table],
    )
  }
}

/** Parts of a table that are dropped fire no trigger: days before the first that is left are opened. */
async function openDropped(warehouse: Warehouse, config: Config): Promise<void> {
  const report = reportBy(config.reports, NEEDS)
  if (report === undefined) return
  const ops = (name: string) => quote(warehouse.opsSchema, name)
  const firstOf = (table: string) =>
    `coalesce((select min(date) from ${quote(warehouse.schema, table)} t where t.project_id = p.project_id), 'infinity')`
  const firstSummed = (what: string) =>
    `(select min(date) from ${ops('prompt_days')} d where d.project_id = p.project_id and d.${what} > 0)`
  // Materialized, because Postgres would look the first days up for each day that was summed.
  await warehouse.pool.query(
    `with first as materialized (
       select p.project_id, ${firstOf(report.name)} as first_answers, ${firstOf(CHATS)} as first_chats,
         ${firstSummed('answers')} as summed_answers, ${firstSummed('chats')} as summed_chats
       from ${quote(warehouse.schema, 'projects')} p
     )
     insert into ${ops('open_periods')}
     select d.project_id, $1, o.unit, o.start
     from first f
     join ${ops('prompt_days')} d on d.project_id = f.project_id
       and (d.answers > 0 and d.date < f.first_answers or d.chats > 0 and d.date < f.first_chats)
     cross join lateral ${ops('periods_of')}(d.date) o
     where f.summed_answers < f.first_answers or f.summed_chats < f.first_chats
     group by 1, 3, 4 on conflict do nothing`,
    [report.name],
  )
}

interface OpenPeriods {
  project_id: string
  unit: 'week' | 'month'
  /** Their first days, in order. */
  starts: Day[]
}

// Loads that open a period wait while periods are summed, so only some are summed at a time.
const PERIODS_AT_ONCE = 13
const ROWS_WORTH_ANALYZING = 10_000

/** Sums open periods for good. Returns how many; fewer than there are if it was asked to stop. */
export async function sumOpenPeriods(warehouse: Warehouse, config: Config, signal: AbortSignal): Promise<number> {
  const ops = (name: string) => quote(warehouse.opsSchema, name)
  await openDropped(warehouse, config)
  let periods = 0
  let written = 0
  while (!signal.aborted) {
    const done = await inTransaction(
      warehouse,
      async ({ client }) => {
        const { rows: found } = await client.query<{ open: boolean }>(
          `select exists (select from ${ops('open_periods')}) as open`,
        )
        if (!found[0]!.open) return { periods: 0, rows: 0 }
        // Once we hold the lock, every earlier change is committed. Later changes open their periods again.
        await client.query(`lock table ${ops('open_periods')} in exclusive mode`)
        const { rows: open } = await client.query<OpenPeriods>(
          `select project_id, unit, array_agg(start::text order by start) as starts from (
             select distinct project_id, unit, start from ${ops('open_periods')} order by 1, 2, 3 limit ${PERIODS_AT_ONCE}
           ) o group by 1, 2`,
        )
        let rows = 0
        for (const some of open) rows += await sum(client, ops, some)
        return { periods: open.reduce((total, { starts }) => total + starts.length, 0), rows }
      },
      signal,
    )
    if (done.periods === 0) break
    periods += done.periods
    written += done.rows
  }
  // A table that was just filled has no statistics, and plans without them are slow.
  if (written >= ROWS_WORTH_ANALYZING)
    await warehouse.pool.query(`analyze ${ops('prompt_sums')}, ${ops('prompt_days')}`)
  return periods
}

async function sum(
  client: PoolClient,
  ops: (name: string) => string,
  { project_id, unit, starts }: OpenPeriods,
): Promise<number> {
  const these = 'project_id = $1 and unit = $2 and start = any($3::date[])'
  const key = [project_id, unit, starts]
  await client.query(`delete from ${ops('prompt_sums')} where ${these}`, key)
  const sums = `insert into ${ops('prompt_sums')}
    select g.* from unnest($3::date[]) period cross join lateral ${ops('sums_of')}($1, $2, period) g`
  let rows = (await client.query(sums, key)).rowCount ?? 0
  if (unit === 'week') {
    // The days too, since they have the index.
    const days = 'project_id = $1 and week = any($2::date[]) and date between $3 and $4'
    const week = [project_id, starts, starts[0], addDays(starts.at(-1)!, 6)]
    await client.query(`delete from ${ops('prompt_days')} where ${days}`, week)
    const counts = `insert into ${ops('prompt_days')}
      select g.* from unnest($2::date[]) monday cross join lateral ${ops('counts_of')}($1, monday) g`
    rows += (await client.query(counts, [project_id, starts])).rowCount ?? 0
  }
  await client.query(`delete from ${ops('open_periods')} where ${these}`, key)
  return rows
}
