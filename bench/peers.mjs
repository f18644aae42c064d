// npm run bench -- --peers: generic connectors beside the command, on the same service and the same Postgres. What each costs, and
// whether its table is right in the end. Virtual environments are made under .data/peers, or BENCH_PEERS; what does not install is
// left out, and the reason is printed.
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { TABLE, windows } from './contenders.mjs'
import { cpuSeconds, median, postgresCpuSeconds } from './measure.mjs'

const ROWS_A_DAY = 990
const WINDOW_DAYS = 10
// More than two pages, so that paging by offset has something to lose.
const CHECKED_ROWS = 25_000
const INSTALL_MS = 600_000
const root = fileURLToPath(new URL('..', import.meta.url))
const script = (name) => fileURLToPath(new URL(`peers/${name}`, import.meta.url))
const say = (text) => process.stderr.write(`${text}\n`)
const KEY = ['left(date::text, 10)', 'brand_id', 'prompt_id', 'model_id', 'country_code', 'mention_count::float8']
const KEY_OF_DLT = [
  'left(date::text, 10)',
  'brand__id',
  'prompt__id',
  'model__id',
  'country_code',
  'mention_count::float8',
]

/** Each is run by a shell, with what it needs to know in PEER. `slow` ones are measured once. */
const PEERS = [
  { name: 'visibility-sync', table: `visibility.${TABLE}`, columns: KEY },
  {
    name: 'dlt, Arrow, windows, merge key',
    packages: { dlt: ['dlt[postgres,parquet]==1.31.0'] },
    command: (python) => `${python('dlt')} ${script('dlt_arrow.py')}`,
    table: 'peer.fine',
    columns: KEY,
  },
  {
    name: 'dlt, defaults of its REST source',
    packages: { dlt: ['dlt[postgres,parquet]==1.31.0'] },
    command: (python) => `${python('dlt')} ${script('dlt_default.py')}`,
    table: 'peer.fine',
    columns: KEY_OF_DLT,
    slow: true,
  },
  {
    name: 'Singer: tap by the Meltano SDK, target-postgres',
    packages: { 'singer-tap': ['singer-sdk==0.54.9'], 'singer-target': ['meltanolabs-target-postgres==0.8.1'] },
    command: (python, folder) =>
      `set -o pipefail; ${python('singer-tap')} ${script('singer_tap.py')} --config ${folder}/tap.json | ${python('singer-target').replace(/python$/, 'target-postgres')} --config ${folder}/target.json`,
    files: ({ database, folder }) => {
      writeFileSync(join(folder, 'tap.json'), '{}')
      writeFileSync(
        join(folder, 'target.json'),
        JSON.stringify({
          sqlalchemy_url: database.replace(/^postgres:/, 'postgresql+psycopg:'),
          default_target_schema: 'peer',
        }),
      )
    },
    table: 'peer.fine',
    columns: KEY,
    slow: true,
  },
  {
    name: 'PyAirbyte, declarative source, Postgres cache',
    packages: { airbyte: ['airbyte==0.71.3'] },
    command: (python) => `${python('airbyte')} ${script('airbyte_source.py')}`,
    table: 'peer.fine',
    columns: KEY,
    slow: true,
  },
]

/** Makes what a peer needs; gives why it cannot be run. */
function prepare({ packages = {} }, folder) {
  for (const [name, wanted] of Object.entries(packages)) {
    const place = join(folder, name)
    if (existsSync(join(place, 'installed'))) continue
    try {
      mkdirSync(folder, { recursive: true })
      execFileSync('python3', ['-m', 'venv', place], { stdio: 'pipe' })
      execFileSync(join(place, 'bin/pip'), ['install', '--quiet', ...wanted], { stdio: 'pipe', timeout: INSTALL_MS })
      writeFileSync(join(place, 'installed'), wanted.join('\n'))
    } catch (error) {
      return String(error.stderr ?? error.message)
        .trim()
        .split('\n')
        .at(-1)
    }
  }
  return undefined
}

/** Follows the memory of a process and its descendants, which a pipeline has. Gives the peak of their sum in megabytes. */
function watchTree(pid) {
  let peak = 0
  const timer = setInterval(() => {
    const parents = new Map()
    for (const entry of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      try {
        parents.set(Number(entry), Number(readFileSync(`/proc/${entry}/stat`, 'utf8').split(') ')[1].split(' ')[1]))
      } catch {
        // It ended.
      }
    }
    const isOurs = (id) => id !== undefined && (id === pid || isOurs(parents.get(id)))
    let sum = 0
    for (const id of parents.keys()) {
      if (!isOurs(id)) continue
      try {
        sum += Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${id}/status`, 'utf8'))?.[1] ?? 0) / 1024
      } catch {
        // It ended.
      }
    }
    peak = Math.max(peak, sum)
  }, 100)
  return () => {
    clearInterval(timer)
    return peak
  }
}

/** Runs a shell command in a group of its own, and kills the group after a while where that is asked for. */
async function shell(command, { cwd, env, killAfterMs }) {
  const own = () => cpuSeconds(process.pid, true) - cpuSeconds(process.pid)
  const before = own()
  const startedAt = performance.now()
  const child = spawn('bash', ['-c', command], { cwd, env, detached: true, stdio: ['ignore', 'ignore', 'pipe'] })
  const memory = watchTree(child.pid)
  let errors = ''
  child.stderr.on('data', (data) => {
    errors = (errors + data).slice(-3000)
  })
  const closed = new Promise((done) => child.on('close', done))
  const late = killAfterMs && setTimeout(() => process.kill(-child.pid, 'SIGKILL'), killAfterMs)
  const code = await closed
  clearTimeout(late)
  const seconds = (performance.now() - startedAt) / 1000
  return { code, errors, seconds, memory: memory(), cpu: own() - before }
}

export async function benchPeers({ rows, rounds, only }) {
  const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-peers-'))
  const environments = process.env.BENCH_PEERS ?? join(root, '.data/peers')
  const server = await startEmbedded({ folder: join(folder, 'data') })
  const postmaster = Number(readFileSync(join(folder, 'data/postgres/postmaster.pid'), 'utf8').split('\n')[0])
  const admin = new pg.Client({ connectionString: server.url })
  await admin.connect()
  const pages = spawn(
    process.execPath,
    [fileURLToPath(new URL('page-server.mjs', import.meta.url)), JSON.stringify({ rowsPerDay: ROWS_A_DAY })],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  )
  const { url } = JSON.parse(await new Promise((done) => pages.stdout.once('data', (data) => done(String(data)))))
  const control = async (what) =>
    (await fetch(url.replace('/v1', '/control'), { method: 'POST', body: JSON.stringify(what) })).json()
  const rangeOf = (count) => ({
    from: '2022-01-01',
    to: new Date(Date.parse('2022-01-01') + (Math.ceil(count / ROWS_A_DAY) - 1) * 86_400_000)
      .toISOString()
      .slice(0, 10),
  })

  /** A peer with a database of its own and nothing remembered. */
  async function begin(peer, range) {
    const name = `peer_${Math.random().toString(36).slice(2)}`
    await admin.query(`create database ${name} template template0`)
    const address = new URL(server.url)
    address.pathname = `/${name}`
    const home = mkdtempSync(join(folder, 'home-'))
    const about = { url, ...range, database: address.href, folder: home, window_days: WINDOW_DAYS }
    peer.files?.(about)
    const command = peer.command?.((venv) => join(environments, venv, 'bin/python'), home) ?? ownCommand(home, range)
    const env = {
      PATH: process.env.PATH,
      HOME: home,
      PEER: JSON.stringify(about),
      RUNTIME__DLTHUB_TELEMETRY: 'false',
      // Its registry of connectors is not needed for a source that is defined here.
      AIRBYTE_OFFLINE_MODE: '1',
      DO_NOT_TRACK: '1',
      VISIBILITY_API_URL: url,
      VISIBILITY_API_KEY: 'k',
      VISIBILITY_PROJECTS: 'or_bench',
      DATABASE_URL: address.href,
      VISIBILITY_CONFIG: join(home, 'sync.yaml'),
      LOG_LEVEL: 'warn',
    }
    return {
      run: (killAfterMs) => shell(command, { cwd: home, env, killAfterMs }),
      async rows() {
        const client = new pg.Client({ connectionString: address.href })
        await client.connect()
        await client.query('set timezone = UTC')
        const text = `select ${peer.columns.map((column, index) => `${column} as c${index}`).join(', ')} from ${peer.table}`
        const { rows: found } = await client.query({ text, rowMode: 'array' }).catch(() => ({ rows: [] }))
        await client.end()
        return found
      },
      end: async () => {
        // An autovacuum worker may be in it; the server goes with its folder anyway.
        await admin.query(`drop database if exists ${name} with (force)`).catch(() => {})
        rmSync(home, { recursive: true, force: true })
      },
    }
  }

  function ownCommand(home, range) {
    const settings = {
      start_date: range.from,
      end_date: range.to,
      source: { compress: false, requests_per_minute: 100_000 },
      extras: 'off',
      streams: [],
      reports: [{ name: TABLE, dimensions: ['date', 'prompt_id', 'model_id', 'country_code'] }],
    }
    writeFileSync(join(home, 'sync.yaml'), JSON.stringify(settings))
    return `${process.execPath} ${join(root, 'bin/visibility-sync.js')} backfill --from ${range.from} --to ${range.to}`
  }

  async function measured(peer, place) {
    await control({})
    const wal = async () =>
      (await admin.query("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8 as wal")).rows[0].wal
    const before = { postgres: postgresCpuSeconds(postmaster), wal: await wal() }
    const result = await place.run()
    if (result.code !== 0) throw new Error(`${peer.name} exited ${result.code}: ${result.errors}`)
    // What its connections cost is counted when they have ended.
    await delay(300)
    const postgres = postgresCpuSeconds(postmaster) - before.postgres
    return {
      cpu: result.cpu + postgres,
      seconds: result.seconds,
      wal_mb: ((await wal()) - before.wal) / 1e6,
      memory_mb: result.memory,
      requests: (await control({})).requests,
    }
  }

  /** The rows of the service as they are now, by their keys. */
  async function truthOf(range) {
    const truth = new Map()
    for (const window of windows(range, WINDOW_DAYS)) {
      const answer = await fetch(`${url}/reports/brands`, {
        method: 'POST',
        body: JSON.stringify({ ...window, limit: 10_000 }),
      })
      for (const { date, brand, prompt, model, country_code, mention_count } of (await answer.json()).data)
        truth.set([date, brand.id, prompt.id, model.id, country_code].join('|'), mention_count)
    }
    return truth
  }

  async function compare(place, range) {
    const truth = await truthOf(range)
    const seen = new Set()
    const counts = { lost: 0, doubled: 0, stale: 0 }
    for (const row of await place.rows()) {
      const name = row.slice(0, 5).join('|')
      if (seen.has(name)) counts.doubled++
      else if (truth.get(name) !== row[5]) counts.stale++
      seen.add(name)
    }
    for (const name of truth.keys()) if (!seen.has(name)) counts.lost++
    return { rows: truth.size, ...counts }
  }

  /** What becomes of the table where the service or the process misbehaves; after a kill, the same is run once more. */
  async function correctness(peer, seconds) {
    const range = rangeOf(CHECKED_ROWS)
    const found = {}
    const scenario = async (name, work) => {
      await control({ variant: 'same', shuffle: false, warm: range })
      const place = await begin(peer, range)
      try {
        await work(place)
        await control({ shuffle: false })
        found[name] = await compare(place, range)
      } catch (error) {
        found[name] = { failed: String(error.message).trim().split('\n').at(-1).slice(0, 160) }
      }
      await place.end()
    }
    const whole = async (place) => {
      const { code, errors } = await place.run()
      if (code !== 0) throw new Error(`exited ${code}: ${errors}`)
    }
    await scenario('unstable order', async (place) => {
      await control({ shuffle: true })
      await whole(place)
    })
    await scenario('a deleted prompt', async (place) => {
      await whole(place)
      await control({ variant: 'deleted', warm: range })
      await whole(place)
    })
    // After half of the time that it takes, and a little before and after.
    for (const share of peer.slow ? [0.6] : [0.4, 0.6, 0.8]) {
      await scenario(`killed in the first load, at ${share}`, async (place) => {
        await place.run(seconds.first * share * 1000)
        await whole(place)
      })
      await scenario(`killed in a restatement, at ${share}`, async (place) => {
        await whole(place)
        await control({ variant: 'changed', warm: range })
        await place.run(seconds.changed * share * 1000)
        found[`that kill, before the next run, at ${share}`] = await compare(place, range)
        await whole(place)
      })
    }
    return found
  }

  const chosen = PEERS.filter(({ name }) => only === undefined || name.includes(only) || name === 'visibility-sync')
  const results = {}
  const notRun = {}
  try {
    const range = rangeOf(rows)
    const ready = chosen.filter((peer) => {
      const reason = prepare(peer, environments)
      if (reason !== undefined) notRun[peer.name] = reason
      return reason === undefined
    })
    for (let round = 0; round < rounds; round++) {
      for (const peer of ready) {
        if ((peer.slow && round > 0) || notRun[peer.name]) continue
        say(`round ${round + 1}: ${peer.name}`)
        const place = await begin(peer, range)
        try {
          for (const [work, variant] of [
            ['first', 'same'],
            ['again', 'same'],
            ['changed', 'changed'],
            ['vanished', 'vanished'],
          ]) {
            await control({ variant, shuffle: false, warm: range })
            const list = ((results[peer.name] ??= {})[work] ??= [])
            list.push(await measured(peer, place))
            say(`  ${work}: ${list.at(-1).cpu.toFixed(1)} CPU s`)
          }
        } catch (error) {
          notRun[peer.name] = String(error.message).slice(-600)
          say(notRun[peer.name])
          delete results[peer.name]
        }
        await place.end()
      }
    }
    const medians = (list) =>
      Object.fromEntries(Object.keys(list[0]).map((name) => [name, median(list.map((run) => run[name]))]))
    const costs = Object.fromEntries(
      Object.entries(results).map(([name, works]) => [
        name,
        Object.fromEntries(Object.entries(works).map(([work, list]) => [work, medians(list)])),
      ]),
    )
    const correct = {}
    for (const peer of ready) {
      if (costs[peer.name] === undefined) continue
      say(`correctness: ${peer.name}`)
      const place = await begin(peer, rangeOf(CHECKED_ROWS))
      await control({ variant: 'same', shuffle: false, warm: rangeOf(CHECKED_ROWS) })
      const first = (await place.run()).seconds
      await control({ variant: 'changed', warm: rangeOf(CHECKED_ROWS) })
      const changed = (await place.run()).seconds
      await place.end()
      correct[peer.name] = await correctness(peer, { first, changed })
    }
    return { rows: Math.ceil(rows / ROWS_A_DAY) * ROWS_A_DAY, rounds, costs, correct, not_run: notRun }
  } finally {
    await admin.end()
    pages.kill()
    await server.release()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** The results as tables. */
export function peersTable({ rows, rounds, costs, correct, not_run: notRun }) {
  const ours = costs['visibility-sync']
  const works = { first: 'first load', again: 'same again', changed: '10 % changed', vanished: '5 % vanished' }
  const countsOf = (found) =>
    found.failed !== undefined ? `fails: ${found.failed}` : `${found.lost} / ${found.doubled} / ${found.stale}`
  const scenarios = Object.keys(correct['visibility-sync'])
  return [
    `| ${rows.toLocaleString('en-US')} rows, median of ${rounds} (slow ones once) | work | CPU s, client and Postgres | of ours | seconds | WAL MB | peak MB | requests |`,
    '|---|---|---|---|---|---|---|---|',
    ...Object.entries(costs).flatMap(([name, list]) =>
      Object.entries(list).map(
        ([work, { cpu, seconds, wal_mb, memory_mb, requests }]) =>
          `| ${name} | ${works[work]} | ${cpu.toFixed(1)} | ${(cpu / ours[work].cpu).toFixed(1)} | ${seconds.toFixed(1)} | ${wal_mb.toFixed(1)} | ${memory_mb.toFixed(0)} | ${requests} |`,
      ),
    ),
    ...Object.entries(notRun).map(
      ([name, reason]) =>
        `| ${name} | not run: ${reason.replaceAll('\n', ' ').replaceAll('|', '/').slice(0, 200)} | | | | | | |`,
    ),
    '',
    `| rows lost / doubled / stale, of ${correct['visibility-sync']['unstable order'].rows.toLocaleString('en-US')} | ${scenarios.join(' | ')} |`,
    `|---|${scenarios.map(() => '---|').join('')}`,
    ...Object.entries(correct).map(
      ([name, found]) =>
        `| ${name} | ${scenarios.map((scenario) => (found[scenario] ? countsOf(found[scenario]) : '–')).join(' | ')} |`,
    ),
  ].join('\n')
}
