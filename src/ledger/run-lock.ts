import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { type Selectable, sql } from 'kysely'
import { LockedError, messageOf, TransientError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { isProcessAlive, processIdentity } from '../core/process-identity.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import { monotonic, sleep, withTimeLimit } from '../core/waiting.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import { withRetries } from '../warehouse/retry.ts'
import { inTransaction, type Transaction } from '../warehouse/transaction.ts'
import { openRun, type RunStart } from './runs.ts'

/*
 * One run at a time for a project and stream, by leases in a table. The run renews its lease while it is alive. A lease
 * that was not renewed in time, or whose process is seen to be gone, may be taken over; the run that lost it finds out at
 * its next renewal and stops. Until then its loads do no harm: each is atomic, and of two answers the one that was asked for
 * later stays, whichever run asked.
 *
 * Session locks of Postgres would be simpler, but they end with a restart of the server, and a pooler in transaction mode
 * leaves them on connections that others get.
 */

export interface RunLock {
  runId: number
  /** Aborted, with the reason, when another run took over or the database was away for too long. */
  lost: AbortSignal
  release(): Promise<void>
}

export interface LockOptions {
  log: Log
  signal?: AbortSignal | undefined
  /** Shared leases hold off only exclusive ones. */
  shared?: boolean
  /** The work of the holder of a lease, for the error; a sync by default. */
  activity?: (projectStream: ProjectStream) => string
}

const SYNCING = ({ projectId, stream }: ProjectStream) => `${stream} of ${projectId} is being synced`

const LEASE_SECONDS = 45
const RENEW_MS = 5000
// How long a holder may be silent before a newcomer waits for its lease to expire instead of giving up at once.
const SILENT_SECONDS = 12
const AWAY_RETRY_MS = 500
const RENEWAL_DEADLINE_MS = 10_000

/** Takes the leases of all streams of projects, or of none. Throws a LockedError that names the holder. */
export async function lockRun(
  warehouse: Warehouse,
  projectStreams: readonly ProjectStream[],
  start: RunStart,
  { log, signal, shared = false, activity = SYNCING }: LockOptions,
): Promise<RunLock> {
  const token = randomUUID()
  let isLogged = false
  for (;;) {
    const tryOnce = () => tryLock(warehouse, projectStreams, { ...start, token, shared })
    const attempt = await withRetries(warehouse, signal, tryOnce)
    if ('runId' in attempt) return renewLock(warehouse, attempt.runId)
    if (attempt.silentSeconds < SILENT_SECONDS)
      throw new LockedError(`${activity(attempt.projectStream)} by ${attempt.holder}; nothing was read or written`)
    if (!isLogged) log.warn({ holder: attempt.holder }, 'waiting for the lease of a run that is silent')
    isLogged = true
    await sleep(1000, signal)
  }
}

type Attempt = { runId: number } | { projectStream: ProjectStream; holder: string; silentSeconds: number }

async function tryLock(
  warehouse: Warehouse,
  projectStreams: readonly ProjectStream[],
  { token, shared, ...start }: RunStart & { token: string; shared: boolean },
): Promise<Attempt> {
  const columns = [
    projectStreams.map(({ projectId }) => projectId),
    projectStreams.map(({ stream }) => stream),
  ] as const
  return inTransaction(warehouse, async (tx) => {
    await lockLeases(tx)
    const before = await tx.db
      .selectFrom('ops.runs')
      .select('run_id')
      .where('lock_token', '=', token)
      .executeTakeFirst()
    if (before !== undefined) return { runId: before.run_id }
    await refuseOlderVersions(tx, projectStreams)
    await closeDead(tx)
    const holder = await findHolder(tx, columns, shared)
    if (holder !== undefined) return holder
    const runId = await openRun(tx, { ...start, process: processIdentity(), lock_token: token }, LEASE_SECONDS)
    await sql`
      insert into ops.run_leases (project_id, stream, run_id, is_shared)
      select project_id, stream, ${runId}, ${shared}
      from unnest(${columns[0]}::text[], ${columns[1]}::text[]) as projectStream(project_id, stream)`.execute(tx.db)
    return { runId }
  })
}

/** Taking leases is rare and short, so all who take any go one after the other. */
async function lockLeases({ db, schema }: Transaction): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtextextended(${`${schema} run leases`}, 2))`.execute(db)
}

/** Versions before 1.0.0 hold a session lock for each project and stream. */
async function refuseOlderVersions(
  { db, schema }: Transaction,
  projectStreams: readonly ProjectStream[],
): Promise<void> {
  const names = projectStreams.map(({ projectId, stream }) => JSON.stringify([schema, projectId, stream]))
  const { rows } = await sql<{ position: number }>`
    select position::int from unnest(${names}::text[]) with ordinality as projectStream(name, position)
    where not pg_try_advisory_xact_lock_shared(hashtextextended(name, 0)) limit 1`.execute(db)
  if (rows[0] === undefined) return
  const { projectId, stream } = projectStreams[rows[0].position - 1]!
  throw new LockedError(
    `${stream} of ${projectId} is being synced by an older version of visibility-sync; nothing was read or written`,
  )
}

type Holder = Pick<Selectable<OpsTables['runs']>, 'run_id' | 'command' | 'host' | 'pid' | 'started_at'> & {
  projectId: string
  stream: string
  silentSeconds: number
}

async function findHolder(
  { db }: Transaction,
  [projectIds, streams]: readonly [string[], string[]],
  shared: boolean,
): Promise<Exclude<Attempt, { runId: number }> | undefined> {
  const { rows } = await sql<Holder>`
    select l.project_id as "projectId", l.stream, r.run_id, r.command, r.host, r.pid, r.started_at,
      extract(epoch from clock_timestamp() - (r.lease_expires_at - make_interval(secs => ${LEASE_SECONDS})))::float8 as "silentSeconds"
    from ops.run_leases l join ops.runs r using (run_id)
    where (l.project_id, l.stream) in (select * from unnest(${projectIds}::text[], ${streams}::text[]))
      and r.outcome is null and not (l.is_shared and ${shared})
    order by "silentSeconds" limit 1`.execute(db)
  if (rows[0] === undefined) return undefined
  const { projectId, stream, run_id, command, host, pid, started_at, silentSeconds } = rows[0]
  const since = `${started_at.toISOString().slice(0, 19)}Z`
  const holder = `run ${run_id} (${command}, since ${since}, process ${pid} on ${host})`
  return { projectStream: { projectId, stream }, holder, silentSeconds }
}

/** Closes runs whose process died as interrupted. */
export async function closeAbandonedRuns(warehouse: Warehouse): Promise<void> {
  await inTransaction(warehouse, async (tx) => {
    await lockLeases(tx)
    await closeDead(tx)
  })
}

// A run of an older version has no lease: its process is gone if nothing was heard of it for a day.
const OLD_RUN = "started_at < now() - interval '1 day'"

async function closeDead({ db }: Transaction): Promise<void> {
  const open = await db
    .selectFrom('ops.runs')
    .select(['run_id', 'process'])
    .select(sql<boolean>`coalesce(lease_expires_at < clock_timestamp(), ${sql.raw(OLD_RUN)})`.as('expired'))
    .where('outcome', 'is', null)
    .execute()
  const isDead = (run: (typeof open)[0]) => run.expired || (run.process !== '' && isProcessAlive(run.process) === false)
  const dead = open.filter(isDead).map(({ run_id }) => run_id)
  if (dead.length === 0) return
  const end = { outcome: 'interrupted', error: 'the process ended without closing the run' } as const
  const update = db.updateTable('ops.runs').set({ ...end, ended_at: sql`now()` })
  await update.where('run_id', 'in', dead).where('outcome', 'is', null).execute()
  await db.deleteFrom('ops.run_leases').where('run_id', 'in', dead).execute()
}

function renewLock(warehouse: Warehouse, runId: number): RunLock {
  const lost = new AbortController()
  const released = new AbortController()
  const renewing = renewUntil(warehouse, runId, lost, released.signal)
  return {
    runId,
    lost: lost.signal,
    async release() {
      released.abort()
      await renewing
      // A database that is away loses nothing: the lease expires by itself.
      const release = warehouse.db.deleteFrom('ops.run_leases').where('run_id', '=', runId)
      await withDeadline(release.execute()).catch(() => {})
    },
  }
}

async function renewUntil(
  warehouse: Warehouse,
  runId: number,
  lost: AbortController,
  released: AbortSignal,
): Promise<void> {
  let awaySince: number | undefined
  while (!lost.signal.aborted) {
    const pause = delay(awaySince === undefined ? RENEW_MS : AWAY_RETRY_MS, true, { signal: released, ref: false })
    if (!(await pause.catch(() => false))) return
    try {
      const isOurs = await withDeadline(renew(warehouse, runId))
      awaySince = undefined
      if (!isOurs) lost.abort(new LockedError('another run took over, because this one was silent for too long'))
    } catch (cause) {
      awaySince ??= monotonic()
      const seconds = Math.round((monotonic() - awaySince) / 1000)
      if (seconds * 1000 < warehouse.patienceMs) continue
      lost.abort(new TransientError(`the database has been away for ${seconds} s: ${messageOf(cause)}`, { cause }))
    }
  }
}

/** False if the run was closed by another one, which took it for dead. */
async function renew({ db }: Warehouse, runId: number): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('ops.runs')
    .set({ lease_expires_at: sql<Date>`clock_timestamp() + make_interval(secs => ${LEASE_SECONDS})` })
    .where('run_id', '=', runId)
    .where('outcome', 'is', null)
    .executeTakeFirst()
  return numUpdatedRows > 0n
}

/** A frozen connection must not stop the renewals: they go on over another one. */
function withDeadline<T>(work: Promise<T>): Promise<T> {
  const seconds = RENEWAL_DEADLINE_MS / 1000
  return withTimeLimit(RENEWAL_DEADLINE_MS, work, () => new TransientError(`no answer within ${seconds} s`))
}
