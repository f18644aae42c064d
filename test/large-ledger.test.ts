import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { monotonic } from '../src/core/waiting.ts'
import { readCalendar, readDay, readYear } from '../src/ledger/calendar.ts'
import { groupQuarantine } from '../src/ledger/quarantine.ts'
import { changesOfRun, readRestatements } from '../src/ledger/restatement-report.ts'
import { findRun, neighboursOf } from '../src/ledger/runs.ts'
import { isHeld } from '../src/ledger/status.ts'
import { DatabaseWatch } from '../src/schedule/database-watch.ts'
import { byStream, emptyReport, type StreamReport } from '../src/sync/run/report.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { createSidePool, type SidePool } from '../src/warehouse/side-pool.ts'
import { readiness } from '../src/web/health.ts'
import { condense } from '../src/web/run-summaries.ts'
import { statusDocument } from '../src/web/status-data.ts'
import { View, type ViewOptions } from '../src/web/view.ts'
import { type Setup, setUp } from './support/setup.ts'

/* A ledger large enough that Postgres prefers its indexes, unless a question leaves it no choice. */

let setup: Setup
let pool: SidePool
let watch: DatabaseWatch
let options: ViewOptions
let view: View
const STREAMS = ['brand_daily', 'by_model', 'by_topic', 'by_prompt', 'chats']

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 20, prompts: 2, models: 1, brands: 2 },
    config: { start_date: '2025-04-01' },
  })
  const { database, projects, services, config } = setup
  await migrate(database.warehouse, config)
  const ids = projects.map(({ id }) => id)
  await database.rows(
    `insert into visibility_ops.coverage (project_id, stream, date, rows, read_at, run_id, state, read_order, held_since)
     select project, stream, date '2026-03-31' - n, 10, now(), 1, case when held then 'held' else 'read' end, 1,
       case when held then now() end
     from unnest($1::text[]) project, unnest($2::text[]) stream, generate_series(0, 364) n,
       lateral (select stream = 'chats' and n between 10 and 309 and n % 2 = 0 as held) h`,
    [ids, STREAMS],
  )
  await database.rows(
    `insert into visibility_ops.restatements
     select ($1::text[])[1 + n % 20], ($2::text[])[1 + n % 5], date '2026-03-31' - n % 365, 1, 0, 0, now() - (300000 - n) * interval '4 minutes', 1
     from generate_series(1, 300000) n`,
    [ids, STREAMS],
  )
  const entry = (project: string, stream: string): StreamReport => ({ ...emptyReport(project, stream), rows_read: 100 })
  const summary = Array.from({ length: 200 }, (_, at) =>
    ids.flatMap((id) => entry(`${id}${at}`, STREAMS[at % 5]!)),
  ).flat()
  await database.rows(
    `insert into visibility_ops.runs (command, started_at, ended_at, outcome, host, pid, version, source, summary)
     select 'sync', now() - n * interval '1 hour', now() - n * interval '1 hour', 'complete', 'h', 1, 'v', 's',
       case when n < 20 then $1::jsonb end
     from generate_series(20000, 0, -1) n`,
    [JSON.stringify(summary)],
  )
  await database.rows('analyze')
  pool = createSidePool(database.warehouse, {
    name: 'large ledger',
    connections: 2,
    waiting: 10,
    patienceMs: 10_000,
    limitMs: 30_000,
  })
  const { log, clock } = services
  watch = new DatabaseWatch({ pool, clock, monotonic, log })
  options = { services, projects, pool, watch, monotonic }
  view = new View(options)
})
afterAll(async () => {
  pool.close()
  await setup.close()
})

/** Everything that is sent to the database while something is done. */
async function statementsOf(work: () => Promise<unknown>): Promise<{ text: string; values: unknown[] }[]> {
  const sent: { text: string; values: unknown[] }[] = []
  const { query } = Client.prototype
  Client.prototype.query = function (this: Client, ...args: unknown[]) {
    const [first, values] = args as [string | { text: string; values?: unknown[] }, unknown]
    if (typeof first === 'string') sent.push({ text: first, values: Array.isArray(values) ? values : [] })
    else if (typeof first?.text === 'string') sent.push({ text: first.text, values: first.values ?? [] })
    return (query as (...all: unknown[]) => unknown).apply(this, args)
  } as typeof query
  try {
    await work()
  } finally {
    Client.prototype.query = query
  }
  return sent.filter(({ text }) => /^\s*(select|update|with)\b/i.test(text))
}

/** The tables that a statement would read from end to end. */
async function readWhole({ text, values }: { text: string; values: unknown[] }): Promise<string[]> {
  const client = new Client({ connectionString: setup.database.url })
  await client.connect()
  try {
    await client.query("set timezone = 'UTC'; set jit = off")
    const { rows } = await client.query(`explain (format json) ${text}`, values)
    const found: string[] = []
    const walk = (node: { 'Node Type': string; 'Relation Name'?: string; Plans?: (typeof node)[] }) => {
      if (node['Node Type'] === 'Seq Scan') found.push(node['Relation Name']!)
      for (const inner of node.Plans ?? []) walk(inner)
    }
    walk(rows[0]['QUERY PLAN'][0].Plan)
    return found
  } finally {
    await client.end()
  }
}

const GROWING = ['coverage', 'restatements', 'runs']
async function wholeReads(work: () => Promise<unknown>): Promise<string[]> {
  const statements = await statementsOf(work)
  expect(statements.length).toBeGreaterThan(0)
  const found: string[] = []
  for (const statement of statements)
    for (const table of await readWhole(statement))
      if (GROWING.includes(table)) found.push(`${table}: ${statement.text}`)
  return found
}
const calendar = () =>
  view.read((w) => readCalendar(w, setup.projects[3]!.id, STREAMS, { from: '2026-02-01', to: '2026-03-28' }))

test('no look at a large ledger reads a table that grows from end to end', async () => {
  await watch.look()
  const asked = await statementsOf(async () => {
    await view.refresh()
    await calendar()
  })
  // All of it was seen: the ledger, its restatements, its runs and the calendar.
  for (const table of ['coverage_months', 'restatements', 'runs', 'quarantine', 'drift', 'coverage'])
    expect(asked.some(({ text }) => text.includes(`"${table}"`))).toBe(true)
  const fresh = new View(options)
  expect(await wholeReads(() => fresh.refresh())).toEqual([])
  expect(await wholeReads(calendar)).toEqual([])
})

test('no page about days, runs, quarantine or restatements does either', async () => {
  await watch.look()
  const project = setup.projects[5]!.id
  const [{ run_id: id }] = (await setup.database.rows<{ run_id: number }>(
    'select max(run_id) as run_id from visibility_ops.runs',
  )) as [{ run_id: number }]
  const day = '2026-03-15'
  const today = new Date().toISOString().slice(0, 10)
  const looks: [string, () => Promise<unknown>][] = [
    ['coverage', () => view.read((w) => readYear(w, project, STREAMS, { from: '2025-04-01', to: '2026-03-31' }))],
    ['coverage', () => view.read((w) => readDay(w, project, STREAMS, day))],
    ['restatements', () => view.read(async (w) => changesOfRun(w, (await findRun(w, id))!, 60))],
    ['runs', () => view.read((w) => neighboursOf(w, id))],
    ['quarantine', () => view.read((w) => groupQuarantine(w, { projects: [project], limit: 40 }))],
    ['restatements', () => view.read((w) => readRestatements(w, { from: today, to: today, most: 100 }))],
    ['coverage', () => view.read((w) => isHeld(w, { project_id: project, stream: 'chats', from: day, to: day }))],
  ]
  for (const [table, look] of looks) {
    let read = ''
    const found = await wholeReads(async () => {
      const asked = await statementsOf(look)
      read = asked.map(({ text }) => text).join()
    })
    expect([table, read.includes(`"${table}"`), found]).toEqual([table, true, []])
  }
})

test('without its indexes the same look would, so the check can fail', async () => {
  const { database } = setup
  const fresh = new View(options)
  await database.rows('drop index visibility_ops.restatements_by_time; drop index visibility_ops.runs_open')
  try {
    const found = await wholeReads(() => fresh.refresh())
    expect(new Set(found.map((text) => text.split(':')[0]))).toEqual(new Set(['restatements', 'runs']))
  } finally {
    await database.rows(
      'create index restatements_by_time on visibility_ops.restatements (seen_at); create index runs_open on visibility_ops.runs (run_id) where outcome is null',
    )
  }
})

test('probes ask the database nothing', async () => {
  await watch.look()
  await view.refresh()
  let told: unknown
  const sent = await statementsOf(async () => {
    told = readiness(view, 3_600_000)
  })
  expect(told).toEqual({ ready: true })
  expect(sent).toEqual([])
})

test('the summaries of runs that ended are read once', async () => {
  await view.refresh()
  const again = await statementsOf(() => view.refresh())
  expect(again.filter(({ text }) => text.includes('"summary"'))).toEqual([])
  expect(view.latest!.status!.runs.length).toBe(20)
})

test('the document of the state stays short, and says how long its lists are in full', async () => {
  const state = await view.state()
  const about = {
    warehouse: 'w',
    running: null,
    next: { sync: undefined, audit: undefined },
    alerts: [],
    failedToStart: null,
  }
  const whole: any = statusDocument(view, state, { ...about, project: undefined })
  const [held] = await setup.database.rows<{ n: number }>(
    `select count(*)::int as n from visibility_ops.coverage c where state = 'held' and not exists (
       select from visibility_ops.coverage p where p.project_id = c.project_id and p.stream = c.stream
         and p.date = c.date - 1 and p.state = 'held')`,
  )
  expect(held!.n).toBe(3000)
  expect(whole.totals).toEqual({ streams: 180, held: 3000, quarantine: 0, drift: 0 })
  expect([whole.held.length, whole.streams.length, whole.runs.length]).toEqual([100, 180, 20])
  expect(JSON.stringify(whole).length).toBeLessThan(300_000)
  const rowsRead = whole.runs[0].summary.reduce((sum: number, row: StreamReport) => sum + row.rows_read, 0)
  expect(rowsRead).toBe(200 * 20 * 100)
  const one: any = statusDocument(view, state, { ...about, project: setup.projects[2]!.id })
  // Of a list that was cut, nobody knows how many are one project's.
  expect(one.totals).toEqual({ streams: 9, held: null, quarantine: 0, drift: 0 })
})

test('a long summary is shortened without changing a sum, and what failed keeps its project', () => {
  const summary = Array.from({ length: 500 }, (_, at) => ({
    ...emptyReport(`p${at % 100}`, `s${at % 5}`),
    rows_read: at,
    inserted: 2 * at,
    failed: at % 6 === 0 ? [{ range: '2026-03-01', error: `e${at}`, code: 'error' as const }] : [],
  }))
  const short = condense(summary) as StreamReport[]
  expect(short.length).toBeLessThan(60)
  expect(short.filter(({ project_id }) => project_id !== '').length).toBe(50)
  const total = (list: StreamReport[]) => {
    const sums = byStream(list).map(({ stream, rows_read, inserted, failed }) => [
      stream,
      rows_read,
      inserted,
      failed.length,
    ])
    return sums.sort()
  }
  expect(total(short)).toEqual(total(summary))
  expect(condense(summary.slice(0, 40))).toEqual(summary.slice(0, 40))
  expect(condense(null)).toBeNull()
  const audit = Array.from({ length: 80 }, (_, at) => ({
    project_id: 'p',
    stream: `s${at}`,
    differing: at === 7 ? ['d'] : [],
  }))
  expect(condense(audit)).toEqual([audit[7]])
})
