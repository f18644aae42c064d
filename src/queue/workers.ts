import { hostname } from 'node:os'
import { type Selectable, sql } from 'kysely'
import { codeOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { isProcessAlive, processIdentity } from '../core/process-identity.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import type { Queue } from './boss.ts'
import { releaseWindow } from './run-windows.ts'
import { voidRequestsOf } from './shared-budget.ts'

/* Workers and their heartbeats, and the fate of windows whose worker is dead. */

export type WorkerState = Omit<Selectable<OpsTables['workers']>, 'source' | 'process'>

export const HEARTBEAT_MS = 2000
// Several heartbeats may be missed.
const SILENT_SECONDS = 9

export type WorkerSelf = Pick<WorkerState, 'version' | 'concurrency' | 'queue'> & { id: string; source: string }

type WorkerHealth = Pick<WorkerState, 'busy' | 'done' | 'state' | 'reason'>

/** Inserts the row if it is missing: the table is unlogged, so a crash empties it. */
export async function heartbeat({ db, redactor }: Warehouse, worker: WorkerSelf, state: WorkerHealth): Promise<void> {
  const health = { ...state, reason: state.reason === null ? null : redactor.text(state.reason) }
  const { id, ...rest } = worker
  await db
    .insertInto('ops.workers')
    .values({ ...rest, ...health, worker_id: id, host: hostname(), pid: process.pid, process: processIdentity() })
    .onConflict((known) => known.column('worker_id').doUpdateSet({ ...health, seen_at: sql`clock_timestamp()` }))
    .execute()
}

export async function signOut({ db }: Warehouse, id: string): Promise<void> {
  await db.deleteFrom('ops.workers').where('worker_id', '=', id).execute()
}

/** Until then they say which queues are used. */
export async function forgetWorkers({ db }: Warehouse): Promise<void> {
  await db.deleteFrom('ops.workers').where('seen_at', '<', sql<Date>`now() - interval '1 day'`).execute()
}

export async function liveWorkers({ db }: Warehouse): Promise<WorkerState[]> {
  const rows = await db
    .selectFrom('ops.workers')
    .selectAll()
    .where('seen_at', '>', sql<Date>`clock_timestamp() - make_interval(secs => ${SILENT_SECONDS})`)
    .orderBy('started_at')
    .execute()
    .catch((error: unknown) => {
      // A standby has no rows of an unlogged table.
      if (codeOf(error) === '0A000') return []
      throw error
    })
  return rows.flatMap(({ process, source: _source, ...worker }) => (isProcessAlive(process) === false ? [] : [worker]))
}

export const REAP_MS = 2000

/**
 * Puts windows back whose worker died or gets nowhere with them, and voids the requests that the dead had under way.
 * Every process at the queue does this, so it does not matter which of them are left.
 */
export async function reapWindows(queue: Queue, log: Log): Promise<void> {
  const { name, warehouse } = queue
  const { rows: taken } = await sql<TakenState>`
    select w.window_id as id, w.worker_id as "workerId", k.process, w.stalls_at < clock_timestamp() as stalls,
      coalesce(k.seen_at, w.progress_at) < clock_timestamp() - make_interval(secs => ${SILENT_SECONDS}) as "isSilent"
    from ops.run_windows w left join ops.workers k using (worker_id)
    where w.state = 'taken' and w.queue = ${name}`.execute(warehouse.db)
  const dead = new Set<string>()
  for (const { id, workerId, process, isSilent, stalls } of taken) {
    // Seen to be gone, if it ran on this machine.
    const isDead = isSilent || (process !== null && process !== '' && isProcessAlive(process) === false)
    if (!isDead && !stalls) continue
    if (isDead) dead.add(workerId)
    const reason = isDead ? 'its worker is gone' : 'its worker made no progress'
    const end = await releaseWindow(queue, id, { workerId, isLoss: true })
    if (end === 'released') log.warn({ window: id, worker: workerId, reason }, 'a window is taken over')
  }
  for (const owner of dead) await voidRequestsOf(warehouse, owner)
}

interface TakenState {
  id: string
  workerId: string
  process: string | null
  isSilent: boolean
  stalls: boolean
}
