import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { packageFile } from '../../core/package-files.ts'
import type { Warehouse } from '../connect.ts'
import { literal, runBatch, type Statement } from '../statement.ts'
import { inTransaction, LONG_WORK, type Transaction } from '../transaction.ts'
import { applyComments } from './comments.ts'
import { ensureCustomTable } from './custom-table.ts'
import { applyRelations } from './relations.ts'
import { ensureReportTables } from './report-table.ts'
import { addStreamSettings } from './stream-settings.ts'
import { applySummaries } from './summaries.ts'
import { applyViews, type ViewResult } from './views.ts'

export interface MigrationResult {
  applied: string[]
  reportsMade: string[]
  views: ViewResult
}

// Any number, as long as it stays the same: concurrent migrations wait for each other.
const LOCK: Statement<undefined> = { sql: 'select pg_advisory_xact_lock(7265190401)', read: () => undefined }

interface Migration {
  version: number
  name: string
  text: string
  checksum: string
}

/** Numbered files, run once each in their order. Forward only. */
export function readMigrations(): Migration[] {
  const folder = packageFile('sql/migrations/')
  return readdirSync(fileURLToPath(folder))
    .filter((name) => /^\d{4}_\w+\.sql$/.test(name))
    .sort()
    .map((name) => {
      const text = readFileSync(new URL(name, folder), 'utf8')
      const checksum = createHash('sha256').update(text).digest('hex')
      return { version: Number(name.slice(0, 4)), name, text, checksum }
    })
}

/** Creates or upgrades the tables, and makes the tables of configured reports. Every run does so first. */
export async function migrate(warehouse: Warehouse, config: Config): Promise<MigrationResult> {
  try {
    const work = async ({ client, ops }: Transaction): Promise<MigrationResult> => {
      const [, made] = await runBatch(client, LOCK, whatIsMade(warehouse))
      await makeLedger(client, warehouse, made)
      const applied = await applyFiles(client, warehouse)
      const reportsMade = await ensureReportTables({ client, ops }, warehouse, config)
      for (const custom of config.custom_streams) {
        if (await ensureCustomTable({ client, ops }, warehouse, custom)) reportsMade.push(custom.name)
      }
      await extendCalendar(client, warehouse, config)
      await applyRelations(client, warehouse, config.reports)
      await applySummaries({ client, ops }, warehouse, config, reportsMade)
      await addStreamSettings(client, warehouse, config)
      const views = await applyViews({ client, ops }, warehouse, config)
      await applyComments(client, warehouse, config)
      return { applied, reportsMade, views }
    }
    return await inTransaction(warehouse, work, undefined, LONG_WORK)
  } catch (error) {
    if ((error as { code?: string }).code !== '42501') throw error
    throw new UsageError(
      `the database role lacks a privilege: ${messageOf(error)}; docs/operations.md lists the grants it needs`,
    )
  }
}

/** What is there already: the schemas, the ledger of migrations, and its checksums. */
interface Made {
  schema: boolean
  ops: boolean
  ledger: boolean
  checksums: boolean
}

function whatIsMade({ schema, opsSchema }: Warehouse): Statement<Made> {
  const hasSchema = (name: string) => `exists (select from pg_namespace where nspname = ${literal(name)})`
  const ledger = `to_regclass(${literal(quote(opsSchema, 'migrations'))})`
  const sql = `select ${hasSchema(schema)} as schema, ${hasSchema(opsSchema)} as ops, ${ledger} is not null as ledger,
    exists (select from pg_attribute where attrelid = ${ledger} and attname = 'checksum' and not attisdropped) as checksums`
  return { sql, read: ([row]) => row as unknown as Made }
}

/** Asked before: "if not exists" would lock the table on every run, and ask for the right to create schemas. */
async function makeLedger(client: PoolClient, { schema, opsSchema }: Warehouse, made: Made): Promise<void> {
  const ledger = quote(opsSchema, 'migrations')
  if (!made.schema) await client.query(`create schema ${quote(schema)}`)
  if (!made.ops) await client.query(`create schema ${quote(opsSchema)}`)
  if (!made.ledger) {
    await client.query(
      `create table ${ledger} (version integer primary key, name text not null, applied_at timestamptz not null default now())`,
    )
  }
  if (!made.checksums) await client.query(`alter table ${ledger} add column checksum text`)
}

/** The calendar reaches a week beyond today and the last day of interest, and back to the first. */
async function extendCalendar(client: PoolClient, warehouse: Warehouse, config: Config): Promise<void> {
  const calendar = quote(warehouse.schema, 'calendar')
  await client.query(
    `insert into ${calendar}
     select day, day - (extract(isodow from day)::integer - 1), date_trunc('month', day::timestamp)::date,
       date_trunc('quarter', day::timestamp)::date, extract(year from day)::integer, extract(isodow from day)::integer,
       to_char(day, 'IYYY-"W"IW')
     from (select min(date) as first, max(date) as last from ${calendar}) known
     cross join lateral (
       select known.last + number as day from generate_series(1, greatest(current_date, $2::date) + 7 - known.last) number
       union all
       select known.first - number from generate_series(1, known.first - coalesce($1::date, known.first)) number
     ) missing`,
    [config.start_date ?? null, config.end_date ?? null],
  )
}

async function applyFiles(client: PoolClient, warehouse: Warehouse): Promise<string[]> {
  const ledger = quote(warehouse.opsSchema, 'migrations')
  const { rows } = await client.query<{ version: number; checksum: string | null }>(
    `select version, checksum from ${ledger}`,
  )
  const done = new Set(rows.map(({ version }) => version))
  const files = readMigrations()
  refuseEdited(files, rows)
  const newest = Math.max(...files.map(({ version }) => version))
  const ahead = Math.max(0, ...done)
  if (ahead > newest) {
    throw new UsageError(
      `the database has schema version ${ahead}, this program knows up to ${newest}: it was upgraded by a newer visibility-sync; use that one`,
    )
  }
  const names: Record<string, string> = { schema: quote(warehouse.schema), ops: quote(warehouse.opsSchema) }
  const applied: string[] = []
  for (const { version, name, text, checksum } of files.filter((file) => !done.has(file.version))) {
    await client.query(text.replaceAll(/\{(schema|ops)\}/g, (_, key: string) => names[key]!))
    await client.query(`insert into ${ledger} (version, name, checksum) values ($1, $2, $3)`, [version, name, checksum])
    applied.push(name)
  }
  return applied
}

/** A migration that changed after it was applied would leave warehouses in two different shapes. */
function refuseEdited(
  files: readonly Migration[],
  applied: readonly { version: number; checksum: string | null }[],
): void {
  for (const { version, checksum } of applied) {
    const file = files.find((candidate) => candidate.version === version)
    if (file === undefined || checksum === null || checksum === file.checksum) continue
    throw new UsageError(
      `the migration ${file.name} is not the one that was applied to this database: this copy of visibility-sync was changed; install it again`,
    )
  }
}
