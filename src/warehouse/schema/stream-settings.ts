import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { dayOf, type Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { secondsOf } from '../../core/text.ts'
import { streamKinds } from '../../streams/registry.ts'
import type { Warehouse } from '../connect.ts'
import { fillIn, readSql } from './views.ts'

/** Stores for the views what the configuration asks of each stream. */
export async function saveStreamSettings(
  warehouse: Warehouse,
  config: Config,
  { interest, projectIds }: { interest: Range; projectIds: readonly string[] },
): Promise<void> {
  const streams = streamKinds(config)
  const settings = quote(warehouse.opsSchema, 'stream_settings')
  const names = streams.map(({ name }) => name)
  await warehouse.pool.query(
    `delete from ${settings} t where t.project_id = any($1) and (t.stream <> all($2) or exists (
       select from ${quote(warehouse.opsSchema, 'not_offered')} n where n.project_id = t.project_id and n.stream = t.stream
         and not exists (select from ${quote(warehouse.opsSchema, 'coverage')} c where c.project_id = n.project_id and c.stream = n.stream and c.rows > 0)))`,
    [projectIds, names],
  )
  await warehouse.pool.query(fillIn(readSql('queries/save_stream_settings'), warehouse), [
    projectIds,
    names,
    streams.map(({ by }) => by === 'day'),
    config.lookback_days,
    interest.from,
    config.end_date ?? null,
    `${secondsOf(config.serve.max_staleness)} seconds`,
  ])
}

/** Projects that an earlier version synced get the current settings; the next run of each writes its own. */
export async function addStreamSettings(warehouse: Warehouse, config: Config): Promise<void> {
  const { rows } = await warehouse.pool.query<{ now: Date; ids: string[] | null }>(
    `select now(), (select array_agg(p.project_id) from ${quote(warehouse.schema, 'projects')} p
       where not exists (select from ${quote(warehouse.opsSchema, 'stream_settings')} t where t.project_id = p.project_id)) as ids`,
  )
  const { now, ids } = rows[0]!
  if (ids !== null)
    await saveStreamSettings(warehouse, config, {
      interest: daysOfInterest(config, dayOf(now)),
      projectIds: ids,
    })
}
