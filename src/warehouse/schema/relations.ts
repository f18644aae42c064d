import { sql } from 'kysely'
import type { ReportConfig } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import { reportStream } from '../../streams/registry.ts'
import type { Transaction } from '../transaction.ts'
import { TABLES } from './catalogue.ts'
import { runGiven } from './restrict-reader.ts'

/** Column of a table → the table that it points to. Both sides also have the project. */
export const POINTS_TO: Record<string, string> = {
  brand_id: 'brands',
  topic_id: 'topics',
  tag_id: 'tags',
  model_id: 'models',
  prompt_id: 'prompts',
  suggestion_id: 'prompt_suggestions',
  chat_id: 'chats',
}

const NOT_ENFORCED_SINCE = 180_000

/**
 * Shows BI tools how tables are related, by foreign keys that are not enforced: they cost nothing at load time, and a
 * row may name a prompt that the service does not list. Servers before version 18 have no such keys.
 */
export async function applyRelations({ db, schema }: Transaction, reports: readonly ReportConfig[]): Promise<void> {
  const { projects: _, ...notes } = TABLES
  const tables = Object.fromEntries([
    ...Object.entries(notes).map(([name, { columns }]) => [name, Object.keys(columns)] as const),
    ...reports.map((report) => [report.name, reportStream(report).key] as const),
  ])
  const wanted = Object.entries(tables).flatMap(([name, columns]) => {
    const table = quote(schema, name)
    const pointing = columns.filter((column) => (POINTS_TO[column] ?? name) !== name)
    const relations = pointing.map((column) => ({ target: POINTS_TO[column]!, keys: ['project_id', column] }))
    return [{ target: 'projects', keys: ['project_id'] }, ...relations].map(({ target, keys }) => {
      const list = keys.map((key) => quote(key)).join(', ')
      const constraint = target === 'projects' ? 'of_project' : `of_${target}`
      const statement =
        `alter table ${table} add constraint ${quote(constraint)} ` +
        `foreign key (${list}) references ${quote(schema, target)} (${list}) not enforced`
      return { table, constraint, statement }
    })
  })
  const { rows } = await sql<{ statement: string }>`
    select statement from json_to_recordset(${JSON.stringify(wanted)}) w("table" text, "constraint" text, statement text)
    where current_setting('server_version_num')::int >= ${NOT_ENFORCED_SINCE} and not exists (
      select from pg_constraint where conrelid = to_regclass(w."table") and conname = w.constraint and contype = 'f')`.execute(
    db,
  )
  await runGiven(db, rows)
}
