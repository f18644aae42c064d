import { sql } from 'kysely'
import type { ReportConfig } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import { reportStream } from '../../streams/registry.ts'
import { runTexts } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { TABLES } from './catalogue.ts'

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
  const { rows } = await sql<{ version: number; names: string[] | null }>`
    select current_setting('server_version_num')::int as version,
    (select array_agg(r.relname || '/' || c.conname) from pg_constraint c join pg_class r on r.oid = c.conrelid
     join pg_namespace n on n.oid = r.relnamespace where n.nspname = ${schema} and c.contype = 'f') as names`.execute(
    db,
  )
  const { version, names } = rows[0]!
  if (version < NOT_ENFORCED_SINCE) return
  const known = new Set(names ?? [])
  const { projects: _, ...notes } = TABLES
  const tables = Object.fromEntries([
    ...Object.entries(notes).map(([name, { columns }]) => [name, Object.keys(columns)] as const),
    ...reports.map((report) => [report.name, reportStream(report).key] as const),
  ])
  const statements: string[] = []
  for (const [table, columns] of Object.entries(tables)) {
    for (const { name, keys, target } of relationsOf(columns)) {
      if (known.has(`${table}/${name}`) || target === table) continue
      const list = keys.map((key) => quote(key)).join(', ')
      statements.push(
        `alter table ${quote(schema, table)} add constraint ${quote(name)}
         foreign key (${list}) references ${quote(schema, target)} (${list}) not enforced`,
      )
    }
  }
  await runTexts(db, statements)
}

function relationsOf(columns: readonly string[]): { name: string; keys: string[]; target: string }[] {
  const project = { name: 'of_project', keys: ['project_id'], target: 'projects' }
  const others = columns.flatMap((column) => {
    const target = POINTS_TO[column]
    return target === undefined ? [] : [{ name: `of_${target}`, keys: ['project_id', column], target }]
  })
  return [project, ...others]
}
