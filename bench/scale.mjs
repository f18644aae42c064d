// node bench/scale.mjs: how cost grows with rows, days and projects, through the real command, and how long plan and status
// take on a long history. Writes bench/results/scale.json and prints tables.
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { product } from './contenders.mjs'
import { cpuSeconds, median } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    rows: { type: 'string', default: '10000,100000,1000000,5000000' },
    days: { type: 'string', default: '1,10,100,1000,3000' },
    projects: { type: 'string', default: '1,10,100,300' },
    history: { type: 'string', default: '10000000' },
  },
})
const root = fileURLToPath(new URL('..', import.meta.url))
const list = (text) => text.split(',').filter(Boolean).map(Number)
const say = (text) => process.stderr.write(`${text}\n`)
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-scale-'))
const server = await startEmbedded({ folder: join(folder, 'data') })
const admin = new pg.Client({ connectionString: server.url })
await admin.connect()

async function pagesOf(rowsPerDay) {
  const pages = spawn(
    process.execPath,
    [fileURLToPath(new URL('page-server.mjs', import.meta.url)), JSON.stringify({ rowsPerDay })],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const { url } = JSON.parse(await new Promise((done) => pages.stdout.once('data', (data) => done(String(data)))))
  return { url, stop: () => pages.kill() }
}

const rangeOf = (days) => ({
  from: '2012-01-01',
  to: new Date(Date.parse('2012-01-01') + (days - 1) * 86_400_000).toISOString().slice(0, 10),
})

async function measure(rowsPerDay, days, projects) {
  const pages = await pagesOf(rowsPerDay)
  const name = `scale_${Math.random().toString(36).slice(2)}`
  await admin.query(`create database ${name} template template0`)
  const address = new URL(server.url)
  address.pathname = `/${name}`
  try {
    const range = rangeOf(days)
    await fetch(pages.url.replace('/v1', '/control'), { method: 'POST', body: JSON.stringify({ warm: range }) })
    const ids = Array.from({ length: projects }, (_, index) => `p${index}`).join(',')
    const result = await product({ url: pages.url, range, databaseUrl: address.href, folder, projects: ids })
    return { rows: result.rows, seconds: result.seconds, memory_mb: result.memoryMb, requests: result.requests }
  } finally {
    pages.stop()
    await admin.query(`drop database ${name} with (force)`)
  }
}

const results = { rows: [], days: [], projects: [] }
try {
  for (const rows of list(options.rows)) {
    results.rows.push(await measure(990, Math.ceil(rows / 990), 1))
    say(`${rows} rows: ${results.rows.at(-1).seconds.toFixed(1)} s`)
  }
  for (const days of list(options.days)) {
    results.days.push({ days, ...(await measure(20, days, 1)) })
    say(`${days} days: ${results.days.at(-1).seconds.toFixed(1)} s`)
  }
  for (const projects of list(options.projects)) {
    results.projects.push({ projects, ...(await measure(100, 90, projects)) })
    say(`${projects} projects: ${results.projects.at(-1).seconds.toFixed(1)} s`)
  }
  results.history = await history(Number(options.history))
} finally {
  await admin.end()
  await server.release()
  rmSync(folder, { recursive: true, force: true })
}

/** plan and status on a ledger of so many days of streams, 300 projects. */
async function history(days) {
  const streams = ['chats', 'r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7', 'r8', 'r9']
  const each = Math.max(40, Math.round(days / (300 * streams.length)))
  const config = join(folder, 'history.yaml')
  const ids = Array.from({ length: 300 }, (_, index) => `or_${String(index).padStart(4, '0')}`)
  const from = new Date(Date.now() - (each - 1) * 86_400_000).toISOString().slice(0, 10)
  const reports = streams.slice(1).map((name) => ({ name, dimensions: ['date'] }))
  writeFileSync(
    config,
    JSON.stringify({
      start_date: from,
      earliest_date: from,
      streams: ['chats'],
      reports,
      projects: ids.map((id) => ({ id })),
    }),
  )
  const childCpu = () => cpuSeconds(process.pid, true) - cpuSeconds(process.pid)
  const run = (...args) => {
    const started = performance.now()
    const cpu = childCpu()
    const result = spawnSync(process.execPath, [join(root, 'bin/visibility-sync.js'), ...args], {
      cwd: folder,
      maxBuffer: 1e9,
      env: {
        PATH: process.env.PATH,
        DATABASE_URL: server.url,
        VISIBILITY_CONFIG: config,
        VISIBILITY_API_URL: 'http://127.0.0.1:9/v1',
        VISIBILITY_API_KEY: 'k',
      },
    })
    if (result.status !== 0) throw new Error(String(result.stderr))
    return { seconds: (performance.now() - started) / 1000, cpu: childCpu() - cpu }
  }
  run('migrate')
  say(`filling a ledger of ${(each * 300 * streams.length).toLocaleString('en-US')} days`)
  const ops = 'visibility_ops'
  await admin.query(`alter table ${ops}.coverage disable trigger user`)
  await admin.query(
    `insert into ${ops}.coverage select p, s, d::date, 100,
       case when d < now() - interval '9 days' then d + interval '9 days' else now() end, 1, 'read', 1, null
     from unnest($1::text[]) p, unnest($2::text[]) s, generate_series($3::date, now()::date, interval '1 day') d`,
    [ids, streams, from],
  )
  await admin.query(`alter table ${ops}.coverage enable trigger user`)
  await admin.query(`insert into ${ops}.coverage_months
    select project_id, stream, date_trunc('month', date)::date, count(*), min(date), max(date), sum(rows), max(read_at), 0, 0, 0,
      min((read_at at time zone 'UTC')::date - date) from ${ops}.coverage group by 1, 2, 3`)
  await admin.query(`vacuum analyze ${ops}.coverage`)
  await admin.query(`vacuum analyze ${ops}.coverage_months`)
  const cost = (command) => {
    const runs = [run(command), run(command), run(command), run(command), run(command)]
    return { seconds: median(runs.map((one) => one.seconds)), cpu: median(runs.map((one) => one.cpu)) }
  }
  return { days: each * 300 * streams.length, plan: cost('plan'), status: cost('status') }
}

mkdirSync(join(root, 'bench/results'), { recursive: true })
writeFileSync(join(root, 'bench/results/scale.json'), `${JSON.stringify(results, null, 2)}\n`)
const number = (value) => value.toLocaleString('en-US')
const table = (title, rows, name) => [
  `| ${title} | rows | seconds | thousand rows a second | peak MB | requests |`,
  '|---|---|---|---|---|---|',
  ...rows.map(
    (row) =>
      `| ${name(row)} | ${number(row.rows)} | ${row.seconds.toFixed(1)} | ${(row.rows / row.seconds / 1000).toFixed(0)} | ${row.memory_mb.toFixed(0)} | ${row.requests} |`,
  ),
  '',
]
process.stdout.write(
  [
    ...table('first load', results.rows, () => 'one report, 990 rows a day'),
    ...table('20 rows a day', results.days, ({ days }) => `${number(days)} days`),
    ...table('90 days, 100 rows a day', results.projects, ({ projects }) => `${projects} projects`),
    `| a ledger of ${number(results.history.days)} days, 300 projects | seconds | CPU s of the command |`,
    '|---|---|---|',
    ...['plan', 'status'].map((name) => {
      const { seconds, cpu } = results.history[name]
      return `| ${name} | ${seconds.toFixed(2)} | ${cpu.toFixed(2)} |`
    }),
    '',
  ].join('\n'),
)
