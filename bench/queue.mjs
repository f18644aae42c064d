// node bench/queue.mjs: the shared queue through the real commands. How long it takes to plan and enqueue very many windows, and
// how much memory; how much faster four workers are than one. Writes bench/results/queue.json and prints tables.
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startReference } from '../dist/reference/server.js'
import { COMPANY_KEY, createWorld } from '../dist/reference/world.js'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { median } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    windows: { type: 'string', default: '10000,100000' },
    latency: { type: 'string', default: '100' },
    workers: { type: 'string', default: '1,2,4' },
    concurrency: { type: 'string', default: '1,2,4' },
    projects: { type: 'string', default: '40' },
    rounds: { type: 'string', default: '3' },
  },
})
const list = (text) => text.split(',').filter(Boolean).map(Number)
const say = (text) => process.stderr.write(`${text}\n`)
const bin = fileURLToPath(new URL('../bin/visibility-sync.js', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-queue-'))
const server = await startEmbedded({ folder: join(folder, 'data') })
const admin = new pg.Client({ connectionString: server.url })
await admin.connect()

/** The command in a database of its own; `settings` is the configuration. */
async function withDatabase(settings, env, work) {
  const name = `queue_${Math.random().toString(36).slice(2)}`
  await admin.query(`create database ${name} template template0`)
  const address = new URL(server.url)
  address.pathname = `/${name}`
  const file = join(folder, `${name}.json`)
  writeFileSync(file, JSON.stringify(settings))
  const database = new pg.Client({ connectionString: address.href })
  await database.connect()
  const start = (...args) => {
    const child = spawn(process.execPath, [bin, ...args, '--json'], {
      env: { PATH: process.env.PATH, VISIBILITY_CONFIG: file, DATABASE_URL: address.href, LOG_LEVEL: 'error', ...env },
      cwd: folder,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let output = ''
    child.stdout.on('data', (data) => (output += data))
    const done = new Promise((end) => child.on('close', (code) => end({ code, output })))
    return { child, done, output: () => output }
  }
  try {
    return await work({ start, database })
  } finally {
    await database.end()
    await admin.query(`drop database ${name} with (force)`)
  }
}

const until = async (isSo) => {
  while (!(await isSo())) await new Promise((next) => setTimeout(next, 50))
}

/** A backfill day by day, which only puts its windows in: somebody else is said to be about. */
async function enqueuing(windows) {
  const days = 1000
  const projects = Math.ceil(windows / days / 2)
  const settings = {
    source: { max_window_days: 1 },
    streams: ['chats'],
    reports: [{ name: 'daily', dimensions: ['date'] }],
  }
  const env = {
    VISIBILITY_API_URL: 'http://127.0.0.1:9/v1',
    VISIBILITY_API_KEY: 'nobody-asks',
    VISIBILITY_PROJECTS: Array.from({ length: projects }, (_, index) => `p${index}`).join(','),
  }
  return withDatabase(settings, env, async ({ start, database }) => {
    await start('migrate').done
    await database.query(
      `insert into visibility_ops.workers (worker_id, host, pid, version, concurrency, seen_at)
       values (gen_random_uuid(), 'elsewhere', 1, '0', 1, now() + interval '1 hour')`,
    )
    const from = '2020-01-01'
    const to = new Date(Date.parse(from) + (days - 1) * 86_400_000).toISOString().slice(0, 10)
    const startedAt = Date.now()
    const { child, done } = start('backfill', '--from', from, '--to', to, '--queue')
    let peakMb = 0
    const watch = setInterval(() => {
      peakMb = Math.max(
        peakMb,
        Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1] ?? 0) / 1024,
      )
    }, 20)
    let found = 0
    await until(async () => {
      const there = await database.query("select to_regclass('visibility_queue.job') is not null as there")
      if (!there.rows[0].there) return false
      found = Number((await database.query('select count(*) as n from visibility_queue.job')).rows[0].n)
      return found >= projects * days * 2
    })
    const seconds = (Date.now() - startedAt) / 1000
    clearInterval(watch)
    child.kill('SIGKILL')
    await done
    return { windows: found, seconds, peak_mb: Math.round(peakMb) }
  })
}

/** One first load of many projects, by so many workers. */
async function working(workers, concurrency) {
  const world = createWorld({
    clock: () => new Date('2026-03-31T12:00:00Z'),
    restating: false,
    ...{ projects: Number(options.projects), prompts: 3, models: 2, brands: 3 },
  })
  const service = await startReference({ world, faults: { rate_limit: null, latency_ms: Number(options.latency) } })
  const settings = {
    start_date: '2026-03-10',
    end_date: '2026-03-31',
    source: { requests_per_minute: 100_000, max_window_days: 5 },
    reports: [
      { name: 'daily', dimensions: ['date'] },
      { name: 'by_model', dimensions: ['date', 'model_id'] },
    ],
  }
  const env = {
    VISIBILITY_API_URL: service.url,
    VISIBILITY_API_KEY: COMPANY_KEY,
    VISIBILITY_PROJECTS: world.projects.map(({ id }) => id).join(','),
  }
  try {
    return await withDatabase(settings, env, async ({ start }) => {
      const running = Array.from({ length: workers }, () => start('worker', '--concurrency', String(concurrency)))
      for (const { output } of running) await until(() => output().includes('worker_id'))
      const { code, output } = await start('sync', '--queue').done
      for (const { child } of running) child.kill('SIGTERM')
      await Promise.all(running.map(({ done }) => done))
      const report = JSON.parse(output)
      if (code !== 0) throw new Error(`sync ended with ${code}`)
      return { seconds: report.seconds, windows: report.streams.reduce((sum, row) => sum + row.windows, 0) }
    })
  } finally {
    await service.close()
  }
}

const results = {
  machine: `${cpus()[0].model}, ${cpus().length} threads, Node ${process.versions.node}`,
  enqueuing: [],
  workers: [],
}
try {
  for (const windows of list(options.windows)) {
    results.enqueuing.push(await enqueuing(windows))
    const last = results.enqueuing.at(-1)
    say(`${last.windows} windows enqueued: ${last.seconds.toFixed(1)} s, ${last.peak_mb} MB`)
  }
  for (const concurrency of list(options.concurrency)) {
    const rounds = new Map(list(options.workers).map((workers) => [workers, []]))
    for (let round = 0; round < Number(options.rounds); round++) {
      for (const [workers, found] of rounds) found.push(await working(workers, concurrency))
    }
    const seconds = new Map([...rounds].map(([workers, found]) => [workers, median(found.map((one) => one.seconds))]))
    for (const [workers, took] of seconds) {
      const { windows } = rounds.get(workers)[0]
      const faster = seconds.get(list(options.workers)[0]) / took
      results.workers.push({ concurrency, workers, windows, seconds: took, faster })
      say(
        `${workers} workers, ${concurrency} at once each: ${windows} windows in ${took.toFixed(1)} s, ${faster.toFixed(2)} ×`,
      )
    }
  }
} finally {
  await admin.end()
  await server.release()
  rmSync(folder, { recursive: true, force: true })
}
const results_folder = fileURLToPath(new URL('results/', import.meta.url))
mkdirSync(results_folder, { recursive: true })
writeFileSync(join(results_folder, 'queue.json'), `${JSON.stringify(results, null, 2)}\n`)
