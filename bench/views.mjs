// node bench/views.mjs: every view for BI on a large warehouse, filtered to 90 days of one project by its id and by its name,
// and what BI tools ask by themselves: the different values of every text column, without any filter. Beside each view the same
// view of an earlier version, in turns, on the same rows. Writes bench/results/views.json and prints a table.
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { loadConfig } from '../dist/core/config/load.js'
import { BI_VIEWS } from '../dist/core/vocabulary.js'
import { connectWarehouse } from '../dist/warehouse/connect.js'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { migrate } from '../dist/warehouse/schema/migrate.js'
import { recheckSummaries, refreshSummaries } from '../dist/warehouse/schema/summaries.js'
import { median } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    rows: { type: 'string', default: '5000000' },
    projects: { type: 'string', default: '4' },
    rounds: { type: 'string', default: '5' },
    // The last commit of version 0.2.0.
    old: { type: 'string', default: '24a978c' },
    // The warehouse at BENCH_DATABASE_URL was filled by an earlier run.
    filled: { type: 'boolean', default: false },
  },
})
const root = fileURLToPath(new URL('..', import.meta.url))
const say = (text) => process.stderr.write(`${text}\n`)
const git = (...args) => execFileSync('git', args, { cwd: root, encoding: 'utf8' })
const oldViews = new Set(git('ls-tree', '--name-only', options.old, 'sql/views/').split('\n'))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-views-'))
const server =
  process.env.BENCH_DATABASE_URL === undefined ? await startEmbedded({ folder: join(folder, 'data') }) : undefined
const url = process.env.BENCH_DATABASE_URL ?? server.url
const warehouse = await connectWarehouse({ url, schema: 'visibility', connections: 2 })
const client = new pg.Client({ connectionString: url })
await client.connect()
const TEXT = 25
const [BRANDS, MODELS, PROMPTS, TOPICS, DAYS] = [5, 4, 60, 8, 1095]
const projects = Number(options.projects)
// As many prompts as it takes for the finest report to have so many rows in three years.
const prompts = Math.max(1, Math.round(Number(options.rows) / (DAYS * projects * BRANDS * MODELS)) || PROMPTS)

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
  const topic = group(TOPICS, 't1', "'to_' || t1")
  say(`filling ${(DAYS * projects * BRANDS * MODELS * prompts).toLocaleString('en-US')} rows into the finest report`)
  await fill('brand_daily', {})
  await fill('brand_daily_by_model', { model_id: model })
  await fill('brand_daily_by_channel', { model_channel_id: group(MODELS, 'm', "'channel-' || m") })
  await fill('brand_daily_by_topic', { topic_id: topic })
  await fill('brand_daily_by_tag', { tag_id: group(6, 't2', "'tg_' || t2") })
  await fill('brand_daily_by_country', { country_code: group(5, 'c', "'C' || c") })
  await fill('brand_daily_by_topic_model', { topic_id: topic, model_id: model })
  await fill(
    'brand_daily_by_prompt_model',
    { prompt_id: group(prompts, 'q', "'pr_' || q"), model_id: model },
    '(q + m) % 3 = 0',
  )
  await client.query(`
    insert into visibility.projects select 'or_' || p, 'Project ' || p from generate_series(1, ${projects}) p;
    insert into visibility.brands select 'or_' || p, 'kw_' || p || '_' || b, 'Brand ' || b, b = 1 from generate_series(1, ${projects}) p, generate_series(1, ${BRANDS}) b;
    insert into visibility.prompts (project_id, prompt_id, text, topic_id) select 'or_' || p, 'pr_' || q, 'Prompt ' || q, 'to_' || (q % ${TOPICS} + 1) from generate_series(1, ${projects}) p, generate_series(1, ${prompts}) q;
    insert into visibility.topics select 'or_' || p, 'to_' || t, 'Topic ' || t from generate_series(1, ${projects}) p, generate_series(1, ${TOPICS}) t;
    insert into visibility.chats select 'or_' || p, 'ch_' || p || '_' || d || '_' || q || '_' || m, 'pr_' || q, 'model-' || m, null, current_date - d
      from generate_series(0, ${DAYS - 1}) d, generate_series(1, ${projects}) p, generate_series(1, ${prompts}) q, generate_series(1, ${MODELS}) m`)
  say('sums for the views')
  const summing = performance.now()
  await recheckSummaries(warehouse, config)
  const periods = await refreshSummaries(warehouse, config, new AbortController().signal)
  results.summing = { periods, seconds: (performance.now() - summing) / 1000 }
  say(`${periods} periods and projects summarized in ${results.summing.seconds.toFixed(1)} s`)
}

/** The calendar without the indexes that came later. */
async function makeOldCalendar() {
  await client.query(`
    drop table if exists visibility.old_calendar cascade;
    create table visibility.old_calendar (like visibility.calendar, primary key (date));
    insert into visibility.old_calendar select * from visibility.calendar;
    create view visibility.old_weeks_compared as
      select date, week, 0 as ago from visibility.old_calendar union all select date, week + 7, 1 from visibility.old_calendar;
    create view visibility.old_months_compared as
      select date, month, 0 as ago from visibility.old_calendar
      union all select date, (month + interval '1 month')::date, 1 from visibility.old_calendar`)
}

/** Makes a view as an earlier version had it, beside ours. False if it had none. */
async function makeOld(name) {
  const path = `sql/views/${name}.sql`
  if (!oldViews.has(path)) return false
  const text = git('show', `${options.old}:${path}`)
  const tableOf = (dimensions) =>
    loadConfig({ env: {} }).reports.find(
      (report) => report.dimensions.toSorted().join() === dimensions.toSorted().join(),
    )
  await client.query(
    text
      .replace(`view {schema}.${name}`, `view visibility.old_${name}`)
      .replaceAll(/\{schema\}\.(calendar|weeks_compared|months_compared)\b/g, 'visibility.old_$1')
      .replaceAll('{schema}', 'visibility')
      .replaceAll(/\{report ([\w ]+)\}/g, (_, dimensions) => `visibility.${tableOf(dimensions.split(' ')).name}`),
  )
  return true
}

try {
  if (!options.filled) await fillWarehouse()
  await makeOldCalendar()
  say('vacuum and statistics')
  await client.query('set client_min_messages = error')
  await client.query('vacuum analyze')
  const { rows } = await client.query('select count(*)::int as n from visibility.brand_daily_by_prompt_model')
  results.finest_rows = rows[0].n
  results.views = {}
  // As docs/bi.md sets up the reader's role.
  await client.query("set work_mem = '64MB'; set random_page_cost = 1.1")
  /** The medians of queries that take turns. The first round fills caches and does not count. */
  const timed = async (...queries) => {
    const runs = queries.map(() => ({ times: [], rows: 0 }))
    for (let round = 0; round <= results.rounds; round++) {
      for (const [at, query] of queries.entries()) {
        const started = performance.now()
        runs[at].rows = (await client.query(query)).rowCount
        if (round > 0) runs[at].times.push(performance.now() - started)
      }
    }
    return runs.map(({ times, rows }) => ({ ms: median(times), rows }))
  }
  for (const name of BI_VIEWS) {
    const { fields } = await client.query(`select * from visibility.${name} limit 0`)
    const time = ['date', 'week', 'month'].find((column) => fields.some((field) => field.name === column))
    const recent = time === undefined ? '' : `and ${time} >= current_date - 90`
    const hasOld = await makeOld(name)
    const query = (view) => `select * from visibility.${view} where project_id = 'or_1' ${recent}`
    const [byId, old] = await timed(query(name), ...(hasOld ? [query(`old_${name}`)] : []))
    const [byName] = await timed(`select * from visibility.${name} where project = 'Project 1' ${recent}`)
    let slowest = { column: '', ms: 0 }
    for (const { name: column, dataTypeID } of fields) {
      if (dataTypeID !== TEXT) continue
      const [{ ms }] = await timed(`select distinct ${column} from visibility.${name}`)
      if (ms > slowest.ms) slowest = { column, ms }
    }
    results.views[name] = { old_ms: old?.ms, ms: byId.ms, rows: byId.rows, by_name_ms: byName.ms, distinct: slowest }
    say(
      `${name}: ${byId.ms.toFixed(0)} ms (${old?.ms.toFixed(0) ?? 'no'} before), by name ${byName.ms.toFixed(0)} ms, ${byId.rows} rows; distinct ${slowest.column} ${slowest.ms.toFixed(0)} ms`,
    )
  }
} finally {
  await client.end()
  await warehouse.close()
  await server?.release()
  rmSync(folder, { recursive: true, force: true })
}
mkdirSync(join(root, 'bench/results'), { recursive: true })
writeFileSync(join(root, 'bench/results/views.json'), `${JSON.stringify(results, null, 2)}\n`)
process.stdout.write(
  [
    `| view, 90 days of one project of ${projects}; ${results.finest_rows.toLocaleString('en-US')} rows in the finest report | 0.2.0, ms | ms | of 0.2.0 | by the project's name | rows | slowest list of values |`,
    '|---|---|---|---|---|---|---|',
    ...Object.entries(results.views).map(
      ([name, { old_ms, ms, rows, by_name_ms, distinct }]) =>
        `| ${name} | ${old_ms?.toFixed(0) ?? ''} | ${ms.toFixed(0)} | ${old_ms === undefined ? '' : (ms / old_ms).toFixed(1)} | ${by_name_ms.toFixed(0)} | ${rows} | ${distinct.column}: ${distinct.ms.toFixed(0)} ms |`,
    ),
    '',
  ].join('\n'),
)
