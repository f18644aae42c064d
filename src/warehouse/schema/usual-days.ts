import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import type { Ops } from '../database.ts'
import { applyText, fillIn, readSql, reportBy } from './views.ts'
import { watchTable } from './watch-table.ts'

/**
 * Brings the function and the triggers that know what is usual on a day in line with the configuration. If they are new, it
 * is worked out for every day that there is. If the report by day is no longer configured, views go on reading what they
 * were made for.
 */
export async function applyUsualDays(
  database: { client: PoolClient; ops: Ops },
  warehouse: Warehouse,
  config: Config,
): Promise<void> {
  const { client } = database
  const report = reportBy(config.reports, ['date'])
  if (report === undefined) return
  const isUnwatched = await watchTable(client, warehouse, report.name, 'usual')
  const text = fillIn(readSql('functions/usual_of'), warehouse, report.name)
  const isNew = await applyText(database, 'usual_of', text)
  if (!isUnwatched && !isNew) return
  const ops = (name: string) => quote(warehouse.opsSchema, name)
  await client.query(`delete from ${ops('usual_days')}`)
  await client.query(
    `select ${ops('renew_usual')}(d.project_id, d.days)
     from (select project_id, array_agg(distinct date) as days from ${quote(warehouse.schema, report.name)} group by 1) d`,
  )
}
