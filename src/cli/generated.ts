import { z } from 'zod'
import { configSchema, DEFAULT_REPORTS } from '../core/config/schema.ts'
import { OPS_TABLES, reportNote, SCHEMA_NOTES, TABLES, type TableNote } from '../warehouse/catalogue.ts'

/* What is made from the code for editors and readers: the JSON Schema of the configuration, and docs/tables.md. */

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

const QUESTIONS = [
  ['How visible are we, against the previous equal period?', 'brand_daily'],
  ['Share of voice over time, against each competitor?', 'brand_daily'],
  ['Which models are strongest and weakest for us?', 'brand_daily_by_model'],
  ['Head to head with one competitor, by model?', 'brand_daily_by_model'],
  ['Which topics do we own, and where are we invisible?', 'brand_daily_by_topic'],
  ['On which prompts are we absent while rivals appear?', 'brand_daily_by_prompt_model, chats'],
  ['Is our average position improving?', 'brand_daily_by_model'],
  ['Where is sentiment falling?', 'brand_daily_by_topic, brand_daily_by_prompt_model'],
  ['Who gained or lost most this week?', 'brand_daily_by_topic_model'],
  ['Branded or not, or by funnel stage?', 'brand_daily_by_tag'],
  ['Which countries lead or lag?', 'brand_daily_by_country'],
  ['Can I trust it: did every prompt and model run?', 'chats, brand_daily_by_prompt_model'],
]

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
    'This page and the comments in the database are made from one source, `src/warehouse/catalogue.ts`, by',
    '`npm run generate`.',
    '',
    '## Which table answers which question',
    '',
    '| question | tables |',
    '|---|---|',
    ...QUESTIONS.map(([question, tables]) => `| ${question} | ${tables} |`),
    '',
    'Ratios are always a ratio of sums, never an average of ratios:',
    '',
    '```sql',
    "select date_trunc('week', d.date)::date as week, b.name,",
    '       sum(d.visibility_count) / nullif(sum(d.visibility_total), 0) as visibility,',
    '       sum(d.visibility_total) as answers',
    'from visibility.brand_daily d join visibility.brands b using (project_id, brand_id)',
    'group by 1, 2 order by 1, 3 desc;',
    '```',
    '',
    '## Schema visibility',
    '',
    SCHEMA_NOTES.schema,
    '',
    ...all(TABLES),
    ...DEFAULT_REPORTS.map((report) => section(report.name, reportNote(report))),
    '## Schema visibility_ops',
    '',
    SCHEMA_NOTES.ops,
    '',
    ...all(OPS_TABLES),
  ]
    .join('\n')
    .trimEnd()}\n`
}
