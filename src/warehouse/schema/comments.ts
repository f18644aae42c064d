import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import {
  customNote,
  HELPER_VIEWS,
  OPS_TABLES,
  reportNote,
  SCHEMA_NOTES,
  SUM_VIEWS,
  TABLES,
  type TableNote,
} from './catalogue.ts'
import { VIEWS } from './view-notes.ts'

interface Wanted {
  /** "schema name", "table name" or "column name", quoted for SQL. */
  object: string
  /** As the catalogue of Postgres knows it. */
  schema: string
  table: string
  column: string
  text: string
}

/** Brings the comments in the database in line with the catalogue, writing only those that differ. */
export async function applyComments(client: PoolClient, warehouse: Warehouse, config: Config): Promise<void> {
  const wanted = [
    ...inSchema(warehouse.schema, SCHEMA_NOTES.schema, {
      ...TABLES,
      ...Object.fromEntries(config.reports.map((report) => [report.name, reportNote(report)])),
      ...Object.fromEntries(config.custom_streams.map((custom) => [custom.name, customNote(custom)])),
    }),
    ...inSchema(warehouse.opsSchema, SCHEMA_NOTES.ops, OPS_TABLES),
    ...Object.entries(SUM_VIEWS).flatMap(([name, note]) => relation(warehouse.opsSchema, 'view', name, note)),
    ...(await viewsMade(client, warehouse)).flatMap(({ name, columns }) =>
      relation(warehouse.schema, 'view', name, VIEWS[name as keyof typeof VIEWS] ?? HELPER_VIEWS[name]!).filter(
        ({ column }) => column === '' || columns.includes(column),
      ),
    ),
  ]
  const { rows } = await client.query<{ target: string; text: string }>(
    `select n.nspname || '/' || coalesce(c.relname, '') || '/' || coalesce(a.attname, '') as target, d.description as text
     from pg_description d
     left join pg_class c on d.classoid = 'pg_class'::regclass and c.oid = d.objoid
     left join pg_attribute a on d.classoid = 'pg_class'::regclass and a.attrelid = d.objoid and a.attnum = d.objsubid and a.attnum > 0
     join pg_namespace n on n.oid = coalesce(c.relnamespace, case when d.classoid = 'pg_namespace'::regclass then d.objoid end)
     where n.nspname = any($1)`,
    [[warehouse.schema, warehouse.opsSchema]],
  )
  const { rows: owned } = await client.query<{ name: string }>(
    "select nspname as name from pg_namespace where nspname = any($1) and pg_has_role(nspowner, 'usage')",
    [[warehouse.schema, warehouse.opsSchema]],
  )
  const ours = new Set(owned.map(({ name }) => name))
  const present = new Map(rows.map(({ target, text }) => [target, text]))
  const differing = wanted
    .filter(({ schema, table, column, text }) => present.get(`${schema}/${table}/${column}`) !== text)
    // Schemas that were made for us belong to someone else, and only an owner may comment on them.
    .filter(({ schema, table }) => table !== '' || ours.has(schema))
  if (differing.length === 0) return
  await client.query(
    differing.map(({ object, text }) => `comment on ${object} is '${text.replaceAll("'", "''")}'`).join(';\n'),
  )
}

function inSchema(schema: string, about: string, tables: Record<string, TableNote>): Wanted[] {
  return [
    { object: `schema ${quote(schema)}`, schema, table: '', column: '', text: about },
    ...Object.entries(tables).flatMap(([table, note]) => relation(schema, 'table', table, note)),
  ]
}

function relation(schema: string, kind: 'table' | 'view', table: string, note: TableNote): Wanted[] {
  return [
    { object: `${kind} ${quote(schema, table)}`, schema, table, column: '', text: note.about },
    ...Object.entries(note.columns).map(([column, text]) => ({
      object: `column ${quote(schema, table, column)}`,
      schema,
      table,
      column,
      text,
    })),
  ]
}

/** The views that exist and are ours, with the columns that they have. */
async function viewsMade(client: PoolClient, warehouse: Warehouse): Promise<{ name: string; columns: string[] }[]> {
  const { rows } = await client.query<{ name: string; columns: string[] }>(
    `select c.relname as name, array_agg(a.attname::text) as columns from pg_class c
     join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
     where n.nspname = $1 and c.relkind = 'v'
       and (c.relname = any($2) or c.relname in (select name from ${quote(warehouse.opsSchema, 'views')}))
     group by c.relname`,
    [warehouse.schema, Object.keys(HELPER_VIEWS)],
  )
  return rows
}
