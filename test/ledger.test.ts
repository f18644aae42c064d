import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { Client } from 'pg'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { monotonic } from '../src/core/waiting.ts'
import { readCalendar, readDay, readYear } from '../src/ledger/calendar.ts'
import { readCoverage } from '../src/ledger/coverage.ts'
import { groupQuarantine } from '../src/ledger/quarantine.ts'
import { changesOfRun, readRestatements } from '../src/ledger/restatement-report.ts'
import { pruneLedger } from '../src/ledger/retention.ts'
import { findRun, neighboursOf } from '../src/ledger/runs.ts'
import { isHeld } from '../src/ledger/status.ts'
import { DatabaseWatch } from '../src/schedule/database-watch.ts'
import { dueDays, readCoverageSummaries } from '../src/sync/plan/due-days.ts'
import { byStream, emptyReport, type StreamReport } from '../src/sync/run/report.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { createSidePool, type SidePool } from '../src/warehouse/side-pool.ts'
import { readiness } from '../src/web/health.ts'
import { condense } from '../src/web/run-summaries.ts'
import { statusDocument } from '../src/web/status-data.ts'
import { View, type ViewOptions } from '../src/web/view.ts'
import { runCli } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { sized } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'

describe('a large ledger', () => {
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
    const entry = (project: string, stream: string): StreamReport => ({
      ...emptyReport(project, stream),
      rows_read: 100,
    })
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
    closeLater(() => pool.close())
    const { log, clock } = services
    watch = new DatabaseWatch({ pool, clock, monotonic, log })
    options = { services, projects, pool, watch, monotonic }
    view = new View(options)
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

  test('no status query on a large ledger scans a whole growing table', async () => {
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

  test('no page about days, runs, quarantine or restatements does so either', async () => {
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

  test('without its indexes the same query would, so the check can fail', async () => {
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

  test('probes send no query to the database', async () => {
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
    const next = () => ({ sync: undefined, audit: undefined })
    const options: any = {
      view,
      warehouse: 'w',
      live: { runs: [] },
      next,
      alerts: () => [],
      failedToStart: () => undefined,
    }
    const whole: any = statusDocument(options, state, undefined)
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
    const one: any = statusDocument(options, state, setup.projects[2]!.id)
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
})

describe('due days', () => {
  /* Planning looks at whole months where it can. A day that is due must not be overlooked because its month seems complete. */

  const FIRST: Day = '2025-09-20'
  const TODAY: Day = '2026-03-10'
  const ALL = { from: FIRST, to: TODAY }
  const DAYS = daysIn(ALL)

  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase('migrated')
    await migrate(database.warehouse, configOf({}))
  })

  interface Stretch {
    from: number
    days: number
    state: 'read' | 'held' | 'quarantined' | 'stale' | 'unread'
    /** How many days after each day it was read. */
    age: number
  }

  /** Each later stretch covers earlier ones. */
  async function fill(stream: string, stretches: readonly Stretch[]): Promise<void> {
    const days = new Map<Day, Stretch>()
    for (const stretch of stretches)
      for (const day of DAYS.slice(stretch.from, stretch.from + stretch.days)) days.set(day, stretch)
    const covered = [...days].filter(([, { state }]) => state !== 'unread')
    await database.rows(
      `insert into visibility_ops.coverage (project_id, stream, date, rows, read_at, run_id, state, read_order, held_since, reconciled_at)
     select 'p', $1, date, 10, (date + age)::timestamp at time zone 'UTC' + interval '3 hours', 1, state, 1,
       case state when 'held' then now() end, case state when 'read' then now() end
     from unnest($2::date[], $3::text[], $4::int[]) c (date, state, age)`,
      [stream, covered.map(([day]) => day), covered.map(([, { state }]) => state), covered.map(([, { age }]) => age)],
    )
  }

  const stretch = fc.record({
    from: fc.nat(DAYS.length - 1),
    days: fc.integer({ min: 1, max: 45 }),
    state: fc.constantFrom<Stretch['state']>('read', 'read', 'held', 'quarantined', 'stale', 'unread'),
    age: fc.constantFrom(0, 1, 6, 7, 30),
  })
  // Most of it was read soundly, and some of it was not.
  const stretches = fc
    .tuple(fc.nat(60), fc.constantFrom(20, 30), fc.array(stretch, { maxLength: 4 }))
    .map(([from, age, more]): Stretch[] => [{ from, days: DAYS.length, state: 'read', age }, ...more])

  test('the days that are due by months are those that are due by each day', async () => {
    let skipped = 0
    await fc.assert(
      fc.asyncProperty(
        fc.tuple(stretches, stretches),
        fc.nat(100),
        fc.constantFrom(TODAY, '2026-02-28', '2026-04-30', '2026-02-14'),
        fc.constantFrom(0, 1, 7, 40),
        async (of, start, to, lookbackDays) => {
          await database.rows('delete from visibility_ops.coverage')
          const streams = of.map((_, at) => ({ projectId: 'p', stream: `s${at}` }))
          for (const [at, { stream }] of streams.entries()) await fill(stream, of[at]!)
          const interest = { from: addDays(FIRST, start), to }
          const settings = { today: TODAY, lookbackDays }
          const summaryOf = await readCoverageSummaries(database.warehouse, streams, {
            from: interest.from,
            ...settings,
          })
          const due = dueDays({ interest, ...settings })
          for (const projectStream of streams) {
            const summary = summaryOf(projectStream)
            const coverage = await readCoverage(database.warehouse, projectStream, {
              from: '2025-01-01',
              to: '2027-01-01',
            })
            expect(due(summary).sort()).toEqual(due({ coverage, completeMonths: new Set() }).sort())
            // The last month is what sizes of windows are predicted from.
            const isRecent = ({ date }: { date: Day }) => date > addDays(TODAY, -31)
            expect(summary.coverage.filter(isRecent).map(({ date }) => date)).toEqual(
              coverage.filter(isRecent).map(({ date }) => date),
            )
            skipped += coverage.length - summary.coverage.length
          }
        },
      ),
      { numRuns: sized(25, 200), examples: [[[[{ from: 0, days: 500, state: 'read', age: 40 }], []], 0, TODAY, 7]] },
    )
    expect(skipped).toBeGreaterThan(100)
  })
})

describe('retention', () => {
  /* What the ledger forgets, and what it must not. */

  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 1, prompts: 4, models: 2, brands: 3 },
      config: { start_date: '2026-03-25' },
    })
    await setup.sync()
  })

  const NOW = new Date('2026-06-01T00:00:00Z')
  const rows = <T = Record<string, unknown>>(sql: string) => setup.database.rows<T>(sql)
  const prune = (batch?: number, limitMs = 60_000) =>
    pruneLedger(setup.database.warehouse, setup.config.retention, {
      now: NOW,
      monotonic,
      limitMs,
      ...(batch === undefined ? {} : { batch }),
    })

  test('runs and restatements older than the retention are deleted in batches, and others stay', async () => {
    await rows('truncate visibility_ops.restatements')
    await rows(`insert into visibility_ops.runs (command, started_at, ended_at, outcome, host, pid, version, source)
    select 'sync', at, at, case when n % 50 = 0 then null else 'complete' end, 'h', 1, 'v', 's'
    from (select n, timestamptz '2026-06-01' - n * interval '1 day' as at from generate_series(1, 400) n order by n desc) old`)
    await rows("update visibility_ops.runs set started_at = timestamptz '2025-01-01' where run_id = 1")
    await rows(`insert into visibility_ops.restatements
    select 'p', 'chats', date '2026-03-01', 1, 0, 0, timestamptz '2026-06-01' - n * interval '1 day', 1
    from generate_series(1, 200) n`)
    const pruned = await prune(7)
    expect(pruned).toMatchObject({ restatements: 110 })
    expect(await rows('select count(*)::int as kept from visibility_ops.restatements')).toEqual([{ kept: 90 }])
    // 180 days by default; those that are not known to be over stay, whatever their age.
    const [kept] = await rows<{ ended: number; open: number }>(
      `select count(*) filter (where outcome is not null)::int as ended, count(*) filter (where outcome is null)::int as open
     from visibility_ops.runs where started_at > timestamptz '2025-02-01'`,
    )
    expect(kept).toEqual({ ended: 177, open: 8 })
    expect(await prune(7)).toEqual({})
  })

  test('each run removes a limited number, so that years of history do not delay one run', async () => {
    await rows(`insert into visibility_ops.restatements
    select 'p', 'chats', date '2026-03-01', 1, 0, 0, timestamptz '2025-01-01', 1 from generate_series(1, 50)`)
    const left = async () =>
      (
        await rows<{ n: number }>(
          "select count(*)::int as n from visibility_ops.restatements where seen_at < '2025-06-01'",
        )
      )[0]!.n
    await prune(10, 0)
    expect(await left()).toBe(50)
    let now = 0
    const { warehouse } = setup.database
    await pruneLedger(warehouse, setup.config.retention, { now: NOW, monotonic: () => now++, limitMs: 3, batch: 10 })
    expect(await left()).toBeLessThan(50)
    expect(await left()).toBeGreaterThan(0)
    const stopped = { now: NOW, monotonic, limitMs: 60_000, signal: AbortSignal.abort() }
    expect(await pruneLedger(warehouse, setup.config.retention, stopped)).toEqual({})
    await prune()
    expect(await left()).toBe(0)
  })

  test('resolved quarantine entries are deleted; open and dismissed ones stay', async () => {
    await rows(`insert into visibility_ops.quarantine (project_id, stream, reason, raw, fingerprint, run_id, resolved_at, dismissed_at)
    values ('p', 'chats', 'r', '{}', 'open', 1, null, null),
      ('p', 'chats', 'r', '{}', 'resolved long ago', 1, '2026-01-01', null),
      ('p', 'chats', 'r', '{}', 'resolved lately', 1, '2026-05-01', null),
      ('p', 'chats', 'r', '{}', 'dismissed long ago', 1, '2026-01-01', '2026-01-01')`)
    expect(await prune()).toEqual({ quarantine: 1 })
    const kept = await rows<{ fingerprint: string }>('select fingerprint from visibility_ops.quarantine order by 1')
    expect(kept.map(({ fingerprint }) => fingerprint)).toEqual(['dismissed long ago', 'open', 'resolved lately'])
  })

  test('creations that show that something exists stay', async () => {
    await rows(`insert into visibility.prompts (project_id, prompt_id, text, country_code) values
    ('p', 'with-country', 't', 'DE'), ('p', 'without-country', 't', null)`)
    await rows(`insert into visibility_ops.creations (project_id, kind, identity, request, state, id, sent_at, settled_at)
    select 'p', kind, identity, '{}', state, id, coalesce(settled_at, now()), settled_at from (values
      ('prompt', 'a', 'created', 'with-country', timestamptz '2025-01-01'),
      ('prompt', 'b', 'created', 'without-country', timestamptz '2025-01-01'),
      ('prompt', 'c', 'failed', null, timestamptz '2025-01-01'),
      ('prompt', 'd', 'sent', null, null),
      ('prompt', 'e', 'created', 'with-country', timestamptz '2026-05-01'),
      ('topic', 'f', 'existing', null, timestamptz '2025-01-01')) made (kind, identity, state, id, settled_at)`)
    expect(await prune()).toEqual({ creations: 3 })
    const kept = await rows<{ identity: string }>('select identity from visibility_ops.creations order by 1')
    expect(kept.map(({ identity }) => identity)).toEqual(['b', 'd', 'e'])
  })

  test('dead windows and results that no run took are deleted; those of a run in progress stay', async () => {
    const [open] = await rows<{ run_id: number }>(
      `insert into visibility_ops.runs (command, host, pid, version, source) values ('sync', 'h', 1, 'v', 's') returning run_id`,
    )
    await rows(`insert into visibility_ops.dead_windows (run_id, project_id, stream, reason, failed_at)
    values (1, 'p', 'chats', 'r', '2026-01-01'), (1, 'p', 'chats', 'r', '2026-05-31')`)
    await rows(`insert into visibility_ops.run_windows (window_id, run_id, queue, project_id, stream, priority, request, queued_at)
    values (gen_random_uuid(), 1, 'q', 'p', 'chats', 0, '{}', '2026-01-01'),
      (gen_random_uuid(), ${open!.run_id}, 'q', 'p', 'chats', 0, '{}', '2026-01-01')`)
    expect(await prune()).toEqual({ dead_windows: 1, run_windows: 1 })
    expect(await rows('select run_id from visibility_ops.run_windows')).toEqual([open])
    await rows('truncate visibility_ops.run_windows, visibility_ops.dead_windows')
    await rows('delete from visibility_ops.runs where outcome is null')
  })

  test('a sync prunes when it ends, and status shows how large the ledger is', async () => {
    await rows(`insert into visibility_ops.restatements
    select 'p', 'chats', date '2026-03-01', 1, 0, 0, timestamptz '2020-01-01', 1 from generate_series(1, 20)`)
    const env = { ...setup.env, LOG_LEVEL: 'info' }
    const synced = await runCli(['sync', '--stream', 'chats', '--json'], { env, config: setup.fileConfig })
    expect(synced.code).toBe(0)
    expect(synced.stderr).toMatch(/"restatements":\d+.*"ledger pruned"/)
    expect(await rows("select from visibility_ops.restatements where seen_at < '2021-01-01'")).toEqual([])
    const status = await runCli(['status', '--json'], { env, config: setup.fileConfig })
    const { ledger } = status.json()
    expect(ledger.bytes).toBe(ledger.tables.reduce((sum: number, table: { bytes: number }) => sum + table.bytes, 0))
    expect(ledger.tables.map(({ name }: { name: string }) => name)).toEqual(
      expect.arrayContaining(['runs', 'coverage', 'restatements']),
    )
    expect((await runCli(['status'], { env, config: setup.fileConfig })).stdout).toMatch(
      /Ledger\n {2}[\d.]+ [kM]B: \w+ [\d.]+ [kM]B/,
    )
  })
})

describe('freshness', () => {
  /* How fresh and how final the numbers are, as people see it in data_status, freshness and the views by week and month. */

  let setup: Setup
  const range = { from: '2026-02-20', to: '2026-03-31' }
  const REPORT = 'brand_daily'

  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 1, prompts: 3, models: 2, brands: 2 },
      config: { start_date: range.from, end_date: range.to, reports: [{ name: REPORT, dimensions: ['date'] }] },
    })
    expect((await setup.sync()).outcome).toBe('complete')
  })

  // Each test finds every day read, soundly and just now.
  const given = () => ({ ...setup.config })
  let first: ReturnType<typeof given>
  beforeEach(async () => {
    first ??= given()
    Object.assign(setup.config, first)
    await rows('delete from visibility_ops.quarantine; delete from visibility_ops.restatements')
    expect((await setup.sync({ range })).outcome).toBe('complete')
    await rows('delete from visibility_ops.restatements')
  })

  const rows = <T = Record<string, unknown>>(sql: string, values?: unknown[]) => setup.database.rows<T>(sql, values)
  const project = () => setup.service.world.projects[0]!.id

  /** As if a day had been last read so many days after it. */
  const readAt = (day: Day, age: number, state = 'read') =>
    rows(
      `update visibility_ops.coverage set read_at = ($1::date + $2::int)::timestamp at time zone 'UTC' + interval '5 hours', state = $3
     where stream = '${REPORT}' and date = $1`,
      [day, age, state],
    )
  const status = (day: Day) =>
    rows(`select date, state, is_provisional from visibility.data_status where stream = '${REPORT}' and date = $1`, [
      day,
    ])
  const week = async (monday: Day) =>
    (
      await rows(
        'select distinct days, is_complete, is_provisional, comparison_is_complete from visibility.visibility_weekly where week = $1',
        [monday],
      )
    )[0]

  test('every day of every stream has its status, lists on the day they were read', async () => {
    const found = await rows<{ stream: string; days: number; project: string }>(
      'select stream, count(*)::int as days, min(project) as project from visibility.data_status group by stream order by stream',
    )
    expect(found.map(({ stream, days }) => [stream, days])).toEqual([
      [REPORT, 40],
      ['chats', 40],
      ['domain_classifications', 1],
      ['project_profile', 1],
      ['prompt_suggestions', 1],
      ['prompts', 1],
    ])
    expect(new Set(found.map((row) => row.project))).toEqual(new Set([setup.service.world.projects[0]!.profile!.name]))
    const [list] = await rows("select is_provisional, rows from visibility.data_status where stream = 'prompts'")
    expect(list).toEqual({ is_provisional: false, rows: 3 })
  })

  test('a day is provisional while it was read too early, is held or is to be read again', async () => {
    const day = '2026-03-11'
    await readAt(day, 6)
    expect(await status(day)).toEqual([{ date: day, state: 'read', is_provisional: true }])
    await readAt(day, 7)
    expect(await status(day)).toEqual([{ date: day, state: 'read', is_provisional: false }])
    for (const state of ['held', 'stale']) {
      await readAt(day, 30, state)
      expect(await status(day)).toEqual([{ date: day, state, is_provisional: true }])
    }
    await readAt(day, 30)
  })

  test('the delay of late changes is learned, and rewritten history does not count as a late change', async () => {
    const change = (count: number, age: number, seen = 'now()') =>
      rows(
        `insert into visibility_ops.restatements (project_id, stream, date, rows_inserted, rows_updated, rows_deleted, run_id, seen_at)
       select $1, '${REPORT}', ((${seen}) at time zone 'UTC')::date - $2::int, 0, 1, 0, 1, ${seen} from generate_series(1, $3)`,
        [project(), age, count],
      )
    const learned = async () => {
      await setup.sync()
      return rows(
        `select restated_days, final_after_days from visibility_ops.stream_settings where stream = '${REPORT}' and project_id = $1`,
        [project()],
      )
    }
    await change(10, 2)
    // The lookback of seven days is the least.
    expect(await learned()).toEqual([{ restated_days: 3, final_after_days: 7 }])
    await change(50, 11)
    expect(await learned()).toEqual([{ restated_days: 12, final_after_days: 12 }])
    // One in twenty came later still; what is older than a month was rewritten; what was seen long ago counts no more.
    await change(2, 25)
    await change(100, 31)
    await change(500, 30, "now() - interval '61 days'")
    expect(await learned()).toEqual([{ restated_days: 12, final_after_days: 12 }])
    await readAt('2026-03-11', 11)
    expect(await status('2026-03-11')).toMatchObject([{ is_provisional: true }])
    await readAt('2026-03-11', 12)
    expect(await status('2026-03-11')).toMatchObject([{ is_provisional: false }])
  })

  test('changes by later reads are counted by day', async () => {
    const world = setup.service.world
    world.rewriteDays(world.projects[0]!, ['2026-03-30'])
    await setup.sync()
    const found = await rows(
      `select date, restatements, restated_at > now() - interval '1 hour' as recent from visibility.data_status
     where restatements > 0 and stream = '${REPORT}'`,
    )
    expect(found).toEqual([{ date: '2026-03-30', restatements: 1, recent: true }])
  })

  test('a week that is not whole says so, and so does its comparison', async () => {
    const whole = { days: 7, is_complete: true, is_provisional: false, comparison_is_complete: true }
    expect(await week('2026-03-16')).toEqual(whole)
    // Read before it was over.
    await readAt('2026-03-11', 0)
    expect(await week('2026-03-09')).toEqual({
      ...whole,
      is_complete: false,
      is_provisional: true,
      comparison_is_complete: false,
    })
    expect(await week('2026-03-16')).toEqual({ ...whole, comparison_is_complete: false })
    for (const state of ['quarantined', 'held']) {
      await readAt('2026-03-11', 30, state)
      expect(await week('2026-03-09')).toMatchObject({ days: 7, is_complete: false })
    }
    await rows(`delete from visibility_ops.coverage where stream = '${REPORT}' and date = '2026-03-11'`)
    expect(await week('2026-03-09')).toEqual({ ...whole, days: 6, is_complete: false, comparison_is_complete: false })
    // The first week begins on a Friday; there is none before it.
    expect(await week('2026-02-16')).toEqual({
      days: 3,
      is_complete: false,
      is_provisional: false,
      comparison_is_complete: null,
    })
    const months = await rows(
      'select distinct month, days, is_complete, comparison_is_complete from visibility.visibility_monthly order by month',
    )
    expect(months).toEqual([
      { month: '2026-02-01', days: 9, is_complete: false, comparison_is_complete: null },
      { month: '2026-03-01', days: 30, is_complete: false, comparison_is_complete: false },
    ])
    await setup.sync()
    expect(await week('2026-03-09')).toEqual(whole)
    const [march] = await rows(
      "select distinct days, is_complete from visibility.visibility_monthly where month = '2026-03-01'",
    )
    expect(march).toEqual({ days: 31, is_complete: true })
  })

  test('freshness counts what is missing, held and rejected, as the days themselves do', async () => {
    const fresh = () => rows('select * from visibility.freshness order by stream')
    const report = async () => (await fresh()).find(({ stream }) => stream === REPORT)
    expect(
      (await fresh()).map(({ stream, missing_days, first_day, last_day }) => [
        stream,
        missing_days,
        first_day,
        last_day,
      ]),
    ).toEqual([
      [REPORT, 0, range.from, range.to],
      ['chats', 0, range.from, range.to],
      ['domain_classifications', null, null, null],
      ['project_profile', null, null, null],
      ['prompt_suggestions', null, null, null],
      ['prompts', null, null, null],
    ])
    expect(await report()).toMatchObject({ held_days: 0, quarantined_rows: 0, is_stale: false })
    await rows(
      `delete from visibility_ops.coverage where stream = '${REPORT}' and date in ('2026-02-21', '2026-03-31', '2026-03-05')`,
    )
    await readAt('2026-03-20', 30, 'held')
    await rows(
      `insert into visibility_ops.quarantine (project_id, stream, reason, raw, fingerprint, run_id, resolved_at)
     values ($1, '${REPORT}', 'bad', '{}', '1', 1, null), ($1, '${REPORT}', 'bad', '{}', '2', 1, null), ($1, '${REPORT}', 'bad', '{}', '3', 1, now())`,
      [project()],
    )
    expect(await report()).toMatchObject({ missing_days: 3, last_day: '2026-03-30', held_days: 1, quarantined_rows: 2 })
    await rows("update visibility_ops.coverage_months set last_read_at = now() - interval '27 hours'")
    expect(await report()).toMatchObject({ is_stale: true })
  })

  test('days outside the days of interest are neither missing nor counted, at either end of a month', async () => {
    for (const [first, last] of [
      ['2026-02-25', '2026-03-10'],
      ['2026-03-04', '2026-03-09'],
      ['2026-01-15', '2026-04-20'],
    ] as const) {
      await rows(`update visibility_ops.stream_settings set first_day = $1, last_day = $2`, [first, last])
      const [found] = await rows<{ missing_days: number }>(
        `select missing_days from visibility.freshness where stream = '${REPORT}'`,
      )
      const covered = await rows<{ date: Day }>(`select date from visibility_ops.coverage where stream = '${REPORT}'`)
      const known = new Set(covered.map(({ date }) => date))
      const missing = daysIn({ from: first, to: last }).filter((day) => !known.has(day)).length
      expect({ first, last, ...found }).toEqual({ first, last, missing_days: missing })
    }
    // Without an end, today is the last day, and it is looked for.
    await rows(
      "update visibility_ops.stream_settings set first_day = (now() at time zone 'UTC')::date - 2, last_day = null",
    )
    const [open] = await rows(`select missing_days from visibility.freshness where stream = '${REPORT}'`)
    expect(open).toEqual({ missing_days: 3 })
  })

  test('each run writes the settings that it had, and streams that are no longer configured go', async () => {
    Object.assign(setup.config, {
      lookback_days: 3,
      streams: ['prompts'],
      serve: { ...setup.config.serve, max_staleness: '90m' },
      end_date: undefined,
    })
    await setup.sync({ range: { from: addDays(range.to, -1), to: range.to } })
    expect(
      await rows(
        'select stream, lookback_days, first_day, last_day, max_staleness::text, final_after_days from visibility_ops.stream_settings order by 1',
      ),
    ).toEqual(
      [REPORT, 'prompts'].map((stream) => ({
        stream,
        lookback_days: 3,
        first_day: range.from,
        last_day: null,
        max_staleness: '01:30:00',
        final_after_days: 3,
      })),
    )
    const versions = () => rows('select xmin, ctid from visibility_ops.stream_settings')
    const before = await versions()
    await setup.sync({ range: { from: addDays(range.to, -1), to: range.to } })
    expect(await versions()).toEqual(before)
  })

  test('projects that an earlier version synced get the settings at hand when the tables are upgraded', async () => {
    const other = await setUp({ config: { reports: [{ name: REPORT, dimensions: ['date'] }], lookback_days: 4 } })
    const { migrate } = await import('../src/warehouse/schema/migrate.ts')
    await migrate(other.database.warehouse, other.config)
    await other.database.rows("insert into visibility.projects values ('old', null)")
    await migrate(other.database.warehouse, other.config)
    const settings = "select distinct lookback_days from visibility_ops.stream_settings where project_id = 'old'"
    expect(await other.database.rows(settings)).toEqual([{ lookback_days: 4 }])
    // Somebody else's settings do not overwrite those of the run.
    await migrate(
      other.database.warehouse,
      configOf({ reports: [{ name: REPORT, dimensions: ['date'] }], lookback_days: 9 }),
    )
    expect(await other.database.rows(settings)).toEqual([{ lookback_days: 4 }])
  })
})
