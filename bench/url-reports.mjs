// node bench/url-reports.mjs: reports of URLs as large as they get, read by the real command: a day of 200,000 URLs with and
// without a dimension to split by, and a year of one project. Every count is compared with what the service has. Exits 1 if one is
// wrong, or if the command takes more memory than the bar of docs/explanation/performance.md.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { watchMemory } from './measure.mjs'

const { values: options } = parseArgs({
  options: { only: { type: 'string', default: '' }, bar: { type: 'string', default: '350' } },
})
const DAY_MS = 86_400_000
const PROMPTS = 400
const KINDS = ['HOMEPAGE', 'LISTICLE', 'ARTICLE', 'COMPARISON']
const SCENARIOS = [
  { name: 'a day of 200,000 URLs by date', urls: 200_000, dimensions: ['date'], from: '2026-03-31' },
  { name: 'a day of 200,000 URLs by prompt', urls: 200_000, dimensions: ['date', 'prompt_id'], from: '2026-03-31' },
  { name: 'a year of 4,000 URLs a day', urls: 4000, dimensions: ['date', 'model_id'], from: '2025-04-01' },
].filter(({ name }) => name.includes(options.only))
const LAST = '2026-03-31'
const MODELS = ['famA-scraper', 'famD-4o-search', 'famB-sonar']

/** The prompts for which a page is retrieved: every fifth has two. */
const promptsOf = (url) => (url % 5 === 0 ? [url % PROMPTS, (url * 7 + 1) % PROMPTS] : [url % PROMPTS])

/** All rows of a day, each as its numbers; the text is made when it is asked for. A few pages stand there twice. */
function rowsOf(urls, dimensions) {
  const rows = []
  for (let url = 0; url < urls; url++) {
    const groups = dimensions.includes('prompt_id')
      ? [...new Set(promptsOf(url))].map((prompt) => ({ prompt, model: url % MODELS.length, used: 2 + (prompt % 3) }))
      : [{ prompt: undefined, model: url % MODELS.length, used: sum([...new Set(promptsOf(url))], (p) => 2 + (p % 3)) }]
    for (const { prompt, model, used } of groups) {
      if (url % 9000 === 1) rows.push({ url, prompt, model, used: 1 }, { url, prompt, model, used: used - 1 })
      else rows.push({ url, prompt, model, used })
    }
  }
  return rows
}
const sum = (list, value) => list.reduce((total, item) => total + value(item), 0)

function rowText({ url, prompt, model, used }, date, dimensions) {
  return JSON.stringify({
    url: `https://site-${url % 977}.example/section-${url % 31}/a-page-with-a-longer-name-${url}?ref=answers`,
    classification: KINDS[url % KINDS.length],
    title: `The page number ${url}, with a title as pages have them`,
    usage_count: used,
    citation_count: used * 2,
    citation_avg: 2,
    retrievals: used * 3,
    citation_rate: 2 / 3,
    date,
    ...(prompt !== undefined && { prompt: { id: `pr_${prompt}` } }),
    ...(dimensions.includes('model_id') && { model: { id: MODELS[model] } }),
  })
}

let scenario
let requests = 0
const made = new Map()
const dayRows = (dimensions) => {
  const name = `${scenario.name} ${dimensions}`
  if (!made.has(name)) made.set(name, rowsOf(scenario.urls, dimensions))
  return made.get(name)
}
const passes = (row, { field, operator, values }) => {
  const value = field === 'prompt_id' ? `pr_${row.prompt}` : MODELS[row.model]
  return values.includes(value) === (operator === 'in')
}

/** Rows of a range from an offset on. Each answer has another order, as that of the live service. */
function answerOf({ start_date, end_date, limit = 1000, offset = 0, dimensions = [], filters = [] }) {
  const sets = filters.map((filter) => ({ ...filter, values: new Set(filter.values) }))
  const asSet = sets.map((filter) => ({ ...filter, values: { includes: (value) => filter.values.has(value) } }))
  const all = dayRows(dimensions).filter((row) => asSet.every((filter) => passes(row, filter)))
  const days = (Date.parse(end_date) - Date.parse(start_date)) / DAY_MS + 1
  const turn = requests * 7919
  const texts = []
  for (let at = offset; at < Math.min(offset + limit, all.length * days); at++) {
    const date = new Date(Date.parse(start_date) + Math.floor(at / all.length) * DAY_MS).toISOString().slice(0, 10)
    texts.push(rowText(all[(at + turn) % all.length], date, dimensions))
  }
  return `{"data":[${texts.join(',')}]}`
}

const service = createServer((request, response) => {
  let body = ''
  request.on('data', (chunk) => (body += chunk))
  request.on('end', () => {
    requests++
    const text = request.url.startsWith('/v1/reports/urls') ? answerOf(JSON.parse(body)) : '{"data":[]}'
    response.writeHead(200, { 'content-type': 'application/json' }).end(text)
  })
})
await new Promise((done) => service.listen(0, '127.0.0.1', done))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-urls-'))
const postgres = await startEmbedded({ folder: join(folder, 'data') })
const client = new pg.Client({ connectionString: postgres.url })
await client.connect()

async function measure(index) {
  const { dimensions, from } = scenario
  const table = `urls_${index}`
  const config = join(folder, `sync-${index}.yaml`)
  const source = { requests_per_minute: 100_000, compress: false }
  writeFileSync(config, JSON.stringify({ source, streams: [], reports: [{ name: table, of: 'urls', dimensions }] }))
  requests = 0
  const started = Date.now()
  const bin = fileURLToPath(new URL('../bin/visibility-sync.js', import.meta.url))
  const child = spawn(process.execPath, [bin, 'backfill', '--from', from, '--to', LAST, '--json'], {
    cwd: folder,
    env: {
      PATH: process.env.PATH,
      VISIBILITY_API_URL: `http://127.0.0.1:${service.address().port}/v1`,
      VISIBILITY_API_KEY: 'key',
      VISIBILITY_PROJECTS: 'or_1',
      DATABASE_URL: postgres.url,
      VISIBILITY_CONFIG: config,
      LOG_LEVEL: 'silent',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const stop = watchMemory(child.pid)
  let printed = ''
  child.stdout.on('data', (data) => (printed += data))
  await new Promise((done) => child.on('close', done))
  const seconds = (Date.now() - started) / 1000
  const { outcome, streams = [] } = JSON.parse(printed)
  const { rows } = await client.query(
    `select count(*)::int as rows, sum(usage_count) as used, sum(retrievals) as seen from visibility.${table}`,
  )
  const days = (Date.parse(LAST) - Date.parse(from)) / DAY_MS + 1
  const all = dayRows(dimensions)
  const keys = new Set(all.map(({ url, prompt, model }) => `${url} ${prompt} ${model}`)).size
  const used = sum(all, (row) => row.used)
  const wanted = { rows: keys * days, used: used * days, seen: used * 3 * days }
  const isRight = outcome === 'complete' && JSON.stringify(rows[0]) === JSON.stringify(wanted)
  const failed = streams[0]?.failed?.[0]?.error ?? JSON.stringify(rows[0])
  return { rows: rows[0].rows, requests, seconds, peak: Math.round(stop()), isRight, failed }
}

let bad = 0
console.log('| report | rows | requests | seconds | MB at the peak | counts |\n|---|---|---|---|---|---|')
for (const [index, each] of SCENARIOS.entries()) {
  scenario = each
  for (const when of ['', ', again']) {
    const { rows, requests: sent, seconds, peak, isRight, failed } = await measure(index)
    if (!isRight || peak > Number(options.bar)) bad++
    console.log(
      `| ${each.name}${when} | ${rows.toLocaleString('en')} | ${sent} | ${seconds.toFixed(1)} | ${peak} | ${isRight ? 'right' : failed} |`,
    )
  }
}
await client.end()
service.closeAllConnections()
service.close()
await postgres.release()
rmSync(folder, { recursive: true, force: true })
process.exitCode = bad === 0 ? 0 : 1
