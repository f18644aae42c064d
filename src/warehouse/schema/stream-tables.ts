import { isDeepStrictEqual } from 'node:util'
import { type RawBuilder, sql } from 'kysely'
import type { Config, ReportConfig } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import { count, helpOn } from '../../core/text.ts'
import { definedStream, ID_MAX } from '../../streams/defined-stream.ts'
import { EXTRA } from '../../streams/keep-unknown.ts'
import { reportStream, StreamSet } from '../../streams/registry.ts'
import { customDefinition } from '../../streams/source-report.ts'
import type { ColumnType, Stream } from '../../streams/stream.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable } from '../database.ts'
import type { Transaction } from '../transaction.ts'

/* The tables of reports and custom streams, which have the names that the configuration gives them. */

type CustomStream = Config['custom_streams'][number]
type TableStream = Pick<Stream, 'table' | 'columns' | 'key' | 'by'>

export type Relations = ReadonlyMap<string, ReadonlySet<string>>

export async function readRelations({ db }: Warehouse, schema: string): Promise<Relations> {
  const { rows } = await sql<{ name: string; columns: string[] }>`
    select c.relname as name, array_agg(a.attname::text) as columns
    from pg_class c left join pg_attribute a on a.attrelid = c.oid and attnum > 0 and not attisdropped
    where c.relnamespace = to_regnamespace(quote_ident(${schema})) and c.relkind <> 'i' and not c.relispartition group by 1`.execute(
    db,
  )
  return new Map(rows.map(({ name, columns }) => [name, new Set(columns)]))
}

export async function readReports({ db }: Warehouse): Promise<ReportConfig[]> {
  const known = await db
    .selectFrom('ops.reports')
    .select(['name', 'of', 'dimensions', 'filters', 'having'])
    .orderBy('name')
    .execute()
  return known.map(({ having, ...report }) => ({
    ...report,
    ...(having !== null && { having }),
  })) as unknown as ReportConfig[]
}

/**
 * Makes the tables of configured reports and custom streams that have none yet. A table or column that somebody dropped is made
 * again, and the days of its stream become due; `repaired` describes each. A changed definition under a name that exists is refused:
 * old and new rows would be mixed, and no column would distinguish them.
 */
export async function ensureStreamTables(
  tx: Transaction,
  config: Config,
): Promise<{ made: string[]; remade: string[]; repaired: string[] }> {
  const { db, schema } = tx
  const { reports, custom_streams } = config
  const known = await refuseChanged(tx, config)
  const there = await readRelations(tx, schema)
  const made: string[] = []
  /** By table. */
  const repaired = new Map<string, string>()
  const ensure = async (
    stream: TableStream,
    setting: 'reports' | 'custom_streams',
    remember: { execute(): Promise<unknown> },
  ) => {
    const { table } = stream
    const partition = setting === 'reports' ? config.warehouse.partition : 'none'
    if (known[setting].some(({ name }) => name === table)) {
      const note = await repairTable(tx, { stream, columns: there.get(table), partition })
      if (note !== undefined) repaired.set(table, note)
      return
    }
    if (there.has(table)) {
      throw new UsageError(
        `${setting}: "${table}" would need the table ${schema}.${table}, which exists and was not made ` +
          'by visibility-sync; choose another name',
      )
    }
    await createStreamTable(tx, stream, { partition })
    await remember.execute()
    made.push(table)
  }
  for (const report of reports) {
    const { name, dimensions, of = 'brands' } = report
    const filters = JSON.stringify(report.filters)
    const having = report.having && JSON.stringify(report.having)
    const values = { name, dimensions, filters, of, having }
    await ensure(reportStream(report), 'reports', db.insertInto('ops.reports').values(values))
  }
  // Views go on reading reports of domains and URLs that are no longer configured, so these get new columns, too.
  for (const report of known.reports) {
    const isOther = report.of !== 'brands' && !reports.some(({ name }) => name === report.name)
    const columns = there.get(report.name)
    if (isOther && columns !== undefined)
      await repairTable(tx, { stream: reportStream(report), columns, partition: 'none' })
  }
  for (const custom of custom_streams) {
    const values = { name: custom.name, definition: meaningOf(custom) }
    const stream = definedStream(customDefinition(custom))
    await ensure(stream, 'custom_streams', db.insertInto('ops.custom_streams').values(values))
  }
  await addExtraColumns(tx, config, there)
  return { made, remade: [...repaired.keys()], repaired: [...repaired.values()] }
}

/** Days that are there get their fields when they are read again. */
async function addExtraColumns(tx: Transaction, config: Config, there: Relations): Promise<void> {
  if (config.keep_unknown_fields === false) return
  for (const { keepsUnknown, table } of new StreamSet(config).all) {
    if (!keepsUnknown || there.get(table)?.has(EXTRA)) continue
    await sql`alter table ${dataTable(table)} add column ${sql.id(EXTRA)} jsonb`.execute(tx.db)
    await sql`
      comment on column ${dataTable(table)}.${sql.id(EXTRA)}
      is 'Fields that the API does not document, as the service sent them.'`.execute(tx.db)
  }
}

/** Returns the definitions that tables were made for. */
export async function refuseChanged(warehouse: Warehouse, { reports, custom_streams }: Config) {
  const knownReports = await readReports(warehouse)
  for (const known of knownReports) {
    const report = reports.find(({ name }) => name === known.name)
    if (report !== undefined) refuseChangedReport(known, report)
  }
  const { db } = warehouse
  const streams = custom_streams.length === 0 ? [] : await db.selectFrom('ops.custom_streams').selectAll().execute()
  for (const { name, definition } of streams) {
    const custom = custom_streams.find((stream) => stream.name === name)
    if (custom === undefined || meaningOf(definition as CustomStream) === meaningOf(custom)) continue
    throw new UsageError(
      `custom_streams: the definition of "${name}" changed, and its table has rows of the old one: give the new one ` +
        `another name, or drop the old table and its entry in the custom_streams table first (${helpOn('exit-codes')})`,
    )
  }
  return { reports: knownReports, custom_streams: streams }
}

interface KnownTable {
  stream: TableStream
  columns: ReadonlySet<string> | undefined
  partition: Config['warehouse']['partition']
}

/** The missing part of a table that was created before: "table x", "column x.y"; undefined if it is complete. */
export function missingOf(
  { stream, columns }: Omit<KnownTable, 'partition'>,
  { schema }: Warehouse,
): string | undefined {
  const table = `${schema}.${stream.table}`
  if (columns === undefined) return `the table ${table}`
  const missing = columnsOf(stream).filter(({ name }) => !columns.has(name))
  if (missing.length === 0) return undefined
  return `the ${missing.length === 1 ? 'column' : 'columns'} ${missing.map(({ name }) => name).join(', ')} of ${table}`
}

async function repairTable(tx: Transaction, table: KnownTable): Promise<string | undefined> {
  const { stream, columns, partition } = table
  const missing = missingOf(table, tx)
  if (missing === undefined) return undefined
  if (columns === undefined) await createStreamTable(tx, stream, { partition })
  else {
    const added = columnsOf(stream).filter(({ name }) => !columns.has(name))
    if (added.some(({ name }) => name === 'project_id' || stream.key.includes(name))) {
      throw new UsageError(
        `${missing} is missing, and is part of the key: drop that table, and the next run makes it again`,
      )
    }
    const additions = added.map(({ definition }) => sql`add column ${definition}`)
    await sql`alter table ${dataTable(stream.table)} ${sql.join(additions)}`.execute(tx.db)
  }
  // Nothing of the stream is read any more: a first read is no change of the service.
  const forgotten = await tx.db.deleteFrom('ops.coverage').where('stream', '=', stream.table).executeTakeFirst()
  return `${missing}: missing, and made again; ${count(Number(forgotten.numDeletedRows), 'day')} to be read again`
}

function refuseChangedReport(known: ReportConfig, report: ReportConfig): void {
  // The database keeps the fields of an object in another order.
  const stored = (value: unknown) => JSON.parse(JSON.stringify(value ?? null)) as unknown
  const now = meaningOfReport(report)
  for (const [at, { what, value, shown }] of meaningOfReport(known).entries()) {
    if (isDeepStrictEqual(stored(value), stored(now[at]!.value))) continue
    throw new UsageError(
      `reports: the ${what} of "${report.name}" were ${shown || 'none'} and are now ${now[at]!.shown || 'none'}. Its table holds rows of the old ` +
        'kind, and mixing them would make both wrong: give the new breakdown another name, or drop the old table and its ' +
        `entry in the reports table first (${helpOn('exit-codes')})`,
    )
  }
}

/** The settings that decide which rows a report has, with their names in messages. */
function meaningOfReport({ dimensions, filters, having, of = 'brands' }: ReportConfig) {
  const sorted = filters.map(({ field, operator, values }) => [field, operator, [...values].sort()]).sort()
  return [
    { what: 'dimensions', value: [...dimensions].sort(), shown: dimensions.join(', ') },
    { what: 'filters', value: sorted, shown: JSON.stringify(filters) },
    { what: 'having', value: having, shown: JSON.stringify(having) },
    { what: 'rows', value: of, shown: of },
  ]
}

/** The settings that decide which rows a custom stream has. Texts for people may change. */
function meaningOf({ name, path, method, by, dimensions, columns, key, adds }: CustomStream): string {
  const fields = columns.map((column) => ({ name: column.name, path: column.path, type: column.type }))
  return JSON.stringify({ name, path, method, by, dimensions, columns: fields, key, adds })
}

export const SQL_TYPES: Record<ColumnType, string> = {
  // Ids are compared byte by byte.
  text: 'text collate "C"',
  // It holds every JSON number exactly as it was read; numeric was measured five times slower to compare.
  double: 'double precision',
  date: 'date',
  jsonb: 'jsonb',
  boolean: 'boolean',
}

/** Types by the names that BI tools and lineage catalogues know: without the collation. */
export const SHOWN_TYPES = { ...SQL_TYPES, text: 'text' }

function columnsOf({ columns, key, by }: TableStream): { name: string; definition: RawBuilder<unknown> }[] {
  // Dimensions of a report may be null, apart from its day and its subject.
  const required = by === 'list' ? key : ['date', key.find((name) => name !== 'date')]
  const own =
    by === 'day'
      ? { changed_at: 'timestamptz not null default now()' }
      : { first_seen_at: 'timestamptz not null default now()', removed_at: 'timestamptz' }
  const types = [
    ['project_id', 'text collate "C" not null'],
    ...columns.map(({ name, type }) => [name, `${SQL_TYPES[type]}${required.includes(name) ? ' not null' : ''}`]),
    ...Object.entries(own),
  ] as [string, string][]
  return types.map(([name, type]) => ({ name, definition: sql`${sql.id(name)} ${sql.raw(type)}` }))
}

interface TableOptions {
  partition: Config['warehouse']['partition']
  newestFirst?: boolean
}

/**
 * Windows are read newest first, so the index has the newest day first: then a first load always adds at its end, which
 * makes it a third smaller and loads a quarter faster than adding in the middle. Earlier tables have the oldest day first, and
 * tables that are attached to each other must have the same order.
 */
export async function createStreamTable(
  { db }: Transaction,
  stream: TableStream,
  { partition, newestFirst = true }: TableOptions,
): Promise<void> {
  const table = dataTable(stream.table)
  const columns = columnsOf(stream).map(({ definition }) => definition)
  if (stream.by === 'list') {
    const key = sql.join(['project_id', ...stream.key].map((name) => sql.id(name)))
    await sql`create table ${table} (${sql.join(columns)}, primary key (${key}))`.execute(db)
    return
  }
  // Room on each page lets most restated rows be updated in place, without touching the index.
  const layout = sql.raw(partition === 'month' ? 'partition by range (date)' : 'with (fillfactor = 90)')
  const keys = stream.key.filter((name) => name !== 'date')
  // An index entry has a size limit, which addresses of pages may exceed.
  const isLong = (name: string) => (stream.columns.find((column) => column.name === name)?.longest ?? 0) > ID_MAX
  const rest = sql.join(keys.map((name) => (isLong(name) ? sql`md5(${sql.id(name)})` : sql.id(name))))
  // A primary key allows no nulls, and a dimension may be null; nor expressions.
  const isPlain = keys.length === 1 && !isLong(keys[0]!)
  const primary = isPlain ? [sql`primary key (project_id, date, ${rest})`] : []
  await sql`create table ${table} (${sql.join([...columns, ...primary])}) ${layout}`.execute(db)
  if (isPlain) return
  const unique = newestFirst
    ? sql`create unique index on ${table} (project_id, date desc, ${rest}) nulls not distinct`
    : sql`alter table ${table} add unique nulls not distinct (project_id, date, ${rest})`
  await unique.execute(db)
}

export async function isNewestFirst({ db }: Transaction, table: string): Promise<boolean> {
  const { rows } = await sql`
    select from pg_index
    where indrelid = to_regclass(${table}) and indisunique and indnullsnotdistinct and indoption[1] & 1 = 1`.execute(db)
  return rows.length > 0
}
