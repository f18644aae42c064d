import type { Config } from '../core/config/load.ts'
import { quote } from '../core/identifier.ts'
import type { Monotonic } from '../core/waiting.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { runBatch } from '../warehouse/transaction.ts'

/*
 * Removes from the ledger what is over and older than `retention` says. In small batches, each a transaction of its own, so
 * that nobody waits for it and a process that is killed loses nothing; and for a little while after each run, so that the
 * first time after years does not take hours.
 */

export interface PruneOptions {
  now: Date
  monotonic: Monotonic
  limitMs: number
  batch?: number
  signal?: AbortSignal
}

/** Rows removed, by table. */
export type Pruned = Record<string, number>

const BATCH = 2000
// Alerts that cleared and were sent are remembered for as long as the longest quiet period.
const ALERT_DAYS = 7

interface Rule {
  table: string
  days: keyof Config['retention'] | number
  /** A batch of what is older than $1, at most $2 rows. */
  remove: (name: (table: string) => string, schemaName: (table: string) => string) => string
}

const RULES: Rule[] = [
  {
    table: 'restatements',
    days: 'restatements_days',
    remove: (ops) => `delete from ${ops('restatements')} where ctid = any(array(
      select ctid from ${ops('restatements')} where seen_at < $1 order by seen_at limit $2))`,
  },
  {
    table: 'runs',
    days: 'runs_days',
    // Numbers follow time, so the oldest are at the beginning of the key: no other row is looked at.
    remove: (ops) => `delete from ${ops('runs')} where run_id = any(array(
      select run_id from (
        select run_id, started_at from ${ops('runs')} where outcome is not null order by run_id limit $2) oldest
      where started_at < $1))`,
  },
  {
    table: 'quarantine',
    days: 'quarantine_days',
    // What was dismissed stays: by it, the same row is known when it comes again.
    remove: (ops) => `delete from ${ops('quarantine')} where quarantine_id = any(array(
      select quarantine_id from ${ops('quarantine')}
      where resolved_at < $1 and dismissed_at is null order by resolved_at limit $2))`,
  },
  {
    table: 'creations',
    days: 'creations_days',
    // A prompt whose country the service does not send is known by its creation alone: without it, it would be made twice.
    remove: (ops, table) => `delete from ${ops('creations')} where creation_id = any(array(
      select c.creation_id from ${ops('creations')} c where c.settled_at < $1 and c.state <> 'sent'
        and not (c.kind = 'prompt' and c.state <> 'failed' and exists (
          select from ${table('prompts')} p
          where p.project_id = c.project_id and p.prompt_id = c.id and p.country_code is null))
      order by c.settled_at limit $2))`,
  },
  {
    table: 'dead_windows',
    days: 'queue_days',
    remove: (ops) => `delete from ${ops('dead_windows')} where dead_id = any(array(
      select dead_id from ${ops('dead_windows')} where failed_at < $1 order by dead_id limit $2))`,
  },
  {
    table: 'run_windows',
    days: 'queue_days',
    // Results that nobody took: their run is over.
    remove: (ops) => `delete from ${ops('run_windows')} where window_id = any(array(
      select w.window_id from ${ops('run_windows')} w where w.queued_at < $1
        and not exists (select from ${ops('runs')} r where r.run_id = w.run_id and r.outcome is null) limit $2))`,
  },
  {
    table: 'alerts',
    days: ALERT_DAYS,
    remove: (ops) => `delete from ${ops('alerts')} where condition = any(array(
      select condition from ${ops('alerts')} where cleared_at < $1 limit $2))`,
  },
]

export async function pruneLedger(
  { pool, opsSchema, schema }: Warehouse,
  retention: Config['retention'],
  { now, monotonic, limitMs, batch = BATCH, signal }: PruneOptions,
): Promise<Pruned> {
  const until = monotonic() + limitMs
  const pruned: Pruned = {}
  const isLate = () => signal?.aborted === true || monotonic() >= until
  let left = RULES.map(({ table, days, remove }) => {
    const cutoff = now.getTime() - (typeof days === 'number' ? days : retention[days]) * 86_400_000
    const statement = remove(
      (name) => quote(opsSchema, name),
      (name) => quote(schema, name),
    )
    const sql = statement.replace('$1', `to_timestamp(${cutoff / 1000})`).replace('$2', String(batch))
    return { table, sql: `${sql} returning 1`, read: (rows: unknown[]) => rows.length }
  })
  // One batch of each table in one message: mostly there is nothing to remove.
  while (left.length > 0 && !isLate()) {
    const removed = await runBatch<number[]>(pool, ...left)
    for (const [index, { table }] of left.entries())
      if (removed[index]! > 0) pruned[table] = (pruned[table] ?? 0) + removed[index]!
    left = left.filter((_, index) => removed[index]! >= batch)
  }
  return pruned
}

export interface TableSize {
  name: string
  /** With its indexes and what is stored apart from it. */
  bytes: number
  /** As the planner guesses, and null if it does not know yet: counting would read all of it. */
  rows: number | null
}

export interface LedgerSize {
  bytes: number
  tables: TableSize[]
}

/** The size of the tables of the ops schema, the largest first. */
export async function readLedgerSize(warehouse: Warehouse): Promise<LedgerSize> {
  const tables = await readTableSizes(warehouse, warehouse.opsSchema)
  return { bytes: tables.reduce((sum, { bytes }) => sum + bytes, 0), tables }
}

/** The tables of a schema, the largest first; one in parts counts as one. */
export async function readTableSizes({ pool }: Warehouse, schema: string): Promise<TableSize[]> {
  const { rows } = await pool.query<TableSize>(
    `select coalesce(p.relname, c.relname) as name, sum(pg_total_relation_size(c.oid))::double precision as bytes,
       sum(nullif(c.reltuples, -1))::double precision as rows
     from pg_class c left join pg_inherits i on i.inhrelid = c.oid left join pg_class p on p.oid = i.inhparent
     join pg_namespace n on n.oid = coalesce(p.relnamespace, c.relnamespace)
     where n.nspname = $1 and c.relkind in ('r', 'm') group by 1 order by 2 desc, 1`,
    [schema],
  )
  return rows
}
