// node bench/views.mjs: what BI tools ask, as a reader whom `grant` set up: the twelve questions, the panels of Grafana and every view, which
// charts of Superset select from, each for all days and for the last 90, and the values of every text column. Beside each the same
// with the settings that docs/how-to/grant-access.md recommends. At last the questions of one project, as a reader of all projects and as a reader of
// that project alone. With --only restricted, nothing but these; with --quick, few rows and one round. Writes bench/results/views-ROWS.json and prints a table.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { parse } from 'yaml'
import { loadConfig } from '../dist/core/config/load.js'
import { BI_VIEWS } from '../dist/core/vocabulary.js'
import { connectWarehouse } from '../dist/warehouse/connect.js'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { applySetting, grantReader, READER_SETTINGS, revokeReader } from '../dist/warehouse/schema/grant-reader.js'
import { migrate } from '../dist/warehouse/schema/migrate.js'
import { recheckSummaries, refreshSummaries } from '../dist/warehouse/schema/summaries.js'

const { values: options } = parseArgs({
  options: {
    rows: { type: 'string', default: '5000000' },
    projects: { type: 'string', default: '4' },
    rounds: { type: 'string', default: '3' },
    // The warehouse at BENCH_DATABASE_URL was filled by an earlier run.
    filled: { type: 'boolean', default: false },
    only: { type: 'string' },
    quick: { type: 'boolean', default: false },
  },
})
if (options.quick) Object.assign(options, { rows: '90000', rounds: '1' })
const root = fileURLToPath(new URL('..', import.meta.url))
const say = (text) => process.stderr.write(`${text}\n`)
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-views-'))
const server =
  process.env.BENCH_DATABASE_URL === undefined ? await startEmbedded({ folder: join(folder, 'data') }) : undefined
const url = process.env.BENCH_DATABASE_URL ?? server.url
const warehouse = await connectWarehouse({ url, schema: 'visibility', connections: 2 })
const client = new pg.Client({ connectionString: url })
await client.connect()
const TEXT = 25
const [BRANDS, MODELS, DAYS] = [5, 4, 1095]
const projects = Number(options.projects)
// As many prompts, topics, tags and countries as it takes for the reports by prompt and by topic and model to have so many rows in
// three years.
const groupCount = Math.max(1, Math.round(Number(options.rows) / (DAYS * projects * BRANDS * MODELS)))

/** Fills a report with made-up rows of every group of its dimensions; `absent` says where the own brand is not named. */
async function fill(table, groups, absent = 'false') {
  const columns = Object.keys(groups)
  const counts = `floor(4 + random() * 8)`
  await client.query(`
    insert into visibility.${table} (project_id, date, brand_id${columns.map((name) => `, ${name}`).join('')},
      mention_count, visibility, visibility_count, visibility_total, share_of_voice, sentiment, sentiment_sum, sentiment_count,
      position, position_sum, position_count)
    select 'or_' || p, current_date - d, 'kw_' || p || '_' || b${columns.map((name) => `, ${groups[name].value}`).join('')},
      seen * 2, seen / total, seen, total, 0.2, 60, seen * 0.25, seen, 2, seen * 2, seen
    from generate_series(0, ${DAYS - 1}) d cross join generate_series(1, ${projects}) p
      ${columns.map((name) => `cross join generate_series(1, ${groups[name].count}) ${groups[name].alias}`).join(' ')}
      cross join generate_series(1, ${BRANDS}) b
      cross join lateral (select ${counts} as total, d as same) t cross join lateral (select case when b = 1 and ${absent} then 0 else floor(random() * t.total) end as seen) s`)
  await client.query(
    `insert into visibility_ops.coverage select 'or_' || p, $1, current_date - d, 1, now(), 1, 'read', 1, null
     from generate_series(0, ${DAYS - 1}) d cross join generate_series(1, ${projects}) p`,
    [table],
  )
}

const results = { rounds: Number(options.rounds) }

async function fillWarehouse() {
  const config = loadConfig({ env: {} })
  await migrate(warehouse, config)
  const group = (count, alias, value) => ({ count, alias, value })
  const model = group(MODELS, 'm', "'model-' || m")
  const topic = group(groupCount, 't1', "'to_' || t1")
  say(
    `filling ${(DAYS * projects * BRANDS * MODELS * groupCount).toLocaleString('en-US')} rows into each of the finest reports`,
  )
  await fill('brand_daily', {})
  await fill('brand_daily_by_model', { model_id: model })
  await fill('brand_daily_by_channel', { model_channel_id: group(MODELS, 'm', "'channel-' || m") })
  await fill('brand_daily_by_topic', { topic_id: topic })
  await fill('brand_daily_by_tag', { tag_id: group(groupCount, 't2', "'tg_' || t2") })
  await fill('brand_daily_by_country', { country_code: group(groupCount, 'c', "'C' || c") })
  await fill('brand_daily_by_topic_model', { topic_id: topic, model_id: model })
  await fill(
    'brand_daily_by_prompt_model',
    { prompt_id: group(groupCount, 'q', "'pr_' || q"), model_id: model },
    '(q + m) % 3 = 0',
  )
  await client.query(`
    insert into visibility.projects select 'or_' || p, 'Project ' || p from generate_series(1, ${projects}) p;
    insert into visibility.brands select 'or_' || p, 'kw_' || p || '_' || b, 'Brand ' || b, b = 1 from generate_series(1, ${projects}) p, generate_series(1, ${BRANDS}) b;
    insert into visibility.prompts (project_id, prompt_id, text, topic_id) select 'or_' || p, 'pr_' || q, 'Prompt ' || q, 'to_' || (q % ${groupCount} + 1) from generate_series(1, ${projects}) p, generate_series(1, ${groupCount}) q;
    insert into visibility.topics select 'or_' || p, 'to_' || t, 'Topic ' || t from generate_series(1, ${projects}) p, generate_series(1, ${groupCount}) t;
    insert into visibility.chats select 'or_' || p, 'ch_' || p || '_' || d || '_' || q || '_' || m, 'pr_' || q, 'model-' || m, null, current_date - d
      from generate_series(0, ${DAYS - 1}) d, generate_series(1, ${projects}) p, generate_series(1, ${groupCount}) q, generate_series(1, ${MODELS}) m`)
  say('sums for the views')
  const summing = performance.now()
  await recheckSummaries(warehouse, config)
  const periods = await refreshSummaries(warehouse, config, new AbortController().signal)
  results.summing = { periods, seconds: (performance.now() - summing) / 1000 }
  say(`${periods} periods and projects summarized in ${results.summing.seconds.toFixed(1)} s`)
}

/** The statements of the tools, by name: for all days, and for the last 90. */
async function statements() {
  const found = []
  const add = (name, all, recent) => found.push({ name, all, recent })
  for (const text of readFileSync(join(root, 'templates/questions.sql'), 'utf8').split(/;\n/)) {
    const title = /^-- (\d+)\. /m.exec(text)
    if (title === null) continue
    const column = /Filtered by: \w+ .*\bdate\b/.test(text) ? 'date' : 'week'
    add(`question ${title[1]}`, text, text.replace('-- filters', `and ${column} >= current_date - 90`))
  }
  const { parts, panels } = parse(readFileSync(join(root, 'templates/grafana/visibility.yml'), 'utf8'))
  for (const { title, sql } of panels) {
    const filled = sql
      .replaceAll(/<<(chosen|series)>>/g, (_, part) => parts[part])
      .replaceAll('<<in_projects>>', 'true')
      .replaceAll('<<schema>>', 'visibility')
      .replaceAll('${project:sqlstring}', "'Project 1'")
      .replaceAll('${brand:sqlstring}', "'Brand 1', 'Brand 2'")
    const within = (from) => filled.replaceAll(/\$__timeFilter\(([^)]*)\)/g, `$1 >= ${from}`)
    add(`Grafana: ${title}`, within("'2000-01-01'"), within('current_date - 90'))
  }
  const { rows: made } = await client.query("select viewname as name from pg_views where schemaname = 'visibility'")
  for (const name of BI_VIEWS.filter((view) => made.some((row) => row.name === view))) {
    const { fields } = await client.query(`select * from visibility.${name} limit 0`)
    const time = ['date', 'week', 'month'].find((column) => fields.some((field) => field.name === column))
    const all = `select * from visibility.${name}`
    add(`view ${name}`, all, time === undefined ? undefined : `${all} where ${time} >= current_date - 90`)
  }
  return found
}

/** Milliseconds of the fastest round, the first of which fills caches. Rows are counted, not sent. */
async function timed(reader, query) {
  let best = Number.POSITIVE_INFINITY
  for (let round = 0; round <= results.rounds; round++) {
    const started = performance.now()
    await reader.query(`explain (analyze, timing off, summary off) ${query}`)
    best = Math.min(best, performance.now() - started)
    if (best > 5000) break
  }
  return best
}

try {
  if (!options.filled) await fillWarehouse()
  say('vacuum and statistics')
  await client.query('set client_min_messages = error')
  await client.query('vacuum analyze')
  for (const role of ['bench_reader', 'bench_client'])
    await client.query(
      `do $$ begin create role ${role} login password 'bench'; exception when duplicate_object then null; end $$`,
    )
  await revokeReader(warehouse, 'bench_client')
  await grantReader(warehouse, { role: 'bench_reader', unused: [] })
  await applySetting(warehouse, 'bench_reader', READER_SETTINGS.jit)
  const { rows } = await client.query('select count(*)::int as n from visibility.brand_daily_by_prompt_model')
  results.finest_rows = rows[0].n
  results.statements = {}
  const connect = async (role) => {
    const address = new URL(url)
    Object.assign(address, { username: role, password: 'bench' })
    const made = new pg.Client({ connectionString: address.href })
    await made.connect()
    return made
  }
  const [reader, tuned] = [await connect('bench_reader'), await connect('bench_reader')]
  await tuned.query("set work_mem = '64MB'; set random_page_cost = 1.1; set jit = off")
  const chosen = options.only === 'restricted' ? [] : await statements()
  for (const { name, all, recent } of chosen) {
    const result = { all_ms: await timed(reader, all), tuned_all_ms: await timed(tuned, all) }
    if (recent !== undefined) {
      Object.assign(result, { recent_ms: await timed(reader, recent), tuned_recent_ms: await timed(tuned, recent) })
    }
    results.statements[name] = result
    const show = (ms) => (ms === undefined ? '' : ms.toFixed(0))
    say(
      `${name}: all ${show(result.all_ms)} (${show(result.tuned_all_ms)}), 90 days ${show(result.recent_ms)} (${show(result.tuned_recent_ms)})`,
    )
  }
  results.lists = {}
  for (const name of chosen.length === 0 ? [] : BI_VIEWS) {
    const { fields } = await client.query(`select * from visibility.${name} limit 0`)
    for (const { name: column } of fields.filter(({ dataTypeID }) => dataTypeID === TEXT)) {
      const ms = await timed(reader, `select distinct ${column} from visibility.${name}`)
      if (ms > (results.lists[name]?.ms ?? 0)) results.lists[name] = { column, ms }
    }
    say(`${name}: values of ${results.lists[name]?.column} ${results.lists[name]?.ms.toFixed(0)}`)
  }
  results.restricted = {}
  const questions = (await statements()).filter(({ name }) => name.startsWith('question'))
  const ofProject = (sql) => sql.replace('-- filters', "and project = 'Project 1'")
  for (const { name, all } of questions) results.restricted[name] = { before: await timed(reader, ofProject(all)) }
  await grantReader(warehouse, { role: 'bench_client', projects: ['or_1'], unused: [] })
  await applySetting(warehouse, 'bench_client', READER_SETTINGS.jit)
  const restricted = await connect('bench_client')
  for (const { name, all } of questions) {
    const result = results.restricted[name]
    result.all_projects = await timed(reader, ofProject(all))
    result.restricted = await timed(restricted, ofProject(all))
    result.ratio = result.restricted / result.all_projects
    say(
      `${name}: ${result.before.toFixed(0)}, with policies ${result.all_projects.toFixed(0)}, restricted ${result.restricted.toFixed(0)}`,
    )
  }
  for (const one of [reader, tuned, restricted]) await one.end()
} finally {
  await client.end()
  await warehouse.close()
  await server?.release()
  rmSync(folder, { recursive: true, force: true })
}
mkdirSync(join(root, 'bench/results'), { recursive: true })
writeFileSync(join(root, `bench/results/views-${results.finest_rows}.json`), `${JSON.stringify(results, null, 2)}\n`)
const cell = (ms) => (ms === undefined ? '' : ms.toFixed(0))
process.stdout.write(
  [
    `| ${results.finest_rows.toLocaleString('en-US')} rows in the finest report, ${projects} projects; ms | all days | tuned | 90 days | tuned |`,
    '|---|---|---|---|---|',
    ...Object.entries(results.statements).map(
      ([name, { all_ms, tuned_all_ms, recent_ms, tuned_recent_ms }]) =>
        `| ${name} | ${[all_ms, tuned_all_ms, recent_ms, tuned_recent_ms].map(cell).join(' | ')} |`,
    ),
    '',
    '| slowest list of values | ms |',
    '|---|---|',
    ...Object.entries(results.lists).map(([name, { column, ms }]) => `| ${name}.${column} | ${cell(ms)} |`),
    '',
    '| one project; ms | without policies | reader of all projects | reader of this project | ratio |',
    '|---|---|---|---|---|',
    ...Object.entries(results.restricted).map(
      ([name, { before, all_projects, restricted, ratio }]) =>
        `| ${name} | ${[before, all_projects, restricted].map(cell).join(' | ')} | ${ratio.toFixed(2)} |`,
    ),
    '',
  ].join('\n'),
)
