import { afterAll, beforeAll, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { readCoverage } from '../src/ledger/coverage.ts'
import { readCoverageSummaries } from '../src/ledger/coverage-summaries.ts'
import { dueDays } from '../src/sync/plan/due-days.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { sized } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'

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
afterAll(() => database.drop())

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
        const summaryOf = await readCoverageSummaries(database.warehouse, streams, { from: interest.from, ...settings })
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
