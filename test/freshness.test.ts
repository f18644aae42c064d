import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'

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
afterAll(() => setup.close())

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
  rows(`select date, state, is_provisional from visibility.data_status where stream = '${REPORT}' and date = $1`, [day])
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

test('how late days were changed so far is learned, and history that was rewritten is not taken for it', async () => {
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
    (await fresh()).map(({ stream, missing_days, first_day, last_day }) => [stream, missing_days, first_day, last_day]),
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
  try {
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
  } finally {
    await other.close()
  }
})
