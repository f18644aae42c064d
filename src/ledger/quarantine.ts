import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import type { Reject } from '../streams/sift.ts'
import type { Transaction, Warehouse } from '../warehouse/connect.ts'
import type { Pair } from './locks.ts'

/**
 * Keeps the rejects of an answer. A row that fails again is counted, not kept twice; a row that failed before and is
 * not among the rejects of the same days any more is marked as resolved.
 */
export async function saveRejects(
  { ops }: Transaction,
  pair: Pair,
  range: Range | undefined,
  rejects: readonly Reject[],
  runId: number,
): Promise<void> {
  const entries = new Map<string, { raw: string; reason: string; from: Day | null; to: Day | null }>()
  for (const { raw, reason, date } of rejects) {
    const [from, to] = [date ?? range?.from ?? null, date ?? range?.to ?? null]
    entries.set(createHash('md5').update(raw).digest('hex'), { raw, reason, from, to })
  }
  const column = (pick: 'raw' | 'reason' | 'from' | 'to') => fingerprints.map((name) => entries.get(name)![pick])
  const fingerprints = [...entries.keys()].sort()
  if (fingerprints.length > 0) {
    await ops
      .insertInto('quarantine')
      .columns(['project_id', 'stream', 'reason', 'raw', 'fingerprint', 'from_date', 'to_date', 'run_id'])
      .expression(
        sql`select ${pair.projectId}::text, ${pair.stream}::text, reject.reason, reject.raw::json, reject.fingerprint,
              reject.from_date, reject.to_date, ${runId}::bigint
            from unnest(${column('reason')}::text[], ${column('raw')}::text[], ${fingerprints}::text[],
                        ${column('from')}::date[], ${column('to')}::date[])
              as reject(reason, raw, fingerprint, from_date, to_date)` as never,
      )
      .onConflict((conflict) =>
        conflict.columns(['project_id', 'stream', 'fingerprint']).doUpdateSet((eb) => ({
          reason: eb.ref('excluded.reason'),
          from_date: eb.ref('excluded.from_date'),
          to_date: eb.ref('excluded.to_date'),
          run_id: eb.ref('excluded.run_id'),
          last_seen_at: sql<Date>`now()`,
          times_seen: sql<number>`quarantine.times_seen + 1`,
          resolved_at: null,
          resolution: null,
        })),
      )
      .execute()
  }
  let gone = ops
    .updateTable('quarantine')
    .set({ resolved_at: sql`now()`, resolution: GONE })
    .where('project_id', '=', pair.projectId)
    .where('stream', '=', pair.stream)
    .where('resolved_at', 'is', null)
  if (range !== undefined) gone = gone.where('from_date', '>=', range.from).where('to_date', '<=', range.to)
  if (fingerprints.length > 0) {
    gone = gone.where(
      sql<boolean>`not exists (select from unnest(${fingerprints}::text[]) still where still = quarantine.fingerprint)`,
    )
  }
  await gone.execute()
}

const GONE = 'no longer in the answer'

/** Rejects without a day of their own belong to a window; once none of its days has rejects any more, they are gone. */
export async function settleWindowRejects({ ops }: Transaction, pair: Pair, range: Range): Promise<void> {
  await ops
    .updateTable('quarantine as q')
    .set({ resolved_at: sql`now()`, resolution: GONE })
    .where('q.project_id', '=', pair.projectId)
    .where('q.stream', '=', pair.stream)
    .where('q.resolved_at', 'is', null)
    .where('q.from_date', '<=', range.to)
    .where('q.to_date', '>=', range.from)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('coverage as c')
            .select('c.date')
            .whereRef('c.project_id', '=', 'q.project_id')
            .whereRef('c.stream', '=', 'q.stream')
            .whereRef('c.date', '>=', 'q.from_date')
            .whereRef('c.date', '<=', 'q.to_date')
            .where('c.state', 'in', ['quarantined', 'held']),
        ),
      ),
    )
    .execute()
}

export interface QuarantineEntry {
  quarantine_id: number
  project_id: string
  stream: string
  reason: string
  raw: unknown
  from_date: Day | null
  to_date: Day | null
  run_id: number
  first_seen_at: Date
  last_seen_at: Date
  times_seen: number
  resolved_at: Date | null
  resolution: string | null
}

export interface QuarantineFilter {
  ids?: readonly number[]
  streams?: readonly string[]
  projects?: readonly string[]
  /** Resolved ones too. */
  all?: boolean
  limit?: number
}

export function listQuarantine({ ops }: Pick<Warehouse, 'ops'>, filter: QuarantineFilter): Promise<QuarantineEntry[]> {
  let query = ops
    .selectFrom('quarantine')
    .select(['quarantine_id', 'project_id', 'stream', 'reason', 'raw', 'from_date', 'to_date', 'run_id'])
    .select(['first_seen_at', 'last_seen_at', 'times_seen', 'resolved_at', 'resolution'])
    .orderBy('quarantine_id')
  const { ids = [], streams = [], projects = [] } = filter
  if (ids.length > 0) query = query.where(sql<boolean>`quarantine_id = any(${[...ids]}::bigint[])`)
  if (streams.length > 0) query = query.where(sql<boolean>`stream = any(${[...streams]}::text[])`)
  if (projects.length > 0) query = query.where(sql<boolean>`project_id = any(${[...projects]}::text[])`)
  if (!filter.all) query = query.where('resolved_at', 'is', null)
  if (filter.limit !== undefined) query = query.limit(filter.limit)
  return query.execute()
}

/** Marks entries as loaded after all. They stay, so that people can see what was. */
export async function resolveEntries({ ops }: Transaction, ids: readonly number[], resolution: string): Promise<void> {
  if (ids.length === 0) return
  await ops
    .updateTable('quarantine')
    .set({ resolved_at: sql`now()`, resolution })
    .where(sql<boolean>`quarantine_id = any(${[...ids]}::bigint[])`)
    .where('resolved_at', 'is', null)
    .execute()
}

/** Days with rejects of which none is open any more are read again: rows that were kept for their sake may be gone. */
export async function settleDays({ ops }: Transaction, pair: Pair): Promise<void> {
  await ops
    .updateTable('coverage as c')
    .set({ state: 'stale' })
    .where('c.project_id', '=', pair.projectId)
    .where('c.stream', '=', pair.stream)
    .where('c.state', '=', 'quarantined')
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('quarantine as q')
            .select('q.quarantine_id')
            .where('q.resolved_at', 'is', null)
            .whereRef('q.project_id', '=', 'c.project_id')
            .whereRef('q.stream', '=', 'c.stream')
            .where(sql<boolean>`(q.from_date is null or c.date between q.from_date and q.to_date)`),
        ),
      ),
    )
    .execute()
}
