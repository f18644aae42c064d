// node bench/capacity.mjs [--latency SECONDS] [--quick]: how many requests, rows, gigabytes and minutes projects need. It loads one
// project of the reference service and measures rows, bytes and CPU. Then it plans the requests of other sizes with the planner of the
// command, and simulates runs of up to 1,000 projects: each project has its request budget, each worker one core and four windows in flight.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { DEFAULT_REPORTS } from '../dist/core/config/schema.js'
import { addDays, daysIn } from '../dist/core/day.js'
import { Density, firstDaysOf } from '../dist/sync/plan/density.js'
import { WindowFeed } from '../dist/sync/plan/window-feed.js'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { cpuSeconds, postgresCpuSeconds } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    latency: { type: 'string', default: '1' },
    projects: { type: 'string', default: '1,10,100,1000' },
    quick: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
if (options.help) {
  console.log('node bench/capacity.mjs [--latency SECONDS] [--projects N,…] [--quick]')
  process.exit()
}
const PAGE = 10_000
const REQUESTS_A_MINUTE = 200
const IN_FLIGHT = 4
const LOOKBACK = 7
const POSTGRES_CORES = 2
const LISTS = 4
const SIZES = {
  small: { prompts: 25, channels: 3, brands: 5, topics: 5, tags: 5, countries: 3 },
  medium: { prompts: 100, channels: 5, brands: 10, topics: 10, tags: 10, countries: 5 },
  large: { prompts: 500, channels: 8, brands: 20, topics: 30, tags: 20, countries: 10 },
}
const COUNTED = {
  ...{
    prompt_id: 'prompts',
    model_id: 'channels',
    model_channel_id: 'channels',
    topic_id: 'topics',
    tag_id: 'tags',
    country_code: 'countries',
  },
  ...{ brand_id: 'brands' },
}
const STREAMS = [
  { name: 'chats', by: ['prompt_id', 'model_id'] },
  ...DEFAULT_REPORTS.map(({ name, dimensions }) => ({ name, by: ['brand_id', ...dimensions.slice(1)] })),
]
const today = new Date().toISOString().slice(0, 10)
const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-capacity-'))

/** The most rows that a day of a stream can have: one for each group. */
const groups = ({ by }, size) => by.reduce((product, column) => product * size[COUNTED[column]], 1)

/** One project of the reference service: which share of its groups has a row, bytes and CPU for each row, CPU of a run that finds little. */
async function measure() {
  const days = options.quick ? 20 : 90
  const server = await startEmbedded({ folder: join(folder, 'data') })
  const postmaster = Number(readFileSync(join(folder, 'data/postgres/postmaster.pid'), 'utf8').split('\n')[0])
  const command = join(root, 'bin/visibility-sync.js')
  const service = spawn(
    process.execPath,
    [
      command,
      'reference',
      '--port',
      '0',
      '--projects',
      '1',
      '--prompts',
      '100',
      '--fault',
      'rate_limit=null',
      '--json',
    ],
    { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const client = new pg.Client({ connectionString: server.url })
  try {
    const started = JSON.parse(await new Promise((done) => service.stdout.once('data', (data) => done(String(data)))))
    const file = join(folder, 'sync.yaml')
    writeFileSync(
      file,
      JSON.stringify({ start_date: addDays(today, -days), extras: 'off', source: { requests_per_minute: 100_000 } }),
    )
    const sync = () => {
      const before = [cpuSeconds(process.pid, true) - cpuSeconds(process.pid), postgresCpuSeconds(postmaster)]
      const { status, stderr } = spawnSync(process.execPath, [command, 'sync', '--json'], {
        cwd: folder,
        env: {
          ...{ PATH: process.env.PATH, VISIBILITY_CONFIG: file, LOG_LEVEL: 'warn', DATABASE_URL: server.url },
          ...{ VISIBILITY_API_URL: started.url, VISIBILITY_API_KEY: started.company_key },
          VISIBILITY_PROJECTS: started.projects[0].id,
        },
        encoding: 'utf8',
      })
      if (status !== 0) throw new Error(`sync exited ${status}: ${stderr.slice(-1000)}`)
      const after = [cpuSeconds(process.pid, true) - cpuSeconds(process.pid), postgresCpuSeconds(postmaster)]
      return after.map((seconds, index) => seconds - before[index])
    }
    const first = sync()
    const again = sync()
    await client.connect()
    const ask = async (sql) => (await client.query(sql)).rows
    const [counts] = await ask(
      `select (select count(*) from visibility.prompts) as prompts, (select count(*) from visibility.models) as channels,
         (select count(*) from visibility.brands) as brands, (select count(*) from visibility.topics) as topics,
         (select count(*) from visibility.tags) as tags, (select count(distinct country_code) from visibility.prompts) as countries`,
    )
    const size = Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, Number(count)]))
    const shares = {}
    let rows = 0
    for (const stream of STREAMS) {
      const [found] = await ask(
        `select count(*)::int as rows, count(distinct date)::int as days, pg_total_relation_size('visibility.${stream.name}')::float8 as bytes from visibility.${stream.name}`,
      )
      rows += found.rows
      shares[stream.name] = {
        share: found.rows / found.days / groups(stream, size),
        bytes: found.bytes / found.rows,
      }
    }
    return { shares, rows, command: first[0] / rows, postgres: first[1] / rows, again }
  } finally {
    await client.end().catch(() => {})
    service.kill()
    await server.release()
  }
}

/** The rows of each request for these days of a project, newest first. */
function requestsOf(size, measured, { days, isKnown }) {
  const due = daysIn({ from: addDays(today, 1 - days), to: today })
  const control = groups({ by: ['brand_id'] }, size)
  const all = [...Array.from({ length: LISTS }, () => size.prompts / LISTS), control * days]
  for (const stream of STREAMS) {
    const perDay = rowsOf(stream, size, measured)
    const known = isKnown ? daysIn({ from: addDays(today, -60), to: addDays(today, -1) }) : []
    const kind = { kind: 'day', dimensions: stream.by }
    const density = new Density(
      known.map((date) => ({ date, rows: perDay })),
      today,
      stream.name === 'brand_daily' ? 366 : firstDaysOf(kind),
    )
    const feed = new WindowFeed(due, density, () => PAGE)
    for (let range = feed.next(); range !== undefined; range = feed.next()) {
      const inside = daysIn(range)
      const rows = inside.length * perDay
      if (rows >= PAGE && inside.length > 1) {
        all.push(PAGE)
        feed.split(range)
        continue
      }
      // A day that is larger than a page is read in parts.
      for (let left = rows; left > 0; left -= PAGE) all.push(Math.min(left, PAGE))
      density.learn(range, new Map(inside.map((date) => [date, perDay])))
      feed.markLoaded()
    }
  }
  return all
}

const rowsOf = (stream, size, { shares }) => Math.ceil(groups(stream, size) * shares[stream.name].share)
const sum = (list) => list.reduce((total, one) => total + one, 0)

/** Seconds until all requests of so many projects are read and loaded, and how busy each resource is. */
function simulate({ projects, requests, workers, command, postgres, fixed }) {
  const latency = Number(options.latency)
  const waiting = Array.from({ length: projects }, () => 0)
  const sent = Array.from({ length: projects }, () => [])
  const cores = Array.from({ length: workers }, () => 0)
  const databases = Array.from({ length: POSTGRES_CORES }, () => 0)
  const slots = Array.from({ length: workers * IN_FLIGHT }, (_, index) => ({ at: 0, worker: index % workers }))
  const used = { command: 0, postgres: 0 }
  let turn = 0
  let left = projects * requests.length
  let end = 0
  while (left > 0) {
    const slot = slots.reduce((least, one) => (one.at < least.at ? one : least))
    const allowed = (project) => {
      const before = sent[project].at(-REQUESTS_A_MINUTE)
      return before === undefined ? slot.at : Math.max(slot.at, before + 60)
    }
    let chosen
    for (let step = 0; step < projects; step++) {
      const project = (turn + step) % projects
      if (waiting[project] === requests.length) continue
      const at = allowed(project)
      if (chosen === undefined || at < chosen.at) chosen = { project, at }
      if (at === slot.at) break
    }
    const { project, at } = chosen
    turn = (project + 1) % projects
    sent[project].push(at)
    const rows = requests[waiting[project]++]
    const last = waiting[project] === requests.length
    left--
    const work = rows * command + (last ? fixed[0] : 0)
    const load = rows * postgres + (last ? fixed[1] : 0)
    const parsed = Math.max(at + latency, cores[slot.worker]) + work
    cores[slot.worker] = parsed
    const database = databases.indexOf(Math.min(...databases))
    databases[database] = Math.max(parsed, databases[database]) + load
    used.command += work
    used.postgres += load
    slot.at = databases[database]
    end = Math.max(end, slot.at)
  }
  const busy = {
    'request budget': Math.min(1, requests.length / (REQUESTS_A_MINUTE * Math.max(1, end / 60))),
    'windows in flight': (projects * requests.length * latency) / (slots.length * end),
    'cores of workers': used.command / (workers * end),
    'cores of Postgres': used.postgres / (POSTGRES_CORES * end),
  }
  const [most, share] = Object.entries(busy).sort(([, a], [, b]) => b - a)[0]
  return { minutes: end / 60, busiest: `${most}, ${Math.round(100 * share)} %` }
}

const whole = (number) => Math.round(number).toLocaleString('en')
const minutesOf = (minutes) => (minutes < 10 ? minutes.toFixed(1) : whole(minutes))
const table = (head, rows) =>
  `${[head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n')}\n\n`

try {
  const measured = await measure()
  const { command, postgres, again } = measured
  const micro = (seconds) => (seconds * 1e6).toFixed(0)
  process.stdout.write(
    `Measured with ${whole(measured.rows)} rows: ${micro(command)} µs of CPU of the command and ${micro(postgres)} of Postgres for each row, ` +
      `${again[0].toFixed(1)} s and ${again[1].toFixed(1)} s for a run that finds little. Each request takes ${options.latency} s.\n\n`,
  )
  const perProject = Object.entries(SIZES).map(([name, size]) => {
    const rows = sum(STREAMS.map((stream) => rowsOf(stream, size, measured)))
    const bytes = sum(STREAMS.map((stream) => rowsOf(stream, size, measured) * measured.shares[stream.name].bytes))
    const first = (days) => requestsOf(size, measured, { days, isKnown: false }).length
    const everyday = requestsOf(size, measured, { days: LOOKBACK, isKnown: true }).length
    const { prompts, channels, brands } = size
    const counts = [first(90), first(365), everyday].map(whole)
    return [name, prompts, channels, brands, whole(rows), ((bytes * 365) / 1e9).toFixed(2), ...counts]
  })
  process.stdout.write(
    table(
      [
        'a project',
        'prompts',
        'channels',
        'brands',
        'rows a day',
        'GB a year',
        'requests of 90 days',
        'of a year',
        'every day',
      ],
      perProject,
    ),
  )
  const runs = []
  for (const [what, choice] of Object.entries({
    'first year': { days: 365, isKnown: false },
    'every day': { days: LOOKBACK, isKnown: true },
  }))
    for (const projects of options.quick ? [1, 10] : options.projects.split(',').map(Number)) {
      const requests = requestsOf(SIZES.medium, measured, choice)
      const fixed = choice.isKnown ? again : [0, 0]
      // What is read again is compared, not loaded: its cost is in `again`.
      const costs = choice.isKnown ? { command: 0, postgres: 0 } : { command, postgres }
      const [one, four, sixteen] = [1, 4, 16].map((workers) =>
        simulate({ projects, requests, workers, fixed, ...costs }),
      )
      runs.push([
        ...[what, whole(projects), whole(projects * requests.length), whole(projects * sum(requests))],
        ...[minutesOf(one.minutes), minutesOf(four.minutes), minutesOf(sixteen.minutes), one.busiest, four.busiest],
      ])
    }
  process.stdout.write(
    table(
      ['run', 'medium projects', 'requests', 'rows', 'minutes, 1 worker', '4', '16', 'busiest with 1', 'with 4'],
      runs,
    ),
  )
} finally {
  rmSync(folder, { recursive: true, force: true })
}
