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
const LOOK_MS = 2000

export async function signIn(
  { ops }: Warehouse,
  worker: { id: string; version: string; concurrency: number },
): Promise<void> {
  await ops.deleteFrom('workers').where('seen_at', '<', sql<Date>`now() - interval '1 day'`).execute()
  await ops
    .insertInto('workers')
    .values({
      worker_id: worker.id,
      host: hostname(),
      pid: process.pid,
      version: worker.version,
      concurrency: worker.concurrency,
    })
    .execute()
}

/** A sign of life. It signs in again where the server lost what was not logged. */
export async function signOfLife(
  warehouse: Warehouse,
  worker: { id: string; version: string; concurrency: number },
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
  return ops.selectFrom('workers').selectAll().where('seen_at', '>', GONE).orderBy('started_at').execute()
}

const looked = new WeakMap<Warehouse, { at: number; about: boolean }>()

/** True where somebody else takes windows; looked up every other second at most. */
export async function areWorkersAbout(warehouse: Warehouse): Promise<boolean> {
  const known = looked.get(warehouse)
  if (known !== undefined && Date.now() - known.at < LOOK_MS) return known.about
  const about = (await presentWorkers(warehouse)).length > 0
  looked.set(warehouse, { at: Date.now(), about })
  return about
}
