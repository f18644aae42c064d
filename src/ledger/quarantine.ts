import { createHash } from 'node:crypto'
import { type Selectable, sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { Reject } from '../rows/sift.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/** The rejects of an answer by their fingerprints, and how many of them are not dismissed. */
export interface IdentifiedRejects {
  byFingerprint: ReadonlyMap<string, IdentifiedReject>
  undismissed: number
}

interface IdentifiedReject {
  raw: string
  reason: string
  date: Day | undefined
  /** How many rows of the answer are identical to it. */
  occurrences: number
}

/** A reject that was dismissed counts as if the answer did not have it; another version of it has another fingerprint. */
export async function identifyRejects(
  { ops, redactor }: Transaction,
  projectStream: ProjectStream,
  rejects: readonly Reject[],
): Promise<IdentifiedRejects> {
  const byFingerprint = new Map<string, IdentifiedReject>()
  if (rejects.length === 0) return { byFingerprint, undismissed: 0 }
  for (const { raw, reason, date } of rejects) {
    const text = redactor.json(raw)
    const fingerprint = createHash('md5').update(text).digest('hex')
    const occurrences = (byFingerprint.get(fingerprint)?.occurrences ?? 0) + 1
    byFingerprint.set(fingerprint, { raw: text, reason: redactor.text(reason), date, occurrences })
  }
  const dismissed = await ops
    .selectFrom('quarantine')
    .select('fingerprint')
    .where('project_id', '=', projectStream.projectId)
    .where('stream', '=', projectStream.stream)
    .where('dismissed_at', 'is not', null)
    .where('fingerprint', '=', sql<string>`any(${[...byFingerprint.keys()]}::text[])`)
    .execute()
  const ignored = new Set(dismissed.map(({ fingerprint }) => fingerprint))
  const open = [...byFingerprint].filter(([fingerprint]) => !ignored.has(fingerprint))
  return { byFingerprint, undismissed: open.reduce((sum, [, { occurrences }]) => sum + occurrences, 0) }
}

export interface RejectsOrigin {
  /** The days of the answer; without them it was a list. */
  range?: Range
  runId: number
  /** Days on which the answer was held for review: nothing is resolved there. */
  heldDays?: ReadonlySet<Day> | undefined
  /** True if a list was held for review. */
  isHeld?: boolean
}

/**
 * Stores the rejects of an answer. Identical rows share an entry, which counts the occurrences in the answers of the latest run.
 * A row that failed before and is not among the rejects of the same days any more is marked as resolved.
 */
export async function saveRejects(
  { ops }: Transaction,
  projectStream: ProjectStream,
  { byFingerprint }: IdentifiedRejects,
  { range, runId, heldDays, isHeld = false }: RejectsOrigin,
): Promise<void> {
  const fingerprints = [...byFingerprint.keys()].sort()
  const entries = fingerprints.map((fingerprint) => byFingerprint.get(fingerprint)!)
  if (fingerprints.length > 0) {
    const reasons = entries.map(({ reason }) => reason)
    const raws = entries.map(({ raw }) => raw)
    const from = entries.map(({ date }) => date ?? range?.from ?? null)
    const to = entries.map(({ date }) => date ?? range?.to ?? null)
    const occurrences = entries.map((entry) => entry.occurrences)
    await ops
      .insertInto('quarantine')
      .columns([
        'project_id',
        'stream',
        'reason',
        'raw',
        'fingerprint',
        'from_date',
        'to_date',
        'occurrences',
        'run_id',
      ])
      .expression(
        sql`select ${projectStream.projectId}::text, ${projectStream.stream}::text, reject.reason, reject.raw::json, reject.fingerprint,
              reject.from_date, reject.to_date, reject.occurrences, ${runId}::bigint
            from unnest(${reasons}::text[], ${raws}::text[], ${fingerprints}::text[], ${from}::date[], ${to}::date[], ${occurrences}::int[])
              as reject(reason, raw, fingerprint, from_date, to_date, occurrences)` as never,
      )
      .onConflict((conflict) =>
        conflict.columns(['project_id', 'stream', 'fingerprint']).doUpdateSet((eb) => ({
          reason: eb.ref('excluded.reason'),
          // A row without a day may come in several windows of a run.
          from_date: sql<Day>`case when ${ofSameRun} then least(quarantine.from_date, excluded.from_date) else excluded.from_date end`,
          to_date: sql<Day>`case when ${ofSameRun} then greatest(quarantine.to_date, excluded.to_date) else excluded.to_date end`,
          occurrences: sql<number>`case when ${ofSameRun} then quarantine.occurrences else 0 end + excluded.occurrences`,
          run_id: eb.ref('excluded.run_id'),
          last_seen_at: sql<Date>`now()`,
          times_seen: sql<number>`quarantine.times_seen + 1`,
          resolved_at: sql<Date | null>`case when quarantine.dismissed_at is not null then quarantine.resolved_at end`,
          resolution: sql<string | null>`case when quarantine.dismissed_at is not null then quarantine.resolution end`,
        })),
      )
      .execute()
  }
  if (isHeld) return
  let gone = ops
    .updateTable('quarantine')
    .set({ resolved_at: sql`now()`, resolution: GONE })
    .where('project_id', '=', projectStream.projectId)
    .where('stream', '=', projectStream.stream)
    .where('resolved_at', 'is', null)
    .where('fingerprint', '<>', sql<string>`all(${fingerprints}::text[])`)
  if (range !== undefined) gone = gone.where('from_date', '>=', range.from).where('to_date', '<=', range.to)
  if (heldDays !== undefined && heldDays.size > 0) {
    const held = sql`unnest(${[...heldDays]}::date[]) as held(date)`
    gone = gone.where(sql<boolean>`not exists (select from ${held} where held.date between from_date and to_date)`)
  }
  await gone.execute()
}

const GONE = 'no longer in the answer'
const ofSameRun = sql`quarantine.run_id = excluded.run_id and quarantine.resolved_at is null`

/** Rejects without a day belong to their window. They are resolved once no day of the window has rejects. */
export async function resolveWindowRejects(
  { ops }: Transaction,
  projectStream: ProjectStream,
  range: Range,
): Promise<void> {
  await ops
    .updateTable('quarantine as q')
    .set({ resolved_at: sql`now()`, resolution: GONE })
    .where('q.project_id', '=', projectStream.projectId)
    .where('q.stream', '=', projectStream.stream)
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

export type QuarantineEntry = Omit<Selectable<OpsTables['quarantine']>, 'fingerprint'>

export interface QuarantineFilter {
  ids?: readonly number[]
  streams?: readonly string[]
  projects?: readonly string[]
  /** The reason for which the row failed, to the letter. */
  reason?: string | undefined
  /** Which of them: open ones by default, those that were dismissed, or all. */
  state?: 'open' | 'dismissed' | 'all'
  limit?: number
}

/** How many rows entries stand for: identical ones share an entry. */
export function rowsIn(entries: readonly QuarantineEntry[]): number {
  return entries.reduce((sum, { occurrences }) => sum + occurrences, 0)
}

export function listQuarantine({ ops }: Pick<Warehouse, 'ops'>, filter: QuarantineFilter): Promise<QuarantineEntry[]> {
  let query = ops
    .selectFrom('quarantine')
    .select(['quarantine_id', 'project_id', 'stream', 'reason', 'raw', 'from_date', 'to_date', 'run_id'])
    .select(['first_seen_at', 'last_seen_at', 'times_seen', 'occurrences', 'resolved_at', 'resolution'])
    .select(['dismissed_at', 'dismissed_because'])
    .where(matching(filter))
    .orderBy('quarantine_id')
  if (filter.limit !== undefined) query = query.limit(filter.limit)
  return query.execute()
}

export interface QuarantineGroup {
  stream: string
  reason: string
  rows: number
  projects: string[]
  from_date: Day | null
  to_date: Day | null
  last_seen_at: Date
  /** One of them, to look at. */
  example_id: number
}

/** The same by reason, most rows first. */
export function groupQuarantine({ ops }: Pick<Warehouse, 'ops'>, filter: QuarantineFilter): Promise<QuarantineGroup[]> {
  return ops
    .selectFrom('quarantine')
    .select(['stream', 'reason'])
    .select(({ fn }) => [
      sql<number>`sum(occurrences)::int`.as('rows'),
      sql<string[]>`array_agg(distinct project_id order by project_id)`.as('projects'),
      fn.min('from_date').as('from_date'),
      fn.max('to_date').as('to_date'),
      fn.max('last_seen_at').as('last_seen_at'),
      fn.min('quarantine_id').as('example_id'),
    ])
    .where(matching(filter))
    .groupBy(['stream', 'reason'])
    .orderBy('rows', 'desc')
    .orderBy('stream')
    .orderBy('reason')
    .$if(filter.limit !== undefined, (query) => query.limit(filter.limit!))
    .execute()
}

function matching({ ids = [], streams = [], projects = [], reason, state = 'open' }: QuarantineFilter) {
  const parts = [
    ...(ids.length > 0 ? [sql`quarantine_id = any(${ids}::bigint[])`] : []),
    ...(streams.length > 0 ? [sql`stream = any(${streams}::text[])`] : []),
    ...(projects.length > 0 ? [sql`project_id = any(${projects}::text[])`] : []),
    ...(reason === undefined ? [] : [sql`reason = ${reason}`]),
    ...(state === 'open' ? [sql`resolved_at is null`] : []),
    ...(state === 'dismissed' ? [sql`dismissed_at is not null`] : []),
  ]
  return parts.length === 0 ? sql<boolean>`true` : sql<boolean>`${sql.join(parts, sql` and `)}`
}

/** Dismisses entries: they no longer count, and their days are read again without them. */
export async function dismissEntries(
  { ops, redactor }: Transaction,
  ids: readonly number[],
  reason: string,
): Promise<void> {
  const because = redactor.text(reason)
  await ops
    .updateTable('quarantine')
    .set({ dismissed_at: sql`now()`, dismissed_because: because, resolved_at: sql`now()`, resolution: 'dismissed' })
    .where('quarantine_id', '=', sql<number>`any(${ids}::bigint[])`)
    .where('resolved_at', 'is', null)
    .execute()
}

/** Undoes a dismissal. */
export async function reopenEntries({ ops }: Transaction, ids: readonly number[]): Promise<void> {
  await ops
    .updateTable('quarantine')
    .set({ dismissed_at: null, dismissed_because: null, resolved_at: null, resolution: null })
    .where('quarantine_id', '=', sql<number>`any(${ids}::bigint[])`)
    .where('dismissed_at', 'is not', null)
    .execute()
}

/** Marks entries as loaded after all. They stay, so that people can see what was. */
export async function resolveEntries({ ops }: Transaction, ids: readonly number[], resolution: string): Promise<void> {
  if (ids.length === 0) return
  await ops
    .updateTable('quarantine')
    .set({ resolved_at: sql`now()`, resolution })
    .where('quarantine_id', '=', sql<number>`any(${ids}::bigint[])`)
    .where('resolved_at', 'is', null)
    .execute()
}

/** Marks days whose rejects are all resolved to be read again: rows that were kept because of the rejects may be gone. */
export async function markDaysDue({ ops }: Transaction, projectStream: ProjectStream): Promise<void> {
  await ops
    .updateTable('coverage as c')
    .set({ state: 'stale' })
    .where('c.project_id', '=', projectStream.projectId)
    .where('c.stream', '=', projectStream.stream)
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
