import { type RawBuilder, sql } from 'kysely'
import { countDays, DAY_MS, type Day, dayNumber, daysIn, OPEN_DAYS, type Range } from '../core/day.ts'
import { SupersededError, UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { anyOf, batch, type CoverageState } from '../warehouse/database.ts'
import { runQuery } from '../warehouse/schema/sql-files.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/* The ledger of days: what is known of each day that was read. Only this file writes it. */

/**
 * The state of a day that was read:
 *
 *   settled    loaded, and it adds up to the control totals or nothing can be compared
 *   open       it differs, and the service may still write it
 *   changed    something showed that it changed since it was read
 *   rejects    rows of it are in quarantine
 *   differs    it does not add up
 *   vanishing  an answer would remove too much: a person decides
 *
 * All but the first are due. `vanishing` leaves by itself once the rows are back.
 */
export type DayState = 'settled' | 'open' | 'changed' | 'rejects' | 'differs' | 'vanishing'

/** The words of the tables and of `--json`. An open day has no time at which it was reconciled. */
const STORED_AS: Record<DayState, CoverageState> = {
  settled: 'read',
  open: 'read',
  changed: 'stale',
  rejects: 'quarantined',
  differs: 'unreconciled',
  vanishing: 'held',
}

function stateOf(state: CoverageState, isReconciled: boolean): DayState {
  if (state === 'read') return isReconciled ? 'settled' : 'open'
  return (Object.keys(STORED_AS) as DayState[]).find((name) => STORED_AS[name] === state)!
}

export interface KnownDay {
  date: Day
  rows: number
  state: DayState
  readAt: Date
  /** How it differs from the control totals. */
  difference?: string | null
}

/** The known days of a stream within a range, oldest first. */
export async function readDays(
  { db }: Pick<Warehouse, 'db'>,
  projectStream: ProjectStream,
  range: Range,
): Promise<KnownDay[]> {
  const rows = await db
    .selectFrom('ops.coverage')
    .select(['date', 'rows', 'state', 'read_at', 'reconciled_at', 'difference'])
    .where((eb) => eb.and({ project_id: projectStream.projectId, stream: projectStream.stream }))
    .where((eb) => eb.between('date', range.from, range.to))
    .orderBy('date')
    .execute()
  return rows.map(({ date, rows: count, state, read_at, reconciled_at, difference }) => {
    return { date, rows: count, state: stateOf(state, reconciled_at !== null), readAt: read_at, difference }
  })
}

/** The days of all months that have a due day, and the recent days, of each stream of some projects. */
export interface DaysByMonth {
  /** Months without a due day: every day was read soundly and late enough. */
  completeMonths: ReadonlySet<string>
  days: KnownDay[]
}

interface MonthsRequest {
  /** Days before are not due. */
  from: Day
  /** Days from this one on are read in any case: they show how many rows a day has. */
  recentFrom: Day
  /** A day of a complete month was read when it was at least so old, in days. */
  finalAfterDays: number
}

/** A day as JSON: date, rows, state, the seconds since 1970 when it was read, and whether it is reconciled. */
type DayEntry = [Day, number, CoverageState, number, boolean]

/** Reads the days of many streams in one query. A hundred thousand small rows would cost several times as much to send. */
export async function readDaysByMonth(
  warehouse: Warehouse,
  projectStreams: readonly ProjectStream[],
  { from, recentFrom, finalAfterDays }: MonthsRequest,
): Promise<(ProjectStream & DaysByMonth)[]> {
  type Row = { project_id: string; stream: string; complete: string[] | null; days: DayEntry[][] | null }
  const projectIds = [...new Set(projectStreams.map(({ projectId }) => projectId))]
  const streams = [...new Set(projectStreams.map(({ stream }) => stream))]
  const values = [projectIds, streams, from, recentFrom, finalAfterDays]
  const rows = await runQuery<Row>(warehouse, 'days_by_month', values)
  return rows.map(({ project_id, stream, complete, days }) => {
    const known = (days ?? []).flat().map(([date, count, state, readAt, isReconciled]) => {
      return { date, rows: count, state: stateOf(state, isReconciled), readAt: new Date(readAt * 1000) }
    })
    known.sort((a, b) => (a.date < b.date ? -1 : 1))
    return { projectId: project_id, stream, completeMonths: new Set(complete), days: known }
  })
}

/** False if nothing was ever synced into this database. */
export async function hasLedger(warehouse: Warehouse): Promise<boolean> {
  const [coverage, totals] = ['coverage', 'control_totals'].map((name) => quote(warehouse.opsSchema, name))
  const { rows } = await sql<{ old: boolean; there: boolean }>`
    select to_regclass(${coverage}) is not null as old, to_regclass(${totals}) is not null as there`.execute(
    warehouse.db,
  )
  const { old, there } = rows[0]!
  if (old && !there)
    throw new UsageError('the tables are of an earlier version: run "npx visibility-sync migrate", or any sync, first')
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
  changedBefore: ReadonlySet<Day>
  isNotOffered: boolean
}

/** A number for a read, taken before the request is sent. */
export function beginRead(
  { opsSchema }: Warehouse,
  { projectId, stream }: ProjectStream,
  range?: Range,
): RawBuilder<BegunReadRow> {
  const known = sql`from ops.coverage where project_id = ${projectId} and stream = ${stream}`
  const days =
    range === undefined
      ? sql`${known} order by date desc limit 1`
      : sql`${known} and date between ${range.from} and ${range.to}`
  return sql`
    select nextval(${quote(opsSchema, 'read_order')}) as "fencingToken", clock_timestamp() as "readAt",
      (select json_agg(d) from (select date, rows, state ${days}) d) as known,
      exists (select from ops.not_offered where project_id = ${projectId} and stream = ${stream}) as "isNotOffered"`
}

export function begunRead({ known, readAt, ...begun }: BegunReadRow): BegunRead {
  const rowsBeforeByDay = new Map(known?.map(({ date, rows }) => [date, rows]))
  const changed = known?.filter(({ state }) => state === STORED_AS.changed).map(({ date }) => date)
  const rowsBefore = [...rowsBeforeByDay.values()].reduce((sum, count) => sum + count, 0)
  return { ...begun, readAt: new Date(readAt), rowsBefore, rowsBeforeByDay, changedBefore: new Set(changed) }
}

interface BegunReadRow extends Pick<BegunRead, 'fencingToken' | 'isNotOffered'> {
  readAt: string | Date
  known: { date: Day; rows: number; state: CoverageState }[] | null
}

/** Loads of one project and stream go one after the other: each then sees what the one before it wrote. */
export function lockOfLoads({ schema }: Warehouse, { projectId, stream }: ProjectStream): RawBuilder<object> {
  return sql`select pg_advisory_xact_lock(hashtextextended(${JSON.stringify([schema, projectId, stream])}, 1))`
}

export interface PriorDays {
  /** The days that were read when the service had stopped to write them. */
  final: ReadonlySet<Day>
  changed: ReadonlySet<Day>
  /** True if rejects of these days wait in quarantine. */
  hasRejects: boolean
}

export interface PriorDayRow {
  rejects: boolean
  date: Day | null
  read_at: string | Date
  read_order: number
  state: CoverageState | null
  difference: string | null
}

export function priorDayRows({ projectId, stream }: ProjectStream, range: Range): RawBuilder<PriorDayRow> {
  return sql`
    select q.rejects, c.date, c.read_at, c.read_order, c.state, c.difference
    from (select exists (select from ops.quarantine where project_id = ${projectId} and stream = ${stream}
      and resolved_at is null and from_date <= ${range.to} and to_date >= ${range.from}) as rejects) q
    left join ops.coverage c
      on c.project_id = ${projectId} and c.stream = ${stream} and c.date between ${range.from} and ${range.to}`
}

/** Throws a SupersededError if an answer that was asked for later was loaded. */
export function priorDays(rows: readonly PriorDayRow[], stream: string, fencingToken: number): PriorDays {
  const newer = rows.find(({ date, read_order }) => date !== null && read_order > fencingToken)
  if (newer !== undefined) throw superseded(`${stream} ${newer.date}`)
  // Reading a day again whose rows were damaged is a repair of our copy, and no change of the service.
  const isFinal = ({ date, read_at, difference }: PriorDayRow) =>
    date !== null && difference !== DAMAGED && new Date(read_at).getTime() >= (dayNumber(date) + OPEN_DAYS) * DAY_MS
  const final = new Set(rows.flatMap((row) => (isFinal(row) ? [row.date!] : [])))
  const changed = new Set(rows.flatMap(({ date, state }) => (state === STORED_AS.changed ? [date!] : [])))
  return { final, changed, hasRejects: rows.some(({ rejects }) => rejects) }
}

export function superseded(what: string): SupersededError {
  return new SupersededError(`${what}: a newer read was loaded meanwhile, so this one was not written`)
}

export function daysReadAfter({ projectId, stream }: ProjectStream, fencingToken: number): RawBuilder<{ date: Day }> {
  return sql`
    select date from ops.coverage
    where project_id = ${projectId} and stream = ${stream} and read_order > ${fencingToken}`
}

/** A condition on a day of `c`. */
export const isUnsettled = sql<boolean>`(c.state <> ${STORED_AS.settled} or c.reconciled_at is null)`

export interface DayEntryToWrite {
  /** How many rows the table has of it. */
  rows: number
  state: DayState
  /** How it differs from the control totals. A settled day has one if the service leaves rows out. */
  difference?: string | undefined
}

interface DaysToWrite {
  projectStream: ProjectStream
  range: Range
  dayOf: (day: Day) => DayEntryToWrite
  fencingToken: number
  readAt: Date
  runId: number
  /** Since when it is in review, if that is known from before. */
  reviewedSince?: string | null
}

/** Writes down that every day of the range was read, and what it is now. For a transaction with the lock of loads. */
export function putDays(entry: DaysToWrite): RawBuilder<object> {
  const { projectStream, range, fencingToken, readAt, runId } = entry
  const days = daysIn(range).map((date) => {
    const { rows, state, difference = null } = entry.dayOf(date)
    return { date, rows, state: STORED_AS[state], is_reconciled: state === 'settled', difference }
  })
  return sql`
    with put as (insert into ops.coverage as c
      (project_id, stream, date, rows, read_at, run_id, state, read_order, held_since, reconciled_at, difference)
    select ${projectStream.projectId}, ${projectStream.stream}, date, rows, ${readAt}::timestamptz, ${runId}, state,
      ${fencingToken}, case when state = 'held' then ${entry.reviewedSince ?? readAt}::timestamptz end,
      case when is_reconciled then ${readAt}::timestamptz end, difference
    from json_to_recordset(${JSON.stringify(days)}::json)
      as day(date date, rows int, state text, is_reconciled boolean, difference text)
    on conflict (project_id, stream, date) do update set rows = excluded.rows, read_at = excluded.read_at,
      run_id = excluded.run_id, state = excluded.state, read_order = excluded.read_order,
      reconciled_at = excluded.reconciled_at, difference = excluded.difference,
      held_since = case when excluded.held_since is null then null else coalesce(c.held_since, excluded.held_since) end returning date)
    ${countMonths(projectStream, range)} from (select max(date) from put) put`
}

/** Counts the months of a range again, after its days were written under the lock of loads. States are not counted. */
export function countMonths({ projectId, stream }: ProjectStream, { from, to }: Range): RawBuilder<object> {
  return sql`select ops.count_months(${projectId}, ${stream}, ${from}::date, ${to}::date)`
}

/** Changes days outside of a load and counts their months again. One message is one transaction. */
async function changeDays(
  warehouse: Warehouse,
  projectStream: ProjectStream,
  days: readonly Day[],
  change: RawBuilder<unknown>,
): Promise<void> {
  if (days.length === 0) return
  const sorted = days.toSorted()
  const range = { from: sorted[0]!, to: sorted.at(-1)! }
  await batch(warehouse.db, lockOfLoads(warehouse, projectStream), change, countMonths(projectStream, range))
}

/**
 * Settled and open days become due, because something showed that they changed. Without days, all of them do. With `besides`, so do
 * those of streams by day that are not among these: they were configured before, or another configuration has them.
 */
export async function markChanged(
  { db }: Pick<Warehouse, 'db'>,
  projectId: string,
  { streams, besides, days }: { streams: readonly string[]; besides?: readonly string[]; days?: readonly Day[] },
): Promise<void> {
  if (days?.length === 0 || (streams.length === 0 && besides === undefined)) return
  const others = sql<boolean>`stream in (select stream from ops.stream_settings
    where project_id = ${projectId} and by_day and stream <> all(${besides ?? []}::text[]))`
  await db
    .updateTable('ops.coverage')
    .set({ state: STORED_AS.changed, reconciled_at: null, difference: null })
    .where((eb) => eb.and({ project_id: projectId, state: STORED_AS.settled }))
    .where(besides === undefined ? anyOf('stream', streams) : sql<boolean>`(${anyOf('stream', streams)} or ${others})`)
    .$if(days !== undefined, (query) => query.where(anyOf('date', days!)))
    .execute()
}

/** Marks days whose rejects are all resolved as changed: rows that were kept because of the rejects may be gone. */
export async function markResolved({ db }: Transaction, { projectId, stream }: ProjectStream): Promise<void> {
  await sql`
    update ops.coverage c set state = ${STORED_AS.changed}
    where c.project_id = ${projectId} and c.stream = ${stream} and c.state = ${STORED_AS.rejects}
      and not exists (select from ops.quarantine q where q.resolved_at is null
        and q.project_id = c.project_id and q.stream = c.stream
        and (q.from_date is null or c.date between q.from_date and q.to_date))`.execute(db)
}

/** Days that lost rows to another day are due: either of the two days may be wrong. */
export async function markMoved(
  tx: Transaction,
  projectStream: ProjectStream,
  lost: ReadonlyMap<Day, number>,
): Promise<void> {
  const { projectId, stream } = projectStream
  const days = [...lost.keys()]
  const move = sql`
    update ops.coverage set rows = greatest(0, rows - l.lost::int)
    from json_each_text(${JSON.stringify(Object.fromEntries(lost))}::json) l(day, lost)
    where project_id = ${projectId} and stream = ${stream} and date = l.day::date`
  await markChanged(tx, projectId, { streams: [stream], days })
  await changeDays(tx, projectStream, days, move)
}

/** Days that were compared with their table later than they were read, and add up. */
export function settleDays(warehouse: Warehouse, projectStream: ProjectStream, days: readonly Day[]): Promise<void> {
  const { projectId, stream } = projectStream
  const settle = sql`
    update ops.coverage set reconciled_at = now(), difference = null
    where project_id = ${projectId} and stream = ${stream} and state = ${STORED_AS.open} and reconciled_at is null
      and date = any(${days})`
  return changeDays(warehouse, projectStream, days, settle)
}

const DAMAGED = 'the table no longer has what was stored'

/** Settled days become due, because the table no longer has what was stored. */
export function markDamaged(warehouse: Warehouse, projectStream: ProjectStream, days: readonly Day[]): Promise<void> {
  const { projectId, stream } = projectStream
  const mark = sql`
    update ops.coverage set state = ${STORED_AS.changed}, reconciled_at = null, difference = ${DAMAGED}
    where project_id = ${projectId} and stream = ${stream} and state = ${STORED_AS.settled} and date = any(${days})`
  return changeDays(warehouse, projectStream, days, mark)
}

export interface DayOfStream {
  stream: string
  rows: number
  read_at: Date
  run_id: number
  state: CoverageState
  reviewedSince: Date | null
  difference: string | null
}

export function readDayOfStreams(
  { db }: Warehouse,
  projectId: string,
  streams: readonly string[],
  day: Day,
): Promise<DayOfStream[]> {
  return db
    .selectFrom('ops.coverage')
    .select(['stream', 'rows', 'read_at', 'run_id', 'state', 'held_since as reviewedSince', 'difference'])
    .where((eb) => eb.and({ project_id: projectId, date: day }))
    .where(anyOf('stream', streams))
    .orderBy('stream')
    .execute()
}

export interface DifferingDay extends ProjectStream {
  date: Day
  difference: string
}

const SHARED = 'the service gave another project the same rows'

/** Marks days on which two projects of a run have the same control report: the service answered one of them with the rows of the other. */
export async function markShared(
  { db }: Warehouse,
  { streams, runId }: { streams: readonly string[]; runId: number },
): Promise<DifferingDay[]> {
  const { rows } = await sql<DifferingDay>`
    update ops.coverage c set state = ${STORED_AS.differs}, reconciled_at = null, difference = ${SHARED}
    from (
      select distinct project_id, date from (
        select project_id, date, count(*) over (partition by filters, date, rows_digest) as projects
        from ops.control_totals where run_id = ${runId} and totals <> '{}'
      ) t where projects > 1
    ) s
    where c.project_id = s.project_id and c.date = s.date and c.stream = any(${streams}) and c.run_id = ${runId}
      and (c.state = ${STORED_AS.settled} or c.difference = ${SHARED})
    returning c.project_id as "projectId", c.stream, c.date, c.difference`.execute(db)
  return rows
}

const CONTRADICTED = 'no report with more dimensions adds up to it'

/** Marks days of the control report that a run read with finer reports, if some of these do not add up to it and none does. */
export async function markContradicted(
  { db }: Warehouse,
  { control, finer, runId }: { control: string; finer: readonly string[]; runId: number },
): Promise<DifferingDay[]> {
  const ofDay = sql`from ops.coverage f where f.project_id = c.project_id and f.date = c.date and f.stream = any(${finer})`
  const { rows } = await sql<DifferingDay>`
    update ops.coverage c set state = ${STORED_AS.differs}, reconciled_at = null, difference = ${CONTRADICTED}
    where c.stream = ${control} and c.run_id = ${runId} and c.state = ${STORED_AS.settled}
      and exists (select ${ofDay} and f.run_id = ${runId} and f.state = ${STORED_AS.differs})
      and not exists (select ${ofDay} and f.state = ${STORED_AS.settled} and f.reconciled_at is not null)
    returning c.project_id as "projectId", c.stream, c.date, c.difference`.execute(db)
  return rows
}

/** The days of streams that became due after they were planned. `isOfRun` shows that this run read them. */
export async function readChanged(
  { db }: Warehouse,
  projectIds: readonly string[],
  { streams, range, runId }: { streams: readonly string[]; range: Range; runId: number },
): Promise<(ProjectStream & { date: Day; isOfRun: boolean })[]> {
  const rows = await db
    .selectFrom('ops.coverage')
    .select(['project_id as projectId', 'stream', 'date', 'run_id'])
    .where('state', '=', STORED_AS.changed)
    .where(anyOf('project_id', projectIds))
    .where(anyOf('stream', streams))
    .where((eb) => eb.between('date', range.from, range.to))
    .orderBy('date')
    .execute()
  return rows.map(({ run_id, ...day }) => ({ ...day, isOfRun: Number(run_id) === runId }))
}

export function countChanged(
  { db }: Warehouse,
  projectIds: readonly string[],
  { streams, range }: { streams: readonly string[]; range: Range },
): Promise<{ stream: string; days: number }[]> {
  return db
    .selectFrom('ops.coverage')
    .select(['stream', (eb) => eb.fn.countAll<number>().as('days')])
    .where('state', '=', STORED_AS.changed)
    .where(anyOf('project_id', projectIds))
    .where(anyOf('stream', streams))
    .where((eb) => eb.between('date', range.from, range.to))
    .groupBy('stream')
    .orderBy('stream')
    .execute()
}

/** Days that a run loaded though they do not add up, because the service may still write them. */
export async function readOpenDays(
  { db }: Warehouse,
  { projectIds, streams, runId }: { projectIds: readonly string[]; streams: readonly string[]; runId: number },
): Promise<{ stream: string; date: Day; difference: string }[]> {
  const rows = await db
    .selectFrom('ops.coverage')
    .select(['stream', 'date', 'difference'])
    .where((eb) => eb.and({ run_id: runId, state: STORED_AS.open }))
    .where(anyOf('project_id', projectIds))
    .where(anyOf('stream', streams))
    .where('reconciled_at', 'is', null)
    .where('difference', 'is not', null)
    .orderBy('date')
    .orderBy('stream')
    .execute()
  return rows.map((row) => ({ ...row, difference: row.difference! }))
}

export interface PriorList {
  /** True if rows of it wait in quarantine, or its state on some day is not settled. */
  isUnsettled: boolean
  /** Since when it is in review, so that a new day's entry keeps the date. */
  reviewedSince: string | null
  /** The highest fencing token of an answer that was loaded. */
  newestToken: number | null
}

export function priorList({ projectId, stream }: ProjectStream): RawBuilder<PriorList> {
  const isOfList = sql`project_id = ${projectId} and stream = ${stream}`
  return sql`
    select exists (select from ops.quarantine where ${isOfList} and resolved_at is null)
      or coalesce(bool_or(state <> ${STORED_AS.settled}), false) as "isUnsettled",
      min(held_since) as "reviewedSince", max(read_order) as "newestToken"
    from ops.coverage where ${isOfList}`
}

/** After a list was read whole, all earlier days of it are settled. */
export async function settleEarlierDays(
  { db }: Transaction,
  { projectId, stream }: ProjectStream,
  before: Day,
): Promise<void> {
  await db
    .updateTable('ops.coverage')
    .set({ state: STORED_AS.settled, held_since: null })
    .where((eb) => eb.and({ project_id: projectId, stream }))
    .where('date', '<', before)
    .where('state', '<>', STORED_AS.settled)
    .execute()
}

export interface ReviewedRange {
  project_id: string
  stream: string
  from: Day
  to: Day
  since: Date
}

/** The days in review as ranges, and how many ranges there are in all. */
export async function readReviewed(
  warehouse: Warehouse,
  most?: number,
): Promise<{ ranges: ReviewedRange[]; total: number }> {
  const { rows } = await sql<ReviewedRange & { total: number }>`
    select project_id, stream, min(date) as "from", max(date) as "to", min(since) as since, count(*) over () as total
    from (
      select project_id, stream, date, coalesce(held_since, read_at) as since,
        date - row_number() over (partition by project_id, stream order by date)::int as stretch
      from ops.coverage where state = ${STORED_AS.vanishing}
    ) days
    group by project_id, stream, stretch order by project_id, stream, min(date) limit ${most ?? null}`.execute(
    warehouse.db,
  )
  const ranges = rows.map(({ total: _total, ...range }) => range)
  return { ranges, total: rows[0]?.total ?? 0 }
}

/** Whether every day of a range is in review, as it must be before its deletions are let through. */
export async function isInReview(
  { db }: Warehouse,
  { projectId, stream }: ProjectStream,
  range: Range,
): Promise<boolean> {
  const days = await db
    .selectFrom('ops.coverage')
    .select('date')
    .where((eb) => eb.and({ project_id: projectId, stream, state: STORED_AS.vanishing }))
    .where((eb) => eb.between('date', range.from, range.to))
    .execute()
  return days.length > 0 && days.length === countDays(range)
}

export interface DifferingRange {
  project_id: string
  stream: string
  days: number
  first_day: Day
  last_day: Day
  /** How the last of them differs. */
  difference: string
}

export const OMITS_ROWS =
  'the service leaves out rows, so shares over several groups or days are too high, and prompts without mentions may not be found'

/**
 * The streams with days that differ. Settled days differ if the service leaves rows out of a report, or gives fewer chats than it
 * counts in each of three readings.
 */
export async function readDiffering(
  { db }: Warehouse,
  state: 'differs' | 'settled',
  projectId?: string,
): Promise<DifferingRange[]> {
  const isSettled = state === 'settled'
  const { rows } = await sql<DifferingRange>`
    select project_id, stream, count(*)::int as days, min(date) as first_day, max(date) as last_day,
      (array_agg(difference order by date desc))[1] as difference
    from ops.coverage
    where state = ${STORED_AS[state]} and difference is not null and (not ${isSettled} or reconciled_at is not null)
      and (${projectId ?? null}::text is null or project_id = ${projectId ?? null})
    group by 1, 2 order by 1, 2`.execute(db)
  return rows
}
