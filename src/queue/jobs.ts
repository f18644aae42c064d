import { sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import { closeAbandonedRuns } from '../ledger/locks.ts'
import type { Transaction } from '../warehouse/connect.ts'
import { withRetries } from '../warehouse/retry.ts'
import { type Boss, DEAD, WINDOWS, within } from './boss.ts'
import { type Sent, type Told, toSent } from './told.ts'

/* Windows as jobs: put in, taken, kept alive, given back, and ended together with their rows. */

/** What a worker needs to know of a window or list. */
export interface WindowJob {
  /** The runs that wait for it; the first is the one that its rows are attributed to. */
  runs: number[]
  command: string
  /** The service that it is to be read from, as runs show it. */
  source: string
  project: string
  stream: string
  /** Null for a list. */
  from: Day | null
  to: Day | null
  accept_deletes: boolean
  lookback_from: Day
  recent_from: Day
  page_limit: number
}

export interface TakenJob {
  id: string
  data: WindowJob
  /** How often it failed or was lost before. Whoever takes it over counts one more, so this also tells whose it is. */
  retries: number
}

/** Somebody else ended the job or took it over meanwhile: what was done for it is not loaded. */
class TakenOverError extends Error {
  readonly code = 'taken'
}

export interface Order {
  data: WindowJob
  /** The higher, the sooner. */
  priority: number
}

// Those who put jobs in take turns, so that none is there twice.
const ENQUEUE_LOCK = 7_265_190_403

export async function lockEnqueuing({ client }: Transaction): Promise<void> {
  // A queue that is being filled has no statistics yet, and would be read as a whole for each batch.
  await client.query('set local enable_seqscan = off')
  await client.query('select pg_advisory_xact_lock($1)', [ENQUEUE_LOCK])
}

/** Puts windows of one run in. A window that is there already is not put in again: its job works for this run, too. */
export async function enqueue(tx: Transaction, boss: Boss, orders: readonly Order[]): Promise<void> {
  const byKey = new Map(orders.map((order) => [keyOf(order.data), order]))
  const look = () =>
    tx.client.query<{ id: string; singleton_key: string }>(
      `select id, singleton_key from ${boss.jobs} where name = $1 and policy = 'stately' and state <= 'active'
         and state in ('created', 'retry', 'active') and coalesce(singleton_key, '') = any($2) order by id for update`,
      [WINDOWS, [...byKey.keys()]],
    )
  // A job that fails at this moment is deleted and put in again; only a second look finds it.
  await look()
  const { rows: there } = await look()
  if (there.length > 0) {
    await tx.client.query(
      `update ${boss.jobs} set priority = greatest(priority, ($3::int[])[array_position($2::uuid[], id)]),
         data = case when data->'runs' @> $4::jsonb then data else jsonb_set(data, '{runs}', data->'runs' || $4::jsonb) end
       where name = $1 and id = any($2)`,
      [
        WINDOWS,
        there.map(({ id }) => id),
        there.map(({ singleton_key }) => byKey.get(singleton_key)!.priority),
        JSON.stringify(orders[0]!.data.runs[0]),
      ],
    )
    for (const { singleton_key } of there) byKey.delete(singleton_key)
  }
  if (byKey.size === 0) return
  const jobs = [...byKey].map(([singletonKey, { data, priority }]) => ({ name: WINDOWS, data, priority, singletonKey }))
  await boss.api.insert(jobs, within(tx))
}

function keyOf({ source, project, stream, from, to, accept_deletes }: WindowJob): string {
  return JSON.stringify([project, stream, from, to, source, ...(accept_deletes ? ['accept deletes'] : [])])
}

/** What a process can do: the projects and streams that it knows, of the service that it reads. */
export interface Ability {
  source: string
  projects: readonly string[]
  streams: readonly string[]
}

/** Takes jobs as pg-boss does, but only those that this process can do, and never one of which a twin is at work. */
export async function takeJobs({ warehouse, jobs }: Boss, most: number, ability: Ability): Promise<TakenJob[]> {
  const { rows } = await warehouse.pool.query<{ id: string; data: WindowJob; retry_count: number }>(
    `with next as (
       select id from ${jobs} j where name = $1 and state < 'active' and start_after < now()
         and data->>'source' = $3 and data->>'project' = any($4) and data->>'stream' = any($5)
         and not exists (select from ${jobs} twin where twin.name = $1 and twin.policy = 'stately' and twin.state = 'active'
           and coalesce(twin.singleton_key, '') = coalesce(j.singleton_key, ''))
       order by priority desc, created_on, id limit $2 for update skip locked
     )
     update ${jobs} j set state = 'active', started_on = now(),
       retry_count = case when started_on is not null then retry_count + 1 else retry_count end
     from next where j.name = $1 and j.id = next.id returning j.id, j.data, j.retry_count`,
    [WINDOWS, most, ability.source, ability.projects, ability.streams],
  )
  return rows.map(({ id, data, retry_count }) => ({ id, data, retries: retry_count }))
}

/** Says that these are still being worked at, so that nobody takes them over. */
export async function keepAlive({ warehouse, jobs }: Boss, mine: readonly TakenJob[]): Promise<void> {
  await warehouse.pool.query(
    `update ${jobs} j set started_on = now() from unnest($2::uuid[], $3::int[]) mine(id, retries)
     where j.name = $1 and j.id = mine.id and j.state = 'active' and j.retry_count = mine.retries`,
    [WINDOWS, mine.map(({ id }) => id), mine.map(({ retries }) => retries)],
  )
}

/** A job as if it had not been taken. */
function asBefore(jobs: string): string {
  const state = jobs.replace(/"job"$/, '"job_state"')
  return `state = case when retry_count > 0 then 'retry' else 'created' end::${state}, started_on = null, start_after = now()`
}

/** Puts a job back, for others to take at once. */
export async function giveBack({ warehouse, jobs }: Boss, job: TakenJob): Promise<void> {
  const update = `update ${jobs} set ${asBefore(jobs)} where name = $1 and id = $2 and state = 'active' and retry_count = $3`
  await withRetries(undefined, () => warehouse.pool.query(update, [WINDOWS, job.id, job.retries]))
}

/**
 * Ends a job in the transaction that loads its rows, and tells the runs that wait for it. Throws where somebody else
 * ended it or took it away: then these rows are not loaded either.
 */
export async function completeJob(tx: Transaction, boss: Boss, job: TakenJob, told: Told): Promise<void> {
  // As pg-boss completes a job, together with the rest: each window pays for each statement.
  await tellRuns(tx, boss, job, toSent(told), "update {jobs} set state = 'completed', completed_on = now()")
}

/** Counts a failure: pg-boss lets it be tried again later, or sets it aside. */
export async function failJob(tx: Transaction, boss: Boss, job: TakenJob, told: Told): Promise<void> {
  const { result, ...spent } = told
  await tellRuns(tx, boss, job, spent, 'update {jobs} set output = null')
  await boss.api.fail(WINDOWS, job.id, result, within(tx))
}

/** Gives a job back because this process may not be the right one to do it, and tells the runs why. */
export async function doubtJob(tx: Transaction, boss: Boss, job: TakenJob, told: Told, doubt: string): Promise<void> {
  const { result: _, ...spent } = told
  await tellRuns(tx, boss, job, { ...spent, doubt }, `update {jobs} set ${asBefore(boss.jobs)}`)
}

/** Tells the runs that wait for a job, and changes it; nobody can take it away until the transaction ends. */
async function tellRuns(
  { client }: Transaction,
  boss: Boss,
  job: TakenJob,
  told: Partial<Sent>,
  change: string,
): Promise<void> {
  const { project, stream, from, to } = job.data
  const { rows } = await client.query<{ mine: number }>(
    `with mine as (
       ${change.replace('{jobs}', boss.jobs)}
       where name = $1 and id = $2 and state = 'active' and retry_count = $3 returning data->'runs' as runs
     ), told as (
       insert into ${quote(boss.warehouse.opsSchema, 'window_results')} (run_id, project_id, stream, from_date, to_date, result)
       select run::bigint, $4, $5, $6::date, $7::date, $8::jsonb from mine, jsonb_array_elements_text(runs) run
     )
     select count(*) as mine from mine`,
    [WINDOWS, job.id, job.retries, project, stream, from, to, JSON.stringify(told)],
  )
  if (rows[0]!.mine === 0) throw new TakenOverError('another process took this window over')
}

/** Takes a job out that nobody waits for any more. */
export async function discardJob({ warehouse, jobs }: Boss, job: TakenJob): Promise<void> {
  await warehouse.pool.query(
    `delete from ${jobs} where name = $1 and id = $2 and state = 'active' and retry_count = $3`,
    [WINDOWS, job.id, job.retries],
  )
}

/** True where one of the runs that asked for a job is still going on. */
export async function isWanted({ warehouse }: Boss, { data }: TakenJob): Promise<boolean> {
  await closeAbandonedRuns(warehouse)
  const open = await warehouse.ops
    .selectFrom('runs')
    .select('run_id')
    .where(sql<boolean>`run_id = any(${data.runs}::bigint[])`)
    .where('outcome', 'is', null)
    .execute()
  return open.length > 0
}

/** Jobs that nobody has begun forget runs that are over; those without any other are taken out. */
export async function forgetEndedRuns(tx: Transaction, { warehouse, jobs }: Boss): Promise<void> {
  // Nobody may join a job that is being taken out.
  await lockEnqueuing(tx)
  const runs = quote(warehouse.opsSchema, 'runs')
  await tx.client.query(
    `with left_over as (
       select j.id, coalesce(jsonb_agg(run) filter (where r.run_id is not null), '[]') as runs
       from ${jobs} j cross join lateral jsonb_array_elements(j.data->'runs') run
       left join ${runs} r on r.run_id = run::bigint and r.outcome is null
       where j.name = $1 and j.state < 'active' group by j.id having count(*) filter (where r.run_id is null) > 0
     ), gone as (
       delete from ${jobs} j using left_over l where j.name = $1 and j.id = l.id and j.state < 'active' and l.runs = '[]'
     )
     update ${jobs} j set data = jsonb_set(j.data, '{runs}', l.runs) from left_over l
     where j.name = $1 and j.id = l.id and j.state < 'active' and l.runs <> '[]'`,
    [WINDOWS],
  )
}

/** What was set aside and has been read since is no longer dead, however its days were read. */
export async function raiseDead({ warehouse, jobs }: Boss): Promise<void> {
  await warehouse.pool.query(
    `delete from ${jobs} d where d.name = $1 and not exists (
       select from generate_series(coalesce((d.data->>'from')::date, current_date), coalesce((d.data->>'to')::date, current_date), interval '1 day') day
       where not exists (
         select from ${quote(warehouse.opsSchema, 'coverage')} c
         where c.project_id = d.data->>'project' and c.stream = d.data->>'stream' and c.read_at > d.created_on
           and (d.data->>'from' is null or c.date = day::date)))`,
    [DEAD],
  )
}

/** Takes out what nobody has begun and only this run waits for; of one project, or of all. */
export async function withdraw({ warehouse, jobs }: Boss, runId: number, project?: string): Promise<void> {
  await warehouse.pool.query(
    `delete from ${jobs} where name = $1 and state < 'active' and data->'runs' = $2::jsonb
       and ($3::text is null or data->>'project' = $3)`,
    [WINDOWS, JSON.stringify([runId]), project ?? null],
  )
}

export interface DeadWindow {
  id: string
  project: string
  stream: string
  range: Range | undefined
  reason: string
  since: Date
}

/** Windows that were set aside: of one run, or of all. */
export async function deadWindows({ warehouse, jobs }: Pick<Boss, 'warehouse' | 'jobs'>, runId?: number) {
  const { rows } = await warehouse.pool.query<{ id: string; data: WindowJob; output: unknown; created_on: Date }>(
    `select id, data, output, created_on from ${jobs}
     where name = $1 and state = 'created' and ($2::jsonb is null or data->'runs' @> $2) order by created_on`,
    [DEAD, runId === undefined ? null : JSON.stringify(runId)],
  )
  return rows.map(
    ({ id, data, output, created_on }): DeadWindow => ({
      id,
      project: data.project,
      stream: data.stream,
      range: data.from === null ? undefined : { from: data.from, to: data.to! },
      reason: reasonOf(output),
      since: created_on,
    }),
  )
}

function reasonOf(output: unknown): string {
  const told = output as { reason?: string; value?: { message?: string } } | null
  if (typeof told?.reason === 'string') return told.reason
  return told?.value?.message?.includes('timeout') ? 'the processes that worked at it vanished' : 'set aside'
}

/** The windows of a run that are still waiting or being worked at. */
export async function openWindows({ warehouse, jobs }: Boss, runId: number): Promise<WindowJob[]> {
  const { rows } = await warehouse.pool.query<{ data: WindowJob }>(
    `select data from ${jobs} where name = $1 and state <= 'active' and data->'runs' @> $2::jsonb`,
    [WINDOWS, JSON.stringify(runId)],
  )
  return rows.map(({ data }) => data)
}
