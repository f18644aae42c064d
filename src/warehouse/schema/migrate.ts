import { type RawBuilder, sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import { codeOf, messageOf, UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { helpOn } from '../../core/text.ts'
import type { Warehouse } from '../connect.ts'
import { batch, runText } from '../database.ts'
import { inTransaction, LONG_WORK, type Transaction } from '../transaction.ts'
import { applyComments } from './comments.ts'
import { type Migration, readMigrations } from './migrations.ts'
import { applyRelations } from './relations.ts'
import { findForeignObjects, findNamesakes, repairMigrated } from './repair.ts'
import { applyRestrictions } from './restrict-reader.ts'
import { fillIn, runQuery } from './sql-files.ts'
import { addStreamSettings } from './stream-settings.ts'
import { ensureStreamTables } from './stream-tables.ts'
import { applySummaries } from './summaries.ts'
import { applyViews, readFacts, unusedRelations, type ViewResult } from './views.ts'

export interface MigrationResult {
  applied: string[]
  reportsMade: string[]
  repaired: string[]
  views: ViewResult
}

// Any number, as long as it stays the same: concurrent migrations wait for each other.
const LOCK = sql`select pg_advisory_xact_lock(7265190401)`

/** Every run does so first. */
export async function migrate(warehouse: Warehouse, config: Config): Promise<MigrationResult> {
  try {
    const work = async (tx: Transaction): Promise<MigrationResult> => {
      const [, [made]] = await batch(tx.db, LOCK, whatIsMade(tx))
      const isTrusting = config.warehouse.allow_foreign_owner
      const foreign = isTrusting ? undefined : await findForeignObjects(tx, config)
      const complaint = foreign ?? (made!.ledger ? undefined : await findNamesakes(tx))
      if (complaint !== undefined) throw new UsageError(complaint)
      await makeLedger(tx, made!)
      const applied = await applyFiles(tx)
      const repaired = await repairMigrated(tx)
      const tables = await ensureStreamTables(tx, config)
      const { start_date = null, end_date = null } = config
      await runQuery(tx, 'extend_calendar', [start_date, end_date])
      await applyRelations(tx, config.reports)
      await applySummaries(tx, config, [...tables.made, ...tables.remade])
      await addStreamSettings(tx, config)
      const views = await applyViews(tx, config)
      await applyComments(tx, config)
      await applyRestrictions(tx, unusedRelations(config, await readFacts(tx, config)))
      repaired.push(...tables.repaired)
      if (views.remade.length > 0) repaired.push(`the views ${views.remade.join(', ')}: missing, and made again`)
      return { applied, reportsMade: tables.made, repaired, views }
    }
    return await inTransaction(warehouse, work, undefined, LONG_WORK)
  } catch (error) {
    if (codeOf(error) !== '42501') throw error
    throw new UsageError(
      `the database role lacks a privilege: ${messageOf(error)}; ${helpOn('database-role')} lists the grants it needs`,
    )
  }
}

export async function isMigrated({ db }: Warehouse): Promise<boolean> {
  const { rows } = await sql<{ version: number }>`select version from ops.migrations`.execute(db)
  return readMigrations().every(({ version }) => rows.some((row) => row.version === version))
}

interface Made {
  schema: boolean
  ops: boolean
  ledger: boolean
  checksums: boolean
}

function whatIsMade({ schema, opsSchema }: Warehouse): RawBuilder<Made> {
  const hasSchema = (name: string) => sql`exists (select from pg_namespace where nspname = ${name})`
  const ledger = sql`to_regclass(${quote(opsSchema, 'migrations')})`
  return sql`
    select ${hasSchema(schema)} as schema, ${hasSchema(opsSchema)} as ops, ${ledger} is not null as ledger,
      exists (select from pg_attribute where attrelid = ${ledger} and attname = 'checksum' and not attisdropped) as checksums`
}

/** Asked before: "if not exists" would lock the table on every run, and ask for the right to create schemas. */
async function makeLedger({ db, schema, opsSchema }: Transaction, made: Made): Promise<void> {
  if (!made.schema) await sql`create schema ${sql.id(schema)}`.execute(db)
  if (!made.ops) await sql`create schema ${sql.id(opsSchema)}`.execute(db)
  if (!made.ledger) {
    await sql`
      create table ops.migrations
        (version integer primary key, name text not null, applied_at timestamptz not null default now())`.execute(db)
  }
  if (!made.checksums) await sql`alter table ops.migrations add column checksum text`.execute(db)
}

async function applyFiles(tx: Transaction): Promise<string[]> {
  const { rows } = await sql<{ version: number; checksum: string | null }>`
    select version, checksum from ops.migrations`.execute(tx.db)
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
  const applied: string[] = []
  for (const { version, name, text, checksum } of files.filter((file) => !done.has(file.version))) {
    await runText(tx.db, fillIn(text, tx))
    await sql`insert into ops.migrations (version, name, checksum) values (${version}, ${name}, ${checksum})`.execute(
      tx.db,
    )
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
