import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { monotonic } from '../src/core/waiting.ts'
import {
  type DayState,
  lockOfLoads,
  markDamaged,
  markMoved,
  putDays,
  readDays,
  settleDays,
} from '../src/ledger/days.ts'
import { pruneLedger } from '../src/ledger/retention.ts'
import { dueDays, readKnownDays } from '../src/sync/plan/due-days.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { inTransactionWith, type Transaction } from '../src/warehouse/transaction.ts'
import { runCli, until } from './support/cli.ts'
import { sized } from './support/long.ts'
import { createDatabase, recountMonths, type TestDatabase } from './support/postgres.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'

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
          await recountMonths(database)
          const interest = { from: addDays(FIRST, start), to }
          const settings = { today: TODAY, lookbackDays }
          const summaryOf = await readKnownDays(database.warehouse, streams, {
            from: interest.from,
            ...settings,
          })
          const due = dueDays({ interest, ...settings })
          for (const projectStream of streams) {
            const summary = summaryOf(projectStream)
            const coverage = await readDays(database.warehouse, projectStream, {
              from: '2025-01-01',
              to: '2027-01-01',
            })
            expect(due(summary).sort()).toEqual(due({ days: coverage, completeMonths: new Set() }).sort())
            // The last month is what sizes of windows are predicted from.
            const isRecent = ({ date }: { date: Day }) => date > addDays(TODAY, -31)
            expect(summary.days.filter(isRecent).map(({ date }) => date)).toEqual(
              coverage.filter(isRecent).map(({ date }) => date),
            )
            skipped += coverage.length - summary.days.length
          }
        },
      ),
      { numRuns: sized(25, 200), examples: [[[[{ from: 0, days: 500, state: 'read', age: 40 }], []], 0, TODAY, 7]] },
    )
    expect(skipped).toBeGreaterThan(100)
  })
})

describe('months', () => {
  /* Months are counted when days are written, also if two processes write days of one month at once. */

  const DAYS = daysIn({ from: '2026-01-20', to: '2026-03-10' })
  const OF = { projectId: 'p', stream: 's' }
  const BLOCKED = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
  const STATES: DayState[] = ['settled', 'open', 'rejects', 'differs', 'vanishing', 'changed']

  const window = fc.record({ from: fc.nat(DAYS.length - 1), days: fc.integer({ min: 1, max: 20 }) })
  const step = fc.record({
    kind: fc.constantFrom('put', 'put', 'settle', 'damage', 'move'),
    window,
    state: fc.constantFrom(...STATES),
    age: fc.constantFrom(0, 1, 9),
  })
  type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never

  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase('migrated')
  })

  const put = ({ window: { from, days }, state, age }: Pick<Step, 'window' | 'state' | 'age'>) => {
    const range = { from: DAYS[from]!, to: DAYS.slice(from, from + days).at(-1)! }
    const readAt = new Date(`${addDays(range.to, age)}T03:00:00Z`)
    const dayOf = () => ({ rows: days, state })
    return putDays({ projectStream: OF, range, dayOf, fencingToken: 1, readAt, runId: 1 })
  }
  const inLoad = <T>(work: (tx: Transaction) => Promise<T>) =>
    inTransactionWith(database.warehouse, [lockOfLoads(database.warehouse, OF)], work)
  const expectCounted = async () => {
    const months = () => database.rows('select * from visibility_ops.coverage_months order by month')
    const found = await months()
    await recountMonths(database)
    expect(found).toEqual(await months())
    await database.rows('delete from visibility_ops.coverage; delete from visibility_ops.coverage_months')
  }

  test('have the counts of their days, whatever is written', async () => {
    const write = async (step: Step): Promise<unknown> => {
      const days = DAYS.slice(step.window.from, step.window.from + step.window.days)
      if (step.kind === 'settle') return settleDays(database.warehouse, OF, days)
      if (step.kind === 'damage') return markDamaged(database.warehouse, OF, days)
      return inLoad(async (tx) => {
        if (step.kind === 'move') await markMoved(tx, OF, new Map(days.map((day) => [day, 3])))
        else tx.atCommit.push(put(step))
      })
    }
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 10 }), async (steps) => {
        for (const one of steps) await write(one)
        await expectCounted()
      }),
      { numRuns: sized(25, 200) },
    )
  })

  test('of a day that lost all of its rows has none', async () => {
    await inLoad(async (tx) => tx.atCommit.push(put({ window: { from: 0, days: 3 }, state: 'settled', age: 9 })))
    await inLoad((tx) => markMoved(tx, OF, new Map([[DAYS[0]!, 3]])))
    const found = await database.rows('select rows, state from visibility_ops.coverage order by date limit 2')
    expect(found).toEqual([
      { rows: 0, state: 'stale' },
      { rows: 3, state: 'read' },
    ])
    await expectCounted()
  })

  test('do not count days that somebody deleted by hand', async () => {
    await inLoad(async (tx) => tx.atCommit.push(put({ window: { from: 0, days: 6 }, state: 'settled', age: 9 })))
    await database.rows('delete from visibility_ops.coverage where date = $1', [DAYS[2]])
    await expectCounted()
    await inLoad(async (tx) => tx.atCommit.push(put({ window: { from: 0, days: 6 }, state: 'settled', age: 9 })))
    await database.rows('delete from visibility_ops.coverage')
    expect(await database.rows('select from visibility_ops.coverage_months')).toEqual([])
  })

  test.each([
    ['damaged', markDamaged],
    ['settled', settleDays],
  ])('have the counts of their days, if days are %s while others are loaded', async (_, change) => {
    await inLoad(async (tx) => tx.atCommit.push(put({ window: { from: 0, days: 3 }, state: 'settled', age: 1 })))
    const { waiting } = await inLoad(async (tx) => {
      await put({ window: { from: 5, days: 2 }, state: 'open', age: 1 }).execute(tx.db)
      const waiting = change(database.warehouse, OF, DAYS.slice(0, 3))
      await until('blocked', async () => (await database.rows(BLOCKED)).length > 0)
      return { waiting }
    })
    await waiting
    await expectCounted()
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
  const prune = (batch?: number) =>
    pruneLedger(setup.database.warehouse, setup.config.retention, {
      now: NOW,
      monotonic,
      limitMs: 60_000,
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
  beforeEach(async () => {
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
    await rows(`delete from visibility_ops.coverage where stream = '${REPORT}' and date = '2026-03-11'`)
    expect(await week('2026-03-09')).toEqual({ ...whole, days: 6, is_complete: false, comparison_is_complete: false })
    // The first week begins on a Friday; there is none before it.
    expect(await week('2026-02-16')).toEqual({
      days: 3,
      is_complete: false,
      is_provisional: false,
      comparison_is_complete: null,
    })
    await setup.sync()
    expect(await week('2026-03-09')).toEqual(whole)
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
    await recountMonths(setup.database)
    await rows(
      `insert into visibility_ops.quarantine (project_id, stream, reason, raw, fingerprint, run_id, resolved_at)
     values ($1, '${REPORT}', 'bad', '{}', '1', 1, null), ($1, '${REPORT}', 'bad', '{}', '2', 1, null), ($1, '${REPORT}', 'bad', '{}', '3', 1, now())`,
      [project()],
    )
    expect(await report()).toMatchObject({ missing_days: 3, last_day: '2026-03-30', held_days: 1, quarantined_rows: 2 })
    await rows("update visibility_ops.coverage_months set last_read_at = now() - interval '27 hours'")
    expect(await report()).toMatchObject({ is_stale: true })
  })
})
