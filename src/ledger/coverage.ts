import { sql } from 'kysely'
import { type Day, daysIn, type Range } from '../core/day.ts'
import { SupersededError, UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { TotalsDigest } from '../rows/day-totals.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { CoverageState } from '../warehouse/database.ts'
import { literal, type Statement, type Transaction } from '../warehouse/transaction.ts'

export interface CoveredDay {
  date: Day
  rows: number
  state: CoverageState
  readAt: Date
  /** False until the day is reconciled to the totals of the service. */
  isReconciled: boolean
}

/** The known days of a stream within a range, oldest first. */
export async function readCoverage(
  { ops }: Warehouse,
  projectStream: ProjectStream,
  range: Range,
): Promise<CoveredDay[]> {
  const rows = await ops
    .selectFrom('coverage')
    .select(['date', 'rows', 'state', 'read_at', 'reconciled_at'])
    .where((eb) => eb.and({ project_id: projectStream.projectId, stream: projectStream.stream }))
    .where((eb) => eb.between('date', range.from, range.to))
    .orderBy('date')
    .execute()
  return rows.map(({ date, rows: count, state, read_at, reconciled_at }) => ({
    ...{ date, rows: count, state, readAt: read_at },
    isReconciled: reconciled_at !== null,
  }))
}

/** False if nothing was ever synced into this database. */
export async function hasLedger(warehouse: Warehouse): Promise<boolean> {
  const { rows } = await warehouse.pool.query<{ old: boolean; there: boolean }>(
    'select to_regclass($1) is not null as old, to_regclass($2) is not null as there',
    [quote(warehouse.opsSchema, 'coverage'), quote(warehouse.opsSchema, 'control_totals')],
  )
  const { old, there } = rows[0]!
  if (old && !there)
    throw new UsageError('the tables are of an earlier version: run visibility-sync migrate, or any sync, first')
  return there
}

export interface BegunRead {
  /** Taken before the request is sent: a higher one is a newer answer. */
  fencingToken: number
  /** The database's time. */
  readAt: Date
  /** How many rows the ledger knows of the range, or of the list when it was read last. */
  rowsBefore: number
  /** The same for each day of the range that was read. */
  rowsBeforeByDay: ReadonlyMap<Day, number>
}

/** A number for a read, taken before the request is sent. */
export function beginRead(
  { opsSchema }: Warehouse,
  { projectId, stream }: ProjectStream,
  range?: Range,
): Statement<BegunRead> {
  const known = `from ${quote(opsSchema, 'coverage')} where project_id = ${literal(projectId)} and stream = ${literal(stream)}`
  const days =
    range === undefined
      ? `${known} order by date desc limit 1`
      : `${known} and date between ${literal(range.from)} and ${literal(range.to)}`
  const sql = `select nextval('${quote(opsSchema, 'read_order')}') as read_order, clock_timestamp() as read_at,
    (select json_object_agg(date, rows) from (select date, rows ${days}) days) as known`
  return {
    sql,
    read([row]: Begun[]) {
      const { read_order: fencingToken, read_at: readAt, known: rows } = row!
      const rowsBeforeByDay = new Map(Object.entries(rows ?? {}))
      const rowsBefore = [...rowsBeforeByDay.values()].reduce((sum, count) => sum + count, 0)
      return { fencingToken, readAt, rowsBefore, rowsBeforeByDay }
    },
  }
}

type Begun = { read_order: number; read_at: Date; known: Record<Day, number> | null }

/** Loads of one project and stream go one after the other: each then sees what the one before it wrote. */
export function lockOfLoads(warehouse: Warehouse, projectStream: ProjectStream): Statement<undefined> {
  const name = JSON.stringify([warehouse.schema, projectStream.projectId, projectStream.stream])
  return { sql: `select pg_advisory_xact_lock(hashtextextended(${literal(name)}, 1))`, read: () => undefined }
}

/** The state of a range in the ledger before a load. */
export interface PriorCoverage {
  /** The days that were read, and their states. */
  states: Map<Day, CoverageState>
  /** Digests of the totals that the stored rows of a day were compared with, and whether they differed. */
  compared: Map<Day, TotalsDigest & { differs: boolean }>
  /** True if rejects of these days wait in quarantine. */
  hasRejects: boolean
}

/** Reads the state of a range. The statement fails with a SupersededError if an answer that was asked for later was loaded. */
export function coverageUnlessSuperseded(
  { opsSchema }: Warehouse,
  projectStream: ProjectStream,
  range: Range,
  fencingToken: number,
): Statement<PriorCoverage> {
  const [project, stream, from, to] = [projectStream.projectId, projectStream.stream, range.from, range.to].map(literal)
  const sql = `select q.rejects, c.date, c.read_order, c.state, c.counts_digest::text as counts, c.answers_digest::text as answers,
      c.difference is not null as differs
    from (select exists (select from ${quote(opsSchema, 'quarantine')} where project_id = ${project} and stream = ${stream}
      and resolved_at is null and from_date <= ${to} and to_date >= ${from}) as rejects) q
    left join ${quote(opsSchema, 'coverage')} c
      on c.project_id = ${project} and c.stream = ${stream} and c.date between ${from} and ${to}`
  return { sql, read: (rows: KnownDay[]) => knownBefore(rows, projectStream, fencingToken) }
}

type Digests = { counts: string | null; answers: string | null }
type KnownDay = { rejects: boolean } & (
  | ({ date: Day; read_order: number; state: CoverageState; differs: boolean } & Digests)
  | { date: null }
)

function knownBefore(rows: readonly KnownDay[], projectStream: ProjectStream, fencingToken: number): PriorCoverage {
  const states = new Map<Day, CoverageState>()
  const compared: PriorCoverage['compared'] = new Map()
  for (const row of rows) {
    if (row.date === null) continue
    const { date, read_order, state, differs, counts, answers } = row
    if (read_order > fencingToken) {
      throw new SupersededError(
        `${projectStream.stream} ${date}: a newer read was loaded meanwhile, so this one was not written`,
      )
    }
    states.set(date, state)
    // The totals of a held day are those of the answer that was not stored.
    if ((differs || state !== 'held') && counts !== null && answers !== null)
      compared.set(date, { counts: BigInt(counts), answers: BigInt(answers), differs })
  }
  return { states, compared, hasRejects: rows.some(({ rejects }) => rejects) }
}

interface CoverageEntry {
  projectStream: ProjectStream
  range: Range
  /** How many rows the table has on each day. */
  rowsByDay: ReadonlyMap<Day, number>
  stateOf: (day: Day) => CoverageState
  /** How each day compares with the control totals; a list has none. */
  comparisonOf?: (day: Day) => DayComparison
  fencingToken: number
  readAt: Date
  runId: number
  /** Since when it is held, if that is known from before. */
  heldSince?: Date | null
}

export interface DayComparison {
  isReconciled: boolean
  digest?: TotalsDigest | undefined
  /** How the day differs from the control totals. */
  difference?: string | undefined
}

const RECONCILED: DayComparison = { isReconciled: true }

/** Writes down that every day of the range was read. */
export function coverageEntry({ opsSchema }: Warehouse, entry: CoverageEntry): Statement<void> {
  const days = daysIn(entry.range)
  const list = (values: readonly (string | number | bigint | boolean)[]) => literal(`{${values.join(',')}}`)
  const rows = days.map((day) => entry.rowsByDay.get(day) ?? 0)
  const { projectStream, fencingToken, readAt, runId } = entry
  const [project, stream] = [projectStream.projectId, projectStream.stream].map(literal)
  const [read, held] = [readAt, entry.heldSince ?? readAt].map((time) => `${literal(time.toISOString())}::timestamptz`)
  const compared = days.map((day) => entry.comparisonOf?.(day) ?? RECONCILED)
  const difference = compared.find((day) => day.difference !== undefined)?.difference
  const sql = `insert into ${quote(opsSchema, 'coverage')} as c
      (project_id, stream, date, rows, read_at, run_id, state, read_order, held_since, reconciled_at, counts_digest, answers_digest, difference)
    select ${project}, ${stream}, day.date, day.rows, ${read}, ${runId}, day.state, ${fencingToken}, case when day.state = 'held' then ${held} end,
      case when day.reconciled then ${read} end, day.counts, day.answers, ${difference === undefined ? 'null' : literal(difference)}
    from unnest(${list(days)}::date[], ${list(rows)}::int[], ${list(days.map(entry.stateOf))}::text[],
      ${list(compared.map(({ isReconciled }) => isReconciled))}::boolean[],
      ${list(compared.map(({ digest }) => digest?.counts ?? 'null'))}::bigint[],
      ${list(compared.map(({ digest }) => digest?.answers ?? 'null'))}::bigint[]) as day(date, rows, state, reconciled, counts, answers)
    on conflict (project_id, stream, date) do update set rows = excluded.rows, read_at = excluded.read_at,
      run_id = excluded.run_id, state = excluded.state, read_order = excluded.read_order, reconciled_at = excluded.reconciled_at,
      counts_digest = excluded.counts_digest, answers_digest = excluded.answers_digest, difference = excluded.difference,
      held_since = case when excluded.held_since is null then null else coalesce(c.held_since, excluded.held_since) end`
  return { sql, read: () => {} }
}

/** How many days of each stream are to be read again. */
export async function countStale(
  { pool, opsSchema }: Warehouse,
  projectIds: readonly string[],
  { streams, range }: { streams: readonly string[]; range: Range },
): Promise<{ stream: string; days: number }[]> {
  const { rows } = await pool.query<{ stream: string; days: number }>(
    `select stream, count(*)::int as days from ${quote(opsSchema, 'coverage')}
     where project_id = any($1) and stream = any($2) and state = 'stale' and date between $3 and $4 group by 1 order by 1`,
    [projectIds, streams, range.from, range.to],
  )
  return rows
}

/**
 * Adjusts the row counts of days that gained or lost rows while another day was read. If rows moved to another day, either day
 * may be wrong, so the days that lost rows are read again.
 */
export async function adjustRows(
  { ops }: Transaction,
  { projectId, stream }: ProjectStream,
  byDay: Iterable<[Day, number]>,
  isMoved = false,
): Promise<void> {
  const again = { reconciled_at: null, state: sql<CoverageState>`case state when 'read' then 'stale' else state end` }
  for (const [date, change] of byDay) {
    await ops
      .updateTable('coverage')
      .set({ rows: sql<number>`greatest(0, rows + ${change}::int)`, ...(isMoved && again) })
      .where((eb) => eb.and({ project_id: projectId, stream, date }))
      .execute()
  }
}

/** The state of a list in the ledger before a load. */
export interface PriorList {
  /** True if rows of it wait in quarantine, or its state on some day is not `read`. */
  isUnsettled: boolean
  /** Since when it is held, so that a new day's entry keeps the date. */
  heldSince: Date | null
}

export function priorList({ opsSchema }: Warehouse, projectStream: ProjectStream): Statement<PriorList> {
  const isOfList = `project_id = ${literal(projectStream.projectId)} and stream = ${literal(projectStream.stream)}`
  const coverage = quote(opsSchema, 'coverage')
  const sql = `select exists (select from ${quote(opsSchema, 'quarantine')} where ${isOfList} and resolved_at is null)
      or exists (select from ${coverage} where ${isOfList} and state <> 'read') as "isUnsettled",
      (select min(held_since) from ${coverage} where ${isOfList}) as "heldSince"`
  return { sql, read: ([row]: PriorList[]) => row! }
}

/** After a list was read whole, the state of all earlier days is `read`. */
export async function clearListStates({ ops }: Transaction, projectStream: ProjectStream, before: Day): Promise<void> {
  await ops
    .updateTable('coverage')
    .set({ state: 'read', held_since: null })
    .where((eb) => eb.and({ project_id: projectStream.projectId, stream: projectStream.stream }))
    .where('date', '<', before)
    .where('state', '<>', 'read')
    .execute()
}

/** True if a day of the stream that has rows ever added up to the control totals. */
export async function hasReconciledDay({ ops }: Warehouse, projectStream: ProjectStream): Promise<boolean> {
  const found = await ops
    .selectFrom('coverage')
    .select('date')
    .where((eb) => eb.and({ project_id: projectStream.projectId, stream: projectStream.stream }))
    .where((eb) => eb('reconciled_at', 'is not', null).and('rows', '>', 0))
    .limit(1)
    .execute()
  return found.length > 0
}

/**
 * Marks days as stale, or all days if none are given: the next run reads them again. History that changed in one stream changed in
 * the others too. Totals may not show it, since added and deleted chats can cancel out.
 * @param runId days that this run reads are as new as the change itself; marking them would loop
 */
export async function markStale(
  { ops }: Pick<Warehouse, 'ops'>,
  projectId: string,
  { streams, days, runId = 0 }: { streams: readonly string[]; days?: readonly Day[]; runId?: number },
): Promise<void> {
  if (days?.length === 0 || streams.length === 0) return
  await ops
    .updateTable('coverage')
    .set({ state: 'stale' })
    .where((eb) => eb.and({ project_id: projectId, state: 'read' }))
    .where(sql<boolean>`stream = any(${[...streams]}::text[])`)
    .$if(days !== undefined, (query) => query.where(sql<boolean>`date = any(${days}::date[])`))
    .where('run_id', '<>', runId)
    .execute()
}
