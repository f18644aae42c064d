import { sql } from 'kysely'
import type { Client } from 'pg'
import { LockedError, TransientError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { openRun, type RunStart } from './runs.ts'

/*
 * One run at a time for a project and stream. The locks are advisory ones of a connection of their own, so they die
 * with their holder, however it dies. The run itself holds one more, by which others see that it is still alive.
 */

export interface HeldRun {
  runId: number
  /** Aborted when the connection that holds the locks is lost: from then on another run may start. */
  lost: AbortSignal
  release(): Promise<void>
}

export interface Pair {
  projectId: string
  stream: string
}

/** Takes the locks of all pairs or of none; shared ones hold off only those that are not. Throws a LockedError that names the holder. */
export async function lockRun(
  warehouse: Warehouse,
  pairs: Pair[],
  { shared = false, ...start }: RunStart & { shared?: boolean },
): Promise<HeldRun> {
  const client = await warehouse.dedicated('visibility-sync run').catch((cause: unknown) => {
    throw new TransientError('the database cannot be reached for the lock of the run', { cause })
  })
  const gone = new AbortController()
  const lose = () => gone.abort(new TransientError('the database connection that holds the lock was lost'))
  client.on('error', lose)
  client.on('end', lose)
  try {
    const names = pairs.map(({ projectId, stream }) => JSON.stringify([warehouse.schema, projectId, stream]))
    const { rows } = await client.query<{ position: number; taken: boolean }>(
      `select position::int - 1 as position, pg_try_advisory_lock${shared ? '_shared' : ''}(hashtextextended(name, 0)) as taken
       from unnest($1::text[]) with ordinality as pair(name, position)`,
      [names],
    )
    const refused = rows.filter(({ taken }) => !taken).map(({ position }) => position)
    if (refused.length > 0) throw await lockedError(client, warehouse, pairs[refused[0]!]!, names[refused[0]!]!)
    await closeAbandonedRuns(warehouse)
    const runId = await openRun(warehouse, start)
    await client.query('select pg_advisory_lock(hashtextextended($1, 0))', [runLock(warehouse, runId)])
    return { runId, lost: gone.signal, release: () => client.end().catch(() => {}) }
  } catch (error) {
    await client.end().catch(() => {})
    throw error
  }
}

function runLock(warehouse: Warehouse, runId: number | string): string {
  return `${warehouse.schema} run ${runId}`
}

async function lockedError(client: Client, warehouse: Warehouse, pair: Pair, name: string): Promise<LockedError> {
  const { rows } = await client.query<{ run_id: number; command: string; host: string; pid: number; started_at: Date }>(
    `with holder as (select pid from pg_locks where ${isLock('hashtextextended($1, 0)')})
     select r.run_id, r.command, r.host, r.pid, r.started_at from ${quote(warehouse.opsSchema, 'runs')} r
     where r.outcome is null and exists (
       select from pg_locks where pid in (select pid from holder) and ${isLock(`hashtextextended($2 || r.run_id, 0)`)})`,
    [name, runLock(warehouse, '')],
  )
  const [run] = rows
  const holder =
    run === undefined
      ? 'another session that is just starting'
      : `run ${run.run_id} (${run.command}, since ${run.started_at.toISOString().slice(0, 19)}Z, process ${run.pid} on ${run.host})`
  return new LockedError(
    `${pair.stream} of ${pair.projectId} is being synced by ${holder}; nothing was read or written`,
  )
}

/** A held advisory lock with this 64-bit key, in this database. */
function isLock(key: string): string {
  return (
    "locktype = 'advisory' and granted and objsubid = 1 and database = (select oid from pg_database where datname = current_database()) " +
    `and ((classid::bigint << 32) | objid::bigint) = ${key}`
  )
}

// A run takes its own lock a moment after it is listed; a younger one is not judged.
const GRACE = '10 seconds'

/** Runs whose process died without a word are closed as interrupted. */
export async function closeAbandonedRuns(warehouse: Warehouse): Promise<void> {
  const alive = sql`exists (select from pg_locks where ${sql.raw(isLock(`hashtextextended('${runLock(warehouse, '')}' || runs.run_id, 0)`))})`
  await warehouse.ops
    .updateTable('runs')
    .set({ outcome: 'interrupted', ended_at: sql`now()`, error: 'the process ended without closing the run' })
    .where('outcome', 'is', null)
    .where(sql<boolean>`started_at < now() - interval '${sql.raw(GRACE)}'`)
    .where(sql<boolean>`not ${alive}`)
    .execute()
}
