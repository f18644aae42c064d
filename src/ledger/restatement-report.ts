import type { Selectable } from 'kysely'
import { sql } from 'kysely'
import { type Day, dayOf } from '../core/day.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import type { Change } from '../warehouse/load/window-effect.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/* Changes that the service made in days that were read before, for people. */

const SUMMED = ['days', 'rows_inserted', 'rows_updated', 'rows_deleted'] as const
type RestatementTotals = Record<(typeof SUMMED)[number], number>
type Restatement = Selectable<OpsTables['restatements']>

/** The changes that one run found in one stream of a project. The cause is a change of a brand in the week before. */
type RestatementGroup = RestatementTotals &
  Pick<Restatement, 'run_id' | 'project_id' | 'stream' | 'seen_at' | 'cause'> & { from: Day; to: Day }

export interface RestatementReport {
  groups: RestatementGroup[]
  total: RestatementTotals & { groups: number }
  by_day: (RestatementTotals & { seen_on: Day })[]
  /** How old half of the days, and 95 of 100, were at most when they changed, in days. */
  median_age: number | null
  oldest_usual_age: number | null
}

interface RestatementFilter {
  /** When it was seen: days, both included, in UTC. */
  from: Day
  to: Day
  project?: string | undefined
  stream?: string | undefined
  most: number
}
const SUMS = sql`sum(rows_inserted)::bigint as rows_inserted, sum(rows_updated)::bigint as rows_updated,
  sum(rows_deleted)::bigint as rows_deleted`

/** Found by when it was seen, so that an old ledger costs no more than a young one. */
export async function readRestatements({ db }: Warehouse, filter: RestatementFilter): Promise<RestatementReport> {
  const { from, to, project = null, stream = null } = filter
  const isWanted = sql`seen_at >= ${from}::date::timestamp at time zone 'UTC'
    and seen_at < (${to}::date + 1)::timestamp at time zone 'UTC'
    and (${project}::text is null or project_id = ${project}) and (${stream}::text is null or stream = ${stream})`
  const groups = await sql<RestatementGroup & { total?: number }>`
    select run_id, project_id, stream, min(date) as "from", max(date) as "to", count(distinct date)::int as days, ${SUMS},
      max(seen_at) as seen_at, max(cause) as cause, count(*) over ()::int as total
    from ops.restatements where ${isWanted} group by run_id, project_id, stream
    order by max(seen_at) desc, project_id, stream limit ${filter.most}`.execute(db)
  const byDay = await sql<RestatementReport['by_day'][number]>`
    select (seen_at at time zone 'UTC')::date as seen_on, count(distinct (project_id, stream, date))::int as days, ${SUMS}
    from ops.restatements where ${isWanted} group by 1 order by 1`.execute(db)
  const age = sql`(seen_at at time zone 'UTC')::date - date`
  const ages = await sql<Pick<RestatementReport, 'median_age' | 'oldest_usual_age'>>`
    select percentile_disc(0.5) within group (order by ${age})::int as median_age,
      percentile_disc(0.95) within group (order by ${age})::int as oldest_usual_age
    from ops.restatements where ${isWanted}`.execute(db)
  const total = { groups: groups.rows[0]?.total ?? 0, days: 0, rows_inserted: 0, rows_updated: 0, rows_deleted: 0 }
  for (const row of byDay.rows) for (const name of SUMMED) total[name] += Number(row[name])
  for (const group of groups.rows) delete group.total
  return { groups: groups.rows, total, by_day: byDay.rows, ...ages.rows[0]! }
}

export type RunChange = Omit<RestatementTotals, 'days'> & { date: Day; streams: string[]; projects: number }

/** The changes that a run found, by day, newest first, and the number of all such days. */
export async function changesOfRun(
  warehouse: Warehouse,
  run: { run_id: number; started_at: Date; ended_at: Date | null },
  most: number,
): Promise<{ days: RunChange[]; total: number }> {
  // By time, which has an index. A worker may commit a window a moment after the run was closed.
  const { rows } = await sql<RunChange & { total: number }>`
    select date, array_agg(distinct stream order by stream) as streams, count(distinct project_id)::int as projects,
      ${SUMS}, count(*) over ()::int as total
    from ops.restatements
    where seen_at >= ${run.started_at} and seen_at < coalesce(${run.ended_at}::timestamptz, now()) + interval '10 minutes'
      and run_id = ${run.run_id}
    group by date order by date desc limit ${most}`.execute(warehouse.db)
  return { days: rows.map(({ total: _total, ...day }) => day), total: rows[0]?.total ?? 0 }
}

/** Stores what a re-read changed in days that were final when they were read before. */
export async function saveRestatements(
  tx: Transaction,
  projectStream: ProjectStream,
  byDay: ReadonlyMap<Day, Change>,
  { finalBefore, runId }: { finalBefore: ReadonlySet<Day>; runId: number },
): Promise<void> {
  const changes = [...byDay].filter(([day]) => finalBefore.has(day))
  if (changes.length === 0) return
  const days = changes.map(([day]) => day)
  const cause = await changeOfBrand(tx, projectStream.projectId)
  const [inserted, updated, deleted] = (['inserted', 'updated', 'deleted'] as const).map((name) =>
    changes.map(([, change]) => change[name]),
  )
  await sql`
    insert into ops.restatements
      (project_id, stream, run_id, cause, date, rows_inserted, rows_updated, rows_deleted)
    select ${projectStream.projectId}, ${projectStream.stream}, ${runId}::bigint, ${cause}::text, day.*
    from unnest(${days}::date[], ${inserted}::int[], ${updated}::int[], ${deleted}::int[]) day`.execute(tx.db)
}

/** The last change of a brand's name, aliases or pattern within a week. After one, the service computes the brand's past again. */
async function changeOfBrand({ db }: Transaction, projectId: string): Promise<string | null> {
  // Rows that are seen for the first time are no change.
  const { rows } = await sql<{ brand: string; valid_from: Date }>`
    select coalesce(h.name, h.brand_id) as brand, h.valid_from from data.brand_history h join data.brand_history b
      on b.project_id = h.project_id and b.brand_id = h.brand_id and b.valid_to = h.valid_from
    where h.project_id = ${projectId} and h.valid_from > now() - interval '7 days'
      and (h.name <> b.name or (b.aliases is not null or b.regex is not null)
        and (h.aliases, h.regex) is distinct from (b.aliases, b.regex))
    order by h.valid_from desc limit 1`.execute(db)
  const [changed] = rows
  return changed === undefined ? null : `the brand ${changed.brand} changed on ${dayOf(changed.valid_from)}`
}
