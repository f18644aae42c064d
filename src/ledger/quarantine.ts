import { createHash } from 'node:crypto'
import { type Selectable, sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import { factsOf, type Reject, type RejectFacts } from '../rows/sift.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import type { Transaction } from '../warehouse/transaction.ts'
import { isUnsettled } from './days.ts'

export interface IdentifiedRejects {
  byFingerprint: ReadonlyMap<string, IdentifiedReject>
  undismissed: number
  dismissed: ReadonlySet<Reject>
  /** True if one that is not dismissed is of this day, or may be. */
  isOn(day: Day): boolean
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
  { db, redactor }: Pick<Warehouse, 'db' | 'redactor'>,
  projectStream: ProjectStream,
  rejects: readonly Reject[],
): Promise<IdentifiedRejects> {
  const byFingerprint = new Map<string, IdentifiedReject>()
  if (rejects.length === 0) return { byFingerprint, undismissed: 0, dismissed: new Set(), isOn: () => false }
  const fingerprintOf = new Map<Reject, string>()
  for (const reject of rejects) {
    const { raw, reason, date } = reject
    const text = redactor.json(raw)
    const fingerprint = createHash('md5').update(text).digest('hex')
    fingerprintOf.set(reject, fingerprint)
    const occurrences = (byFingerprint.get(fingerprint)?.occurrences ?? 0) + 1
    byFingerprint.set(fingerprint, { raw: text, reason: redactor.text(reason), date, occurrences })
  }
  const dismissed = await db
    .selectFrom('ops.quarantine')
    .select('fingerprint')
    .where((eb) => eb.and({ project_id: projectStream.projectId, stream: projectStream.stream }))
    .where('dismissed_at', 'is not', null)
    .where('fingerprint', '=', sql<string>`any(${[...byFingerprint.keys()]}::text[])`)
    .execute()
  const ignored = new Set(dismissed.map(({ fingerprint }) => fingerprint))
  const open = [...byFingerprint].filter(([fingerprint]) => !ignored.has(fingerprint))
  const days = new Set(open.map(([, { date }]) => date))
  return {
    byFingerprint,
    undismissed: open.reduce((sum, [, { occurrences }]) => sum + occurrences, 0),
    dismissed: new Set(rejects.filter((reject) => ignored.has(fingerprintOf.get(reject)!))),
    isOn: (day) => days.has(day) || days.has(undefined),
  }
}

/** What can be read of the rows of a stream that are dismissed, or of these and of the open ones. */
export async function readRejects(
  { db }: Pick<Warehouse, 'db'>,
  { projectId, stream }: ProjectStream,
  range: Range,
  which: 'dismissed' | 'all',
): Promise<RejectFacts[]> {
  const entries = await db
    .selectFrom('ops.quarantine')
    .select(['raw', 'occurrences'])
    .where((eb) => eb.and({ project_id: projectId, stream }))
    .where((eb) =>
      eb.or([eb('dismissed_at', 'is not', null), ...(which === 'all' ? [eb('resolved_at', 'is', null)] : [])]),
    )
    .where(sql<boolean>`(from_date <> to_date or from_date between ${range.from} and ${range.to})`)
    .execute()
  return entries.flatMap(({ raw, occurrences }) => Array.from({ length: occurrences }, () => factsOf(raw, range)))
}

interface RejectsOrigin {
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
  tx: Transaction,
  projectStream: ProjectStream,
  { byFingerprint }: IdentifiedRejects,
  { range, runId, heldDays, isHeld = false }: RejectsOrigin,
): Promise<void> {
  const { projectId, stream } = projectStream
  const fingerprints = [...byFingerprint.keys()].sort()
  const entries = fingerprints.map((fingerprint) => byFingerprint.get(fingerprint)!)
  if (fingerprints.length > 0) {
    const reasons = entries.map(({ reason }) => reason)
    const raws = entries.map(({ raw }) => raw)
    const from = entries.map(({ date }) => date ?? range?.from ?? null)
    const to = entries.map(({ date }) => date ?? range?.to ?? null)
    const occurrences = entries.map((entry) => entry.occurrences)
    const isOfSameRun = sql`q.run_id = excluded.run_id and q.resolved_at is null`
    // A row without a day may come in several windows of a run.
    await sql`
      insert into ops.quarantine as q
        (project_id, stream, run_id, reason, raw, fingerprint, from_date, to_date, occurrences)
      select ${projectId}, ${stream}, ${runId}::bigint, reason, raw::json, fingerprint, from_date, to_date, occurrences
      from unnest(${reasons}::text[], ${raws}::text[], ${fingerprints}::text[], ${from}::date[], ${to}::date[],
        ${occurrences}::int[]) as reject(reason, raw, fingerprint, from_date, to_date, occurrences)
      on conflict (project_id, stream, fingerprint) do update set reason = excluded.reason, run_id = excluded.run_id,
        from_date = case when ${isOfSameRun} then least(q.from_date, excluded.from_date) else excluded.from_date end,
        to_date = case when ${isOfSameRun} then greatest(q.to_date, excluded.to_date) else excluded.to_date end,
        occurrences = case when ${isOfSameRun} then q.occurrences else 0 end + excluded.occurrences,
        last_seen_at = now(), times_seen = q.times_seen + 1,
        resolved_at = case when q.dismissed_at is not null then q.resolved_at end,
        resolution = case when q.dismissed_at is not null then q.resolution end`.execute(tx.db)
  }
  if (isHeld) return
  await sql`
    update ops.quarantine set resolved_at = now(), resolution = ${GONE}
    where project_id = ${projectId} and stream = ${stream} and resolved_at is null
      and fingerprint <> all(${fingerprints}::text[])
      and (${range?.from}::date is null or from_date >= ${range?.from} and to_date <= ${range?.to}::date)
      and not exists (select from unnest(${[...(heldDays ?? [])]}::date[]) held(date)
        where held.date between from_date and to_date)`.execute(tx.db)
}

const GONE = 'no longer in the answer'

/** Rejects without a day belong to their window. They are resolved once all days of the window that were read are settled. */
export async function resolveWindowRejects(
  { db }: Transaction,
  { projectId, stream }: ProjectStream,
  range: Range,
): Promise<void> {
  await sql`
    update ops.quarantine q set resolved_at = now(), resolution = ${GONE}
    where q.project_id = ${projectId} and q.stream = ${stream} and q.resolved_at is null
      and q.from_date <= ${range.to} and q.to_date >= ${range.from}
      and not exists (select from ops.coverage c where c.project_id = q.project_id
        and c.stream = q.stream and c.date between q.from_date and q.to_date and ${isUnsettled})`.execute(db)
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

export function listQuarantine({ db }: Pick<Warehouse, 'db'>, filter: QuarantineFilter): Promise<QuarantineEntry[]> {
  let query = db
    .selectFrom('ops.quarantine')
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
  /** Those that are not resolved. */
  open: number
  projects: string[]
  from_date: Day | null
  to_date: Day | null
  last_seen_at: Date
  example_id: number
}

/** The same by reason, most rows first. */
export async function groupQuarantine(
  { db }: Pick<Warehouse, 'db'>,
  filter: QuarantineFilter,
): Promise<QuarantineGroup[]> {
  const query = sql<QuarantineGroup>`
    select stream, reason, sum(occurrences)::int as rows,
      coalesce(sum(occurrences) filter (where resolved_at is null), 0)::int as open, array_agg(distinct project_id order by project_id) as projects,
      min(from_date) as from_date, max(to_date) as to_date, max(last_seen_at) as last_seen_at, min(quarantine_id) as example_id
    from ops.quarantine where ${matching(filter)}
    group by stream, reason order by rows desc, stream, reason limit ${filter.limit ?? null}`
  return (await query.execute(db)).rows
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
export async function dismissEntries(tx: Transaction, ids: readonly number[], reason: string): Promise<void> {
  await resolveEntries(tx, ids, 'dismissed', tx.redactor.text(reason))
}

/** Undoes a dismissal. */
export async function reopenEntries({ db }: Transaction, ids: readonly number[]): Promise<void> {
  await db
    .updateTable('ops.quarantine')
    .set({ dismissed_at: null, dismissed_because: null, resolved_at: null, resolution: null })
    .where('quarantine_id', '=', sql<number>`any(${ids}::bigint[])`)
    .where('dismissed_at', 'is not', null)
    .execute()
}

/** Marks entries as loaded after all, or as dismissed. They stay, so that people can see what was. */
export async function resolveEntries(
  { db }: Transaction,
  ids: readonly number[],
  resolution: string,
  dismissed_because?: string,
): Promise<void> {
  const dismissed = dismissed_because === undefined ? {} : { dismissed_at: sql<Date>`now()`, dismissed_because }
  await db
    .updateTable('ops.quarantine')
    .set({ resolved_at: sql`now()`, resolution, ...dismissed })
    .where('quarantine_id', '=', sql<number>`any(${ids}::bigint[])`)
    .where('resolved_at', 'is', null)
    .execute()
}
