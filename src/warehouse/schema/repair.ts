import { sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { listSome } from '../../core/text.ts'
import { BI_VIEWS } from '../../core/vocabulary.ts'
import { definedStream } from '../../streams/defined-stream.ts'
import { reportStream } from '../../streams/registry.ts'
import { customDefinition } from '../../streams/source-report.ts'
import type { Warehouse } from '../connect.ts'
import { runTexts } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { OPS_TABLES, TABLES } from './catalogue.ts'
import { type MadeObject, madeByMigrations, nameOf } from './migrations.ts'
import { runQuery } from './sql-files.ts'
import { missingOf, type Relations, readRelations } from './stream-tables.ts'

/*
 * Detects and recreates dropped objects. Data tables, views, functions, triggers and the calendar can be recreated, because the
 * service still has the rows. Ledger tables cannot.
 */

async function readPresent(warehouse: Warehouse) {
  const { db, schema, opsSchema } = warehouse
  const { rows } = await sql<{ name: string }>`
    with ours as (select oid, nspname from pg_namespace where nspname in (${schema}, ${opsSchema}))
    select format('function %s.%s', n.nspname, p.proname) as name from pg_proc p join ours n on n.oid = p.pronamespace
    union all
    select format('trigger %s of %s.%s', t.tgname, n.nspname, c.relname) from pg_trigger t join pg_class c on c.oid = t.tgrelid
      join ours n on n.oid = c.relnamespace where not t.tgisinternal and t.tgenabled in ('O', 'A')`.execute(db)
  const relations = new Map<string, Relations>()
  for (const name of [schema, opsSchema]) relations.set(name, await readRelations(warehouse, name))
  return { relations, others: new Set(rows.map(({ name }) => name)) }
}

function findDamage({ relations, others }: Awaited<ReturnType<typeof readPresent>>, warehouse: Warehouse) {
  const { schema, opsSchema } = warehouse
  const isThere = (object: MadeObject) =>
    ['function', 'trigger'].includes(object.kind)
      ? others.has(nameOf(object))
      : relations.get(object.schema)!.has(object.name)
  const gone = madeByMigrations(warehouse).filter((object) => !isThere(object))
  const isLost = (object: MadeObject) =>
    object.schema === opsSchema && ['table', 'sequence'].includes(object.kind) && object.name !== 'calendar'
  const startAgain = `restore it from a backup, or drop the schemas ${schema} and ${opsSchema} and sync again`
  const lost = gone.filter(isLost).map((object) => `the ${nameOf(object)} is missing: ${startAgain}`)
  for (const [place, tables] of Object.entries({ [schema]: TABLES, [opsSchema]: OPS_TABLES })) {
    for (const [table, { columns }] of Object.entries(tables)) {
      const there = relations.get(place)!.get(table)
      const absent = there === undefined ? [] : Object.keys(columns).filter((column) => !there.has(column))
      if (absent.length === 0) continue
      const name = `${place}.${table}`
      const fix = place === opsSchema ? startAgain : `drop the table ${name}, and the next run makes it again`
      lost.push(`${name} lacks ${absent.join(', ')}: ${fix}`)
    }
  }
  return {
    missing: gone.filter((object) => !isLost(object)),
    /** Objects that cannot be recreated, and the advice. */
    lost,
  }
}

/** Returns a sentence on it. Throws if something cannot be made again. */
export async function repairMigrated(tx: Transaction): Promise<string[]> {
  const { db } = tx
  const { missing, lost } = findDamage(await readPresent(tx), tx)
  if (lost.length > 0) throw new UsageError(lost.join('; '))
  if (missing.length === 0) return []
  await runTexts(
    db,
    missing.map((object) => object.sql.replace(/^create trigger/, 'create or replace trigger')),
  )
  const names = (kind: MadeObject['kind']) => missing.filter((object) => object.kind === kind).map(({ name }) => name)
  // Views that read a report are recreated from its text.
  await sql`delete from ops.views where name = any(${names('function')})`.execute(db)
  // Nothing of their streams is read any more: a first read is no change of the service.
  await sql`delete from ops.coverage where stream = any(${names('table')})`.execute(db)
  return [`${listSome(missing.map(withArticle))}: missing, and made again`]
}

const withArticle = (object: MadeObject) => `the ${nameOf(object)}`

/** Objects that the next run recreates, and those that it cannot, with advice. For a warehouse that has all migrations. */
export async function inspectWarehouse(
  warehouse: Warehouse,
  { reports, custom_streams }: Config,
): Promise<{ repairable: string[]; lost: string[] }> {
  const { schema, opsSchema } = warehouse
  const present = await readPresent(warehouse)
  const { missing, lost } = findDamage(present, warehouse)
  const relations = present.relations.get(schema)!
  if (lost.length > 0) return { repairable: [], lost }
  const { rows } = await sql<{ reports: string[]; custom: string[]; views: string[] }>`
    select array(select name from ops.reports) as reports,
      array(select name from ops.custom_streams) as custom,
      array(select name from ops.views) as views`.execute(warehouse.db)
  const known = rows[0]!
  const streams = [
    ...reports.filter(({ name }) => known.reports.includes(name)).map(reportStream),
    ...custom_streams
      .filter(({ name }) => known.custom.includes(name))
      .map((custom) => definedStream(customDefinition(custom))),
  ]
  const tables = streams.flatMap(
    (stream) => missingOf({ stream, columns: relations.get(stream.table) }, warehouse) ?? [],
  )
  const views = known.views.filter(
    (name) => !relations.has(name) && !present.others.has(`function ${opsSchema}.${name}`),
  )
  return {
    repairable: [...missing.map(withArticle), ...tables, ...views.map((name) => `the view ${schema}.${name}`)],
    lost,
  }
}

/** A complaint about tables of somebody else that have our names, in a database without our ledger. */
export async function findNamesakes({ db, schema, opsSchema }: Warehouse): Promise<string | undefined> {
  const { rows } = await sql<{ relname: string }>`
    select relname from pg_class
    where relnamespace = to_regnamespace(${quote(schema)}) and relname = any(${Object.keys(TABLES)})
      and to_regclass(${quote(opsSchema, 'migrations')}) is null
    order by 1`.execute(db)
  if (rows.length === 0) return undefined
  const names = listSome(rows.map(({ relname }) => `${schema}.${relname}`))
  return `${names}: already there, and not made by visibility-sync; rename them, or set warehouse.schema to another schema`
}

/*
 * The owner of a table can add a trigger, which runs with the rights of our role. So schemas, tables, views and functions that we use,
 * and functions that triggers, rules, defaults and constraints of these tables call, must belong to our role, to a role that it is
 * a member of, or to a superuser.
 */

export async function findForeignObjects(
  warehouse: Warehouse,
  { reports, custom_streams }: Config,
): Promise<string | undefined> {
  const { schema, opsSchema } = warehouse
  const functions = madeByMigrations(warehouse).filter(({ kind }) => kind === 'function')
  const named = [...reports, ...custom_streams, ...functions].map(({ name }) => name)
  const rows = await runQuery<{ what: string; owner: string }>(warehouse, 'foreign_objects', [
    schema,
    [opsSchema, `${schema}_queue`],
    [...Object.keys(TABLES), ...BI_VIEWS, ...named],
  ])
  if (rows.length === 0) return undefined
  return (
    `these belong to roles that this role is not a member of: ${listSome(rows.map(({ what, owner }) => `${what} (of ${owner})`))}. ` +
    'Their owners could run code with the rights of this role. Give them to this role ("alter … owner to"), drop them, or set ' +
    'warehouse.allow_foreign_owner: true if you trust the owners'
  )
}
