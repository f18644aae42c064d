// Writes what is made from the code: the JSON Schema of the configuration, docs/reference/tables.md, and the checksums of migrations that
// have none yet. With --check it writes nothing, and exits with 1 if one of them is not current.
import { readFileSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { configSchema, DEFAULT_REPORTS } from '../dist/core/config/schema.js'
import {
  COMMENTS,
  OPS_TABLES,
  reportNote,
  SUM_VIEWS,
  TABLES,
  VIEWS,
  viewsOf,
} from '../dist/warehouse/schema/catalogue.js'
import { readMigrations } from '../dist/warehouse/schema/migrations.js'

function keep(path, make) {
  const file = new URL(`../${path}`, import.meta.url)
  const before = readFileSync(file, 'utf8')
  const text = make(before)
  if (text === before) return
  if (!process.argv.includes('--check')) return writeFileSync(file, text)
  process.stderr.write(`${path} is not current: run "npm run generate"\n`)
  process.exitCode = 1
}

function configJsonSchema() {
  const schema = z.toJSONSchema(configSchema, { io: 'output', unrepresentable: 'any' })
  return { ...loosen(schema), title: 'visibility-sync configuration' }
}

/** Every setting has a default or may be left out: nothing is required. */
function loosen(node) {
  if (Array.isArray(node)) return node.map(loosen)
  if (typeof node !== 'object' || node === null) return node
  return Object.fromEntries(
    Object.entries(node)
      .filter(([key]) => key !== 'required')
      .map(([key, value]) => [key, loosen(value)]),
  )
}

/** What a column means in more than one table, by its name. */
function commonMeanings(notes) {
  const counts = new Map()
  for (const [column, text] of notes.flatMap(({ columns }) => Object.entries(columns))) {
    const texts = counts.get(column) ?? new Map()
    counts.set(column, texts.set(text, (texts.get(text) ?? 0) + 1))
  }
  const mostUsed = (texts) => [...texts].sort(([, a], [, b]) => b - a)[0]
  const all = [...counts].map(([column, texts]) => [column, ...mostUsed(texts)])
  return Object.fromEntries(all.flatMap(([column, text, times]) => (times > 1 ? [[column, text]] : [])))
}

function tablesPage() {
  const reports = Object.fromEntries(DEFAULT_REPORTS.map((report) => [report.name, reportNote(report)]))
  const common = commonMeanings([TABLES, reports, VIEWS, OPS_TABLES, SUM_VIEWS].flatMap(Object.values))
  const section = ([name, { about, columns }]) => {
    const own = Object.entries(columns).filter(([column, text]) => common[column] !== text)
    const list = own.map(([column, text]) => `- \`${column}\`: ${text}`)
    return [
      `### ${name}`,
      '',
      about,
      '',
      `\`${Object.keys(columns).join(', ')}\``,
      '',
      ...list,
      ...(list.length > 0 ? [''] : []),
    ]
  }
  const all = (tables) => Object.entries(tables).flatMap(section)
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
    ...COMMENTS.questions.map((question, index) => {
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
    '## Columns that several tables have',
    '',
    'Below, each table lists its columns. It explains those that no other table has, or that mean something else in it.',
    '',
    '| column | meaning |',
    '|---|---|',
    ...Object.entries(common)
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([column, text]) => `| ${column} | ${text} |`),
    '',
    '## Schema visibility',
    '',
    COMMENTS.schemas.schema,
    '',
    ...all(TABLES),
    ...all(reports),
    '## Views',
    '',
    'Ratios in views are ratios of sums, with their samples beside them. Columns are only ever added at the end, so what',
    'you build on a view survives upgrades.',
    '',
    ...all(VIEWS),
    '## Schema visibility_ops',
    '',
    COMMENTS.schemas.ops,
    '',
    ...all(OPS_TABLES),
    ...all(SUM_VIEWS),
  ]
    .join('\n')
    .trimEnd()}\n`
}

keep('config/sync.schema.json', () => `${JSON.stringify(configJsonSchema(), null, 2)}\n`)
keep('docs/reference/tables.md', tablesPage)
keep('sql/migrations/checksums.txt', (before) => {
  const fresh = readMigrations().filter(({ name }) => !before.includes(`  ${name}\n`))
  return before + fresh.map(({ name, checksum }) => `${checksum}  ${name}\n`).join('')
})
