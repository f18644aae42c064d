import { quote } from '../core/identifier.ts'
import type { Log } from '../core/logger.ts'
import { isProcessAlive } from '../core/process-identity.ts'
import type { Queue } from './boss.ts'
import { releaseWindow } from './run-windows.ts'
import { voidRequestsOf } from './shared-budget.ts'
import { SILENT_SECONDS } from './workers.ts'

export const REAP_MS = 2000

interface LostWindow {
  window_id: string
  worker_id: string
  is_silent: boolean
  process: string | null
}

/**
 * Puts windows back whose worker died or gets nowhere with them, and voids the requests that the dead had under way.
 * Every process at the queue does this, so it does not matter which of them are left.
 */
export async function reapWindows(queue: Queue, log: Log): Promise<void> {
  const { warehouse } = queue
  const dead = new Set<string>()
  for (const window of await lostWindows(queue)) {
    const { window_id: id, worker_id: workerId } = window
    const isDead = window.is_silent || isGone(window.process)
    if (isDead) dead.add(workerId)
    const reason = isDead ? 'its worker is gone' : 'its worker got nowhere with it'
    const end = await releaseWindow(queue, id, { workerId, isLoss: true })
    if (end === 'released') log.warn({ window: id, worker: workerId, reason }, 'a window is taken over')
  }
  for (const owner of dead) await voidRequestsOf(warehouse, owner)
}

async function lostWindows({ name, warehouse: { pool, opsSchema } }: Queue): Promise<LostWindow[]> {
  const { rows } = await pool.query<LostWindow & { is_lost: boolean }>(
    `select w.window_id, w.worker_id, k.process,
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
