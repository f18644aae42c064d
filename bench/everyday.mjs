// node bench/everyday.mjs [--old REF|FOLDER] [--rounds N] [--quick] [--node FILE]: what a run costs that finds nothing new, beside an earlier
// version: ten projects with one report, and with the default streams of 0.2.0. CPU of the command and of Postgres, alternating, medians.
// Then what starting costs: --version and --help beside an empty Node.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { buildVersion } from '../scripts/build-version.mjs'
import { cpuSeconds, median, postgresCpuSeconds } from './measure.mjs'

// The last commit of version 0.2.0.
const VERSION_0_2_0 = '24a978c'
const { values: options } = parseArgs({
  options: {
    old: { type: 'string', default: VERSION_0_2_0 },
    rounds: { type: 'string', default: '7' },
    quick: { type: 'boolean', default: false },
    node: { type: 'string', default: process.execPath },
  },
})
const root = fileURLToPath(new URL('..', import.meta.url))
const rounds = options.quick ? 1 : Number(options.rounds)
const day = (ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10)
// Days that the service no longer measures again.
const range = { start_date: day(20), end_date: day(10) }
const REPORT = { name: 'fine', dimensions: ['date', 'prompt_id'] }
// The reports that version 0.2.0 has by default: both versions then do the same work.
const DEFAULT_REPORTS = Object.entries({
  brand_daily: [],
  brand_daily_by_model: ['model_id'],
  brand_daily_by_topic: ['topic_id'],
  brand_daily_by_tag: ['tag_id'],
  brand_daily_by_country: ['country_code'],
  brand_daily_by_topic_model: ['topic_id', 'model_id'],
  brand_daily_by_prompt_model: ['prompt_id', 'model_id'],
}).map(([name, breakdowns]) => ({ name, dimensions: ['date', ...breakdowns] }))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-everyday-'))

/** Runs Node to its end. Gives its CPU seconds, which its parent is told when it has ended. */
function run(args, env = {}) {
  const before = cpuSeconds(process.pid, true) - cpuSeconds(process.pid)
  const startedAt = performance.now()
  const { status, stdout, stderr } = spawnSync(options.node, args, {
    cwd: folder,
    env: { PATH: process.env.PATH, LOG_LEVEL: 'warn', ...env },
    encoding: 'utf8',
  })
  const seconds = (performance.now() - startedAt) / 1000
  if (status !== 0)
    throw new Error(`${args.join(' ')} exited ${status}: ${stdout.slice(0, 1000)} ${stderr.slice(-1000)}`)
  return { stdout, seconds, cpu: cpuSeconds(process.pid, true) - cpuSeconds(process.pid) - before }
}

const commandOf = (place) => join(place, 'bin/visibility-sync.js')
const versions = { old: existsSync(options.old) ? options.old : buildVersion(options.old), new: root }
const server = await startEmbedded({ folder: join(folder, 'data') })
const postmaster = Number(readFileSync(join(folder, 'data/postgres/postmaster.pid'), 'utf8').split('\n')[0])
const admin = new pg.Client({ connectionString: server.url })
await admin.connect()
const service = spawn(
  process.execPath,
  [commandOf(root), 'reference', '--port', '0', '--projects', '10', '--fault', 'rate_limit=null', '--json'],
  { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] },
)
const { url, company_key, projects } = JSON.parse(
  await new Promise((done) => service.stdout.once('data', (data) => done(String(data)))),
)

/** Runs both versions in turn on warehouses that are up to date. */
async function everyday(name, streams) {
  const settings = { ...range, source: { requests_per_minute: 100_000 }, ...streams }
  const places = {}
  for (const version of Object.keys(versions)) {
    const file = join(folder, `${name}_${version}.yaml`)
    // Earlier versions read no extras without being asked, and 0.2.0 knows no such setting.
    writeFileSync(file, JSON.stringify({ ...settings, ...(version === 'new' && { extras: 'off' }) }))
    const database = `${name}_${version}`
    await admin.query(`create database ${database} template template0`)
    const address = new URL(server.url)
    address.pathname = `/${database}`
    const env = {
      VISIBILITY_API_URL: url,
      VISIBILITY_API_KEY: company_key,
      VISIBILITY_PROJECTS: projects.map(({ id }) => id).join(','),
      VISIBILITY_CONFIG: file,
      DATABASE_URL: address.href,
    }
    places[version] = { env, database }
    // The first fills it, the second finds what is left to be done once.
    for (let time = 0; time < 2; time++) run([commandOf(versions[version]), 'sync', '--json'], env)
  }
  const runs = { old: [], new: [] }
  for (let round = 0; round < rounds; round++) {
    for (const [version, { env, database }] of Object.entries(places)) {
      const before = { cpu: postgresCpuSeconds(postmaster), ...(await countersOf(database)) }
      const { stdout, seconds, cpu } = run([commandOf(versions[version]), 'sync', '--json'], env)
      const after = { cpu: postgresCpuSeconds(postmaster), ...(await countersOf(database)) }
      const report = JSON.parse(stdout).streams
      const requests = report.reduce((sum, stream) => sum + stream.requests, 0)
      const changed = report.reduce((sum, { inserted, updated, deleted }) => sum + inserted + updated + deleted, 0)
      if (changed > 0) throw new Error(`${version} found something new: ${changed} rows`)
      const postgres = after.cpu - before.cpu
      runs[version].push({
        seconds,
        command: cpu,
        postgres,
        both: cpu + postgres,
        requests,
        commits: after.commits - before.commits,
      })
    }
  }
  return Object.fromEntries(Object.entries(runs).map(([version, list]) => [version, medians(list)]))
}

async function countersOf(database) {
  await admin.query('select pg_stat_clear_snapshot()')
  const { rows } = await admin.query('select xact_commit::float8 as commits from pg_stat_database where datname = $1', [
    database,
  ])
  return rows[0]
}

const medians = (list) =>
  Object.fromEntries(Object.keys(list[0]).map((name) => [name, median(list.map((entry) => entry[name]))]))

function startUp() {
  const ways = {
    'node -e 0': ['-e', '0'],
    '--version': [commandOf(root), '--version'],
    '--help': [commandOf(root), '--help'],
  }
  const runs = Object.fromEntries(Object.keys(ways).map((name) => [name, []]))
  for (let round = 0; round < rounds * 5; round++)
    for (const [name, args] of Object.entries(ways)) {
      const { cpu, seconds } = run(args)
      runs[name].push({ cpu, seconds })
    }
  return Object.fromEntries(Object.entries(runs).map(([name, list]) => [name, mean(list)]))
}

// A start takes a few of the ticks in which CPU is counted: their mean says more than their median.
const mean = (list) =>
  Object.fromEntries(
    Object.keys(list[0]).map((name) => [name, list.reduce((sum, entry) => sum + entry[name], 0) / list.length]),
  )

try {
  const node = run(['--version']).stdout.trim()
  const works = {
    'one report': await everyday('report', { streams: [], reports: [REPORT] }),
    'default streams': await everyday('all', { reports: DEFAULT_REPORTS }),
  }
  const starts = startUp()
  const base = starts['node -e 0']
  const lines = [
    `Ten projects, nothing new, Node ${node}, medians of ${rounds} alternating rounds. CPU seconds.`,
    '',
    '| run | version | command | Postgres | both | of 0.2.0 | seconds | requests | transactions |',
    '|---|---|---|---|---|---|---|---|---|',
    ...Object.entries(works).flatMap(([name, result]) =>
      Object.entries(result).map(
        ([version, { command, postgres, both, seconds, requests, commits }]) =>
          `| ${name} | ${version === 'old' ? '0.2.0' : 'now'} | ${command.toFixed(2)} | ${postgres.toFixed(2)} | ${both.toFixed(2)} | ${(both / result.old.both).toFixed(2)} | ${seconds.toFixed(2)} | ${requests} | ${commits} |`,
      ),
    ),
    '',
    '| start | CPU s | of `node -e 0` | seconds | of `node -e 0` |',
    '|---|---|---|---|---|',
    ...Object.entries(starts).map(
      ([name, { cpu, seconds }]) =>
        `| \`${name}\` | ${cpu.toFixed(3)} | ${(cpu / base.cpu).toFixed(2)} | ${seconds.toFixed(3)} | ${(seconds / base.seconds).toFixed(2)} |`,
    ),
  ]
  process.stdout.write(`${lines.join('\n')}\n`)
} finally {
  service.kill()
  await admin.end()
  await server.release()
  rmSync(folder, { recursive: true, force: true })
}
