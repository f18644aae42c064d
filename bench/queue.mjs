// node bench/queue.mjs: the shared queue through the real commands, with real workers against a fast service. How well
// workers share a rate limit, how soon a long plan is at work, what taking a window costs from the first to the last, what
// a second run over the same windows costs the first, what the queue costs beside a run without it (CPU of the commands and of
// Postgres), and how much faster more workers are. Writes
// bench/results/queue.json and prints what it found.
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import PgBoss from 'pg-boss'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { cpuSeconds, median, postgresCpuSeconds } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    // How many windows of a day each the plans have.
    windows: { type: 'string', default: '20000' },
    // Of the plan that two runs share.
    shared: { type: 'string', default: '2000' },
    workers: { type: 'string', default: '4' },
    concurrency: { type: 'string', default: '4' },
    // For the comparison of more and fewer workers.
    scaling: { type: 'string', default: '1,2,4' },
    latency: { type: 'string', default: '100' },
    // Workers that share a limit of 5 requests in 2 s.
    limited: { type: 'string', default: '3' },
    // Rows of a window times windows, for what the queue costs.
    cost: { type: 'string', default: '5x1000,900x400' },
    rounds: { type: 'string', default: '5' },
    quick: { type: 'boolean', default: false },
  },
})
if (options.quick)
  Object.assign(options, {
    ...{ windows: '200', shared: '100', workers: '2', scaling: '1,2', limited: '2', cost: '5x50', rounds: '1' },
  })
const list = (text) => text.split(',').filter(Boolean).map(Number)
const say = (text) => process.stderr.write(`${text}\n`)
const bin = fileURLToPath(new URL('../bin/visibility-sync.js', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-queue-'))
const server = await startEmbedded({ folder: join(folder, 'data') })
const postmaster = Number(readFileSync(join(folder, 'data/postgres/postmaster.pid'), 'utf8').split('\n')[0])
const admin = new pg.Client({ connectionString: server.url })
await admin.connect()
const REPORTS = [
  { name: 'daily', dimensions: ['date'] },
  { name: 'daily_model', dimensions: ['date', 'model_id'] },
]
// Its rows are as many as the service sends, whatever their number.
const FINE = [{ name: 'fine', dimensions: ['date', 'prompt_id', 'model_id', 'country_code'] }]
const DAYS = options.quick ? 50 : 1000
const FROM = '2020-01-01'
const wait = (ms) => new Promise((next) => setTimeout(next, ms))

/** A service that answers at once, or after a while, in a process of its own. */
async function startService({ latencyMs, rowsPerDay }) {
  const args = [fileURLToPath(new URL('page-server.mjs', import.meta.url)), JSON.stringify({ rowsPerDay, latencyMs })]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const url = await new Promise((found) => child.stdout.once('data', (data) => found(JSON.parse(data).url)))
  return { url, close: () => child.kill() }
}

/** The reference service, which grants so many requests in each period. */
async function startLimited({ requests, periodMs }) {
  const faults = [`rate_limit=${requests}`, `rate_window_ms=${periodMs}`].flatMap((fault) => ['--fault', fault])
  const args = [bin, 'reference', '--port', '0', '--projects', '1', ...faults, '--json']
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] })
  const started = await new Promise((found) => child.stdout.once('data', (data) => found(JSON.parse(data))))
  return {
    url: started.url,
    key: started.company_key,
    ids: started.projects.map(({ id }) => id),
    close: () => child.kill(),
  }
}

/** The command in a database of its own, with so many workers. */
async function withWorkers(
  { projects, workers, concurrency, latencyMs = 0, rowsPerDay = 5, limit, reports = REPORTS },
  work,
) {
  const service = limit === undefined ? await startService({ latencyMs, rowsPerDay }) : await startLimited(limit)
  const name = `queue_${Math.random().toString(36).slice(2)}`
  await admin.query(`create database ${name} template template0`)
  const address = new URL(server.url)
  address.pathname = `/${name}`
  const file = join(folder, `${name}.json`)
  const source = { max_window_days: 1, requests_per_minute: 100_000 }
  writeFileSync(file, JSON.stringify({ source, extras: 'off', streams: [], reports }))
  const env = {
    PATH: process.env.PATH,
    VISIBILITY_CONFIG: file,
    DATABASE_URL: address.href,
    LOG_LEVEL: 'error',
    VISIBILITY_API_URL: service.url,
    VISIBILITY_API_KEY: service.key ?? 'any',
    VISIBILITY_PROJECTS: (service.ids ?? Array.from({ length: projects }, (_, index) => `or_${index}`)).join(','),
  }
  const start = (...args) => {
    const child = spawn(process.execPath, [bin, ...args, '--json'], {
      env,
      cwd: folder,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let output = ''
    child.stdout.on('data', (data) => (output += data))
    const done = new Promise((end) => child.on('close', (code) => end({ code, output })))
    return { child, done, output: () => output }
  }
  const database = new pg.Client({ connectionString: address.href })
  await database.connect()
  const running = []
  try {
    for (let index = 0; index < workers; index++) running.push(start('worker', '--concurrency', String(concurrency)))
    for (const { child, output } of running)
      while (!output().includes('worker_id')) {
        if (child.exitCode !== null) throw new Error('a worker ended')
        await wait(50)
      }
    const { queue } = running.length === 0 ? {} : JSON.parse(running[0].output())
    return await work({ start, database, queue, running })
  } finally {
    for (const { child } of running) child.kill('SIGTERM')
    await Promise.all(running.map(({ done }) => done))
    await database.end()
    await admin.query(`drop database ${name} with (force)`)
    service.close()
  }
}

const last = (days) => new Date(Date.parse(FROM) + (days - 1) * 86_400_000).toISOString().slice(0, 10)
const outcomeOf = ({ code, output }) => {
  const report = JSON.parse(output)
  if (code !== 0) throw new Error(`the run ended as ${report.outcome}: ${report.error ?? ''}`)
  return { seconds: report.seconds, windows: report.streams.reduce((sum, row) => sum + row.windows, 0) }
}

/** Times what workers do to take a window, and undoes it. */
async function timeTaking(database, api, queue) {
  await database.query('begin')
  try {
    const startedAt = performance.now()
    const db = { executeSql: (text, values) => database.query(text, values) }
    const jobs = await api.fetch(queue, { batchSize: 1, db })
    return jobs.length === 0 ? undefined : performance.now() - startedAt
  } finally {
    await database.query('rollback')
  }
}

const quantile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]

/** One long backfill, day by day. */
async function drainLong(windows) {
  const projects = Math.max(1, Math.round(windows / DAYS / REPORTS.length))
  const shape = { projects, workers: Number(options.workers), concurrency: Number(options.concurrency) }
  return withWorkers(shape, async ({ start, database, queue }) => {
    const api = new PgBoss({
      db: { executeSql: (text, values) => database.query(text, values) },
      schema: 'visibility_queue',
    })
    const startedAt = performance.now()
    const run = start('backfill', '--from', FROM, '--to', last(DAYS), '--queue')
    let firstAt
    let peakMb = 0
    let mostWaiting = 0
    let hasEnded = false
    void run.done.then(() => (hasEnded = true))
    const taking = []
    while (!hasEnded) {
      const { rows } = await database.query(
        `select count(*) filter (where state = 'queued') as waiting, count(*) filter (where state <> 'queued') as begun
         from visibility_ops.run_windows`,
      )
      mostWaiting = Math.max(mostWaiting, Number(rows[0].waiting))
      if (Number(rows[0].begun) > 0) firstAt ??= performance.now()
      const ms = await timeTaking(database, api, queue)
      if (ms !== undefined) taking.push(ms)
      try {
        const status = readFileSync(`/proc/${run.child.pid}/status`, 'utf8')
        peakMb = Math.max(peakMb, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024)
      } catch {}
      await wait(firstAt === undefined ? 20 : 200)
    }
    const { seconds, windows: done } = outcomeOf(await run.done)
    const [first, second] = [taking.slice(0, taking.length / 2), taking.slice(taking.length / 2)]
    const summary = (part) => {
      const sorted = part.toSorted((a, b) => a - b)
      return { median_ms: quantile(sorted, 0.5), p95_ms: quantile(sorted, 0.95) }
    }
    return {
      ...{ windows: done, seconds, windows_per_second: done / seconds, first_at_work_s: (firstAt - startedAt) / 1000 },
      ...{ peak_mb: Math.round(peakMb), most_waiting: mostWaiting, samples: taking.length },
      taking: { first_half: summary(first), second_half: summary(second) },
    }
  })
}

/** A run alone, and the same run while another one has the same windows. */
async function share(windows) {
  const projects = 2
  const days = Math.round(windows / projects / REPORTS.length)
  const shape = { projects, workers: Number(options.workers), concurrency: Number(options.concurrency), latencyMs: 20 }
  const args = ['backfill', '--from', FROM, '--to', last(days), '--queue']
  const alone = await withWorkers(shape, async ({ start }) => outcomeOf(await start(...args).done))
  const both = await withWorkers(shape, async ({ start }) => {
    const runs = [start(...args), start(...args)]
    return (await Promise.all(runs.map(({ done }) => done))).map(outcomeOf)
  })
  const seconds = Math.max(...both.map((run) => run.seconds))
  // Every window is requested twice, so twice the time is what the requests alone would cost.
  return {
    windows: alone.windows,
    alone_s: alone.seconds,
    both_s: seconds,
    beyond_requests: seconds / (2 * alone.seconds),
  }
}

/** CPU seconds of the same backfill by the run alone, and by one worker: a median of alternating rounds. */
async function cost(rowsPerDay, windows) {
  const args = ['backfill', '--from', FROM, '--to', last(windows)]
  const spent = { alone: [], queue: [] }
  for (let round = 0; round < Number(options.rounds); round++) {
    for (const [name, workers, more] of [
      ['alone', 0, []],
      ['queue', 1, ['--queue']],
    ]) {
      const shape = { projects: 1, workers, concurrency: 4, rowsPerDay, reports: FINE }
      const seconds = await withWorkers(shape, async ({ start, running }) => {
        const cpuNow = () =>
          cpuSeconds(process.pid, true) -
          cpuSeconds(process.pid) +
          running.reduce((sum, { child }) => sum + cpuSeconds(child.pid), postgresCpuSeconds(postmaster))
        await start('migrate').done
        const before = cpuNow()
        outcomeOf(await start(...args, ...more).done)
        // What connections cost is counted when they have ended.
        await wait(300)
        return cpuNow() - before
      })
      spent[name].push(seconds)
    }
  }
  const [alone, queue] = [median(spent.alone), median(spent.queue)]
  return { rows: rowsPerDay, windows, alone_s: alone, queue_s: queue, ratio: queue / alone }
}

async function scale(workers, concurrency) {
  const shape = { projects: 4, workers, concurrency, latencyMs: Number(options.latency) }
  return withWorkers(shape, async ({ start }) =>
    outcomeOf(await start('backfill', '--from', FROM, '--to', last(60), '--queue').done),
  )
}

/** Workers that share the requests of one project: how long beyond what the limit allows? */
async function spendLimit(workers) {
  const limit = { requests: 5, periodMs: 2000 }
  return withWorkers({ projects: 1, workers, concurrency: 2, limit }, async ({ start }) => {
    const run = await start('backfill', '--from', FROM, '--to', last(30), '--queue').done
    const { seconds } = outcomeOf(run)
    const requests = JSON.parse(run.output).streams.reduce((sum, row) => sum + row.requests, 0)
    const refused = JSON.parse(run.output).streams.reduce((sum, row) => sum + row.retries, 0)
    // The first requests go at once.
    const ideal = (Math.ceil((requests - refused) / limit.requests) - 1) * (limit.periodMs / 1000)
    return { workers, requests, refused, seconds, ideal_s: ideal, ratio: seconds / ideal }
  })
}

const machine = `${cpus()[0].model}, ${cpus().length} threads, Node ${process.versions.node}`
const results = { machine, cost: [], limited: [], drained: [], shared: [], workers: [] }
try {
  for (const shape of options.cost.split(',').filter(Boolean)) {
    const found = await cost(...shape.split('x').map(Number))
    results.cost.push(found)
    say(
      `${found.windows} windows of ${found.rows} rows: ${found.alone_s.toFixed(1)} CPU s alone, ${found.queue_s.toFixed(1)} with the queue ` +
        `and one worker, ${found.ratio.toFixed(2)} of it`,
    )
  }
  for (const workers of list(options.limited)) {
    const found = await spendLimit(workers)
    results.limited.push(found)
    say(
      `${workers} workers, 5 requests in 2 s: ${found.requests} requests (${found.refused} refused) in ${found.seconds.toFixed(1)} s, ` +
        `${found.ratio.toFixed(2)} of the ${found.ideal_s} s that the limit asks for`,
    )
  }
  for (const windows of list(options.windows)) {
    const found = await drainLong(windows)
    results.drained.push(found)
    const { taking } = found
    say(
      `${found.windows} windows by ${options.workers} workers: ${found.seconds.toFixed(0)} s (${found.windows_per_second.toFixed(0)} a second), ` +
        `the first at work after ${found.first_at_work_s.toFixed(1)} s, at most ${found.most_waiting} waiting, ${found.peak_mb} MB; taking one ` +
        `${taking.first_half.median_ms.toFixed(1)} ms (p95 ${taking.first_half.p95_ms.toFixed(1)}) in the first half, ` +
        `${taking.second_half.median_ms.toFixed(1)} ms (p95 ${taking.second_half.p95_ms.toFixed(1)}) in the second`,
    )
  }
  for (const windows of list(options.shared)) {
    const found = await share(windows)
    results.shared.push(found)
    say(
      `two runs over the same ${found.windows} windows: ${found.alone_s.toFixed(1)} s alone, ${found.both_s.toFixed(1)} s both, ` +
        `${found.beyond_requests.toFixed(2)} of twice the time alone`,
    )
  }
  for (const concurrency of [1, 4]) {
    for (const workers of list(options.scaling)) {
      const found = await scale(workers, concurrency)
      results.workers.push({ concurrency, workers, ...found })
      say(`${workers} workers, ${concurrency} at once each: ${found.windows} windows in ${found.seconds.toFixed(1)} s`)
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
