import type { PoolClient } from 'pg'
import type { Config, ReportConfig } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { reportStream } from '../../streams/registry.ts'
import type { Column, ColumnType } from '../../streams/stream.ts'
import { ID_MAX } from '../../streams/text-limits.ts'
import type { Warehouse } from '../connect.ts'
import type { Ops } from '../database.ts'

/** A connection in a transaction, and typed queries of the ops schema on it. */
export interface Database {
  client: PoolClient
  ops: Ops
}

/** Makes the tables of configured reports that have none yet, and returns their names. */
export async function ensureReportTables(
  database: Database,
  warehouse: Warehouse,
  { reports, warehouse: { partition } }: Config,
): Promise<string[]> {
  const known = new Map((await readReports(database.ops)).map((report) => [report.name, report]))
  const made: string[] = []
  for (const report of reports) {
    if (await ensureReportTable(database, warehouse, { report, partition, known: known.get(report.name) }))
      made.push(report.name)
  }
  return made
}

/** The reports that have tables, configured or not. */
export async function readReports(ops: Ops): Promise<ReportConfig[]> {
  const known = await ops
    .selectFrom('reports')
    .select(['name', 'of', 'dimensions', 'filters'])
    .orderBy('name')
    .execute()
  return known as unknown as ReportConfig[]
}

interface WantedReport {
  report: ReportConfig
  partition: Config['warehouse']['partition']
  /** What its table was made for, if there is one. */
  known: ReportConfig | undefined
}

/**
 * Makes the table of a report; true if it was made now. A changed breakdown or filter under a name that exists is
 * refused: old and new rows would be mixed, and no column would distinguish them.
 */
async function ensureReportTable(
  { client, ops }: Database,
  warehouse: Warehouse,
  { report, partition, known }: WantedReport,
): Promise<boolean> {
  const dimensions = [...report.dimensions].sort()
  if (known !== undefined) {
    const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)
    if (!same([...known.dimensions].sort(), dimensions)) {
      throw changed(report.name, 'dimensions', known.dimensions.join(', '), report.dimensions.join(', '))
    }
    if (!same(sortedFilters(known.filters), sortedFilters(report.filters))) {
      throw changed(report.name, 'filters', JSON.stringify(known.filters), JSON.stringify(report.filters))
    }
    const subjectOf = ({ of = 'brands' }: ReportConfig) => of
    if (subjectOf(known) !== subjectOf(report)) throw changed(report.name, 'rows', subjectOf(known), subjectOf(report))
    return false
  }
  const table = quote(warehouse.schema, report.name)
  const { rows } = await client.query<{ there: boolean }>('select to_regclass($1) is not null as there', [table])
  if (rows[0]?.there) {
    throw new UsageError(
      `reports: "${report.name}" would need the table ${warehouse.schema}.${report.name}, which exists and was not made by ` +
        'visibility-sync; give the report another name',
    )
  }
  await createReportTable(client, warehouse, report, partition)
  await ops
    .insertInto('reports')
    .values({
      name: report.name,
      dimensions: report.dimensions,
      filters: JSON.stringify(report.filters),
      of: report.of ?? 'brands',
    })
    .execute()
  return true
}

/**
 * Windows are read newest first, so the index has the newest day first: then a first load always adds at its end, which
 * makes it a third smaller and loads a quarter faster than adding in the middle. Earlier tables have it in the other
 * direction; what is attached to one another must have the same.
 */
export async function createReportTable(
  client: PoolClient,
  warehouse: Warehouse,
  report: ReportConfig,
  partition: Config['warehouse']['partition'],
  newestFirst = true,
): Promise<void> {
  await createDayTable(client, warehouse, reportStream(report), partition, newestFirst)
}

/** The same for any stream that is read by days and has the date in its key. */
export async function createDayTable(
  client: PoolClient,
  warehouse: Warehouse,
  stream: { table: string; columns: readonly Column[]; key: readonly string[] },
  partition: Config['warehouse']['partition'],
  newestFirst = true,
): Promise<void> {
  const keys = stream.key.filter((name) => name !== 'date')
  const [own] = keys
  const columns = [
    'project_id text collate "C" not null',
    ...columnsSql(stream.columns, (name) => name === 'date' || name === own),
    'changed_at timestamptz not null default now()',
  ]
  // Room on each page lets most restated rows be updated in place, without touching the index.
  const layout = partition === 'month' ? 'partition by range (date)' : 'with (fillfactor = 90)'
  const table = quote(warehouse.schema, stream.table)
  // An index entry has a size limit, which addresses of pages may exceed.
  const isLong = (name: string) => (stream.columns.find((column) => column.name === name)?.longest ?? 0) > ID_MAX
  const rest = keys.map((name) => (isLong(name) ? `md5(${quote(name)})` : quote(name))).join(', ')
  // A primary key allows no nulls, and a dimension may be null; nor expressions.
  const isPlain = keys.length === 1 && !isLong(own!)
  const primary = isPlain ? [`primary key (project_id, date, ${rest})`] : []
  await client.query(`create table ${table} (${[...columns, ...primary].join(', ')}) ${layout}`)
  if (isPlain) return
  await client.query(
    newestFirst
      ? `create unique index on ${table} (project_id, date desc, ${rest}) nulls not distinct`
      : `alter table ${table} add unique nulls not distinct (project_id, date, ${rest})`,
  )
}

const SQL_TYPES: Record<ColumnType, string> = {
  text: 'text',
  // It holds every JSON number exactly as it was read; numeric was measured five times slower to compare.
  double: 'double precision',
  date: 'date',
  jsonb: 'jsonb',
  boolean: 'boolean',
}

/** The columns of a table. Texts that are ids are compared byte by byte. */
export function columnsSql(columns: readonly Column[], isRequired: (name: string) => boolean): string[] {
  return columns.map(({ name, type }) => {
    const collation = type === 'text' ? ' collate "C"' : ''
    return `${quote(name)} ${SQL_TYPES[type]}${collation}${isRequired(name) ? ' not null' : ''}`
  })
}

/** In which direction a table has its days. */
export async function isNewestFirst(client: PoolClient, table: string): Promise<boolean> {
  const { rows } = await client.query(
    'select from pg_index where indrelid = to_regclass($1) and indisunique and indnullsnotdistinct and indoption[1] & 1 = 1',
    [table],
  )
  return rows.length > 0
}

function sortedFilters(filters: ReportConfig['filters']): unknown {
  return filters.map(({ field, operator, values }) => [field, operator, [...values].sort()]).sort()
}

function changed(name: string, what: string, was: string, is: string): UsageError {
  return new UsageError(
    `reports: the ${what} of "${name}" were ${was || 'none'} and are now ${is || 'none'}. Its table holds rows of the old ` +
      'kind, and mixing them would make both wrong: give the new breakdown another name, or drop the old table and its ' +
      `entry in the reports table first (docs/operations.md)`,
  )
}
