import { messageOf } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Log } from '../core/logger.ts'
import { isProcessAlive } from '../core/process-identity.ts'
import { inTransaction } from '../warehouse/transaction.ts'
import type { Queue } from './boss.ts'
import { publishResult, releaseWindow } from './run-windows.ts'
import { voidRequestsOf } from './shared-budget.ts'
import { SILENT_SECONDS } from './workers.ts'

export const REAP_MS = 2000
// A window that takes down whoever reads it must not go round for ever.
const MOST_LOSSES = 8

interface AbandonedWindow {
  window_id: string
  worker_id: string
  losses: number
  is_silent: boolean
  process: string | null
  accept_deletes: boolean
}

/**
 * Puts windows back whose worker died or gets nowhere with them, and voids the requests that the dead had under way.
 * Every process at the queue does this, so it does not matter which of them are left.
 */
export async function reapWindows(queue: Queue, log: Log): Promise<void> {
  const { warehouse } = queue
  const dead = new Set<string>()
  for (const window of await abandonedWindows(queue)) {
    const { window_id: id, worker_id: workerId } = window
    const isDead = window.is_silent || isGone(window.process)
    if (isDead) dead.add(workerId)
    const reason = isDead ? 'its worker is gone' : 'its worker got nowhere with it'
    if (window.losses + 1 >= MOST_LOSSES) {
      const reason = `the processes that worked at it vanished ${MOST_LOSSES} times`
      const result = { kind: 'failed' as const, code: 'worker-died' as const, reason }
      const acceptDeletes = window.accept_deletes
      await inTransaction(warehouse, (tx) =>
        publishResult(tx, queue, { id, acceptDeletes }, { result, cost: { seconds: 0, statuses: {} } }),
      ).catch((error: unknown) => log.debug({ reason: messageOf(error) }, 'a window could not be given up'))
      continue
    }
    if (await releaseWindow(queue, id, { workerId, isLoss: true })) {
      log.warn({ window: id, worker: workerId, reason }, 'a window is taken over')
    }
  }
  for (const owner of dead) await voidRequestsOf(warehouse, owner)
}

async function abandonedWindows({ name, warehouse: { pool, opsSchema } }: Queue): Promise<AbandonedWindow[]> {
  const { rows } = await pool.query<AbandonedWindow & { is_lost: boolean }>(
    `select w.window_id, w.worker_id, w.losses, (w.request->>'accept_deletes')::boolean as accept_deletes, k.process,
       coalesce(k.seen_at, w.progress_at) < clock_timestamp() - make_interval(secs => ${SILENT_SECONDS}) as is_silent,
       coalesce(k.seen_at, w.progress_at) < clock_timestamp() - make_interval(secs => ${SILENT_SECONDS})
         or w.stalls_at < clock_timestamp() as is_lost
     from ${quote(opsSchema, 'run_windows')} w left join ${quote(opsSchema, 'workers')} k using (worker_id)
     where w.state = 'taken' and w.queue = $1`,
    [name],
  )
  return rows.filter(({ is_lost, process }) => is_lost || isGone(process))
}

/** True if the worker ran on this machine and is seen to be gone. */
function isGone(process: string | null): boolean {
  return process !== null && process !== '' && isProcessAlive(process) === false
}
