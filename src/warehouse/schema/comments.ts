import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import type { Warehouse } from '../connect.ts'
import { literal } from '../statement.ts'
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

/** Brings the comments in the database in line with the catalogue, writing only those that differ. */
export async function applyComments(client: PoolClient, warehouse: Warehouse, config: Config): Promise<void> {
  const { schema, opsSchema } = warehouse
  const notes: [schema: string, notes: Record<string, TableNote>][] = [
    [schema, { ...TABLES, ...HELPER_VIEWS, ...VIEWS }],
    [schema, Object.fromEntries(config.reports.map((report) => [report.name, reportNote(report)]))],
    [schema, Object.fromEntries(config.custom_streams.map((custom) => [custom.name, customNote(custom)]))],
    [opsSchema, { ...OPS_TABLES, ...SUM_VIEWS }],
  ]
  const texts = new Map([
    [`${schema}//`, SCHEMA_NOTES.schema],
    [`${opsSchema}//`, SCHEMA_NOTES.ops],
    ...notes.flatMap(([place, tables]) =>
      Object.entries(tables).flatMap(([table, { about, columns }]) => [
        [`${place}/${table}/`, about] as const,
        ...Object.entries(columns).map(([column, text]) => [`${place}/${table}/${column}`, text] as const),
      ]),
    ),
  ])
  // Tables and views of somebody else may have the name of one of our views.
  const ours = notes.flatMap(([, tables]) => Object.keys(tables)).filter((name) => !(name in VIEWS))
  const { rows } = await client.query<{ place: string; object: string; text: string | null }>(
    `select nspname || '//' as place, format('schema %I', nspname) as object, obj_description(oid, 'pg_namespace') as text
     from pg_namespace where nspname in ($1, $2) and pg_has_role(nspowner, 'usage')
     union all
     select format('%s/%s/%s', n.nspname, c.relname, a.attname),
       case when a.attname is null then format(case c.relkind when 'v' then 'view %I.%I' else 'table %I.%I' end, n.nspname, c.relname)
         else format('column %I.%I.%I', n.nspname, c.relname, a.attname) end,
       d.description
     from pg_namespace n join pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v') and not c.relispartition
     cross join lateral (
       select null::name as attname, 0 as attnum
       union all select attname, attnum from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped
     ) a
     left join pg_description d on d.classoid = 'pg_class'::regclass and d.objoid = c.oid and d.objsubid = a.attnum
     where n.nspname in ($1, $2) and (c.relname = any($3) or c.relname in (select name from ${quote(opsSchema, 'views')}))`,
    [schema, opsSchema, ours],
  )
  const statements = rows.flatMap(({ place, object, text }) => {
    const wanted = texts.get(place)
    return wanted === undefined || wanted === text ? [] : [`comment on ${object} is ${literal(wanted)}`]
  })
  if (statements.length > 0) await client.query(statements.join(';\n'))
}
