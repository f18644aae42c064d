import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import type PgBoss from 'pg-boss'
import type { Config } from '../core/config/load.ts'
import { codeOf, messageOf, UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Log } from '../core/logger.ts'
import { helpOn } from '../core/text.ts'
import type { StreamSet } from '../streams/registry.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { withRetries } from '../warehouse/retry.ts'
import { inTransaction, type Transaction } from '../warehouse/transaction.ts'

/*
 * pg-boss in the same Postgres, by its public interface alone. It hands each job to one process at a time; everything
 * else (who has which window, who is alive, what came of it) is in tables of our own.
 */

/** For processes with one configuration. */
export type Queue = Awaited<ReturnType<typeof openQueue>>

// Only the last resort: a window whose worker is gone or stuck is taken over long before.
const EXPIRE_SECONDS = 4 * 3600
const MAINTENANCE_SECONDS = 60
const DELETE_LOCK_TIMEOUT_MS = 2000
const PRIVILEGE = '42501'

export function queueSchema(warehouse: Warehouse): string {
  return `${warehouse.schema}_queue`
}

/** False if no process ever used the queue of this warehouse. */
export async function hasQueue(warehouse: Warehouse): Promise<boolean> {
  const { rows } = await sql<{ there: boolean }>`
    select to_regclass(${quote(queueSchema(warehouse), 'version')}) is not null as there`.execute(warehouse.db)
  return rows[0]!.there
}

export async function openQueue(warehouse: Warehouse, name: string, log: Log, signal?: AbortSignal) {
  return withRetries(warehouse, signal, async () => {
    const api = await createBoss(warehouse, { executeSql: (text, values) => warehouse.pool.query(text, values) })
    api.on('error', (error) => log.debug({ reason: messageOf(error) }, 'maintenance of the queue'))
    const close = () => api.stop({ graceful: false, wait: true, close: false })
    try {
      await api.start()
      await api.createQueue(name, { name, policy: 'standard', retryLimit: 0, expireInSeconds: EXPIRE_SECONDS })
      // By this others see that it is used.
      await api.updateQueue(name, { name, expireInSeconds: EXPIRE_SECONDS })
      return { name, api, warehouse, close }
    } catch (error) {
      // pg-boss starts timers, which would keep the process alive.
      await close().catch(() => {})
      if (codeOf(error) !== PRIVILEGE) throw error
      throw new UsageError(
        `the database role may not set up the queue (${messageOf(error)}). pg-boss makes its own schema ${queueSchema(warehouse)}: ` +
          'run "npx visibility-sync migrate" once as a role that may create schemas, or grant "create on database" to this one ' +
          `for that; ${helpOn('workers')} lists the grants`,
        { cause: error },
      )
    }
  })
}

async function createBoss(warehouse: Warehouse, db: PgBoss.Db): Promise<PgBoss> {
  const { default: Boss } = await import('pg-boss')
  return new Boss({
    db,
    schema: queueSchema(warehouse),
    schedule: false,
    maintenanceIntervalSeconds: MAINTENANCE_SECONDS,
  })
}

export function within({ client }: Transaction): { db: PgBoss.Db } {
  return { db: { executeSql: (text, values) => client.query(text, values) } }
}

/** `fetch` hides the errors of the database, so they are kept and thrown here. */
export async function fetchJobs({ api, name }: Queue, tx: Transaction, most: number): Promise<string[]> {
  let failure: { error: unknown } | undefined
  const { db } = within(tx)
  const watched: PgBoss.Db = {
    executeSql: (text, values) =>
      db.executeSql(text, values).catch((error: unknown) => {
        failure = { error }
        throw error
      }),
  }
  const jobs = await api.fetch(name, { batchSize: most, db: watched })
  if (failure !== undefined) throw failure.error
  return jobs.map(({ id }) => id)
}

// Names that earlier versions used.
const OLD_QUEUES = ['windows', 'dead_windows']

/** Queues of other configurations that nobody used for a day are deleted. */
export async function pruneQueues({ api, name, warehouse }: Queue, log: Log): Promise<void> {
  const queues = (await api.getQueues()).filter(
    (queue) => queue.name !== name && (queue.name.startsWith('windows_') || OLD_QUEUES.includes(queue.name)),
  )
  const { rows } = await sql<{ other: string }>`
    select q.name as other
    from unnest(${queues.map((queue) => queue.name)}::text[], ${queues.map((queue) => queue.updatedOn)}::timestamptz[]) q(name, used_at)
    where used_at < now() - interval '1 day'
      and q.name not in (select queue from ops.workers union select queue from ops.run_windows)`.execute(warehouse.db)
  for (const { other } of rows) {
    // It needs the table of all jobs for itself for a moment: if others work, another time will do.
    const work = async (tx: Transaction) => {
      const boss = await createBoss(warehouse, within(tx).db)
      await boss.purgeQueue(other)
      await boss.deleteQueue(other)
    }
    await inTransaction(warehouse, work, undefined, { lockTimeoutMs: DELETE_LOCK_TIMEOUT_MS }).then(
      () => log.info({ queue: other }, 'a queue that nobody used was deleted'),
      (error: unknown) => log.debug({ queue: other, reason: messageOf(error) }, 'a queue was not deleted'),
    )
  }
}

// Raised whenever the same answer would be loaded as other rows than before, or results are written in another form.
const LOADING_VERSION = 4

/** The settings that decide which rows a window becomes. */
interface QueueIdentity {
  config: Config
  streams: StreamSet
  /** The address of the service, as the warehouse remembers it. */
  sourceAddress: string
  projects: readonly string[]
}

/**
 * A queue for each configuration: processes whose settings would load different rows have different queues, so none can
 * do a window of the other. Keys are left out: they decide who may read, not which rows.
 */
export function queueNameOf({ config, streams: streamSet, sourceAddress, projects }: QueueIdentity): string {
  const streams = streamSet.all.map(({ name, by, table, columns, key }) => ({ name, by, table, columns, key }))
  const fingerprint = {
    version: LOADING_VERSION,
    source: sourceAddress,
    projects: [...projects].sort(),
    streams: streams.sort((a, b) => (a.name < b.name ? -1 : 1)),
    reports: [...config.reports].sort((a, b) => (a.name < b.name ? -1 : 1)),
    ...(config.custom_streams.length > 0 && { custom_streams: config.custom_streams }),
    labels: config.labels,
    max_bad_share: config.max_bad_share,
  }
  return `windows_${createHash('sha256').update(JSON.stringify(fingerprint)).digest('hex').slice(0, 16)}`
}
