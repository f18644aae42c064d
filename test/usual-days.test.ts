import { afterEach, beforeEach, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day } from '../src/core/day.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { beginMove, moveMonths } from '../src/warehouse/schema/move-to-months.ts'
import { renewUsualDays } from '../src/warehouse/schema/usual-days.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'
import { unusual } from './support/statistics.ts'

/* What is usual on a day is kept beside the rows. It is that of the rows at every moment, or null until it is worked out. */

let database: TestDatabase
const config = configOf({})
const never = new AbortController().signal
const report = config.reports.find(({ name }) => name === 'brand_daily')!

beforeEach(async () => {
  database = await createDatabase()
  await migrate(database.warehouse, config)
  await database.rows("insert into visibility.projects values ('p', null), ('r', 'Other')")
})
afterEach(() => database.drop())

interface Shown {
  project_id: string
  date: Day
  brand_id: string
  visibility: number | null
  share_of_voice: number | null
}

/**
 * Compares what the views call usual with what it is by the values that they show. It may be null in projects that wait to be
 * worked out. Gives how many days had enough others.
 */
async function expectRight(): Promise<number> {
  const shown = await database.rows<Shown & { usual: (number | null)[]; is_due: boolean }>(
    `select project_id, date, brand_id, v.visibility, s.share_of_voice, array[usual_visibility, usual_share_of_voice] as usual,
       exists (select from visibility_ops.usual_projects d where d.project_id = v.project_id and d.is_due) as is_due
     from visibility.visibility_daily v join visibility.share_of_voice_daily s using (project_id, date, brand_id)`,
  )
  const keyOf = (row: Pick<Shown, 'project_id' | 'brand_id'>, date: Day) =>
    JSON.stringify([row.project_id, row.brand_id, date])
  const byKey = new Map(shown.map((row) => [keyOf(row, row.date), row]))
  let known = 0
  for (const row of shown) {
    const before = [1, 2, 3, 4, 5, 6, 7, 8].map((weeks) => byKey.get(keyOf(row, addDays(row.date, -7 * weeks))))
    const usualOf = (name: 'visibility' | 'share_of_voice') =>
      unusual(
        row[name],
        before.flatMap((day) => day?.[name] ?? []),
      ).usual
    const wanted = [usualOf('visibility'), usualOf('share_of_voice')]
    const isLeftOut = row.is_due && row.usual.every((usual) => usual === null)
    if (!isLeftOut) {
      const usual = wanted.map((value) => (value === null ? null : expect.closeTo(value, 10)))
      expect(row).toEqual({ ...row, usual })
    }
    if (wanted.some((usual) => usual !== null)) known++
  }
  return known
}

const renew = () => renewUsualDays(database.warehouse, config, never)

const insertRows = (project: string, from: Day, days: number, seen: number) =>
  database.rows(
    `insert into visibility.brand_daily (project_id, date, brand_id, mention_count, visibility_count, visibility_total)
     select $1, $2::date + day, brand, ($4::int + day) % 7, ($4::int * day) % 11, 10
     from generate_series(0, $3::int - 1) day cross join unnest(array['a', 'b']) brand on conflict do nothing`,
    [project, from, days, seen],
  )

test('days that come, change, move to another day and go, in any order, are compared with what is there', async () => {
  const place = fc.record({
    project: fc.constantFrom('p', 'r'),
    day: fc.nat(80).map((days) => addDays('2026-01-20', days)),
    days: fc.integer({ min: 1, max: 60 }),
    seen: fc.nat(9),
  })
  const step = fc.record({
    what: fc.constantFrom('insert', 'insert', 'update', 'move', 'delete', 'truncate'),
    at: place,
  })
  const range = 'project_id = $1 and date >= $2 and date < $2::date + $3::int'
  const statements: Record<string, string> = {
    update: `update visibility.brand_daily set visibility_count = (visibility_count + 3)::int % 10, mention_count = 2 where ${range}`,
    // Far away, so that it meets no other day.
    move: `update visibility.brand_daily set date = date + 365 where ${range} and brand_id = 'a' and date < '2026-12-01'`,
    delete: `delete from visibility.brand_daily where ${range}`,
  }
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 12 }), async (steps) => {
      await database.rows('delete from visibility.brand_daily')
      await insertRows('p', '2026-01-20', 90, 4)
      await renew()
      expect(await expectRight()).toBeGreaterThan(50)
      for (const { what, at } of steps) {
        if (what === 'insert') await insertRows(at.project, at.day, at.days, at.seen)
        else if (what === 'truncate') await database.rows('truncate visibility.brand_daily')
        else await database.rows(`${statements[what]}`, [at.project, at.day, at.days])
      }
      await expectRight()
      await renew()
      expect(await database.rows('select project_id from visibility_ops.usual_projects where is_due')).toEqual([])
      await expectRight()
    }),
    { numRuns: 12 },
  )
})

test('a day that changes is compared at once, many days at the end of the next run', async () => {
  await insertRows('p', '2026-01-20', 70, 3)
  expect(await database.rows('select project_id from visibility_ops.usual_projects where is_due')).toEqual([
    { project_id: 'p' },
  ])
  expect(await database.rows('select * from visibility_ops.usual_days')).toEqual([])
  // The other project has no rows, and is looked at once.
  expect(await renew()).toBe(2)
  expect(await renew()).toBe(0)
  const before = await database.rows('select * from visibility_ops.usual_days order by date, brand_id')
  await database.rows("update visibility.brand_daily set visibility_count = 9 where date = '2026-02-10'")
  expect(await database.rows('select project_id from visibility_ops.usual_projects where is_due')).toEqual([])
  expect(await database.rows('select * from visibility_ops.usual_days order by date, brand_id')).not.toEqual(before)
  expect(await expectRight()).toBeGreaterThan(0)
})

test('rows that were there before an upgrade are compared, too, and those of a table that moves into months', async () => {
  await database.rows('drop trigger usual_inserted on visibility.brand_daily')
  await insertRows('p', '2026-01-20', 70, 3)
  await migrate(database.warehouse, config)
  await renew()
  expect(await expectRight()).toBeGreaterThan(0)

  await beginMove(database.warehouse, report)
  // Nobody watches the table until its views are renewed.
  await insertRows('r', '2026-01-25', 70, 5)
  await migrate(database.warehouse, config)
  await renew()
  await expectRight()
  await moveMonths(database.warehouse, report, never, () => {})
  await insertRows('p', '2026-03-31', 10, 8)
  await database.rows("delete from visibility.brand_daily where date between '2026-02-10' and '2026-02-20'")
  expect(await expectRight()).toBeGreaterThan(0)
  // A month that is dropped fires no trigger.
  await database.rows('drop table visibility_ops.brand_daily_2026_01')
  expect(await renew()).toBe(2)
  expect(await expectRight()).toBeGreaterThan(0)
})

test('two that change days of one project at the same time see each other', async () => {
  await insertRows('p', '2026-01-20', 28, 3)
  await renew()
  const clients = await Promise.all([1, 2].map(() => database.warehouse.pool.connect()))
  const insert = `insert into visibility.brand_daily (project_id, date, brand_id, mention_count, visibility_count, visibility_total)
    values ('p', $1, 'a', 1, 1, 10)`
  try {
    for (const client of clients) await client.query('begin')
    await clients[0]!.query(insert, ['2026-02-17'])
    const second = clients[1]!.query(insert, ['2026-02-24'])
    const waits =
      "select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())"
    while ((await database.rows(waits)).length === 0) await new Promise((done) => setTimeout(done, 20))
    await clients[0]!.query('commit')
    await second
    await clients[1]!.query('commit')
  } finally {
    for (const client of clients) client.release()
  }
  // The fifth known week before it is one that the other brought.
  expect(await expectRight()).toBe(1)
})

test('a role that may only write rows keeps what is usual, and may not call what keeps it', async () => {
  await insertRows('p', '2026-01-20', 70, 3)
  await renew()
  const role = `editor_${database.url.slice(-8)}`
  await database.rows(
    `create role ${role}; grant usage on schema visibility to ${role}; grant select, delete on visibility.brand_daily to ${role};
     grant ${role} to current_user`,
  )
  try {
    await database.rows(
      `begin; set local role ${role}; delete from visibility.brand_daily where date = '2026-02-10'; commit`,
    )
    expect(await expectRight()).toBeGreaterThan(0)
    const rights = await database.rows(
      `select p.proname from pg_proc p where p.pronamespace = 'visibility_ops'::regnamespace
         and p.proname in ('usual_of', 'lock_usual', 'renew_usual', 'follow_days') and has_function_privilege('${role}', p.oid, 'execute')`,
    )
    expect(rights).toEqual([])
  } finally {
    await database.rows(`drop owned by ${role}; drop role ${role}`)
  }
})

test('rows that do not change leave what is usual alone', async () => {
  await insertRows('p', '2026-01-20', 70, 3)
  await renew()
  const versions = () => database.rows('select xmin, ctid from visibility_ops.usual_days order by ctid')
  const before = await versions()
  expect(before.length).toBeGreaterThan(0)
  await insertRows('p', '2026-01-20', 70, 3)
  await database.rows("update visibility.brand_daily set position = 1 where date >= '2026-03-20'")
  await migrate(database.warehouse, config)
  await renew()
  expect(await versions()).toEqual(before)
})
