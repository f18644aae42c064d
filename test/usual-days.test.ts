import { afterEach, beforeEach, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day } from '../src/core/day.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { beginMove, moveMonths } from '../src/warehouse/schema/move-to-months.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'
import { unusual } from './support/statistics.ts'

/* What is usual on a day is kept beside the rows, and is that of the rows at every moment, whoever changes them and how. */

let database: TestDatabase
const config = configOf({})
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

/** What the views call usual, and what it is by the values that they show. Gives how many days had enough others. */
async function expectRight(): Promise<number> {
  const shown = await database.rows<Shown & { usual: (number | null)[] }>(
    `select project_id, date, brand_id, v.visibility, s.share_of_voice, array[usual_visibility, usual_share_of_voice] as usual
     from visibility.visibility_daily v join visibility.share_of_voice_daily s using (project_id, date, brand_id)`,
  )
  const keyOf = (row: Pick<Shown, 'project_id' | 'brand_id'>, date: Day) =>
    JSON.stringify([row.project_id, row.brand_id, date])
  const byKey = new Map(shown.map((row) => [keyOf(row, row.date), row]))
  let known = 0
  for (const row of shown) {
    const before = [1, 2, 3, 4, 5, 6, 7, 8].map((weeks) => byKey.get(keyOf(row, addDays(row.date, -7 * weeks))))
    const wanted = (['visibility', 'share_of_voice'] as const).map(
      (name) =>
        unusual(
          row[name],
          before.flatMap((day) => day?.[name] ?? []),
        ).usual,
    )
    expect({ ...row, usual: row.usual }).toEqual({
      ...row,
      usual: wanted.map((usual) => (usual === null ? null : expect.closeTo(usual, 10))),
    })
    if (wanted.some((usual) => usual !== null)) known++
  }
  return known
}

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
  let known = 0
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 12 }), async (steps) => {
      await database.rows('delete from visibility.brand_daily')
      await insertRows('p', '2026-01-20', 90, 4)
      for (const { what, at } of steps) {
        if (what === 'insert') await insertRows(at.project, at.day, at.days, at.seen)
        else if (what === 'truncate') await database.rows('truncate visibility.brand_daily')
        else await database.rows(`${statements[what]}`, [at.project, at.day, at.days])
      }
      known += await expectRight()
    }),
    { numRuns: 12 },
  )
  expect(known).toBeGreaterThan(100)
})

test('rows that were there before an upgrade are compared, too, and those of a table that moves into months', async () => {
  await database.rows('drop trigger usual_inserted on visibility.brand_daily')
  await insertRows('p', '2026-01-20', 70, 3)
  expect(await database.rows('select * from visibility_ops.usual_days')).toEqual([])
  await migrate(database.warehouse, config)
  expect(await expectRight()).toBeGreaterThan(0)

  await beginMove(database.warehouse, report)
  // Nobody watches the table until its views are renewed.
  await insertRows('r', '2026-01-25', 70, 5)
  await migrate(database.warehouse, config)
  await expectRight()
  await moveMonths(database.warehouse, report, new AbortController().signal, () => {})
  await insertRows('p', '2026-03-31', 20, 8)
  await database.rows("delete from visibility.brand_daily where date between '2026-02-10' and '2026-02-20'")
  expect(await expectRight()).toBeGreaterThan(0)
})

test('rows that do not change leave what is usual alone', async () => {
  await insertRows('p', '2026-01-20', 70, 3)
  const versions = () => database.rows('select xmin, ctid from visibility_ops.usual_days order by ctid')
  const before = await versions()
  expect(before.length).toBeGreaterThan(0)
  await insertRows('p', '2026-01-20', 70, 3)
  await migrate(database.warehouse, config)
  expect(await versions()).toEqual(before)
})
