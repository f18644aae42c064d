import { hostname } from 'node:os'
import { sql } from 'kysely'
import type { Warehouse } from '../warehouse/connect.ts'

/* Who is about to take windows. */

export interface WorkerState {
  worker_id: string
  host: string
  pid: number
  version: string
  concurrency: number
  started_at: Date
  seen_at: Date
  busy: number
  done: number
}

// Three signs of life may be missed.
const GONE = sql<Date>`now() - interval '20 seconds'`

/** Who a worker is, and what it can do. */
export interface WorkerSelf {
  id: string
  version: string
  concurrency: number
  source: string
  projects: readonly string[]
  streams: readonly string[]
}

export async function signIn({ ops }: Warehouse, worker: WorkerSelf): Promise<void> {
  const { id, projects, streams, ...rest } = worker
  await ops.deleteFrom('workers').where('seen_at', '<', sql<Date>`now() - interval '1 day'`).execute()
  await ops
    .insertInto('workers')
    .values({
      ...rest,
      worker_id: id,
      host: hostname(),
      pid: process.pid,
      projects: [...projects],
      streams: [...streams],
    })
    .execute()
}

/** A sign of life. It signs in again where the server lost what was not logged. */
export async function signOfLife(
  warehouse: Warehouse,
  worker: WorkerSelf,
  state: { busy: number; done: number },
): Promise<void> {
  const { numUpdatedRows } = await warehouse.ops
    .updateTable('workers')
    .set({ ...state, seen_at: sql`now()` })
    .where('worker_id', '=', worker.id)
    .executeTakeFirst()
  if (numUpdatedRows === 0n) await signIn(warehouse, worker)
}

export async function signOut({ ops }: Warehouse, id: string): Promise<void> {
  await ops.deleteFrom('workers').where('worker_id', '=', id).execute()
}

/** The workers that gave a sign of life lately. */
export function presentWorkers({ ops }: Warehouse): Promise<WorkerState[]> {
  return ops
    .selectFrom('workers')
    .select(['worker_id', 'host', 'pid', 'version', 'concurrency', 'started_at', 'seen_at', 'busy', 'done'])
    .where('seen_at', '>', GONE)
    .orderBy('started_at')
    .execute()
}

/** The projects of which workers that are about can read each of these streams. */
export async function projectsInHand(
  { ops }: Warehouse,
  source: string,
  streams: readonly string[],
): Promise<Set<string>> {
  const rows = await ops
    .selectFrom('workers')
    .select(sql<string>`unnest(projects)`.as('project'))
    .distinct()
    .where('seen_at', '>', GONE)
    .where('source', '=', source)
    .where(sql<boolean>`streams @> ${[...streams]}::text[]`)
    .execute()
  return new Set(rows.map(({ project }) => project))
}
