// Writes what is made from the code: the JSON Schema of the configuration, docs/reference/tables.md, and the checksums of migrations that
// have none yet. With --check it writes nothing, and exits with 1 if one of them is not current.
import { readFileSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { channelTwins, configSchema, DEFAULT_REPORTS } from '../dist/core/config/schema.js'
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

const FUNCTIONS = {
  'wilson_low(k, n), wilson_high(k, n)': 'The ends of the 95 % interval of the share k / n (Wilson).',
  'change_low(k, n, previous_k, previous_n), change_high(k, n, previous_k, previous_n)':
    'The ends of the 95 % interval of the change of a share (Newcombe).',
  'verdict(k, n, previous_k, previous_n)': 'The change in words: new, too_few, up, down or no_clear_change.',
  'clarity(k, n, previous_k, previous_n)': 'How clear the change is. Above 1, its interval excludes zero.',
  'p_value(clarity)': 'The probability of a change at least this clear if nothing changed (two-sided).',
  'url_key(url)': 'The address without scheme, www., trailing slash, fragment and tracking parameters.',
  'weekdays_before(day)': 'The same weekday of the eight weeks before.',
}

/** What a column means in more than one table, by its name, and these tables. */
function commonMeanings(tables) {
  const found = new Map()
  for (const [table, { columns }] of Object.entries(tables))
    for (const [column, text] of Object.entries(columns)) {
      const texts = found.get(column) ?? new Map()
      found.set(column, texts.set(text, [...(texts.get(text) ?? []), table]))
    }
  const mostUsed = (texts) => [...texts].sort(([, a], [, b]) => b.length - a.length)[0]
  const all = [...found].map(([column, texts]) => [column, ...mostUsed(texts)])
  return Object.fromEntries(all.flatMap(([column, text, of]) => (of.length > 1 ? [[column, { text, of }]] : [])))
}

function tablesPage() {
  const all = [...DEFAULT_REPORTS, ...channelTwins(DEFAULT_REPORTS)]
  const data = { ...TABLES, ...Object.fromEntries(all.map((report) => [report.name, reportNote(report)])), ...VIEWS }
  const common = commonMeanings(data)
  const ops = { ...OPS_TABLES, ...SUM_VIEWS }
  const commonOps = Object.fromEntries(
    Object.entries(commonMeanings(ops)).filter(([column, { text }]) => common[column]?.text !== text),
  )
  const table = (columns) => [
    '| column | meaning | in |',
    '|---|---|---|',
    ...Object.entries(columns)
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([column, { text, of }]) => {
        const links = of.map((name) => `[${name}](#${name})`).join(', ')
        return `| ${column} | ${text} | ${of.length <= 3 ? links : of.length} |`
      }),
    '',
  ]
  const section =
    (shared) =>
    ([name, { about, columns }]) => {
      const own = Object.entries(columns).filter(([column, text]) => shared[column]?.text !== text)
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
  return `${[
    '# Tables',
    '',
    'The database has the same texts as comments: `\\d+` in psql shows them, and BI tools do beside the columns.',
    '',
    '## Which view answers which question',
    '',
    '[The page of questions](questions.md) has the SQL of each.',
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
      return `| ${index + 1}. ${question} | ${views.map((name) => `[${name}](#${name})`).join(', ')} | ${[...needs].join('; ')} |`
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
    '## Functions',
    '',
    'They take counts, not shares. k is the number of answers that name the brand, n the number of answers.',
    '',
    '| function | gives |',
    '|---|---|',
    ...Object.entries(FUNCTIONS).map(([name, text]) => `| \`${name}\` | ${text} |`),
    '',
    'A period of your own against the one before, here of 17 days:',
    '',
    '```sql',
    'select project, brand, k / nullif(n, 0) as visibility, visibility.wilson_low(k, n) as low, visibility.wilson_high(k, n) as high,',
    '       k / nullif(n, 0) - previous_k / nullif(previous_n, 0) as change, visibility.verdict(k, n, previous_k, previous_n) as verdict',
    'from (',
    '  select project, brand, brand_id,',
    '         sum(visibility_count) filter (where date >= last_day - 16) as k, sum(answers) filter (where date >= last_day - 16) as n,',
    '         sum(visibility_count) filter (where date < last_day - 16) as previous_k, sum(answers) filter (where date < last_day - 16) as previous_n',
    '  from visibility.visibility_daily cross join (select current_date - 1 as last_day) days',
    '  where is_own and date between last_day - 33 and last_day',
    '  group by project_id, project, brand, brand_id',
    ') sums',
    'order by project, brand, brand_id;',
    '```',
    '',
    '## Columns that several tables have',
    '',
    'Below, each table lists its columns. It explains those that no other table has, or that mean something else in it.',
    'The last column of this list names the tables, or says how many there are.',
    '',
    ...table(common),
    '## Schema visibility',
    '',
    COMMENTS.schemas.schema,
    'Columns of views are only ever added at the end, so what you build on a view survives upgrades.',
    '',
    ...Object.entries(data).flatMap(section(common)),
    '## Schema visibility_ops',
    '',
    COMMENTS.schemas.ops,
    '',
    ...table(commonOps),
    ...Object.entries(ops).flatMap(section({ ...common, ...commonOps })),
    '`npm run generate` makes this page from `sql/comments.json`.',
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
