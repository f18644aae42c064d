import { sql } from 'kysely'
import { escapeLiteral } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import { runTexts } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { COMMENTS, customNote, OPS_TABLES, reportNote, SUM_VIEWS, TABLES, type TableNote, VIEWS } from './catalogue.ts'

/** Writes only comments that differ, so that a run without changes takes no locks. */
export async function applyComments({ db, schema, opsSchema }: Transaction, config: Config): Promise<void> {
  const tables: Record<string, TableNote> = {
    ...TABLES,
    ...Object.fromEntries(config.reports.map((report) => [report.name, reportNote(report)])),
    ...Object.fromEntries(config.custom_streams.map((custom) => [custom.name, customNote(custom)])),
  }
  const ops = { ...OPS_TABLES, ...SUM_VIEWS }
  const notes: Record<string, Record<string, TableNote>> = { [schema]: { ...VIEWS, ...tables }, [opsSchema]: ops }
  // Only an owner may comment on a schema.
  const { rows: schemas } = await sql<{ name: string; text: string | null }>`
    select nspname as name, obj_description(oid, 'pg_namespace') as text from pg_namespace
    where nspname in (${schema}, ${opsSchema}) and pg_has_role(nspowner, 'usage')`.execute(db)
  // Tables and views of somebody else may have the name of one of our views.
  const { rows } = await sql<{ place: string; name: string; kind: string; column: string; text: string }>`
    select n.nspname as place, c.relname as name, case c.relkind when 'v' then 'view' else 'table' end as kind,
      a.attname as column, d.description as text
    from pg_namespace n join pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v') and not c.relispartition
    join (
      select attrelid, attnum, attname from pg_attribute where attnum > 0 and not attisdropped
      union all select oid, 0, '' from pg_class
    ) a on a.attrelid = c.oid
    left join pg_description d on d.classoid = 'pg_class'::regclass and d.objoid = c.oid and d.objsubid = a.attnum
    where n.nspname in (${schema}, ${opsSchema})
      and (c.relname = any(${Object.keys({ ...tables, ...ops })})
        or c.relname in (select name from ops.views))`.execute(db)
  const statements: string[] = []
  const comment = (object: string, text: string | null, wanted: string | undefined) => {
    if (wanted !== undefined && wanted !== text) statements.push(`comment on ${object} is ${escapeLiteral(wanted)}`)
  }
  for (const { name, text } of schemas)
    comment(`schema ${quote(name)}`, text, name === schema ? COMMENTS.schemas.schema : COMMENTS.schemas.ops)
  for (const { place, name, kind, column, text } of rows) {
    const note = notes[place]![name]
    if (column === '') comment(`${kind} ${quote(place, name)}`, text, note?.about)
    else comment(`column ${quote(place, name, column)}`, text, note?.columns[column])
  }
  await runTexts(db, statements)
}
