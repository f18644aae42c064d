// npm run bench: the contenders side by side on the same rows, interleaved, medians, as a table, as JSON and as a chart.
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import {
  dlt,
  floorOfReading,
  floorOfWriting,
  naive,
  prepareDlt,
  prepareWriting,
  product,
  TABLE,
} from './contenders.mjs'
import { cpuSeconds, databaseCounters, median, postgresCpuSeconds } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    rows: { type: 'string', default: '200000' },
    large: { type: 'string', default: '1000000' },
    rounds: { type: 'string', default: '5' },
    latencies: { type: 'string', default: '0,30,300' },
    'skip-dlt': { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    // Generic connectors beside the command, for cost and for correctness; --peer takes one of them.
    peers: { type: 'boolean', default: false },
    peer: { type: 'string' },
    'peer-rows': { type: 'string', default: '150000' },
  },
})
if (options.quick) Object.assign(options, { rows: '20000', large: '20000', latencies: '0', 'peer-rows': '20000' })
const ROWS_A_DAY = 990
const root = fileURLToPath(new URL('..', import.meta.url))
const rounds = options.quick ? 1 : Number(options.rounds)
const say = (text) => process.stderr.write(`${text}\n`)
if (options.peers || options.peer !== undefined) {
  const { benchPeers, peersTable } = await import('./peers.mjs')
  const wanted = { rows: Number(options['peer-rows']), rounds: options.quick ? 1 : 3, only: options.peer }
  const found = await benchPeers(wanted)
  mkdirSync(join(root, 'bench/results'), { recursive: true })
  writeFileSync(join(root, 'bench/results/peers.json'), `${JSON.stringify(found, null, 2)}\n`)
  writeFileSync(join(root, 'bench/results/peers.md'), `${peersTable(found)}\n`)
  process.stdout.write(`${peersTable(found)}\n`)
  process.exit()
}
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-bench-'))
const rangeOf = (rows) => {
  const days = Math.ceil(rows / ROWS_A_DAY)
  return {
    from: '2022-01-01',
    to: new Date(Date.parse('2022-01-01') + (days - 1) * 86_400_000).toISOString().slice(0, 10),
    rows: days * ROWS_A_DAY,
  }
}

const server =
  process.env.BENCH_DATABASE_URL === undefined ? await startEmbedded({ folder: join(folder, 'data') }) : undefined
const adminUrl = new URL(process.env.BENCH_DATABASE_URL ?? server.url)
const postmaster = server && Number(readFileSync(join(folder, 'data/postgres/postmaster.pid'), 'utf8').split('\n')[0])
const admin = new pg.Client({ connectionString: adminUrl.href })
await admin.connect()
const { version: postgresVersion } = (await admin.query("select current_setting('server_version') as version")).rows[0]

const pages = spawn(
  process.execPath,
  [fileURLToPath(new URL('page-server.mjs', import.meta.url)), JSON.stringify({ rowsPerDay: ROWS_A_DAY })],
  { stdio: ['ignore', 'pipe', 'inherit'] },
)
const { url } = JSON.parse(await new Promise((done) => pages.stdout.once('data', (data) => done(String(data)))))
const control = async (what) =>
  (await fetch(url.replace('/v1', '/control'), { method: 'POST', body: JSON.stringify(what) })).json()

let databases = 0
async function freshDatabase() {
  const name = `bench_${process.pid}_${databases++}`
  await admin.query(`create database ${name} template template0`)
  const address = new URL(adminUrl)
  address.pathname = `/${name}`
  return {
    name,
    url: address.href,
    drop: () => admin.query(`drop database if exists ${name} with (force)`).catch(() => {}),
  }
}

async function countersOf(database) {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const counters = await databaseCounters(client, TABLE)
  await client.end()
  return counters
}

/** Runs the product once and measures everything around it. */
async function measureProduct(database, range, settings = {}) {
  await control({})
  const before = {
    ...(await countersOf(database)),
    pages: cpuSeconds(pages.pid),
    postgres: postgresCpuSeconds(postmaster),
  }
  const result = await product({ url, range, databaseUrl: database.url, folder, ...settings })
  const after = {
    ...(await countersOf(database)),
    pages: cpuSeconds(pages.pid),
    postgres: postgresCpuSeconds(postmaster),
  }
  const { requests } = await control({})
  return {
    seconds: result.seconds,
    rate: result.rows / result.seconds,
    rows: result.rows,
    memory_mb: result.memoryMb,
    cpu: { command: result.cpuSeconds, pages: after.pages - before.pages, postgres: after.postgres - before.postgres },
    wal_bytes_a_row: (after.wal - before.wal) / result.rows,
    dead_rows_a_row: (after.dead - before.dead) / result.rows,
    requests,
    request_floor: Math.ceil(range.rows / 10_000),
    stream: result.stream,
  }
}

const summary = (runs, pick = (run) => run.rate) => median(runs.map(pick))
const results = {
  machine: `${cpus()[0]?.model ?? 'unknown'}, ${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GB`,
  node: process.version,
  postgres: postgresVersion,
  rounds,
}

try {
  /* Side by side, first load. */
  const range = rangeOf(Number(options.rows))
  await control({ variant: 'same', latencyMs: 0, warm: range })
  const ready = await prepareWriting({ url, range })
  const runs = { reading: [], writing: [], naive: [], product: [] }
  for (let round = 0; round < rounds; round++) {
    say(`round ${round + 1} of ${rounds}: ${range.rows.toLocaleString('en-US')} rows`)
    const started = performance.now()
    await floorOfReading({ url, range })
    runs.reading.push({ rate: range.rows / ((performance.now() - started) / 1000) })
    const [a, b, c] = [await freshDatabase(), await freshDatabase(), await freshDatabase()]
    runs.writing.push({ rate: range.rows / (await floorOfWriting({ databaseUrl: a.url, pages: ready })).seconds })
    runs.product.push(await measureProduct(b, range))
    const startedNaive = performance.now()
    await naive({ url, range, databaseUrl: c.url })
    runs.naive.push({ rate: range.rows / ((performance.now() - startedNaive) / 1000) })
    for (const database of [a, b, c]) await database.drop()
  }
  results.first_load = Object.fromEntries(Object.entries(runs).map(([name, list]) => [name, summary(list)]))

  if (!options['skip-dlt'] && !options.quick) {
    const prepared = prepareDlt(join(root, '.data'))
    if (prepared.reason !== undefined) say(`dlt is left out: ${prepared.reason}`)
    else {
      say(`dlt ${prepared.version}`)
      const database = await freshDatabase()
      try {
        results.first_load.dlt =
          range.rows / dlt({ ...prepared, url, range, databaseUrl: database.url, folder }).seconds
        results.dlt_version = prepared.version
      } catch (error) {
        say(`dlt is left out: ${error.message}`)
      }
      await database.drop()
    }
  }

  /* The product over its life: first load, the same again, a tenth changed, a twentieth vanished. */
  const large = rangeOf(Number(options.large))
  const life = { first: [], again: [], changed: [], vanished: [] }
  const floors = []
  for (let round = 0; round < Math.min(3, rounds); round++) {
    say(`life ${round + 1}: ${large.rows.toLocaleString('en-US')} rows`)
    await control({ variant: 'same', warm: large })
    const floorDatabase = await freshDatabase()
    const text = await prepareWriting({ url, range: large })
    floors.push(large.rows / (await floorOfWriting({ databaseUrl: floorDatabase.url, pages: text })).seconds)
    await floorDatabase.drop()
    const database = await freshDatabase()
    life.first.push(await measureProduct(database, large))
    // The first look at new rows sets their hint bits; that is the first load's cost, not the re-read's.
    const client = new pg.Client({ connectionString: database.url })
    await client.connect()
    await client.query(`select count(*) from visibility.${TABLE}`)
    await client.query('checkpoint').catch(() => {})
    await client.end()
    life.again.push(await measureProduct(database, large))
    await control({ variant: 'changed', warm: large })
    life.changed.push(await measureProduct(database, large))
    await control({ variant: 'vanished', warm: large })
    life.vanished.push(await measureProduct(database, large))
    await database.drop()
  }
  await control({ variant: 'same', warm: large })
  results.large_rows = large.rows
  results.large_floor_of_writing = median(floors)
  results.life = Object.fromEntries(
    Object.entries(life).map(([name, list]) => {
      const pick = (field) => summary(list, field)
      return [
        name,
        {
          rate: pick((run) => run.rate),
          memory_mb: pick((run) => run.memory_mb),
          wal_bytes_a_row: pick((run) => run.wal_bytes_a_row),
          dead_rows_a_row: pick((run) => run.dead_rows_a_row),
          cpu_command: pick((run) => run.cpu.command),
          cpu_postgres: pick((run) => run.cpu.postgres),
          cpu_pages: pick((run) => run.cpu.pages),
          requests: pick((run) => run.requests),
          request_floor: list[0].request_floor,
        },
      ]
    }),
  )

  /* Growth: ten times the rows, and the memory of a tenth. */
  const tenth = rangeOf(large.rows / 10)
  await control({ variant: 'same', warm: tenth })
  const small = []
  // It takes little time, and what the garbage collector leaves lying about at so early an end varies.
  for (let round = 0; round < (options.quick ? 1 : 7); round++) {
    const database = await freshDatabase()
    small.push(await measureProduct(database, tenth))
    await database.drop()
  }
  results.tenth = {
    rows: tenth.rows,
    seconds: summary(small, (run) => run.seconds),
    memory_mb: summary(small, (run) => run.memory_mb),
  }
  results.large_seconds = median(life.first.map((run) => run.seconds))

  /* Latency of the service. */
  results.latency = {}
  for (const latencyMs of options.latencies.split(',').map(Number)) {
    await control({ latencyMs, variant: 'same', warm: range })
    results.latency[latencyMs] = {}
    for (const concurrency of [1, 4, 8]) {
      const database = await freshDatabase()
      results.latency[latencyMs][concurrency] = (await measureProduct(database, range, { concurrency })).rate
      await database.drop()
    }
  }
  await control({ latencyMs: 0 })
} finally {
  await admin.end()
  pages.kill()
  await server?.release()
  rmSync(folder, { recursive: true, force: true })
}

const { first_load: first, life } = results
results.bars = {
  'end to end, of the floor of writing (at least 0.9)': life.first.rate / results.large_floor_of_writing,
  'end to end, of the naive path (at least 4.5)': life.first.rate / first.naive,
  'WAL bytes a row, same again (under 10)': life.again.wal_bytes_a_row,
  'dead rows a row, same again (0)': life.again.dead_rows_a_row,
  'same again, of the first load (at least 1)': life.again.rate / life.first.rate,
  'peak memory in MB (under 350)': life.first.memory_mb,
  'peak memory, of that at a tenth of the rows (at most 1.1)': life.first.memory_mb / results.tenth.memory_mb,
  'time for ten times the rows (at most 10.5)': results.large_seconds / results.tenth.seconds,
  'requests, of 1.1 × rows / limit + 2 (at most 1)': life.again.requests / (1.1 * (results.large_rows / 10_000) + 2),
}

const thousand = (number) => (number === undefined ? '–' : (number / 1000).toFixed(0))
const table = [
  `Measured on ${results.machine}, Node ${results.node}, Postgres ${results.postgres}, the page server in a process of its own; medians of ${rounds} interleaved rounds. Thousand rows a second.`,
  '',
  `| first load of ${rangeOf(Number(options.rows)).rows.toLocaleString('en-US')} rows | thousand rows a second | of the naive path |`,
  '|---|---|---|',
  ...[
    ['floor of reading: fetch and parse', first.reading],
    ['floor of writing: COPY of ready-made text', first.writing],
    ['naive: zod with transforms, Kysely upserts', first.naive],
    ...(first.dlt === undefined ? [] : [[`dlt ${results.dlt_version}, REST source, merge`, first.dlt]]),
    ['**visibility-sync backfill**, the whole command', first.product],
  ].map(([name, rate]) => `| ${name} | ${thousand(rate)} | ${(rate / first.naive).toFixed(1)} |`),
  '',
  `| visibility-sync, ${results.large_rows.toLocaleString('en-US')} rows | thousand rows a second | WAL bytes a row | dead rows a row | CPU s: command, Postgres | peak MB | requests (floor) |`,
  '|---|---|---|---|---|---|---|',
  ...Object.entries(life).map(
    ([name, run]) =>
      `| ${{ first: 'first load', again: 'same again', changed: '10 % changed', vanished: '5 % vanished' }[name]} | ${thousand(run.rate)} | ${run.wal_bytes_a_row.toFixed(1)} | ${run.dead_rows_a_row.toFixed(3)} | ${run.cpu_command.toFixed(1)}, ${run.cpu_postgres.toFixed(1)} | ${run.memory_mb.toFixed(0)} | ${run.requests} (${run.request_floor}) |`,
  ),
  '',
  `| service latency, first load | ${[1, 4, 8].map((number) => `${number} in flight`).join(' | ')} |`,
  '|---|---|---|---|',
  ...Object.entries(results.latency).map(
    ([ms, rates]) => `| ${ms} ms | ${[1, 4, 8].map((number) => thousand(rates[number])).join(' | ')} |`,
  ),
  '',
  '| bar | measured |',
  '|---|---|',
  ...Object.entries(results.bars).map(([name, value]) => `| ${name} | ${value.toFixed(2)} |`),
].join('\n')

mkdirSync(join(root, 'bench/results'), { recursive: true })
writeFileSync(join(root, 'bench/results/bench.json'), `${JSON.stringify(results, null, 2)}\n`)
writeFileSync(join(root, 'bench/results/bench.md'), `${table}\n`)
writeFileSync(
  join(root, 'bench/results/bench.svg'),
  barChart('Thousand rows a second, first load', [
    ['floor of reading', first.reading / 1000],
    ['floor of writing', first.writing / 1000],
    ['visibility-sync', first.product / 1000],
    ['naive', first.naive / 1000],
    ...(first.dlt === undefined ? [] : [['dlt', first.dlt / 1000]]),
  ]),
)
process.stdout.write(`${table}\n`)

// A bar chart as SVG, without a library: five bars need none.
function barChart(title, bars) {
  const most = Math.max(...bars.map(([, value]) => value))
  const row = 34
  const height = 60 + bars.length * row
  const lines = bars.map(([name, value], index) => {
    const width = Math.max(2, (value / most) * 420)
    const y = 48 + index * row
    const colour = name === 'visibility-sync' ? '#1f6feb' : '#8b949e'
    return `<text x="150" y="${y + 15}" text-anchor="end" fill="#57606a">${name}</text><rect x="160" y="${y}" width="${width.toFixed(1)}" height="22" rx="3" fill="${colour}"/><text x="${(168 + width).toFixed(1)}" y="${y + 15}" fill="#57606a">${value.toFixed(0)}</text>`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 ${height}" font-family="system-ui, sans-serif" font-size="13">
<title>${title}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="20" y="28" font-size="15" fill="#24292f">${title}</text>
${lines.join('\n')}
</svg>
`
}
