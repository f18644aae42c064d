import { sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import { addSeconds } from '../core/waiting.ts'
import type { ItemResult, Run } from '../sync/run/run.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { anyOf } from '../warehouse/database.ts'
import { withRetries } from '../warehouse/retry.ts'
import { inTransaction, type Transaction } from '../warehouse/transaction.ts'
import { fetchJobs, type Queue, within } from './boss.ts'

/*
 * The windows of runs in the queue. A window is `queued` until a worker takes it, `taken` while it works at it, and `done`
 * when its result waits for the run; it has a job until it is done. A job has only its id. The row has the rest.
 *
 * Reading a window twice is waste, never harm: loads are atomic, and an older read never replaces a newer one. So the
 * queue promises no more than at least once, and the first result of a window counts.
 *
 * Lock order: the job, then the row. This prevents deadlocks.
 */

export type RunSettings = Pick<Run, 'command' | 'acceptDeletes' | 'lookbackFrom'> & { pageLimit: number }

export interface NewWindow {
  id: string
  project: string
  stream: string
  range: Range | undefined
  priority: number
}

export interface TakenWindow extends Omit<NewWindow, 'priority'> {
  runId: number
  settings: RunSettings
  failures: number
  spent: WindowCost | null
}

/** The report of a worker to the run: a result as JSON, and its cost. */
export interface WindowResult {
  result:
    | ItemResult
    /** The requests of the project are spent for so long that windows of others go first. */
    | { kind: 'deferred'; waitMs: number }
    /** The worker may not be the right one to do it, so the process of the run does. */
    | { kind: 'returned'; reason: string }
  cost: WindowCost
}

export interface WindowCost {
  seconds: number
  /** "none" if there was no answer. */
  statuses: Record<string, number>
}

export const NO_COST: WindowCost = { seconds: 0, statuses: {} }

export function addCosts(first: WindowCost, second: WindowCost): WindowCost {
  const statuses = { ...first.statuses }
  for (const [status, times] of Object.entries(second.statuses)) statuses[status] = (statuses[status] ?? 0) + times
  return { seconds: addSeconds(first.seconds, second.seconds), statuses }
}

/** Puts windows of one run in. It may be called again with the same windows if it is not known what became of it. */
export async function enqueueWindows(
  { api, name, warehouse }: Queue,
  runId: number,
  settings: RunSettings,
  windows: readonly NewWindow[],
): Promise<void> {
  const rows = windows.map(({ id, project, range, ...window }) => {
    return { ...window, window_id: id, project_id: project, from_date: range?.from, to_date: range?.to }
  })
  await inTransaction(warehouse, async (tx) => {
    await api.insert(
      windows.map(({ id, priority }) => ({ id, name, priority })),
      within(tx),
    )
    await sql`
      insert into ops.run_windows
        (window_id, run_id, queue, project_id, stream, from_date, to_date, priority, request)
      select window_id, ${runId}, ${name}, project_id, stream, from_date, to_date, priority, ${JSON.stringify(settings)}
      from json_populate_recordset(null::ops.run_windows, ${JSON.stringify(rows)}) on conflict do nothing`.execute(
      tx.db,
    )
  })
}

/** Jobs of runs that are over are thrown away. */
export async function takeWindows(
  queue: Queue,
  workerId: string,
  most: number,
  stallAfterMs: number,
): Promise<TakenWindow[]> {
  const { api, name, warehouse } = queue
  return inTransaction(warehouse, async (tx) => {
    const ids = await fetchJobs(queue, tx, most)
    if (ids.length === 0) return []
    const { rows } = await sql<TakenWindow & { from: Day | null; to: Day }>`
      update ops.run_windows w
      set state = 'taken', worker_id = ${workerId}, taken_at = now(), progress_at = now(),
        stalls_at = clock_timestamp() + make_interval(secs => ${stallAfterMs / 1000})
      from ops.runs r
      where w.window_id = any(${ids}) and w.state <> 'done' and r.run_id = w.run_id and ${isAlive}
      returning w.window_id as id, w.run_id as "runId", w.project_id as project, w.stream, w.from_date as from,
        w.to_date as to, w.request as settings, w.failures, w.result->'cost' as spent`.execute(tx.db)
    const unwanted = ids.filter((id) => !rows.some((row) => row.id === id))
    if (unwanted.length > 0) {
      await api.deleteJob(name, unwanted, within(tx))
      const left = tx.db.deleteFrom('ops.run_windows').where(anyOf('window_id', unwanted))
      await left.where('state', '<>', 'done').execute()
    }
    return rows.map(({ from, to, ...window }) => ({ ...window, range: from === null ? undefined : { from, to } }))
  })
}

/** Its lease may have expired while the database was away. */
const isAlive = sql`r.outcome is null and r.lease_expires_at > clock_timestamp() - interval '1 minute'`

class RunOverError extends Error {
  readonly code = 'run-over'
}

/** In the transaction that loads the rows. If deletions were accepted for a run that is over, it throws, so that nothing is loaded. */
export async function publishResult(
  tx: Transaction,
  { api, name }: Queue,
  { id, acceptDeletes }: { id: string; acceptDeletes: boolean },
  result: WindowResult,
): Promise<void> {
  await api.deleteJob(name, id, within(tx))
  if (acceptDeletes) {
    const live = await sql`
      select from ops.run_windows w join ops.runs r on r.run_id = w.run_id
      where w.window_id = ${id} and r.outcome is null and r.lease_expires_at > clock_timestamp()`.execute(tx.db)
    if (live.rows.length === 0) throw new RunOverError('the run that asked for this window is over')
  }
  await sql`
    update ops.run_windows set state = 'done', result = ${tx.redactor.json(JSON.stringify(result))}, worker_id = null
    where window_id = ${id} and state <> 'done'`.execute(tx.db)
}

export interface Release {
  workerId: string
  /** An attempt that failed though its worker was well, and what all attempts cost. */
  spent?: WindowCost
  /** An attempt whose worker vanished, got nowhere or failed in a way that was not foreseen. */
  isLoss?: boolean
}

// A window that crashes its workers must not be retried for ever.
const MOST_LOSSES = 8

/** It is given up after too many losses. `not-mine` if the worker did not have it any more. */
export async function releaseWindow(
  queue: Queue,
  id: string,
  release: Release,
): Promise<'released' | 'given-up' | 'run-over' | 'not-mine'> {
  const { api, warehouse } = queue
  const { workerId, spent, isLoss } = release
  const isMine = sql`window_id = ${id} and state = 'taken' and worker_id = ${workerId}`
  const work = async (tx: Transaction) => {
    const { rows } = await sql<{ name: string; losses: number; priority: number; request: RunSettings }>`
      select queue as name, losses, priority, request from ops.run_windows where ${isMine}`.execute(tx.db)
    const [found] = rows
    if (found === undefined) return 'not-mine'
    const { name, losses, priority, request } = found
    if (isLoss && losses + 1 >= MOST_LOSSES) {
      await publishResult(tx, { ...queue, name }, { id, ...request }, WORKERS_DIED)
      return 'given-up'
    }
    await api.deleteJob(name, id, within(tx))
    const { numAffectedRows } = await sql`
      update ops.run_windows
      set state = 'queued', worker_id = null, taken_at = null, progress_at = null, stalls_at = null,
        failures = failures + ${spent ? 1 : 0}, losses = losses + ${isLoss ? 1 : 0},
        result = coalesce(${spent && JSON.stringify({ cost: spent })}::jsonb, result)
      where ${isMine}`.execute(tx.db)
    // Taken over between the two: the job of the other one stays.
    if (numAffectedRows === 0n) throw new TakenOverError('another worker has this window')
    await api.insert([{ id, name, priority }], within(tx))
    return 'released'
  }
  return inTransaction(warehouse, work).catch((error: unknown) => {
    if (error instanceof TakenOverError) return 'not-mine'
    // Its windows are dropped with the run.
    if (error instanceof RunOverError) return 'run-over'
    throw error
  })
}

const WORKERS_DIED: WindowResult = {
  result: {
    kind: 'failed',
    code: 'worker-died',
    reason: `its workers vanished or made no progress ${MOST_LOSSES} times`,
  },
  cost: NO_COST,
}

class TakenOverError extends Error {}

/** Results that wait for a run. They stay until they are deleted, so that none is lost with a connection. */
export async function readResults(
  warehouse: Warehouse,
  runId: number,
  most: number,
): Promise<{ id: string; result: WindowResult }[]> {
  const { rows } = await sql<{ id: string; result: WindowResult }>`
    select window_id as id, result from ops.run_windows
    where run_id = ${runId} and state = 'done' limit ${most}`.execute(warehouse.db)
  return rows
}

export async function deleteResults({ db }: Warehouse, ids: readonly string[]): Promise<void> {
  await db.deleteFrom('ops.run_windows').where(anyOf('window_id', ids)).execute()
}

export async function missingWindows(warehouse: Warehouse, ids: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select id from unnest(${ids}::uuid[]) id
    where not exists (select from ops.run_windows w where w.window_id = id)`.execute(warehouse.db)
  return rows.map(({ id }) => id)
}

/** Windows that nobody has begun: so many, or all of them. Gives their ids. */
export async function withdrawWindows(
  { api, name, warehouse }: Queue,
  runId: number,
  { most = 1000, project }: { most?: number; project?: string | undefined } = {},
): Promise<string[]> {
  return inTransaction(warehouse, async (tx) => {
    const found = await sql<{ window_id: string }>`
      select window_id from ops.run_windows
      where run_id = ${runId} and state = 'queued' and (${project ?? null}::text is null or project_id = ${project ?? null})
      order by priority desc limit ${most}`.execute(tx.db)
    const ids = found.rows.map(({ window_id }) => window_id)
    if (ids.length === 0) return []
    await api.deleteJob(name, ids, within(tx))
    const withdrawn = await sql<{ window_id: string }>`
      delete from ops.run_windows
      where window_id = any(${ids}::uuid[]) and state = 'queued' returning window_id`.execute(tx.db)
    return withdrawn.rows.map(({ window_id }) => window_id)
  })
}

/** Takes the windows of runs that are over out of the queue, and those of one more run. What a worker is doing of them is not waited for. */
export async function dropWindowsOfEndedRuns(
  queue: Queue,
  { andOf: runId = null, patienceMs }: { andOf?: number | null; patienceMs?: number } = {},
): Promise<void> {
  const { api, warehouse } = queue
  const patience = { patienceMs: patienceMs ?? warehouse.patienceMs }
  for (;;) {
    const dropped = await withRetries(patience, undefined, () =>
      inTransaction(warehouse, async (tx) => {
        const { rows } = await sql<{ window_id: string; queue: string }>`
          select w.window_id, w.queue from ops.run_windows w left join ops.runs r on r.run_id = w.run_id
          where w.run_id = ${runId} or r.run_id is null or not (${isAlive}) limit 1000`.execute(tx.db)
        for (const name of new Set(rows.map((row) => row.queue))) {
          const ids = rows.flatMap((row) => (row.queue === name ? [row.window_id] : []))
          await api.deleteJob(name, ids, within(tx))
        }
        const ids = rows.map(({ window_id }) => window_id)
        if (ids.length > 0) await tx.db.deleteFrom('ops.run_windows').where(anyOf('window_id', ids)).execute()
        return ids.length
      }),
    )
    if (dropped < 1000) return
  }
}

/**
 * Writes down when each window of a worker last made progress, and when it counts as stalled. Gives windows that were taken from
 * the worker (`lost`), and windows that are marked as the worker's though it does not have them (`unknown`).
 */
export async function reportProgress(
  warehouse: Warehouse,
  workerId: string,
  windows: readonly { id: string; idleMs: number; stallAfterMs: number }[],
): Promise<{ lost: string[]; unknown: string[] }> {
  const ids = windows.map(({ id }) => id)
  const idleSeconds = windows.map(({ idleMs }) => idleMs / 1000)
  const stallSeconds = windows.map(({ stallAfterMs }) => stallAfterMs / 1000)
  const { rows } = await sql<{ id: string; is_lost: boolean }>`
    with said as (
      select * from unnest(${ids}::uuid[], ${idleSeconds}::float8[], ${stallSeconds}::float8[])
        as s(id, idle_seconds, stall_after_seconds)
    ), mine as (
      update ops.run_windows w set progress_at = clock_timestamp() - make_interval(secs => s.idle_seconds),
        stalls_at = clock_timestamp() + make_interval(secs => s.stall_after_seconds - s.idle_seconds)
      from said s where w.window_id = s.id and w.worker_id = ${workerId} and w.state = 'taken' returning s.id
    )
    select s.id, true as is_lost from said s where not exists (select from mine m where m.id = s.id)
    union all
    select w.window_id, false from ops.run_windows w
    where w.worker_id = ${workerId} and w.state = 'taken' and w.window_id <> all(${ids}::uuid[])`.execute(warehouse.db)
  const idsOf = (isLost: boolean) => rows.flatMap(({ id, is_lost }) => (is_lost === isLost ? [id] : []))
  return { lost: idsOf(true), unknown: idsOf(false) }
}
