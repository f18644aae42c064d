import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { addDays, type Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { inTransaction, LONG_WORK, type Transaction } from '../transaction.ts'
import type { Database } from './report-table.ts'
import { reportBy } from './views.ts'
import { follow } from './watch-table.ts'

/*
 * What is usual on a day, for the views of days. Triggers on the report by day renew it where a few days change. Where many
 * do, they delete it and note the project; it is worked out at the end of the next run, and is null until then.
 */

const NEEDS = ['date'] as const
const EIGHT_WEEKS = 56

/**
 * Brings the function and the triggers in line with the configuration. If they are new, all projects are to be worked out.
 * If the report by day is no longer configured, views go on reading what they were made for.
 */
export async function applyUsualDays(database: Database, warehouse: Warehouse, config: Config): Promise<void> {
  const { client } = database
  const report = reportBy(config.reports, NEEDS)
  if (report === undefined) return
  const { name } = report
  const isNew = await follow(database, warehouse, {
    watcher: 'usualDays',
    tables: [name],
    functions: ['usual_of'],
    report: name,
  })
  if (!isNew) return
  // What changed unseen must not be shown.
  const ops = (name: string) => quote(warehouse.opsSchema, name)
  await client.query(`lock table ${ops('usual_days')} in exclusive mode`)
  await client.query(`delete from ${ops('usual_days')}`)
  await client.query(
    `insert into ${ops('usual_projects')} select project_id, true from ${quote(warehouse.schema, 'projects')} order by 1
     on conflict (project_id) do update set is_due = true`,
  )
}

/** Works out what is usual where it is due. Gives in how many projects; fewer than there are if it was asked to stop. */
export async function renewUsualDays(warehouse: Warehouse, config: Config, signal: AbortSignal): Promise<number> {
  const report = reportBy(config.reports, NEEDS)
  if (report === undefined) return 0
  const table = quote(warehouse.schema, report.name)
  const { rows: stale } = await warehouse.pool.query<{ project_id: string }>(
    `select p.project_id
     from ${quote(warehouse.schema, 'projects')} p
     left join ${quote(warehouse.opsSchema, 'usual_projects')} u on u.project_id = p.project_id
     cross join lateral (select min(date) as first from ${table} where project_id = p.project_id) r
     where u.is_due is not false or r.first is distinct from u.first_day order by 1`,
  )
  let renewed = 0
  for (const { project_id } of stale) {
    if (signal.aborted) break
    const renew = (tx: Transaction) => renewProject(tx.client, warehouse, table, project_id)
    if (await inTransaction(warehouse, renew, signal, LONG_WORK)) renewed++
  }
  if (renewed > 0) await warehouse.pool.query(`analyze ${quote(warehouse.opsSchema, 'usual_days')}`)
  return renewed
}

/** All days of a project, or those that were compared with days which are gone. False if nothing was to be renewed. */
async function renewProject(
  client: PoolClient,
  warehouse: Warehouse,
  table: string,
  projectId: string,
): Promise<boolean> {
  const ops = (name: string) => quote(warehouse.opsSchema, name)
  // In the order in which a truncation takes them.
  await client.query(`lock table ${table} in access share mode`)
  await client.query(`select ${ops('lock_usual')}($1)`, [projectId])
  // Whatever others changed is committed now, and what they change later they note again.
  const { rows } = await client.query<{ is_due: boolean; first: Day | null; first_before: Day | null }>(
    `select coalesce(u.is_due, true) as is_due, u.first_day as first_before, (select min(date) from ${table} where project_id = $1) as first
     from (select) one left join ${ops('usual_projects')} u on u.project_id = $1`,
    [projectId],
  )
  const { is_due, first, first_before } = rows[0]!
  const areGone = first_before !== null && (first === null || first > first_before)
  if (is_due || areGone) {
    const until = is_due || first === null ? null : addDays(first, EIGHT_WEEKS)
    await client.query(
      `select ${ops('renew_usual')}($1, array(
         select date from (
           select date from ${table} where project_id = $1 union select date from ${ops('usual_days')} where project_id = $1
         ) d where date < coalesce($2, 'infinity'::date)))`,
      [projectId, until],
    )
  }
  await client.query(
    `insert into ${ops('usual_projects')} values ($1, false, $2)
     on conflict (project_id) do update set is_due = false, first_day = excluded.first_day`,
    [projectId, first],
  )
  return is_due || areGone
}
