import { sql } from 'kysely'
import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { dayOf, type Range } from '../../core/day.ts'
import { secondsOf } from '../../core/text.ts'
import { streamKinds } from '../../streams/registry.ts'
import type { Warehouse } from '../connect.ts'
import { runQuery } from './sql-files.ts'

/** Views read these. */
export async function saveStreamSettings(
  warehouse: Warehouse,
  config: Config,
  { interest, projectIds }: { interest: Range; projectIds: readonly string[] },
): Promise<void> {
  const { db } = warehouse
  const streams = streamKinds(config)
  const names = streams.map(({ name }) => name)
  // A stream that has rows stays, also if nothing reads it any more: it becomes stale.
  await sql`
    delete from ops.stream_settings t
    where t.project_id = any(${projectIds}) and not exists (
        select from ops.coverage c
        where c.project_id = t.project_id and c.stream = t.stream and c.rows > 0)
      and (t.stream <> all(${names}) or exists (
        select from ops.not_offered n where n.project_id = t.project_id and n.stream = t.stream))`.execute(db)
  await runQuery(warehouse, 'save_stream_settings', [
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
  const { rows } = await sql<{ now: Date; ids: string[] | null }>`
    select now(), (
      select array_agg(p.project_id) from data.projects p
      where not exists (select from ops.stream_settings t where t.project_id = p.project_id)) as ids`.execute(
    warehouse.db,
  )
  const { now, ids } = rows[0]!
  if (ids !== null)
    await saveStreamSettings(warehouse, config, {
      interest: daysOfInterest(config, dayOf(now)),
      projectIds: ids,
    })
}
