import { afterEach, beforeEach, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { ensureMonths } from '../src/warehouse/schema/partitions.ts'
import { noteChangedDays, recheckSummaries, refreshSummaries } from '../src/warehouse/schema/summaries.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { sized } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf, setUp } from './support/setup.ts'
import { unusual } from './support/statistics.ts'

/* Sums and usual values that views read are those of the rows: before they are computed, after, and while rows change. */

let database: TestDatabase
const config = configOf({ warehouse: { partition: 'month' } })
const BY_PROMPT = 'brand_daily_by_prompt_model'
const BY_DAY = 'brand_daily'
const never = new AbortController().signal

beforeEach(async () => {
  database = await createDatabase('migrated')
  await migrate(database.warehouse, config)
  await database.rows("insert into visibility.projects values ('p', null), ('r', 'Other')")
})
afterEach(() => database.drop())

const refresh = () => refreshSummaries(database.warehouse, config, never)

/** Runs a statement as a load does, with its note of the days that it changed; $1 is the project and $2 the days. */
async function change(table: string, projectId: string, days: readonly Day[], sql: string): Promise<void> {
  await ensureMonths(database.warehouse, table, days)
  await inTransaction(database.warehouse, async ({ client, atCommit }) => {
    await client.query(sql, [projectId, days])
    atCommit.push(...noteChangedDays(database.warehouse, config, { projectId, table, days }))
  })
}

const chatsSql = (seed: number) => `insert into visibility.chats
  select $1, md5(random()::text), 'q' || ${seed % 4}, 'm', null, day from unnest($2::date[]) day`
const promptSql = (seed: number) => `insert into visibility.${BY_PROMPT}
    (project_id, date, brand_id, prompt_id, model_id, visibility_count, visibility_total, sentiment, sentiment_count)
  select $1, day, brand, 'q' || ${seed % 4}, 'm' || ${seed % 2}, ${seed}, 10, 50 + ${seed}, ${seed}
  from unnest($2::date[]) day cross join unnest(array['a', 'b']) brand on conflict do nothing`
const daySql = (seed: number) => `insert into visibility.${BY_DAY}
    (project_id, date, brand_id, mention_count, visibility_count, visibility_total)
  select $1, day, brand, (${seed} + extract(doy from day)::int) % 7, (${seed} * extract(doy from day)::int) % 11, 10
  from unnest($2::date[]) day cross join unnest(array['a', 'b']) brand on conflict do nothing`
const THESE = 'where project_id = $1 and date = any($2::date[])'

/** The sums that views read, and those of the rows alone. */
async function expectRightSums(): Promise<void> {
  const periods = `(select distinct project_id, unit, start from (select project_id, date from visibility.${BY_PROMPT}
    union select project_id, date from visibility.chats) d cross join lateral visibility_ops.periods_of(d.date)) p`
  const name =
    'coalesce((select name from visibility.projects n where n.project_id = p.project_id), p.project_id) as project'
  const json = (query: string) => database.rows(`select to_jsonb(s) as row from (${query}) s order by 1`)
  expect(await json('select * from visibility_ops.prompt_sums_now')).toEqual(
    await json(
      `select g.*, ${name} from ${periods} cross join lateral visibility_ops.sums_of(p.project_id, p.unit, p.start) g`,
    ),
  )
  expect(await json('select * from visibility_ops.prompt_days_now')).toEqual(
    await json(
      `select g.*, ${name} from ${periods} cross join lateral visibility_ops.counts_of(p.project_id, p.start) g where p.unit = 'week'`,
    ),
  )
}

interface Shown {
  project_id: string
  date: Day
  brand_id: string
  visibility: number | null
  share_of_voice: number | null
  usual: (number | null)[]
}

/** The usual values that views show, and those of the rows; null is right only before they are computed. Returns how many are known. */
async function expectRightUsual({ mayBeNull }: { mayBeNull: boolean }): Promise<number> {
  const shown = await database.rows<Shown>(
    `select project_id, date, brand_id, v.visibility, s.share_of_voice, array[usual_visibility, usual_share_of_voice] as usual
     from visibility.visibility_daily v join visibility.share_of_voice_daily s using (project_id, date, brand_id)`,
  )
  const keyOf = (row: Shown, date: Day) => JSON.stringify([row.project_id, row.brand_id, date])
  const byKey = new Map(shown.map((row) => [keyOf(row, row.date), row]))
  let known = 0
  for (const row of shown) {
    const before = [1, 2, 3, 4, 5, 6, 7, 8].map((weeks) => byKey.get(keyOf(row, addDays(row.date, -7 * weeks))))
    const wanted = (['visibility', 'share_of_voice'] as const).map((name) => {
      const earlier = before.flatMap((day) => day?.[name] ?? [])
      return unusual(row[name], earlier).usual
    })
    if (!mayBeNull || row.usual.some((usual) => usual !== null)) {
      const usual = wanted.map((value) => (value === null ? null : expect.closeTo(value, 10)))
      expect(row).toEqual({ ...row, usual })
      if (wanted.some((value) => value !== null)) known++
    }
  }
  return known
}

test('loads that insert, update and delete in any order are summarized right, with refreshes in between', async () => {
  const step = fc.record({
    what: fc.constantFrom('insert', 'insert', 'insert', 'update', 'delete', 'refresh'),
    table: fc.constantFrom(BY_DAY, BY_PROMPT, 'chats'),
    project: fc.constantFrom('p', 'r'),
    days: fc
      .record({ from: fc.nat(80), length: fc.constantFrom(0, 0, 6, 40) })
      .map(({ from, length }) =>
        daysIn({ from: addDays('2026-01-20', from), to: addDays('2026-01-20', from + length) }),
      ),
    seed: fc.nat(9),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 8, maxLength: 16 }), async (steps) => {
      const days = daysIn({ from: '2026-01-20', to: '2026-04-15' })
      await change(BY_DAY, 'p', days, daySql(4))
      for (const { what, table, project, days, seed } of steps) {
        const statements: Record<string, string> = {
          insert: table === 'chats' ? chatsSql(seed) : table === BY_DAY ? daySql(seed) : promptSql(seed),
          update:
            table === 'chats'
              ? `update visibility.chats set prompt_id = 'q9' ${THESE}`
              : `update visibility.${table} set visibility_count = ${seed} ${THESE}`,
          delete: `delete from visibility.${table} ${THESE}`,
        }
        if (what === 'refresh') await refresh()
        else await change(table, project, days, statements[what]!)
      }
      await expectRightSums()
      await expectRightUsual({ mayBeNull: true })
      await refresh()
      expect(await database.rows('select from visibility_ops.open_periods')).toEqual([])
      await expectRightSums()
      await expectRightUsual({ mayBeNull: false })
    }),
    { numRuns: sized(4, 30) },
  )
})

test('a load that commits while summaries are computed is in them, or stays noted', async () => {
  const days = daysIn({ from: '2026-01-20', to: '2026-03-30' })
  for (const [table, sql] of [
    [BY_DAY, daySql(3)],
    [BY_PROMPT, promptSql(3)],
  ] as const) {
    await change(table, 'p', days, sql)
    const client = await database.warehouse.pool.connect()
    try {
      await client.query('begin')
      await client.query(`update visibility.${table} set visibility_count = 9 where date = '2026-02-10'`)
      const note = { projectId: 'p', table, days: ['2026-02-10'] }
      for (const { sql: statement } of noteChangedDays(database.warehouse, config, note)) await client.query(statement)
      const refreshing = refresh()
      const waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
      while ((await database.rows(waits)).length === 0) await new Promise((done) => setTimeout(done, 20))
      await client.query('commit')
      await refreshing
    } finally {
      client.release()
    }
    await expectRightSums()
    await expectRightUsual({ mayBeNull: true })
    await refresh()
    expect(await expectRightUsual({ mayBeNull: false })).toBeGreaterThan(0)
  }
})

test('rows that somebody else changed are found by a recheck, and dropped or truncated ones by the next run', async () => {
  const days = daysIn({ from: '2026-01-20', to: '2026-03-30' })
  await change(BY_DAY, 'p', days, daySql(3))
  await change(BY_PROMPT, 'p', days, promptSql(3))
  await change('chats', 'p', days, chatsSql(3))
  await refresh()
  await database.rows(`update visibility.${BY_DAY} set visibility_count = 9 where date = '2026-02-10'`)
  await database.rows(`update visibility.${BY_PROMPT} set visibility_count = 9 where date = '2026-02-10'`)
  await database.rows("delete from visibility.chats where date = '2026-02-20'")
  await recheckSummaries(database.warehouse, config)
  await expectRightSums()
  await refresh()
  await expectRightSums()
  expect(await expectRightUsual({ mayBeNull: false })).toBeGreaterThan(0)

  for (const table of [BY_DAY, BY_PROMPT]) await database.rows(`drop table visibility_ops.${table}_2026_01`)
  await refresh()
  await expectRightSums()
  await expectRightUsual({ mayBeNull: false })
  for (const table of [BY_DAY, BY_PROMPT]) await database.rows(`truncate visibility.${table}`)
  await refresh()
  await expectRightSums()
  expect(await database.rows('select from visibility_ops.prompt_sums')).toEqual([])
})

test('a run computes what it changed, and one without changes writes nothing; another report is summarized from the start', async () => {
  const fine = (name: string) => ({ name, dimensions: ['date', 'prompt_id', 'model_id'] })
  const setup = await setUp({
    world: { projects: 1, prompts: 4, models: 2, brands: 2 },
    config: { start_date: '2026-01-10', reports: [{ name: 'total', dimensions: ['date'] }, fine('fine')] },
  })
  const { rows, warehouse } = setup.database
  const versions = () =>
    rows(
      `select 'sums' as name, xmin, ctid from visibility_ops.prompt_sums
       union all select 'days', xmin, ctid from visibility_ops.usual_days
       union all select 'projects', xmin, ctid from visibility_ops.usual_projects order by 1, 3`,
    )
  try {
    expect((await setup.sync()).outcome).toBe('complete')
    const before = await versions()
    for (const name of ['sums', 'days', 'projects']) expect(before).toContainEqual(expect.objectContaining({ name }))
    expect(await rows('select from visibility_ops.open_periods')).toEqual([])
    await setup.sync()
    expect(await versions()).toEqual(before)

    await migrate(warehouse, configOf({ reports: [fine('other')] }))
    expect(await rows('select distinct stream from visibility_ops.open_periods')).toEqual([{ stream: 'chats' }])
    expect(await rows('select from visibility_ops.prompt_sums_now')).toEqual([])
  } finally {
    await setup.close()
  }
})

test('report tables have no triggers, and those of an earlier version are dropped', async () => {
  const triggers = () =>
    database.rows(
      `select tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid
       where c.relnamespace = 'visibility'::regnamespace and not tgisinternal and tgname ~ '^(open|usual)_'`,
    )
  expect(await triggers()).toEqual([])
  await database.rows(
    `create function visibility_ops.open_periods() returns trigger language plpgsql as 'begin return null; end';
     create function visibility_ops.follow_days() returns trigger language plpgsql as 'begin return null; end';
     create function visibility_ops.lock_usual(text) returns void language sql as '';
     create trigger open_inserted after insert on visibility.${BY_PROMPT} execute function visibility_ops.open_periods();
     create trigger usual_inserted after insert on visibility.${BY_DAY} execute function visibility_ops.follow_days();
     alter table visibility_ops.usual_projects drop column due_days;
     delete from visibility_ops.migrations where version = 23`,
  )
  expect(await triggers()).toHaveLength(2)
  expect((await migrate(database.warehouse, config)).applied).toEqual(['0023_summaries_without_triggers.sql'])
  expect(await triggers()).toEqual([])
})

test('a run analyzes the tables in which it changed many rows', async () => {
  const setup = await setUp({ world: { projects: 1, prompts: 12, models: 2, brands: 3 } })
  try {
    await setup.sync()
    const [known] = await setup.database.rows<{ many: number; few: number }>(
      `select (select reltuples from pg_class where oid = 'visibility.by_prompt'::regclass) as many,
         (select reltuples from pg_class where oid = 'visibility.brand_daily'::regclass) as few`,
    )
    expect(known!.many).toBeGreaterThan(1000)
    expect(known!.few).toBe(-1)
  } finally {
    await setup.close()
  }
})
