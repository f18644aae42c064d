// node bench/serve-load.mjs [rounds]: do readers slow a sync? The same backfill through `serve`, alone and under 200 requests a
// second on its pages, in turns. The same load on a server that only repeats those pages tells what the asking itself takes from a small
// machine; 200 readers who stay a second on each page, and 200 who ask for the next as soon as they have one, come last.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { median } from './measure.mjs'

const ROUNDS = Number(process.argv[2] ?? 5)
const RATE = 200
const READERS = 200
const PATHS = ['/api/status', '/', '/metrics', '/readyz', '/insights']
const at = (path) => fileURLToPath(new URL(path, import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-load-'))
const server = await startEmbedded({ folder: join(folder, 'data') })
const start = (args, env) => spawn(process.execPath, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] })
const said = (child, pattern) =>
  new Promise((done) => {
    let text = ''
    child.stdout.on('data', (data) => {
      text += data
      const found = pattern.exec(text)
      if (found !== null) done(found[1])
    })
  })

const pages = start([at('page-server.mjs'), JSON.stringify({ rowsPerDay: 990 })], { PATH: process.env.PATH })
const api = JSON.parse(await said(pages, /(\{.*\})/)).url
const never = '0 0 1 1 *'
const config = join(folder, 'sync.yaml')
writeFileSync(
  config,
  JSON.stringify({
    start_date: '2022-01-01',
    end_date: '2022-01-07',
    source: { compress: false, requests_per_minute: 100_000 },
    streams: [],
    reports: [{ name: 'fine', dimensions: ['date', 'prompt_id', 'model_id', 'country_code'] }],
    schedule: { cron: never, audit_cron: never },
  }),
)
const serve = start([at('../bin/visibility-sync.js'), 'serve', '--port', '0'], {
  PATH: process.env.PATH,
  VISIBILITY_API_URL: api,
  VISIBILITY_API_KEY: 'k',
  VISIBILITY_PROJECTS: 'or_bench',
  DATABASE_URL: server.url,
  VISIBILITY_CONFIG: config,
  VISIBILITY_TOKEN: 'a-token-for-tests',
  LOG_LEVEL: 'error',
})
const url = await said(serve, /Serving: +(\S+)/)
const idle = start([at('replay-server.mjs'), url, ...PATHS], { PATH: process.env.PATH })
const idleUrl = `http://127.0.0.1:${await said(idle, /at (\d+)/)}`
const headers = { authorization: 'Bearer a-token-for-tests', 'content-type': 'application/json' }
const wait = (ms) => new Promise((done) => setTimeout(done, ms))

async function backfill() {
  for (;;) {
    const body = JSON.stringify({ from: '2022-01-01', to: '2023-12-31' })
    const response = await fetch(`${url}/api/backfills`, { method: 'POST', headers, body })
    if (response.status === 409) {
      await wait(100)
      continue
    }
    const { run_id } = await response.json()
    for (;;) {
      const run = await (await fetch(`${url}/api/runs/${run_id}`, { headers })).json()
      if (run.outcome !== null) return (Date.parse(run.ended_at) - Date.parse(run.started_at)) / 1000
      await wait(50)
    }
  }
}

let failed = 0
let sent = 0
async function ask(address) {
  sent++
  await fetch(address)
    .then(async (response) => {
      await response.arrayBuffer()
      if (response.status !== 200) failed++
    })
    .catch(() => failed++)
}

/** So many requests a second, whatever becomes of them. */
async function atRate(addressOf, isOver) {
  const started = performance.now()
  const open = new Set()
  for (let number = 0; !isOver(); number++) {
    const due = started + (number * 1000) / RATE
    if (due > performance.now()) await wait(due - performance.now())
    const one = ask(addressOf(number)).finally(() => open.delete(one))
    open.add(one)
  }
  await Promise.all(open)
}

/** Readers who look at one page after the other, so long on each. */
function byReaders(ms) {
  return async (addressOf, isOver) => {
    const read = async (reader) => {
      await wait((reader * ms) / READERS)
      for (let number = reader; !isOver(); number++) {
        await ask(addressOf(number))
        await wait(ms)
      }
    }
    await Promise.all(Array.from({ length: READERS }, (_, reader) => read(reader)))
  }
}

async function under(load, addressOf, work) {
  let over = false
  const loading = load(addressOf, () => over)
  const result = await work()
  over = true
  await loading
  return result
}

try {
  await backfill()
  const times = { alone: [], asking: [], watched: [], readers: [], greedy: [] }
  const pageOf = (number) => url + PATHS[number % PATHS.length]
  for (let round = 0; round < ROUNDS; round++) {
    times.alone.push(await backfill())
    times.asking.push(await under(atRate, (number) => idleUrl + PATHS[number % PATHS.length], backfill))
    times.watched.push(await under(atRate, pageOf, backfill))
    times.readers.push(await under(byReaders(1000), pageOf, backfill))
    times.greedy.push(await under(byReaders(0), pageOf, backfill))
  }
  const [alone, asking, watched, readers, greedy] = Object.values(times).map(median)
  process.stdout.write(
    [
      `alone ${alone.toFixed(2)} s`,
      `${RATE} requests a second to another server ${asking.toFixed(2)} s, to the pages ${watched.toFixed(2)} s: ${(watched / asking).toFixed(2)} times`,
      `${READERS} readers, a second on each page, ${readers.toFixed(2)} s: ${(readers / asking).toFixed(2)} times`,
      `${READERS} readers without a pause ${greedy.toFixed(2)} s: ${(greedy / asking).toFixed(2)} times`,
      `${failed} of ${sent} requests failed\n`,
    ].join('; '),
  )
} finally {
  serve.kill('SIGTERM')
  await new Promise((done) => serve.on('exit', done))
  pages.kill()
  idle.kill()
  await server.release()
  rmSync(folder, { recursive: true, force: true })
}
