// node bench/scale-out.mjs: how many rows, windows, requests and hours 1 to 1,000 projects take, by the real planner and a
// simulation of workers, request budgets and a database. Writes bench/results/scale-out.json and prints the table of
// docs/scale-out.md.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { addDays, countDays, daysIn } from '../dist/core/day.js'
import { Density } from '../dist/sync/plan/density.js'
import { WindowFeed } from '../dist/sync/plan/window-feed.js'

const { values: options } = parseArgs({
  options: {
    projects: { type: 'string', default: '1,10,100,1000' },
    workers: { type: 'string', default: '1,4,16' },
    days: { type: 'string', default: '1095' },
    prompts: { type: 'string', default: '50' },
    models: { type: 'string', default: '4' },
    brands: { type: 'string', default: '6' },
    latency: { type: 'string', default: '0.3' },
    budget: { type: 'string', default: '200' },
    concurrency: { type: 'string', default: '4' },
    // Measured, see docs/performance.md: what one worker reads and loads, and, assumed, what the database takes from all.
    'worker-rows': { type: 'string', default: '60000' },
    'database-rows': { type: 'string', default: '150000' },
  },
})
const number = (name) => Number(options[name])
const list = (text) => text.split(',').map(Number)
const PAGE = 10_000
const LISTS = 4
const TODAY = '2026-11-15'

/** Rows a day of each stream of a typical project with the default reports. */
const [prompts, models, brands] = [number('prompts'), number('models'), number('brands')]
const rowsPerDay = {
  chats: prompts * models,
  brand_daily: brands,
  brand_daily_by_model: brands * models,
  brand_daily_by_topic: brands * 8,
  brand_daily_by_tag: brands * 5,
  brand_daily_by_country: brands * 3,
  brand_daily_by_topic_model: brands * 8 * models,
  brand_daily_by_prompt_model: brands * prompts * models,
}

/** The windows of one project and the rows of each, in the order in which the planner hands them out. */
function windowsOf(days, known) {
  const range = { from: addDays(TODAY, 1 - days), to: TODAY }
  const windows = []
  for (const [stream, rows] of Object.entries(rowsPerDay)) {
    const coverage = known
      ? daysIn({ from: addDays(TODAY, -60), to: TODAY }).map((date) => ({
          date,
          rows,
          state: 'read',
          readAt: new Date(),
        }))
      : []
    const feed = new WindowFeed(daysIn(range), new Density(coverage, TODAY), () => PAGE)
    for (let window = feed.next(); window !== undefined; window = feed.next()) {
      const found = countDays(window) * rows
      if (found >= PAGE) {
        // A full page is a request, too; its halves are read instead.
        windows.push({ stream, rows: PAGE, loaded: 0 })
        feed.density.learnFull(countDays(window), PAGE)
        feed.settle(window, 'split')
        continue
      }
      windows.push({ stream, rows: found, loaded: found })
      feed.density.learn(window, new Map(daysIn(window).map((day) => [day, rows])))
      feed.settle(window, 'done')
    }
  }
  for (let index = 0; index < LISTS; index++) windows.push({ stream: 'list', rows: prompts, loaded: prompts })
  return windows
}

/** Plays it: slots take windows project by project in turn, wait for the budget of theirs, for the service and the database. */
function play(windows, projects, workers) {
  const slots = workers * number('concurrency')
  const free = new Float64Array(slots)
  const workerBusy = new Float64Array(workers)
  const period = new Float64Array(projects).fill(-1)
  const used = new Float64Array(projects)
  let databaseFree = 0
  let end = 0
  for (const { rows, loaded } of windows) {
    for (let project = 0; project < projects; project++) {
      let slot = 0
      for (let other = 1; other < slots; other++) if (free[other] < free[slot]) slot = other
      let at = free[slot]
      let minute = Math.floor(at / 60)
      if (minute < period[project]) minute = period[project]
      if (minute > period[project]) {
        period[project] = minute
        used[project] = 0
      }
      if (used[project] >= number('budget')) {
        period[project] = ++minute
        used[project] = 0
      }
      used[project]++
      at = Math.max(at, minute * 60) + number('latency')
      const worker = slot % workers
      // Reading and loading share a worker's thread; loading shares the database with all.
      at = Math.max(at, workerBusy[worker]) + rows / number('worker-rows')
      workerBusy[worker] = at
      databaseFree = Math.max(databaseFree, at) + loaded / number('database-rows')
      free[slot] = databaseFree > at + 1 ? databaseFree : at
      if (free[slot] > end) end = free[slot]
    }
  }
  return end
}

const results = { assumptions: { ...options, rows_per_day: rowsPerDay }, table: [] }
const first = windowsOf(number('days'), false)
const hourly = windowsOf(7, true)
const sum = (windows, field) => windows.reduce((total, window) => total + window[field], 0)
const span = (seconds) =>
  seconds < 90
    ? `${seconds.toFixed(0)} s`
    : seconds < 5400
      ? `${(seconds / 60).toFixed(0)} min`
      : `${(seconds / 3600).toFixed(1)} h`
for (const projects of list(options.projects)) {
  const row = {
    projects,
    rows: sum(first, 'loaded') * projects,
    requests: first.length * projects,
    first_load: Object.fromEntries(list(options.workers).map((workers) => [workers, play(first, projects, workers)])),
    hourly_requests: hourly.length * projects,
    hourly: Object.fromEntries(list(options.workers).map((workers) => [workers, play(hourly, projects, workers)])),
  }
  results.table.push(row)
}
const head = [
  'projects',
  'rows',
  'requests',
  ...list(options.workers).map((n) => `first load, ${n} ${n === 1 ? 'worker' : 'workers'}`),
  'requests of a sync',
  ...list(options.workers).map((n) => `sync, ${n} ${n === 1 ? 'worker' : 'workers'}`),
]
console.log(`| ${head.join(' | ')} |\n|${head.map(() => ' ---: ').join('|')}|`)
for (const row of results.table) {
  const cells = [row.projects, row.rows, row.requests].map((value) => value.toLocaleString('en-US'))
  cells.push(
    ...Object.values(row.first_load).map(span),
    row.hourly_requests.toLocaleString('en-US'),
    ...Object.values(row.hourly).map(span),
  )
  console.log(`| ${cells.join(' | ')} |`)
}
const folder = fileURLToPath(new URL('results/', import.meta.url))
mkdirSync(folder, { recursive: true })
writeFileSync(join(folder, 'scale-out.json'), `${JSON.stringify(results, null, 2)}\n`)
