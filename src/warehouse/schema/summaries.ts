import { type RawBuilder, sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import { addDays, type Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable } from '../database.ts'
import { inTransaction, LONG_WORK, type Transaction } from '../transaction.ts'
import { fillIn, readSql } from './sql-files.ts'
import { applyText, readFingerprints, reportBy } from './views.ts'

/*
 * Summaries that views read besides the rows, because computing them for each query is slow: sums of the report by prompt and model for
 * each week and month, and the usual values of a brand on each day of the report by day.
 *
 * A load notes the days that it changes in its own transaction. Views sum the noted weeks and months on the fly, and have no
 * usual value where it depends on a noted day. The end of a run computes what was noted. Rows that somebody else changed
 * are found by `recheckSummaries`.
 */

const CHATS = 'chats'

function summarized({ reports }: Config): { byPrompt: string | undefined; byDay: string | undefined } {
  return {
    byPrompt: reportBy(reports, ['date', 'prompt_id', 'model_id'])?.name,
    byDay: reportBy(reports, ['date'])?.name,
  }
}

/**
 * Points the functions at the configured reports. If one changed, or the table of a report is new, everything is computed again.
 * If a report is no longer configured, views go on reading what they were made for.
 */
export async function applySummaries(tx: Transaction, config: Config, newTables: readonly string[]): Promise<void> {
  const { byPrompt, byDay } = summarized(config)
  const fingerprints = await readFingerprints(tx)
  const apply = async (report: string, functions: readonly string[]) => {
    let isNew = newTables.includes(report)
    for (const name of functions) {
      const text = fillIn(readSql(`functions/${name}`), tx, report)
      isNew = (await applyText(tx, name, { text, fingerprints })) || isNew
    }
    return isNew
  }
  const { db } = tx
  if (byPrompt !== undefined && (await apply(byPrompt, ['sums_of', 'counts_of']))) {
    // A load that is not committed yet may rely on an entry that is about to be deleted.
    await sql`lock table ops.open_periods in exclusive mode`.execute(db)
    for (const table of ['prompt_sums', 'prompt_days', 'open_periods'])
      await sql`delete from ${sql.table(`ops.${table}`)}`.execute(db)
    for (const table of [byPrompt, CHATS]) {
      await openPeriods(table, sql`select distinct project_id, date from ${dataTable(table)}`).execute(tx.db)
    }
  }
  if (byDay !== undefined && (await apply(byDay, ['usual_of']))) {
    await sql`lock table ops.usual_projects in exclusive mode`.execute(db)
    for (const table of ['usual_days', 'usual_projects'])
      await sql`delete from ${sql.table(`ops.${table}`)}`.execute(db)
  }
}

function openPeriods(table: string, days: RawBuilder<unknown>): RawBuilder<object> {
  return sql`
    insert into ops.open_periods
    select distinct d.project_id, ${table}, p.unit, p.start
    from (${days}) d cross join lateral ops.periods_of(d.date) p
    on conflict do nothing`
}

export function noteChangedDays(
  config: Config,
  { projectId, table, days }: { projectId: string; table: string; days: readonly Day[] },
): RawBuilder<unknown>[] {
  if (days.length === 0) return []
  const { byPrompt, byDay } = summarized(config)
  const statements: RawBuilder<unknown>[] = []
  if (table === byPrompt || table === CHATS)
    statements.push(openPeriods(table, sql`select ${projectId} as project_id, unnest(${days}::date[]) as date`))
  if (table === byDay) {
    statements.push(
      sql`
        insert into ops.usual_projects as u (project_id, due_days) values (${projectId}, ${days}::date[])
        on conflict (project_id) do update
        set due_days = array(select unnest(u.due_days) union select unnest(excluded.due_days))`,
      // The days that are compared with a changed one. The usual values of the changed day itself depend on others.
      sql`
        delete from ops.usual_days where project_id = ${projectId}
          and date in (select day + 7 * week from unnest(${days}::date[]) day cross join generate_series(1, 8) week)`,
    )
  }
  return statements
}

/** Notes weeks whose sums differ from their rows, and all usual values: somebody else may have changed rows. */
export async function recheckSummaries(warehouse: Warehouse, config: Config): Promise<void> {
  const { byPrompt } = summarized(config)
  if (byPrompt !== undefined) {
    const days = sql.raw(fillIn(readSql('queries/differing_weeks'), warehouse, byPrompt))
    await openPeriods(byPrompt, days).execute(warehouse.slowDb)
  }
  await sql`update ops.usual_projects set is_due = true where not is_due`.execute(warehouse.db)
}

const MANY_ROWS = 1000
const MANY_OF_A_TABLE = 0.1

/** Autovacuum would do so some minutes later, and does so for columns without an index. */
export async function analyzeChanged(
  { schema, slowDb }: Warehouse,
  changes: readonly { stream: string; inserted: number; updated: number; deleted: number }[],
  tableOf: (stream: string) => string | undefined,
): Promise<void> {
  const changed = new Map<string, number>()
  for (const { stream, inserted, updated, deleted } of changes) {
    const table = tableOf(stream)
    if (table !== undefined) changed.set(table, (changed.get(table) ?? 0) + inserted + updated + deleted)
  }
  for (const [table, rows] of changed) {
    if (rows < MANY_ROWS) continue
    const name = quote(schema, table)
    const { rows: found } = await sql<{ columns: string }>`
      select string_agg(distinct quote_ident(a.attname), ', ') as columns
      from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
      where i.indrelid = ${name}::regclass
      having ${rows / MANY_OF_A_TABLE} >= (
        select sum(reltuples) from pg_class c
        left join pg_inherits p on p.inhrelid = c.oid and p.inhparent = ${name}::regclass
        where c.oid = ${name}::regclass or p.inhrelid is not null)`.execute(slowDb)
    if (found.length > 0) await sql`analyze ${dataTable(table)} (${sql.raw(found[0]!.columns)})`.execute(slowDb)
  }
}

/** Returns how many periods and projects; fewer than there are if it was asked to stop. */
export async function refreshSummaries(warehouse: Warehouse, config: Config, signal: AbortSignal): Promise<number> {
  return (await sumOpenPeriods(warehouse, config, signal)) + (await renewUsualDays(warehouse, config, signal))
}

/** Days before the first one that is left were dropped with their partition. */
async function openDropped(warehouse: Warehouse, report: string): Promise<void> {
  const firstOf = (table: string) =>
    sql`coalesce((select min(date) from ${dataTable(table)} t where t.project_id = p.project_id), 'infinity')`
  // Materialized, because Postgres would look the first days up for each day that was summed.
  const dropped = sql`
    with first as materialized (
      select p.project_id, ${firstOf(report)} as answers, ${firstOf(CHATS)} as chats from data.projects p
    )
    select d.project_id, d.date from first f join ops.prompt_days d on d.project_id = f.project_id
      and d.date < greatest(f.answers, f.chats)
    where d.answers > 0 and d.date < f.answers or d.chats > 0 and d.date < f.chats`
  await openPeriods(report, dropped).execute(warehouse.db)
}

interface OpenPeriods {
  project_id: string
  unit: 'week' | 'month'
  starts: Day[]
}

// Loads that open a period wait while periods are summed, so only some are summed at a time.
const PERIODS_AT_ONCE = 13
const ROWS_WORTH_ANALYZING = 10_000

async function sumOpenPeriods(warehouse: Warehouse, config: Config, signal: AbortSignal): Promise<number> {
  const { byPrompt } = summarized(config)
  const { db } = warehouse
  if (byPrompt !== undefined) await openDropped(warehouse, byPrompt)
  const { rows: found } = await sql`select from ops.open_periods limit 1`.execute(db)
  if (found.length === 0) return 0
  let periods = 0
  let written = 0
  while (!signal.aborted) {
    const sumSome = async (tx: Transaction) => {
      // Once we hold the lock, every earlier change is committed. Later changes open their periods again.
      await sql`lock table ops.open_periods in exclusive mode`.execute(tx.db)
      const { rows: open } = await sql<OpenPeriods>`
        select project_id, unit, array_agg(start::text order by start) as starts from (
          select distinct project_id, unit, start from ops.open_periods order by 1, 2, 3 limit ${PERIODS_AT_ONCE}
        ) o group by 1, 2`.execute(tx.db)
      let rows = 0
      for (const some of open) rows += await sum(tx, some)
      return { summed: open.reduce((total, { starts }) => total + starts.length, 0), rows }
    }
    const { summed, rows } = await inTransaction(warehouse, sumSome, signal)
    periods += summed
    written += rows
    if (summed < PERIODS_AT_ONCE) break
  }
  // A table that was just filled has no statistics, and plans without them are slow.
  if (written >= ROWS_WORTH_ANALYZING) await sql`analyze ops.prompt_sums, ops.prompt_days`.execute(db)
  return periods
}

async function sum({ db }: Transaction, { project_id, unit, starts }: OpenPeriods): Promise<number> {
  const isOfPeriods = sql`project_id = ${project_id} and unit = ${unit} and start = any(${starts}::date[])`
  await sql`delete from ops.prompt_sums where ${isOfPeriods}`.execute(db)
  const sums = await sql`
    insert into ops.prompt_sums
    select * from ops.sums_of_periods(${project_id}, ${unit}, ${starts}::date[])`.execute(db)
  let rows = Number(sums.numAffectedRows ?? 0)
  if (unit === 'week') {
    // The days too, since they have the index.
    await sql`
      delete from ops.prompt_days where project_id = ${project_id} and week = any(${starts}::date[])
        and date between ${starts[0]} and ${addDays(starts.at(-1)!, 6)}`.execute(db)
    const counts = await sql`
      insert into ops.prompt_days
      select g.* from unnest(${starts}::date[]) monday
      cross join lateral ops.counts_of(${project_id}, monday) g`.execute(db)
    rows += Number(counts.numAffectedRows ?? 0)
  }
  await sql`delete from ops.open_periods where ${isOfPeriods}`.execute(db)
  return rows
}

async function renewUsualDays(warehouse: Warehouse, config: Config, signal: AbortSignal): Promise<number> {
  const { byDay } = summarized(config)
  if (byDay === undefined) return 0
  const table = dataTable(byDay)
  const { rows: stale } = await sql<{ project_id: string }>`
    select p.project_id
    from data.projects p
    left join ops.usual_projects u on u.project_id = p.project_id
    cross join lateral (select min(date) as first from ${table} where project_id = p.project_id) r
    where u.is_due is not false or u.due_days <> '{}' or r.first is distinct from u.first_day
    order by 1`.execute(warehouse.db)
  let renewed = 0
  for (const { project_id } of stale) {
    if (signal.aborted) break
    await inTransaction(warehouse, (tx) => renewProject(tx, table, project_id), signal, LONG_WORK)
    renewed++
  }
  if (renewed > 0) await sql`analyze ops.usual_days`.execute(warehouse.db)
  return renewed
}

/** The first day of each brand, and the baselines of days that changed, or whose eight weeks before changed. */
async function renewProject({ db }: Transaction, table: RawBuilder<unknown>, projectId: string): Promise<void> {
  const first = sql`(select min(date) from ${table} where project_id = ${projectId})`
  await sql`
    insert into ops.usual_projects (project_id, is_due) values (${projectId}, true) on conflict do nothing`.execute(db)
  // Once we hold the lock, every earlier change is committed. Later changes are noted again.
  await sql`select from ops.usual_projects where project_id = ${projectId} for update`.execute(db)
  await sql`
    select ops.renew_usual(${projectId}, array(
      select date from (
        select date from ${table} where project_id = ${projectId}
        union select date from ops.usual_days where project_id = ${projectId}
      ) d cross join ops.usual_projects u
      where u.project_id = ${projectId} and (u.is_due
        or date in (select day + 7 * week from unnest(u.due_days) day cross join generate_series(0, 8) week)
        or u.first_day < coalesce(${first}, 'infinity') and date < coalesce(${first} + 56, 'infinity'))))`.execute(db)
  await sql`
    update data.brands b set first_seen_on = r.first
    from (select brand_id, min(date) as first from ${table} where project_id = ${projectId} group by brand_id) r
    where b.project_id = ${projectId} and b.brand_id = r.brand_id and b.first_seen_on is distinct from r.first`.execute(
    db,
  )
  await sql`
    update ops.usual_projects set is_due = false, due_days = '{}', first_day = ${first}
    where project_id = ${projectId}`.execute(db)
}
