import type { PoolClient } from 'pg'
import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { dayOf, type Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { streamKinds } from '../../streams/registry.ts'
import type { Warehouse } from '../connect.ts'

// A day that changes later than that was rewritten, as history is when a brand is renamed; it did not arrive late.
const LATE_DAYS = 30

/**
 * Tells the views what the configuration asks of each stream, and how late days were changed so far: within the last 60
 * days, the latest twentieth left out.
 */
export async function saveStreamSettings(
  client: Pick<PoolClient, 'query'>,
  warehouse: Warehouse,
  config: Config,
  interest: Range,
  projectIds: readonly string[],
): Promise<void> {
  const streams = streamKinds(config)
  const settings = quote(warehouse.opsSchema, 'stream_settings')
  const names = streams.map(({ name }) => name)
  // What the service does not offer is not missing.
  const notOffered = (alias: string) =>
    `exists (select from ${quote(warehouse.opsSchema, 'not_offered')} n where n.project_id = ${alias}.project_id and n.stream = ${alias}.stream)`
  await client.query(
    `delete from ${settings} t where t.project_id = any($1) and (t.stream <> all($2) or ${notOffered('t')})`,
    [projectIds, names],
  )
  await client.query(
    `insert into ${settings} as t
       (project_id, stream, by_day, lookback_days, first_day, last_day, max_staleness, restated_days)
     select p.project_id, s.stream, s.by_day, $4::int, $5::date, $6::date, $7::interval, r.days
     from unnest($1::text[]) p(project_id) cross join lateral (
       select p.project_id, s.* from unnest($2::text[], $3::boolean[]) s(stream, by_day)
     ) s
     left join (
       select project_id, stream,
         percentile_disc(0.95) within group (order by (seen_at at time zone 'UTC')::date - date) + 1 as days
       from ${quote(warehouse.opsSchema, 'restatements')}
       where seen_at > now() - interval '60 days' and (seen_at at time zone 'UTC')::date - date <= ${LATE_DAYS}
       group by 1, 2
     ) r on r.project_id = p.project_id and r.stream = s.stream
     where not ${notOffered('s')}
     on conflict (project_id, stream) do update set by_day = excluded.by_day, lookback_days = excluded.lookback_days,
       first_day = excluded.first_day, last_day = excluded.last_day, max_staleness = excluded.max_staleness,
       restated_days = excluded.restated_days
     where (t.by_day, t.lookback_days, t.first_day, t.last_day, t.max_staleness, t.restated_days) is distinct from
       (excluded.by_day, excluded.lookback_days, excluded.first_day, excluded.last_day, excluded.max_staleness, excluded.restated_days)`,
    [
      projectIds,
      names,
      streams.map(({ by }) => by === 'day'),
      config.lookback_days,
      interest.from,
      config.end_date ?? null,
      config.serve.max_staleness.replace('m', ' minutes').replace('h', ' hours').replace('d', ' days'),
    ],
  )
}

/** Projects that an earlier version synced get the settings at hand; the next run of each writes its own. */
export async function addStreamSettings(client: PoolClient, warehouse: Warehouse, config: Config): Promise<void> {
  const { rows } = await client.query<{ now: Date; ids: string[] | null }>(
    `select now(), (select array_agg(p.project_id) from ${quote(warehouse.schema, 'projects')} p
       where not exists (select from ${quote(warehouse.opsSchema, 'stream_settings')} t where t.project_id = p.project_id)) as ids`,
  )
  const { now, ids } = rows[0]!
  if (ids !== null) await saveStreamSettings(client, warehouse, config, daysOfInterest(config, dayOf(now)), ids)
}
