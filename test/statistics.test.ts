import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { writtenOut } from '../src/warehouse/database.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { ensureMonths } from '../src/warehouse/schema/partitions.ts'
import { noteChangedDays, recheckSummaries, refreshSummaries } from '../src/warehouse/schema/summaries.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { sized } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf, setUp } from './support/setup.ts'
import { clarity, newcombe, pValue, type Sample, unusual, verdict, wilson } from './support/statistics.ts'

describe('statistics', () => {
  /* Each statistic against the same formula worked out here, on rows made for it. */

  let database: TestDatabase
  const config = configOf({})

  beforeAll(async () => {
    database = await createDatabase('migrated')
    await migrate(database.warehouse, config)
    await database.rows("insert into visibility.projects values ('p', 'The project')")
  })

  interface Statistics {
    low: number | null
    high: number | null
    change_low: number | null
    change_high: number | null
    verdict: string
    clarity: number | null
  }

  type Pair = readonly [now: Sample, before: Sample | undefined]

  /** What the database says of many pairs of samples. */
  function ask(pairs: readonly Pair[]): Promise<Statistics[]> {
    return database.rows<Statistics>(
      `select visibility.wilson_low(k, n) as low, visibility.wilson_high(k, n) as high,
       visibility.change_low(k, n, k0, n0), visibility.change_high(k, n, k0, n0),
       visibility.verdict(k, n, k0, n0), visibility.clarity(k, n, k0, n0)
     from unnest($1::float8[], $2::float8[], $3::float8[], $4::float8[]) with ordinality as s(k, n, k0, n0, place)
     order by place`,
      [
        pairs.map(([now]) => now.k),
        pairs.map(([now]) => now.n),
        pairs.map(([, before]) => before?.k ?? null),
        pairs.map(([, before]) => before?.n ?? null),
      ],
    )
  }

  function expected([now, before]: Pair): Statistics {
    const [low, high] = wilson(now.k, now.n) ?? [null, null]
    const [changeLow, changeHigh] = newcombe(now, before) ?? [null, null]
    return {
      low,
      high,
      change_low: changeLow,
      change_high: changeHigh,
      verdict: verdict(now, before),
      clarity: before === undefined ? null : clarity(now, before),
    }
  }

  function expectSame(found: Statistics, wanted: Statistics): void {
    expect(found.verdict).toBe(wanted.verdict)
    for (const name of ['low', 'high', 'change_low', 'change_high', 'clarity'] as const) {
      const [a, b] = [found[name], wanted[name]]
      if (a === null || b === null) expect({ name, a }).toEqual({ name, a: b })
      else
        expect({ name, off: Math.abs(a - b) / Math.max(1, Math.abs(b)) < 1e-10 ? 0 : a - b }).toEqual({ name, off: 0 })
    }
  }

  describe('intervals', () => {
    test('are those of the literature', async () => {
      const [found] = await ask([
        [
          { k: 81, n: 263 },
          { k: 15, n: 148 },
        ],
      ])
      expect([found!.low!.toFixed(4), found!.high!.toFixed(4)]).toEqual(['0.2553', '0.3662'])
      const [fall] = await ask([
        [
          { k: 81, n: 263 },
          { k: 52, n: 148 },
        ],
      ])
      expect([fall!.change_low!.toFixed(4), fall!.change_high!.toFixed(4)]).toEqual(['-0.1390', '0.0494'])
      expect(fall!.verdict).toBe('no_clear_change')
    })

    test('any two samples match the formulas, including none, all and no answers', async () => {
      const sample = fc
        .oneof(fc.integer({ min: 0, max: 60 }), fc.integer({ min: 0, max: 1_000_000 }))
        .chain((n) =>
          fc.record({ n: fc.constant(n), k: fc.oneof(fc.constant(0), fc.constant(n), fc.integer({ min: 0, max: n })) }),
        )
      const pairs = fc.array(fc.tuple(sample, fc.option(sample, { nil: undefined })), { minLength: 50, maxLength: 200 })
      await fc.assert(
        fc.asyncProperty(pairs, async (some) => {
          const found = await ask(some)
          for (const [place, pair] of some.entries()) expectSame(found[place]!, expected(pair))
          for (const { low, high } of found.filter((one) => one.low !== null)) {
            expect(low).toBeGreaterThanOrEqual(0)
            expect(high).toBeLessThanOrEqual(1)
          }
        }),
        { numRuns: sized(5, 15) },
      )
    })
  })

  interface Entry {
    date: Day
    brand: string
    mentions?: number
    seen?: number
    answers?: number
    topic?: string
    prompt?: string
    model?: string
  }

  /** Fills a report with these rows alone. */
  async function fill(table: string, entries: readonly Entry[], dimensions: ('topic' | 'prompt' | 'model')[] = []) {
    const column = (pick: (entry: Entry) => unknown) => entries.map(pick)
    await database.rows(`delete from visibility.${table}`)
    const names = dimensions.map((name) => `, ${name}_id`).join('')
    const values = dimensions.map((_, index) => `, $${index + 6}::text[]`).join('')
    await database.rows(
      `insert into visibility.${table} (project_id, date, brand_id, mention_count, visibility_count, visibility_total${names})
       select 'p', * from unnest($1::date[], $2::text[], $3::float8[], $4::float8[], $5::float8[]${values})`,
      [
        column(({ date }) => date),
        column(({ brand }) => brand),
        column(({ mentions }) => mentions ?? 0),
        column(({ seen }) => seen ?? 0),
        column(({ answers }) => answers ?? 0),
        ...dimensions.map((name) => column((entry) => entry[name] ?? null)),
      ],
    )
    await recheckSummaries(database.warehouse, config)
  }

  describe('unusual days', () => {
    test('are not known by their answers while the day was last read before it was over', async () => {
      const weeks = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((week) => addDays('2026-01-05', 7 * week))
      const last = weeks.at(-1)!
      await fill(
        'brand_daily',
        weeks.map((date) => ({ date, brand: 'a', answers: date === last ? 10 : 100 })),
      )
      const isUnusual = async () =>
        (await database.rows(`select is_unusual from visibility.answers_daily where date = '${last}'`))[0]!.is_unusual
      for (const [hours, expected] of [
        [14, null],
        [38, true],
      ]) {
        await database.rows(
          `insert into visibility_ops.coverage (project_id, stream, date, rows, read_at, run_id, state, read_order)
           values ('p', 'brand_daily', $1, 1, $1::date::timestamp at time zone 'UTC' + make_interval(hours => $2), 1, 'read', 1)
           on conflict (project_id, stream, date) do update set read_at = excluded.read_at`,
          [last, hours],
        )
        expect(await isUnusual()).toBe(expected)
      }
      await database.rows('delete from visibility_ops.coverage')
    })
  })

  describe('the same prompts', () => {
    test('alone are compared if prompts were added and removed', async () => {
      const on = (date: Day, prompt: string, seen: number, answers: number, model = 'm') => ({
        date,
        brand: 'a',
        prompt,
        model,
        seen,
        answers,
      })
      const rows = [
        // The week before: an easy prompt that goes, and a hard one that stays.
        on('2026-03-02', 'easy', 90, 100),
        on('2026-03-03', 'stays', 10, 100),
        // This week: the hard one is as visible as it was, in another model, and one is new.
        on('2026-03-09', 'stays', 10, 100),
        on('2026-03-10', 'stays', 20, 100, 'other'),
        on('2026-03-11', 'new', 0, 100),
      ]
      await fill('brand_daily_by_prompt_model', rows, ['prompt', 'model'])
      const total = (date: Day) => rows.filter((row) => row.date >= date && row.date < addDays(date, 7))
      const sum = (some: typeof rows, pick: 'seen' | 'answers') => some.reduce((all, row) => all + row[pick], 0)
      const weeks = ['2026-03-02', '2026-03-09'].map((date) => ({
        ...{ date, brand: 'a' },
        ...{ seen: sum(total(date), 'seen'), answers: sum(total(date), 'answers') },
      }))
      await fill('brand_daily', weeks)
      const [, now] = await database.rows<{ change: number; change_same_prompts: number; verdict: string }>(
        'select change, change_same_prompts, verdict from visibility.visibility_weekly order by week',
      )
      expect(now!.change).toBeCloseTo(30 / 300 - 100 / 200, 12)
      expect(now!.verdict).toBe('down')
      expect(now!.change_same_prompts).toBeCloseTo(30 / 200 - 10 / 100, 12)
    })
  })

  describe('movers', () => {
    const both = (topic: string, model: string, before: [number, number], now: [number, number]) =>
      [before, now].map(([seen, answers], week) => ({
        ...{ date: addDays('2026-03-02', week * 7), brand: 'a' },
        ...{ topic, model, seen, answers },
      }))

    // Both weeks were read whole.
    beforeAll(() =>
      database.rows(
        `insert into visibility_ops.coverage (project_id, stream, date, rows, read_at, run_id, state, read_order)
       select 'p', 'brand_daily_by_topic_model', day, 1, day + interval '9 days', 1, 'read', 1
       from generate_series(date '2026-03-02', date '2026-03-15', interval '1 day') day`,
      ),
    )

    const movers = (columns: string) =>
      database.rows(
        `select ${columns} from visibility.movers_weekly where week = '2026-03-09' order by rank, topic, model_id`,
      )

    test('are those that stay clear when all changes of the week are considered', async () => {
      // One change of twenty is clear by itself, and would be so by chance.
      const alike = Array.from({ length: 19 }, (_, at) => both(`t${at}`, 'm', [100, 200], [100, 200])).flat()
      await fill('brand_daily_by_topic_model', [...alike, ...both('x', 'm', [100, 200], [80, 200])], ['topic', 'model'])
      const [first] = await movers('topic, verdict, is_mover, p_value, q_value, clarity')
      expect(first).toMatchObject({ topic: 'x', verdict: 'down', is_mover: false })
      const { p_value, q_value, clarity: clear } = first as { p_value: number; q_value: number; clarity: number }
      expect(p_value).toBeCloseTo(pValue(clear), 5)
      expect(q_value).toBeCloseTo(p_value * 20, 10)
      await fill('brand_daily_by_topic_model', both('x', 'm', [100, 200], [80, 200]), ['topic', 'model'])
      expect(await movers('is_mover')).toEqual([{ is_mover: true }])
    })
  })

  test('weeks and months are the same in every time zone', async () => {
    await fill('brand_daily', [
      { date: '2026-03-01', brand: 'a', seen: 1, answers: 40 },
      { date: '2026-03-02', brand: 'a', seen: 1, answers: 40 },
    ])
    const client = await database.warehouse.pool.connect()
    try {
      for (const zone of ['America/Los_Angeles', 'Pacific/Kiritimati']) {
        await client.query(`set timezone = '${zone}'`)
        const { rows: weeks } = await client.query('select week from visibility.visibility_weekly order by 1')
        const { rows: months } = await client.query('select month from visibility.visibility_monthly')
        expect({ zone, weeks, months }).toEqual({
          zone,
          weeks: [{ week: '2026-02-23' }, { week: '2026-03-02' }],
          months: [{ month: '2026-03-01' }],
        })
      }
    } finally {
      await client.query('set timezone = UTC')
      client.release()
    }
  })

  /** The columns that some views had at first: people's own views stand on them. */
  const FIRST_COLUMNS: Record<string, string> = {
    movers_weekly:
      'project_id text, project text, week date, brand_id text, brand text, is_own boolean, topic_id text, topic text, model_id text, visibility double precision, answers double precision, previous_visibility double precision, previous_answers double precision, change double precision, rank bigint',
    sample_sizes:
      'project_id text, project text, date date, prompt_id text, prompt text, model_id text, chats integer, answers double precision, agrees boolean',
    visibility_weekly:
      'project_id text, project text, week date, brand_id text, brand text, is_own boolean, visibility double precision, visibility_count double precision, answers double precision, previous_visibility double precision, previous_answers double precision, change double precision',
  }

  test('the columns that views had at first keep their place, name and type', async () => {
    const found = await database.rows<{ view: string; columns: string }>(
      `select c.relname as view, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum) as columns
     from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
     where c.relnamespace = 'visibility'::regnamespace and c.relkind = 'v' group by 1`,
    )
    const now = new Map(found.map(({ view, columns }) => [view, columns]))
    for (const [view, columns] of Object.entries(FIRST_COLUMNS))
      expect({ view, columns: now.get(view)?.slice(0, columns.length) }).toEqual({ view, columns })
  })
})

describe('sums and baselines', () => {
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

  const refresh = () => refreshSummaries(database.warehouse, config, never)

  /** Runs a statement as a load does, with its note of the days that it changed; $1 is the project and $2 the days. */
  async function change(table: string, projectId: string, days: readonly Day[], sql: string): Promise<void> {
    await ensureMonths(database.warehouse, table, days)
    await inTransaction(database.warehouse, async ({ client, atCommit }) => {
      await client.query(sql, [projectId, days])
      atCommit.push(...noteChangedDays(config, { projectId, table, days }))
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
    unusual: (boolean | null)[]
  }

  /** The usual values that views show, and those of the rows; null is right only before they are computed. Returns how many are known. */
  async function expectRightUsual({ mayBeNull }: { mayBeNull: boolean }): Promise<number> {
    const shown = await database.rows<Shown>(
      `select project_id, date, brand_id, v.visibility, s.share_of_voice, array[usual_visibility, usual_share_of_voice] as usual,
       array[v.is_unusual, s.is_unusual] as unusual
     from visibility.visibility_daily v join visibility.share_of_voice_daily s using (project_id, date, brand_id)`,
    )
    const keyOf = (row: Shown, date: Day) => JSON.stringify([row.project_id, row.brand_id, date])
    const byKey = new Map(shown.map((row) => [keyOf(row, row.date), row]))
    let known = 0
    for (const row of shown) {
      const before = [1, 2, 3, 4, 5, 6, 7, 8].map((weeks) => byKey.get(keyOf(row, addDays(row.date, -7 * weeks))))
      const wanted = (['visibility', 'share_of_voice'] as const).map((name) => {
        const earlier = before.flatMap((day) => day?.[name] ?? [])
        return unusual(row[name], earlier)
      })
      if (!mayBeNull || row.usual.some((usual) => usual !== null)) {
        const usual = wanted.map((day) => (day.usual === null ? null : expect.closeTo(day.usual, 10)))
        expect(row).toEqual({ ...row, usual, unusual: wanted.map(({ is }) => is) })
        if (wanted.some((day) => day.usual !== null)) known++
      }
    }
    return known
  }

  test('inserts, updates and deletes in any order are summarized correctly, with refreshes in between', async () => {
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
      { numRuns: sized(2, 30) },
    )
  })

  test('a load that commits while summaries are computed is included, or stays marked', async () => {
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
        for (const statement of noteChangedDays(config, note))
          await client.query(writtenOut(database.warehouse.db, statement))
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

  test('rows changed by others are found by a recheck, and truncated ones by the next run', async () => {
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

    for (const table of [BY_DAY, BY_PROMPT]) await database.rows(`truncate visibility.${table}`)
    await refresh()
    await expectRightSums()
    expect(await database.rows('select from visibility_ops.prompt_sums')).toEqual([])
  })

  test('a run summarizes the days it changed, and one without changes writes nothing', async () => {
    const fine = { name: 'fine', dimensions: ['date', 'prompt_id', 'model_id'] }
    const setup = await setUp({
      world: { projects: 1, prompts: 4, models: 2, brands: 2 },
      config: { start_date: '2026-01-10', reports: [{ name: 'total', dimensions: ['date'] }, fine] },
    })
    const { rows } = setup.database
    const versions = () =>
      rows(
        `select 'sums' as name, xmin, ctid from visibility_ops.prompt_sums
       union all select 'days', xmin, ctid from visibility_ops.usual_days
       union all select 'projects', xmin, ctid from visibility_ops.usual_projects order by 1, 3`,
      )
    expect((await setup.sync()).outcome).toBe('complete')
    const before = await versions()
    for (const name of ['sums', 'days', 'projects']) expect(before).toContainEqual(expect.objectContaining({ name }))
    expect(await rows('select from visibility_ops.open_periods')).toEqual([])
    await setup.sync()
    expect(await versions()).toEqual(before)
  })
})
