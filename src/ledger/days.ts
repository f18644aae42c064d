import { sql } from 'kysely'
import { countDays, type Day, daysIn, type Range } from '../core/day.ts'
import { SupersededError, UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { CoverageState } from '../warehouse/database.ts'
import { literal, type Statement, type Transaction } from '../warehouse/transaction.ts'

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
export async function readDays({ ops }: Warehouse, projectStream: ProjectStream, range: Range): Promise<KnownDay[]> {
  const rows = await ops
    .selectFrom('coverage')
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
  // `youngest` is the lowest age at which one of its days was read.
  const { rows } = await warehouse.pool.query<Row>(
    `select m.project_id, m.stream, json_agg(to_char(m.month, 'YYYY-MM')) filter (where m.is_complete) as complete,
       json_agg(d.days) filter (where d.days is not null) as days
     from (
       select *, days = last_day - first_day + 1 and first_day <= greatest(month, $4::date)
         and last_day = (month + interval '1 month')::date - 1
         and days_held + days_quarantined + days_stale + days_unreconciled + days_uncompared = 0 and youngest >= $3 as is_complete
       from ${quote(warehouse.opsSchema, 'coverage_months')} where project_id = any($1) and stream = any($2)
     ) m
     left join lateral (
       select json_agg(json_build_array(c.date, c.rows, c.state, floor(extract(epoch from c.read_at)), c.reconciled_at is not null)
         order by c.date) as days
       from ${quote(warehouse.opsSchema, 'coverage')} c where c.project_id = m.project_id and c.stream = m.stream
         and c.date between case when m.is_complete then greatest(m.month, $5::date) else m.month end and m.last_day
         and (not m.is_complete or m.last_day >= $5)
     ) d on true
     group by 1, 2`,
    [
      [...new Set(projectStreams.map(({ projectId }) => projectId))],
      [...new Set(projectStreams.map(({ stream }) => stream))],
      finalAfterDays,
      from,
      recentFrom,
    ],
  )
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
  /** The days that had changed already. */
  changedBefore: ReadonlySet<Day>
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
    (select json_object_agg(date, rows) from (select date, rows ${days}) days) as known,
    (select json_agg(date) from (select date, state ${days}) days where state = '${STORED_AS.changed}') as changed`
  return {
    sql,
    read([row]: Begun[]) {
      const { read_order: fencingToken, read_at: readAt, known: rows, changed } = row!
      const rowsBeforeByDay = new Map(Object.entries(rows ?? {}))
      const rowsBefore = [...rowsBeforeByDay.values()].reduce((sum, count) => sum + count, 0)
      return { fencingToken, readAt, rowsBefore, rowsBeforeByDay, changedBefore: new Set(changed) }
    },
  }
}

type Begun = { read_order: number; read_at: Date; known: Record<Day, number> | null; changed: Day[] | null }

/** Loads of one project and stream go one after the other: each then sees what the one before it wrote. */
export function lockOfLoads(warehouse: Warehouse, projectStream: ProjectStream): Statement<undefined> {
  const name = JSON.stringify([warehouse.schema, projectStream.projectId, projectStream.stream])
  return { sql: `select pg_advisory_xact_lock(hashtextextended(${literal(name)}, 1))`, read: () => undefined }
}

/** What the ledger has of a range before a load. */
export interface PriorDays {
  /** The days that were read. */
  read: ReadonlySet<Day>
  /** Those that changed since. */
  changed: ReadonlySet<Day>
  /** True if rejects of these days wait in quarantine. */
  hasRejects: boolean
}

/** Reads the days of a range. The statement fails with a SupersededError if an answer that was asked for later was loaded. */
export function daysUnlessSuperseded(
  { opsSchema }: Warehouse,
  { projectId, stream }: ProjectStream,
  range: Range,
  fencingToken: number,
): Statement<PriorDays> {
  const [project, name, from, to] = [projectId, stream, range.from, range.to].map(literal)
  const sql = `select q.rejects, c.date, c.read_order, c.state
    from (select exists (select from ${quote(opsSchema, 'quarantine')} where project_id = ${project} and stream = ${name}
      and resolved_at is null and from_date <= ${to} and to_date >= ${from}) as rejects) q
    left join ${quote(opsSchema, 'coverage')} c
      on c.project_id = ${project} and c.stream = ${name} and c.date between ${from} and ${to}`
  type Row = { rejects: boolean; date: Day | null; read_order: number; state: CoverageState | null }
  return {
    sql,
    read(rows: Row[]) {
      const newer = rows.find(({ date, read_order }) => date !== null && read_order > fencingToken)
      if (newer !== undefined)
        throw new SupersededError(
          `${stream} ${newer.date}: a newer read was loaded meanwhile, so this one was not written`,
        )
      const read = new Set(rows.flatMap(({ date }) => (date === null ? [] : [date])))
      const changed = new Set(rows.flatMap(({ date, state }) => (state === STORED_AS.changed ? [date!] : [])))
      return { read, changed, hasRejects: rows.some(({ rejects }) => rejects) }
    },
  }
}

/** A query in SQL of the days of a stream that were read after a read began. */
export function daysReadAfter({ opsSchema }: Warehouse, { projectId, stream }: ProjectStream, token: number): string {
  return `select date from ${quote(opsSchema, 'coverage')}
    where project_id = ${literal(projectId)} and stream = ${literal(stream)} and read_order > ${token}`
}

/** A condition in SQL on a day. */
export function isUnsettled(alias: string): string {
  return `(${alias}.state <> '${STORED_AS.settled}' or ${alias}.reconciled_at is null)`
}

/** What is written of a day that was read. */
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
  reviewedSince?: Date | null
}

/** Writes down that every day of the range was read, and what it is now. */
export function putDays({ opsSchema }: Warehouse, entry: DaysToWrite): Statement<void> {
  const { projectStream, range, fencingToken, readAt, runId } = entry
  const days = daysIn(range).map((date) => {
    const { rows, state, difference = null } = entry.dayOf(date)
    return { date, rows, state: STORED_AS[state], is_reconciled: state === 'settled', difference }
  })
  const [project, stream] = [projectStream.projectId, projectStream.stream].map(literal)
  const [read, held] = [readAt, entry.reviewedSince ?? readAt].map(
    (time) => `${literal(time.toISOString())}::timestamptz`,
  )
  const sql = `insert into ${quote(opsSchema, 'coverage')} as c
      (project_id, stream, date, rows, read_at, run_id, state, read_order, held_since, reconciled_at, difference)
    select ${project}, ${stream}, date, rows, ${read}, ${runId}, state, ${fencingToken}, case when state = 'held' then ${held} end,
      case when is_reconciled then ${read} end, difference
    from json_to_recordset(${literal(JSON.stringify(days))}::json)
      as day(date date, rows int, state text, is_reconciled boolean, difference text)
    on conflict (project_id, stream, date) do update set rows = excluded.rows, read_at = excluded.read_at,
      run_id = excluded.run_id, state = excluded.state, read_order = excluded.read_order, reconciled_at = excluded.reconciled_at,
      difference = excluded.difference,
      held_since = case when excluded.held_since is null then null else coalesce(c.held_since, excluded.held_since) end`
  return { sql, read: () => {} }
}

/** Settled and open days become due, because something showed that they changed. Without days, all of them do. */
export async function markChanged(
  { ops }: Pick<Warehouse, 'ops'>,
  projectId: string,
  { streams, days }: { streams: readonly string[]; days?: readonly Day[] },
): Promise<void> {
  if (days?.length === 0 || streams.length === 0) return
  await ops
    .updateTable('coverage')
    .set({ state: STORED_AS.changed, reconciled_at: null, difference: null })
    .where((eb) => eb.and({ project_id: projectId, state: STORED_AS.settled }))
    .where(sql<boolean>`stream = any(${[...streams]}::text[])`)
    .$if(days !== undefined, (query) => query.where(sql<boolean>`date = any(${days}::date[])`))
    .execute()
}

/** Marks days whose rejects are all resolved as changed: rows that were kept because of the rejects may be gone. */
export async function markResolved(
  { client, opsSchema }: Transaction,
  { projectId, stream }: ProjectStream,
): Promise<void> {
  await client.query(
    `update ${quote(opsSchema, 'coverage')} c set state = '${STORED_AS.changed}'
     where c.project_id = $1 and c.stream = $2 and c.state = '${STORED_AS.rejects}'
       and not exists (select from ${quote(opsSchema, 'quarantine')} q where q.resolved_at is null
         and q.project_id = c.project_id and q.stream = c.stream
         and (q.from_date is null or c.date between q.from_date and q.to_date))`,
    [projectId, stream],
  )
}

/** Days that lost rows to another day are due: either of the two days may be wrong. */
export async function markMoved(
  { ops }: Transaction,
  { projectId, stream }: ProjectStream,
  lost: ReadonlyMap<Day, number>,
): Promise<void> {
  for (const [date, rows] of lost) {
    await ops
      .updateTable('coverage')
      .set({ rows: sql<number>`greatest(0, rows - ${rows}::int)` })
      .where((eb) => eb.and({ project_id: projectId, stream, date }))
      .execute()
  }
  await markChanged({ ops }, projectId, { streams: [stream], days: [...lost.keys()] })
}

/** Days that were compared with their table later than they were read, and add up. */
export async function settleDays(
  { ops }: Pick<Warehouse, 'ops'>,
  { projectId, stream }: ProjectStream,
  days: readonly Day[],
): Promise<void> {
  await ops
    .updateTable('coverage')
    .set({ reconciled_at: sql`now()`, difference: null })
    .where((eb) => eb.and({ project_id: projectId, stream, state: STORED_AS.open }))
    .where('reconciled_at', 'is', null)
    .where(sql<boolean>`date = any(${[...days]}::date[])`)
    .execute()
}

/**
 * Forgets that settled days were read, because the table no longer has what was stored: reading them again is a repair of our copy,
 * and no change of the service.
 */
export async function forgetDays(
  { ops }: Pick<Warehouse, 'ops'>,
  { projectId, stream }: ProjectStream,
  days: readonly Day[],
): Promise<void> {
  await ops
    .deleteFrom('coverage')
    .where((eb) => eb.and({ project_id: projectId, stream, state: STORED_AS.settled }))
    .where(sql<boolean>`date = any(${[...days]}::date[])`)
    .execute()
}

/** What is known of one day of a stream, in the words of the tables. */
export interface DayOfStream {
  stream: string
  rows: number
  read_at: Date
  run_id: number
  state: CoverageState
  reviewedSince: Date | null
  difference: string | null
}

/** What is known of a day, for each stream of a project that read it. */
export function readDayOfStreams(
  { ops }: Warehouse,
  projectId: string,
  streams: readonly string[],
  day: Day,
): Promise<DayOfStream[]> {
  return ops
    .selectFrom('coverage')
    .select(['stream', 'rows', 'read_at', 'run_id', 'state', 'held_since as reviewedSince', 'difference'])
    .where((eb) => eb.and({ project_id: projectId, date: day }))
    .where(sql<boolean>`stream = any(${[...streams]}::text[])`)
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
  { pool, opsSchema }: Warehouse,
  { streams, runId }: { streams: readonly string[]; runId: number },
): Promise<DifferingDay[]> {
  const { rows } = await pool.query<DifferingDay>(
    `update ${quote(opsSchema, 'coverage')} c set state = '${STORED_AS.differs}', reconciled_at = null, difference = $3
     from (
       select distinct project_id, date from (
         select project_id, date, count(*) over (partition by filters, date, rows_digest) as projects
         from ${quote(opsSchema, 'control_totals')} where run_id = $1 and totals <> '{}'
       ) t where projects > 1
     ) s
     where c.project_id = s.project_id and c.date = s.date and c.stream = any($2) and c.run_id = $1
       and (c.state = '${STORED_AS.settled}' or c.difference = $3)
     returning c.project_id as "projectId", c.stream, c.date, c.difference`,
    [runId, streams, SHARED],
  )
  return rows
}

/** The days of streams that became due after they were planned. `isOfRun` shows that this run read them. */
export async function readChanged(
  { ops }: Warehouse,
  projectIds: readonly string[],
  { streams, range, runId }: { streams: readonly string[]; range: Range; runId: number },
): Promise<(ProjectStream & { date: Day; isOfRun: boolean })[]> {
  const rows = await ops
    .selectFrom('coverage')
    .select(['project_id as projectId', 'stream', 'date', 'run_id'])
    .where('state', '=', STORED_AS.changed)
    .where(sql<boolean>`project_id = any(${[...projectIds]}::text[]) and stream = any(${[...streams]}::text[])`)
    .where((eb) => eb.between('date', range.from, range.to))
    .orderBy('date')
    .execute()
  return rows.map(({ run_id, ...day }) => ({ ...day, isOfRun: Number(run_id) === runId }))
}

/** How many days of each stream changed since they were read. */
export async function countChanged(
  { pool, opsSchema }: Warehouse,
  projectIds: readonly string[],
  { streams, range }: { streams: readonly string[]; range: Range },
): Promise<{ stream: string; days: number }[]> {
  const { rows } = await pool.query<{ stream: string; days: number }>(
    `select stream, count(*)::int as days from ${quote(opsSchema, 'coverage')}
     where project_id = any($1) and stream = any($2) and state = '${STORED_AS.changed}' and date between $3 and $4
     group by 1 order by 1`,
    [projectIds, streams, range.from, range.to],
  )
  return rows
}

/** Days that a run loaded though they do not add up, because the service may still write them. */
export async function readOpenDays(
  { ops }: Warehouse,
  { projectIds, streams, runId }: { projectIds: readonly string[]; streams: readonly string[]; runId: number },
): Promise<{ stream: string; date: Day; difference: string }[]> {
  const rows = await ops
    .selectFrom('coverage')
    .select(['stream', 'date', 'difference'])
    .where((eb) => eb.and({ run_id: runId, state: STORED_AS.open }))
    .where(sql<boolean>`project_id = any(${[...projectIds]}::text[]) and stream = any(${[...streams]}::text[])`)
    .where('reconciled_at', 'is', null)
    .where('difference', 'is not', null)
    .orderBy('date')
    .orderBy('stream')
    .execute()
  return rows.map((row) => ({ ...row, difference: row.difference! }))
}

/** The days of a project on which a stream does not add up. */
export async function readDifferingDays(
  { ops }: Pick<Warehouse, 'ops'>,
  projectId: string,
  days: readonly Day[],
): Promise<Set<Day>> {
  const rows = await ops
    .selectFrom('coverage')
    .select('date')
    .distinct()
    .where((eb) => eb.and({ project_id: projectId, state: STORED_AS.differs }))
    .where(sql<boolean>`date = any(${[...days]}::date[])`)
    .execute()
  return new Set(rows.map(({ date }) => date))
}

/** The state of a list in the ledger before a load. */
export interface PriorList {
  /** True if rows of it wait in quarantine, or its state on some day is not settled. */
  isUnsettled: boolean
  /** Since when it is in review, so that a new day's entry keeps the date. */
  reviewedSince: Date | null
}

export function priorList({ opsSchema }: Warehouse, projectStream: ProjectStream): Statement<PriorList> {
  const isOfList = `project_id = ${literal(projectStream.projectId)} and stream = ${literal(projectStream.stream)}`
  const coverage = quote(opsSchema, 'coverage')
  const sql = `select exists (select from ${quote(opsSchema, 'quarantine')} where ${isOfList} and resolved_at is null)
      or exists (select from ${coverage} where ${isOfList} and state <> '${STORED_AS.settled}') as "isUnsettled",
      (select min(held_since) from ${coverage} where ${isOfList}) as "reviewedSince"`
  return { sql, read: ([row]: PriorList[]) => row! }
}

/** After a list was read whole, all earlier days of it are settled. */
export async function settleEarlierDays(
  { ops }: Transaction,
  { projectId, stream }: ProjectStream,
  before: Day,
): Promise<void> {
  await ops
    .updateTable('coverage')
    .set({ state: STORED_AS.settled, held_since: null })
    .where((eb) => eb.and({ project_id: projectId, stream }))
    .where('date', '<', before)
    .where('state', '<>', STORED_AS.settled)
    .execute()
}

/** The days of a stream and project that are in review, as one range. */
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
  const { rows } = await warehouse.pool.query<ReviewedRange & { total: number }>(
    `select project_id, stream, min(date) as "from", max(date) as "to", min(since) as since, count(*) over () as total
     from (
       select project_id, stream, date, coalesce(held_since, read_at) as since,
         date - row_number() over (partition by project_id, stream order by date)::int as stretch
       from ${quote(warehouse.opsSchema, 'coverage')} where state = '${STORED_AS.vanishing}'
     ) days
     group by project_id, stream, stretch order by project_id, stream, min(date) limit $1`,
    [most ?? null],
  )
  const ranges = rows.map(({ total: _total, ...range }) => range)
  return { ranges, total: rows[0]?.total ?? 0 }
}

/** Whether every day of a range is in review, as it must be before its deletions are let through. */
export async function isInReview(
  { ops }: Warehouse,
  { projectId, stream }: ProjectStream,
  range: Range,
): Promise<boolean> {
  const days = await ops
    .selectFrom('coverage')
    .select('date')
    .where((eb) => eb.and({ project_id: projectId, stream, state: STORED_AS.vanishing }))
    .where((eb) => eb.between('date', range.from, range.to))
    .execute()
  return days.length > 0 && days.length === countDays(range)
}

/** Days of a stream that do not add up to the totals of the service. */
export interface DifferingRange {
  project_id: string
  stream: string
  days: number
  first_day: Day
  last_day: Day
  /** How the last of them differs. */
  difference: string
}

/** What people must know of a report of which rows are left out. */
export const OMITS_ROWS =
  'the service leaves out rows, so shares over several groups or days are too high, and prompts without mentions may not be found'

/**
 * The streams with days that differ. Settled days differ if the service leaves rows out of a report, or gives fewer chats than it
 * counts in each of three readings.
 */
export async function readDiffering(
  { pool, opsSchema }: Warehouse,
  state: 'differs' | 'settled',
  projectId?: string,
): Promise<DifferingRange[]> {
  const { rows } = await pool.query<DifferingRange>(
    `select project_id, stream, count(*)::int as days, min(date) as first_day, max(date) as last_day,
       (array_agg(difference order by date desc))[1] as difference
     from ${quote(opsSchema, 'coverage')}
     where state = $1 and difference is not null and ($1 <> '${STORED_AS.settled}' or reconciled_at is not null)
       and ($2::text is null or project_id = $2)
     group by 1, 2 order by 1, 2`,
    [STORED_AS[state], projectId],
  )
  return rows
}
