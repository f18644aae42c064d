import { afterEach, beforeEach, expect, test } from '@jest/globals'
import fc from 'fast-check'
import type { Pool } from 'pg'
import { addDays } from '../src/core/day.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { beginMove, moveMonths } from '../src/warehouse/schema/move-to-months.ts'
import { sumOpenPeriods } from '../src/warehouse/schema/prompt-sums.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf, setUp } from './support/setup.ts'

/* The sums that views read are those of the rows at every moment: before periods are summed, after, and while rows change. */

let database: TestDatabase
const config = configOf({})
const REPORT = 'brand_daily_by_prompt_model'
const report = config.reports.find(({ name }) => name === REPORT)!
const never = new AbortController().signal

beforeEach(async () => {
  database = await createDatabase()
  await migrate(database.warehouse, config)
  await database.rows("insert into visibility.projects values ('p', null), ('r', 'Other')")
})
afterEach(() => database.drop())

/** What the views make of the kept sums, and what they would make of the rows alone. */
async function expectRight(): Promise<void> {
  const answers = (sums: string, days: string) =>
    Promise.all([
      database.rows(`select to_jsonb(s) as row from (${sums}) s order by 1`),
      database.rows(`select to_jsonb(d) as row from (${days}) d order by 1`),
    ])
  const periods = `(select distinct project_id, unit, start from (select project_id, date from visibility.${REPORT}
    union select project_id, date from visibility.chats) d cross join lateral visibility_ops.periods_of(d.date)) p`
  const now = await answers(
    'select * from visibility_ops.prompt_sums_now',
    'select * from visibility_ops.prompt_days_now',
  )
  const name =
    'coalesce((select name from visibility.projects n where n.project_id = p.project_id), p.project_id) as project'
  const fresh = await answers(
    `select g.*, ${name} from ${periods} cross join lateral visibility_ops.sums_of(p.project_id, p.unit, p.start) g`,
    `select g.*, ${name} from ${periods} cross join lateral visibility_ops.counts_of(p.project_id, p.start) g where p.unit = 'week'`,
  )
  expect(now).toEqual(fresh)
}

const insertRow = (day: string, brand: string, client: Pick<Pool, 'query'> = database.warehouse.pool) =>
  client.query(
    `insert into visibility.${REPORT} (project_id, date, brand_id, prompt_id, model_id, visibility_count, visibility_total)
     values ('p', $1, $2, 'q1', 'm', 1, 10)`,
    [day, brand],
  )

const open = async () =>
  (await database.rows<{ n: number }>('select count(*)::int as n from visibility_ops.open_periods'))[0]!.n

test('rows that are inserted, changed, moved and deleted in any order, with sums in between, are summed right', async () => {
  const place = fc.record({
    project: fc.constantFrom('p', 'r'),
    day: fc.nat(80).map((days) => addDays('2026-01-20', days)),
    id: fc.nat(3),
    model: fc.constantFrom('m', 'n'),
    seen: fc.nat(9),
  })
  const step = fc.oneof(
    { weight: 4, arbitrary: fc.record({ what: fc.constant('insert' as const), at: place }) },
    { weight: 2, arbitrary: fc.record({ what: fc.constantFrom('update' as const, 'move' as const), at: place }) },
    { weight: 1, arbitrary: fc.record({ what: fc.constant('delete' as const), at: place }) },
    { weight: 2, arbitrary: fc.constant({ what: 'sum' as const, at: undefined }) },
  )
  let chat = 0
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 12, maxLength: 30 }), async (steps) => {
      for (const { what, at } of steps) {
        if (what === 'sum') await sumOpenPeriods(database.warehouse, config, never)
        else if (what === 'insert') {
          await database.rows(
            `insert into visibility.${REPORT} (project_id, date, brand_id, prompt_id, model_id, visibility_count, visibility_total,
               sentiment, sentiment_count)
             select $1, $2::date, brand, 'q' || $3::int, $4, $5::float8, 10, 50 + $5::float8, $5::float8 from unnest(array['a', 'b']) brand
             on conflict do nothing`,
            [at.project, at.day, at.id, at.model, at.seen],
          )
          await database.rows('insert into visibility.chats values ($1, $2, $3, $4, null, $5)', [
            at.project,
            `c${chat++}`,
            `q${at.id}`,
            at.model,
            at.day,
          ])
        } else if (what === 'update') {
          const those = 'project_id = $1 and prompt_id = $2 and date >= $3::date - 20'
          await database.rows(`update visibility.${REPORT} set visibility_count = $4 where ${those}`, [
            at.project,
            `q${at.id}`,
            at.day,
            at.seen,
          ])
        } else if (what === 'move') {
          await database.rows(
            'update visibility.chats set date = $1 where chat_id = (select max(chat_id) from visibility.chats where project_id = $2)',
            [at.day, at.project],
          )
        } else {
          await database.rows(`delete from visibility.${REPORT} where project_id = $1 and date < $2`, [
            at.project,
            at.day,
          ])
          await database.rows('delete from visibility.chats where project_id = $1 and date > $2', [at.project, at.day])
        }
      }
      await expectRight()
      await sumOpenPeriods(database.warehouse, config, never)
      expect(await open()).toBe(0)
      await expectRight()
    }),
    { numRuns: 10 },
  )
})

test('rows that arrive while periods are summed are in the sums, or their periods stay open', async () => {
  await insertRow('2026-02-03', 'late')
  const client = await database.warehouse.pool.connect()
  try {
    await client.query('begin')
    // Its periods are open already, so it leaves no new entry behind; the summing has to wait for it all the same.
    await insertRow('2026-02-04', 'late', client)
    const summing = sumOpenPeriods(database.warehouse, config, never)
    const waits =
      "select count(*)::int as n from pg_locks where not granted and relation = 'visibility_ops.open_periods'::regclass"
    while ((await database.rows<{ n: number }>(waits))[0]!.n === 0 && (await open()) > 0) await expectRight()
    await client.query('commit')
    await summing
  } finally {
    client.release()
  }
  await expectRight()
})

test('a truncated table leaves no sums behind', async () => {
  await insertRow('2026-02-03', 'a')
  await sumOpenPeriods(database.warehouse, config, never)
  await database.rows(`truncate visibility.${REPORT}`)
  await expectRight()
  await sumOpenPeriods(database.warehouse, config, never)
  expect(await database.rows('select * from visibility_ops.prompt_sums')).toEqual([])
  await expectRight()
})

test('a table that moves into months is summed on, and the move is not taken for somebody else’s trigger', async () => {
  await insertRow('2026-02-03', 'a')
  await insertRow('2026-03-05', 'a')
  await sumOpenPeriods(database.warehouse, config, never)
  await beginMove(database.warehouse, report)
  // Nobody watches the table until its views are renewed; what came before is opened then.
  await insertRow('2026-03-06', 'unseen')
  await migrate(database.warehouse, config)
  await expectRight()
  await moveMonths(database.warehouse, report, never, () => {})
  await sumOpenPeriods(database.warehouse, config, never)
  await insertRow('2026-03-06', 'b')
  await expectRight()
  await database.rows(`delete from visibility.${REPORT} where brand_id = 'a'`)
  await expectRight()
  // A part that is dropped fires no trigger.
  await insertRow('2026-02-04', 'a')
  await sumOpenPeriods(database.warehouse, config, never)
  await database.rows(`drop table visibility_ops.${REPORT}_2026_02`)
  await sumOpenPeriods(database.warehouse, config, never)
  await expectRight()
  expect(await database.rows("select * from visibility_ops.prompt_days where date < '2026-03-01'")).toEqual([])
})

test('rows that were there before are opened by an upgrade, and a role that may only write rows opens their periods', async () => {
  const other = await setUp({ config: { reports: [{ name: 'fine', dimensions: ['date', 'prompt_id', 'model_id'] }] } })
  const { rows } = other.database
  try {
    await migrate(other.database.warehouse, configOf({ reports: [{ name: 'total', dimensions: ['date'] }] }))
    await migrate(other.database.warehouse, other.config)
    await rows('drop trigger open_inserted on visibility.fine')
    await rows(
      "insert into visibility.fine (project_id, date, brand_id, prompt_id, model_id, visibility_total) values ('p', '2026-03-04', 'a', 'q', 'm', 3)",
    )
    expect(await rows('select * from visibility_ops.open_periods')).toEqual([])
    await migrate(other.database.warehouse, other.config)
    const periods = [
      { project_id: 'p', stream: 'fine', unit: 'month', start: '2026-03-01' },
      { project_id: 'p', stream: 'fine', unit: 'month', start: '2026-04-01' },
      { project_id: 'p', stream: 'fine', unit: 'week', start: '2026-03-02' },
      { project_id: 'p', stream: 'fine', unit: 'week', start: '2026-03-09' },
    ]
    expect(await rows('select * from visibility_ops.open_periods order by unit, start')).toEqual(periods)
    await sumOpenPeriods(other.database.warehouse, other.config, never)
    const role = `editor_${other.database.url.slice(-8)}`
    await rows(
      `create role ${role}; grant usage on schema visibility to ${role}; grant select, delete on visibility.fine to ${role}; grant ${role} to current_user`,
    )
    await rows(`begin; set local role ${role}; delete from visibility.fine; commit`)
    expect(await rows('select * from visibility_ops.open_periods order by unit, start')).toEqual(periods)
    await rows(`drop owned by ${role}; drop role ${role}`)
  } finally {
    await other.close()
  }
})

test('a run sums what it changed, and the next one, which changes nothing, leaves the sums alone', async () => {
  const setup = await setUp({
    world: { projects: 1, prompts: 4, models: 2, brands: 2 },
    config: { reports: [{ name: 'fine', dimensions: ['date', 'prompt_id', 'model_id'] }] },
  })
  const versions = () => setup.database.rows('select xmin, ctid from visibility_ops.prompt_sums order by ctid')
  try {
    expect((await setup.sync()).outcome).toBe('complete')
    const before = await versions()
    expect(before.length).toBeGreaterThan(50)
    expect(await setup.database.rows('select * from visibility_ops.open_periods')).toEqual([])
    await setup.sync()
    expect(await versions()).toEqual(before)
  } finally {
    await setup.close()
  }
})
