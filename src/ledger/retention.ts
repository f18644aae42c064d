import { type RawBuilder, sql } from 'kysely'
import type { Config } from '../core/config/load.ts'
import { DAY_MS } from '../core/day.ts'
import type { Monotonic } from '../core/waiting.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { batch } from '../warehouse/database.ts'

/*
 * Removes from the ledger what is over and older than `retention` says. In small batches, each a transaction of its own, so
 * that nobody waits for it and a process that is killed loses nothing; and for a little while after each run, so that the
 * first time after years does not take hours.
 */

interface PruneOptions {
  now: Date
  monotonic: Monotonic
  limitMs: number
  batch?: number
  signal?: AbortSignal | undefined
}

const BATCH = 2000
// Alerts that cleared and were sent are remembered for as long as the longest quiet period.
const ALERT_DAYS = 7

interface Scope {
  cutoff: Date
  batch: number
}

interface Rule {
  table: string
  key: string
  days: keyof Config['retention'] | number
  /** Which rows of the table t are old, in an order that an index has. */
  old: (scope: Scope) => RawBuilder<unknown>
}

const RULES: Rule[] = [
  {
    table: 'restatements',
    key: 'ctid',
    days: 'restatements_days',
    old: ({ cutoff }) => sql`seen_at < ${cutoff} order by seen_at`,
  },
  {
    table: 'runs',
    key: 'run_id',
    days: 'runs_days',
    // Ids grow with time, so the oldest are at the beginning of the key, and no other row is read.
    old: ({ cutoff, batch }) => sql`started_at < ${cutoff}
      and run_id = any(array(select run_id from ops.runs where outcome is not null order by run_id limit ${batch}))`,
  },
  {
    table: 'quarantine',
    key: 'quarantine_id',
    days: 'quarantine_days',
    // Dismissed rows stay, so that the same row is recognized when it comes again.
    old: ({ cutoff }) => sql`resolved_at < ${cutoff} and dismissed_at is null order by resolved_at`,
  },
  {
    table: 'creations',
    key: 'creation_id',
    days: 'creations_days',
    // A prompt whose country the service does not send is known by its creation alone. Without it, the prompt would be created twice.
    old: ({ cutoff }) => sql`settled_at < ${cutoff} and state <> 'sent'
      and not (kind = 'prompt' and state <> 'failed' and exists (
        select from data.prompts p
        where p.project_id = t.project_id and p.prompt_id = t.id and p.country_code is null))
      order by settled_at`,
  },
  {
    table: 'dead_windows',
    key: 'dead_id',
    days: 'queue_days',
    old: ({ cutoff }) => sql`failed_at < ${cutoff} order by dead_id`,
  },
  {
    table: 'run_windows',
    key: 'window_id',
    days: 'queue_days',
    // Results whose run ended before it read them.
    old: ({ cutoff }) => sql`queued_at < ${cutoff}
      and not exists (select from ops.runs r where r.run_id = t.run_id and r.outcome is null)`,
  },
  { table: 'alerts', key: 'condition', days: ALERT_DAYS, old: ({ cutoff }) => sql`cleared_at < ${cutoff}` },
  { table: 'daily_requests', key: 'ctid', days: 30, old: ({ cutoff }) => sql`day < ${cutoff}` },
]

/** Gives how many rows were removed, by table. */
export async function pruneLedger(
  { db }: Warehouse,
  retention: Config['retention'],
  { now, monotonic, limitMs, batch: most = BATCH, signal }: PruneOptions,
): Promise<Record<string, number>> {
  const until = monotonic() + limitMs
  const pruned: Record<string, number> = {}
  const isLate = () => signal?.aborted === true || monotonic() >= until
  let left = RULES.map(({ table, key, days, old }) => {
    const keptMs = (typeof days === 'number' ? days : retention[days]) * DAY_MS
    const [id, name] = [sql.id(key), sql.table(`ops.${table}`)]
    const oldest = sql`select ${id} from ${name} t where ${old({ cutoff: new Date(now.getTime() - keptMs), batch: most })} limit ${most}`
    return { table, prune: sql`delete from ${name} where ${id} = any(array(${oldest})) returning 1` }
  })
  // One batch of each table in one message: mostly there is nothing to remove.
  while (left.length > 0 && !isLate()) {
    const removed = await batch<unknown[]>(db, ...left.map(({ prune }) => prune))
    for (const [index, { table }] of left.entries()) {
      const { length } = removed[index]!
      if (length > 0) pruned[table] = (pruned[table] ?? 0) + length
    }
    left = left.filter((_, index) => removed[index]!.length >= most)
  }
  return pruned
}

interface TableSize {
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

export async function readLedgerSize(warehouse: Warehouse): Promise<LedgerSize> {
  const tables = await readTableSizes(warehouse, warehouse.opsSchema)
  return { bytes: tables.reduce((sum, { bytes }) => sum + bytes, 0), tables }
}

/** The tables of a schema, the largest first; one in parts counts as one. */
export async function readTableSizes({ db }: Warehouse, schema: string): Promise<TableSize[]> {
  const { rows } = await sql<TableSize>`
    select coalesce(p.relname, c.relname) as name, sum(pg_total_relation_size(c.oid))::double precision as bytes,
      sum(nullif(c.reltuples, -1))::double precision as rows
    from pg_class c left join pg_inherits i on i.inhrelid = c.oid left join pg_class p on p.oid = i.inhparent
    join pg_namespace n on n.oid = coalesce(p.relnamespace, c.relnamespace)
    where n.nspname = ${schema} and c.relkind in ('r', 'm') group by 1 order by 2 desc, 1`.execute(db)
  return rows
}
