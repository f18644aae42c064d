import * as z from 'zod'
import { configSchema, DEFAULT_REPORTS } from '../core/config/schema.ts'
import {
  OPS_TABLES,
  reportNote,
  SCHEMA_NOTES,
  SUM_VIEWS,
  TABLES,
  type TableNote,
} from '../warehouse/schema/catalogue.ts'
import { QUESTIONS, VIEWS, viewsOf } from '../warehouse/schema/comments.ts'

/* What is made from the code for editors and readers: the JSON Schema of the configuration, and docs/reference/tables.md. */

export function configJsonSchema(): unknown {
  const schema = z.toJSONSchema(configSchema, { io: 'output', unrepresentable: 'any' })
  return { ...(loosen(schema) as object), title: 'visibility-sync configuration' }
}

/** Every setting has a default or may be left out: nothing is required. */
function loosen(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(loosen)
  if (typeof node !== 'object' || node === null) return node
  return Object.fromEntries(
    Object.entries(node)
      .filter(([key]) => key !== 'required')
      .map(([key, value]) => [key, loosen(value)]),
  )
}

export function tablesPage(): string {
  const section = (name: string, { about, columns }: TableNote) =>
    [
      `### ${name}`,
      '',
      about,
      '',
      '| column | meaning |',
      '|---|---|',
      ...Object.entries(columns).map(([column, text]) => `| ${column} | ${text} |`),
      '',
    ].join('\n')
  const all = (tables: Record<string, TableNote>) => Object.entries(tables).map(([name, note]) => section(name, note))
  return `${[
    '# Tables',
    '',
    'This page and the comments in the database are made from one source, `sql/comments.json`, by',
    '`npm run generate`.',
    '',
    '## Which view answers which question',
    '',
    '[The twelve questions](questions.md) has the SQL of each.',
    '',
    '| question | views | need a report by |',
    '|---|---|---|',
    ...QUESTIONS.map((question, index) => {
      const views = viewsOf(index + 1)
      const needs = new Set(
        views
          .map((name) => VIEWS[name])
          .map((view) => `${view.needs.join(', ')}${view.of === undefined ? '' : ` of ${view.of}`}`)
          .filter((text) => text !== ''),
      )
      return `| ${index + 1}. ${question} | ${views.join(', ')} | ${[...needs].join('; ')} |`
    }),
    '',
    'Ratios are always a ratio of sums, never an average of ratios:',
    '',
    '```sql',
    "select date_trunc('week', d.date::timestamp)::date as week, p.name as project, b.name as brand,",
    '       sum(d.visibility_count) / nullif(sum(d.visibility_total), 0) as visibility,',
    '       sum(d.visibility_total) as answers',
    'from visibility.brand_daily d join visibility.brands b using (project_id, brand_id) join visibility.projects p using (project_id)',
    'group by 1, p.project_id, p.name, b.brand_id, b.name order by 1, 2, 4 desc;',
    '```',
    '',
    '## Schema visibility',
    '',
    SCHEMA_NOTES.schema,
    '',
    ...all(TABLES),
    ...DEFAULT_REPORTS.map((report) => section(report.name, reportNote(report))),
    '## Views',
    '',
    'Ratios in views are ratios of sums, with their samples beside them. Columns are only ever added at the end, so what',
    'you build on a view survives upgrades.',
    '',
    ...all(VIEWS),
    '## Schema visibility_ops',
    '',
    SCHEMA_NOTES.ops,
    '',
    ...all(OPS_TABLES),
    ...all(SUM_VIEWS),
  ]
    .join('\n')
    .trimEnd()}\n`
}
