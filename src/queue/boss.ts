import type PgBoss from 'pg-boss'
import { messageOf, TransientError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Log } from '../core/logger.ts'
import { inTransaction, isLostConnection, type Transaction, type Warehouse } from '../warehouse/connect.ts'

/* pg-boss in the same Postgres: retries with backoff, expiry of those who died, and dead letters are its own. */

/** An open queue. Everything that touches pg-boss or its tables goes through here and jobs.ts. */
export interface Boss {
  api: PgBoss
  warehouse: Warehouse
  /** The quoted name of the table of jobs. */
  jobs: string
  close(): Promise<void>
}

export const WINDOWS = 'windows'
export const DEAD = 'dead_windows'
/** A job that was not heard of for so long is taken over; whoever works at it says so more often. */
const EXPIRE_SECONDS = 15
const RETRIES = 3
const MAINTENANCE_SECONDS = 3
// Any number, as long as it stays the same: processes that start at once set the queue up one after the other.
const SETUP_LOCK = 7_265_190_402

export function queueSchema(warehouse: Warehouse): string {
  return `${warehouse.schema}_queue`
}

/** False where no process ever used the queue of this warehouse. */
export async function hasQueue(warehouse: Warehouse): Promise<boolean> {
  const { rows } = await warehouse.pool.query<{ there: boolean }>('select to_regclass($1) is not null as there', [
    quote(queueSchema(warehouse), 'job'),
  ])
  return rows[0]!.there
}

/** Opens the queue, and sets it up where it is not there yet. A lost connection is an error that may pass. */
export async function openBoss(warehouse: Warehouse, log: Log): Promise<Boss> {
  const { default: Boss } = await import('pg-boss')
  const schema = queueSchema(warehouse)
  const api = new Boss({
    db: { executeSql: (text, values) => warehouse.pool.query(text, values) },
    schema,
    schedule: false,
    supervise: true,
    maintenanceIntervalSeconds: MAINTENANCE_SECONDS,
    // A job that is done is of no more use: its result went to the run.
    archiveCompletedAfterSeconds: 600,
    archiveFailedAfterSeconds: 600,
    deleteAfterHours: 24,
  })
  api.on('error', (error) => log.warn({ reason: messageOf(error) }, 'the queue'))
  const jobs = quote(schema, 'job')
  const close = () => api.stop({ graceful: false, wait: true, close: false })
  const setUp = inTransaction(warehouse, async ({ client }) => {
    await client.query('select pg_advisory_xact_lock($1)', [SETUP_LOCK])
    await makeTables(warehouse, Boss.getConstructionPlans(schema))
    await api.start()
    await api.createQueue(DEAD, { name: DEAD, policy: 'standard', retentionDays: 365 })
    await api.createQueue(WINDOWS, {
      name: WINDOWS,
      policy: 'stately',
      retryLimit: RETRIES,
      retryDelay: 1,
      retryBackoff: true,
      expireInSeconds: EXPIRE_SECONDS,
      retentionDays: 14,
      deadLetter: DEAD,
    })
    await makeIndex(warehouse, jobs)
  })
  await setUp.catch(async (error: unknown) => {
    // What was begun has timers of its own, which would keep the process alive.
    await close().catch(() => {})
    throw isLostConnection(error) ? new TransientError(messageOf(error), { cause: error }) : error
  })
  return { api, warehouse, jobs, close }
}

/** A role that may not make schemas uses one that was made for it; left to itself, pg-boss would insist on the right. */
async function makeTables(warehouse: Warehouse, plan: string): Promise<void> {
  const schema = queueSchema(warehouse)
  const { rows } = await warehouse.pool.query<{ schema: boolean; tables: boolean }>(
    'select to_regnamespace($1) is not null as schema, to_regclass($2) is not null as tables',
    [quote(schema), quote(schema, 'version')],
  )
  if (rows[0]!.tables) return
  if (!rows[0]!.schema) await warehouse.pool.query(`create schema ${quote(schema)}`)
  await warehouse.pool.query(plan.replace(/create schema if not exists \w+\s*;/i, ''))
}

/** Jobs are taken by priority; without an index, each look at a long queue would sort all of it. */
async function makeIndex(warehouse: Warehouse, jobs: string): Promise<void> {
  // Asked first, because making it waits for whoever writes to the table, even where it is there.
  const { rows } = await warehouse.pool.query<{ there: boolean }>('select to_regclass($1) is not null as there', [
    quote(queueSchema(warehouse), 'job_by_priority'),
  ])
  if (rows[0]!.there) return
  await warehouse.pool.query(
    `create index if not exists job_by_priority on ${jobs} (priority desc, created_on, id) where state < 'active'`,
  )
}

/** Lets pg-boss work inside a transaction of ours. */
export function within({ client }: Transaction): { db: PgBoss.Db } {
  return { db: { executeSql: (text, values) => client.query(text, values) } }
}
