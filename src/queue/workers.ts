import { hostname } from 'node:os'
import { sql } from 'kysely'
import { isProcessAlive, processIdentity } from '../core/process-identity.ts'
import type { Warehouse } from '../warehouse/connect.ts'

/* Who takes windows, by heartbeats. */

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
  queue: string
  state: 'working' | 'backing off'
  reason: string | null
}

export const HEARTBEAT_MS = 2000
// Several heartbeats may be missed.
export const SILENT_SECONDS = 9
const FORGOTTEN = sql<Date>`now() - interval '1 day'`

/** Who a worker is. */
export interface WorkerSelf {
  id: string
  version: string
  concurrency: number
  source: string
  queue: string
}

export interface WorkerHealth {
  busy: number
  done: number
  state: 'working' | 'backing off'
  reason: string | null
}

/** Says that the worker is alive and how it does. Inserts its row if it is missing: the table is unlogged, so a crash empties it. */
export async function heartbeat({ ops, redactor }: Warehouse, worker: WorkerSelf, state: WorkerHealth): Promise<void> {
  const health = { ...state, reason: state.reason === null ? null : redactor.text(state.reason) }
  const { id, ...rest } = worker
  await ops
    .insertInto('workers')
    .values({ ...rest, ...health, worker_id: id, host: hostname(), pid: process.pid, process: processIdentity() })
    .onConflict((conflict) =>
      conflict.column('worker_id').doUpdateSet({ ...health, seen_at: sql<Date>`clock_timestamp()` }),
    )
    .execute()
}

export async function signOut({ ops }: Warehouse, id: string): Promise<void> {
  await ops.deleteFrom('workers').where('worker_id', '=', id).execute()
}

/** Workers that were not heard of for a day are forgotten; until then they say which queues are used. */
export async function forgetWorkers({ ops }: Warehouse): Promise<void> {
  await ops.deleteFrom('workers').where('seen_at', '<', FORGOTTEN).execute()
}

/** The workers that were heard of lately and are not seen to be dead. */
export async function liveWorkers({ ops }: Warehouse): Promise<WorkerState[]> {
  const rows = await ops
    .selectFrom('workers')
    .select(['worker_id', 'host', 'pid', 'version', 'concurrency', 'started_at', 'seen_at', 'busy', 'done'])
    .select(['queue', 'state', 'reason', 'process'])
    .where('seen_at', '>', sql<Date>`clock_timestamp() - make_interval(secs => ${SILENT_SECONDS})`)
    .orderBy('started_at')
    .execute()
  return rows.flatMap(({ process, ...worker }) => (isProcessAlive(process) === false ? [] : [worker]))
}
