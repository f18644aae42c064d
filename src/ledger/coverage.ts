import { sql } from 'kysely'
import { type Day, daysIn, type Range } from '../core/day.ts'
import { StaleReadError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Transaction, Warehouse } from '../warehouse/connect.ts'
import type { CoverageState } from '../warehouse/database.ts'
import type { Pair } from './locks.ts'

export interface CoveredDay {
  date: Day
  rows: number
  state: CoverageState
  readAt: Date
}

/** What is known of each day of a stream within a range, oldest first. */
export async function readCoverage({ ops }: Warehouse, pair: Pair, range: Range): Promise<CoveredDay[]> {
  const rows = await ops
    .selectFrom('coverage')
    .select(['date', 'rows', 'state', 'read_at'])
    .where('project_id', '=', pair.projectId)
    .where('stream', '=', pair.stream)
    .where('date', '>=', range.from)
    .where('date', '<=', range.to)
    .orderBy('date')
    .execute()
  return rows.map(({ read_at, ...day }) => ({ ...day, readAt: read_at }))
}

/** A number for a read, taken before the request is sent, and the database's time. */
export async function beginRead({ pool, opsSchema }: Warehouse): Promise<{ readOrder: number; readAt: Date }> {
  const { rows } = await pool.query<{ read_order: number; read_at: Date }>(
    `select nextval('${quote(opsSchema, 'read_order')}') as read_order, clock_timestamp() as read_at`,
  )
  return { readOrder: rows[0]!.read_order, readAt: rows[0]!.read_at }
}

/** Loads of one project and stream go one after the other: each then sees what the one before it wrote. */
export async function lockLoads({ client }: Transaction, warehouse: Warehouse, pair: Pair): Promise<void> {
  await client.query('select pg_advisory_xact_lock(hashtextextended($1, 1))', [
    JSON.stringify([warehouse.schema, pair.projectId, pair.stream]),
  ])
}

/** The days of a range that were read before. Throws where one of them was read after this read began. */
export async function daysReadBefore(
  { ops }: Transaction,
  pair: Pair,
  range: Range,
  readOrder: number,
): Promise<Set<Day>> {
  const rows = await ops
    .selectFrom('coverage')
    .select(['date', 'read_order'])
    .where('project_id', '=', pair.projectId)
    .where('stream', '=', pair.stream)
    .where('date', '>=', range.from)
    .where('date', '<=', range.to)
    .execute()
  const newer = rows.find((row) => row.read_order > readOrder)
  if (newer !== undefined) {
    throw new StaleReadError(
      `${pair.stream} ${newer.date}: a newer read was loaded meanwhile, so this one was not written`,
    )
  }
  return new Set(rows.map(({ date }) => date))
}

export interface CoverageEntry {
  pair: Pair
  range: Range
  rowsByDay: Map<Day, number>
  state: CoverageState
  readOrder: number
  readAt: Date
  runId: number
  /** Since when it is held, where that is known from before. */
  heldSince?: Date | undefined
}

/** Writes down that every day of the range was read. */
export async function saveCoverage({ ops }: Transaction, entry: CoverageEntry): Promise<void> {
  const days = daysIn(entry.range)
  const rows = days.map((day) => entry.rowsByDay.get(day) ?? 0)
  const { pair, state, readOrder, readAt, runId } = entry
  const held = state === 'held' ? (entry.heldSince ?? readAt) : null
  await ops
    .insertInto('coverage')
    .columns(['project_id', 'stream', 'date', 'rows', 'read_at', 'run_id', 'state', 'read_order', 'held_since'])
    .expression(
      sql`select ${pair.projectId}::text, ${pair.stream}::text, day.date, day.rows, ${readAt}::timestamptz, ${runId}::bigint, ${state}::text,
            ${readOrder}::bigint, ${held}::timestamptz
          from unnest(${days}::date[], ${rows}::int[]) as day(date, rows)` as never,
    )
    .onConflict((conflict) =>
      conflict.columns(['project_id', 'stream', 'date']).doUpdateSet((eb) => ({
        rows: eb.ref('excluded.rows'),
        read_at: eb.ref('excluded.read_at'),
        run_id: eb.ref('excluded.run_id'),
        state: eb.ref('excluded.state'),
        read_order: eb.ref('excluded.read_order'),
        held_since: sql<Date | null>`case when excluded.held_since is null then null else coalesce(coverage.held_since, excluded.held_since) end`,
      })),
    )
    .execute()
}

/** A list that was read whole settles what earlier days left held or quarantined. */
export async function settleList({ ops }: Transaction, pair: Pair, before: Day): Promise<void> {
  await ops
    .updateTable('coverage')
    .set({ state: 'read', held_since: null })
    .where('project_id', '=', pair.projectId)
    .where('stream', '=', pair.stream)
    .where('date', '<', before)
    .where('state', '<>', 'read')
    .execute()
}

/** Since when a list is held, so that a new day's entry keeps the date. */
export async function heldSince({ ops }: Transaction, pair: Pair): Promise<Date | undefined> {
  const row = await ops
    .selectFrom('coverage')
    .select(({ fn }) => fn.min('held_since').as('since'))
    .where('project_id', '=', pair.projectId)
    .where('stream', '=', pair.stream)
    .executeTakeFirst()
  return row?.since ?? undefined
}

/** Marks days as stale: the next run reads them again. */
export async function markStale({ ops }: Warehouse, pair: Pair, days: Day[]): Promise<void> {
  if (days.length === 0) return
  await ops
    .updateTable('coverage')
    .set({ state: 'stale' })
    .where('project_id', '=', pair.projectId)
    .where('stream', '=', pair.stream)
    .where('date', 'in', days)
    .where('state', '=', 'read')
    .execute()
}
