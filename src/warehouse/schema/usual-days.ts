import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { addDays, type Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import type { Ops } from '../database.ts'
import { inTransaction, LONG_WORK } from '../transaction.ts'
import { applyText, fillIn, readSql, reportBy } from './views.ts'
import { watchTable } from './watch-table.ts'

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
export async function applyUsualDays(
  database: { client: PoolClient; ops: Ops },
  warehouse: Warehouse,
  config: Config,
): Promise<void> {
  const { client } = database
  const report = reportBy(config.reports, NEEDS)
  if (report === undefined) return
  const isUnwatched = await watchTable(client, warehouse, report.name, 'usualDays')
  const text = fillIn(readSql('functions/usual_of'), warehouse, report.name)
  const isNew = await applyText(database, 'usual_of', text)
  if (!isUnwatched && !isNew) return
  await client.query(
    `insert into ${quote(warehouse.opsSchema, 'usual_projects')} select project_id, true from ${quote(warehouse.schema, 'projects')}
     on conflict (project_id) do update set is_due = true`,
  )
}

interface StaleProject {
  project_id: string
  is_due: boolean
  first: Day | null
  first_before: Day | null
}

/** Works out what is usual where it is due. Gives in how many projects; fewer than there are if it was asked to stop. */
export async function renewUsualDays(warehouse: Warehouse, config: Config, signal: AbortSignal): Promise<number> {
  const report = reportBy(config.reports, NEEDS)
  if (report === undefined) return 0
  const table = quote(warehouse.schema, report.name)
  const usualProjects = quote(warehouse.opsSchema, 'usual_projects')
  const { rows: stale } = await warehouse.pool.query<StaleProject>(
    `select p.project_id, coalesce(u.is_due, false) as is_due, r.first, u.first_day as first_before
     from ${quote(warehouse.schema, 'projects')} p left join ${usualProjects} u on u.project_id = p.project_id
     cross join lateral (select min(date) as first from ${table} where project_id = p.project_id) r
     where u.is_due or r.first is distinct from u.first_day order by 1`,
  )
  let renewed = 0
  for (const project of stale) {
    if (signal.aborted) break
    const hasRenewed = await inTransaction(
      warehouse,
      ({ client }) => renewProject(client, warehouse, table, project),
      signal,
      LONG_WORK,
    )
    if (hasRenewed) renewed++
  }
  if (renewed > 0) await warehouse.pool.query(`analyze ${quote(warehouse.opsSchema, 'usual_days')}`)
  return renewed
}

/** All days of a project, or those that were compared with days which are gone. False if nothing was to be renewed. */
async function renewProject(
  client: PoolClient,
  warehouse: Warehouse,
  table: string,
  { project_id: project, is_due, first, first_before }: StaleProject,
): Promise<boolean> {
  const ops = (name: string) => quote(warehouse.opsSchema, name)
  const areGone = first_before !== null && (first === null || first > first_before)
  // Rows that others have changed are committed once we hold the lock. Later changes are noted again.
  await client.query(`select ${ops('lock_usual')}($1)`, [project])
  if (is_due || areGone) {
    const until = is_due || first === null ? null : addDays(first, EIGHT_WEEKS)
    await client.query(
      `select ${ops('renew_usual')}($1, array(
         select date from (
           select date from ${table} where project_id = $1 union select date from ${ops('usual_days')} where project_id = $1
         ) d where date < coalesce($2, 'infinity'::date)))`,
      [project, until],
    )
  }
  await client.query(
    `insert into ${ops('usual_projects')} values ($1, false, $2)
     on conflict (project_id) do update set is_due = false, first_day = excluded.first_day`,
    [project, first],
  )
  return is_due || areGone
}
