import { describe, expect, test } from '@jest/globals'
import type { Brand, Project } from '../src/reference/world.ts'
import { applyLabels } from '../src/warehouse/load/own-brands.ts'
import { some } from './support/long.ts'
import { type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* What ids meant, and when. */

let setup: Setup

async function start(options: SetupOptions = {}): Promise<Project> {
  const reports = [{ name: 'brand_daily', dimensions: ['date'] }]
  setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 }, config: { reports }, ...options })
  await setup.sync()
  return setup.service.world.projects[0]!
}

const rows = <T = Record<string, unknown>>(sql: string, values?: unknown[]) => setup.database.rows<T>(sql, values)
const HISTORY = { prompt_history: 'prompt_id', brand_history: 'brand_id' } as const
const versions = async () =>
  Promise.all(Object.keys(HISTORY).map((table) => rows(`select xmin, ctid from visibility.${table} order by ctid`)))

/** One open row for each entity, and no gap and no overlap between its rows. */
async function expectSound(): Promise<void> {
  for (const [table, id] of Object.entries(HISTORY)) {
    const entities = table.replace('_history', 's')
    const found = await rows<{ entities: number; open: number; broken: number }>(
      `select (select count(*)::int from visibility.${entities}) as entities,
         (select count(*)::int from visibility.${table} where valid_to is null) as open,
         (select count(*)::int from (
            select valid_to, valid_from, lead(valid_from) over (partition by project_id, ${id} order by valid_from) as next
            from visibility.${table}
          ) h where valid_to is distinct from next or valid_to <= valid_from) as broken`,
    )
    const [{ entities: count, open, broken }] = found as [{ entities: number; open: number; broken: number }]
    expect({ table, open, broken }).toEqual({ table, open: count, broken: 0 })
  }
}

test('prompts and brands have an open row each, and a sync that changes nothing writes nothing', async () => {
  const project = await start()
  await expectSound()
  const found = await rows<{
    prompt_id: string
    text: string
    topic_id: string | null
    tags: string[]
    country_code: string
  }>('select prompt_id, text, topic_id, tags, country_code from visibility.prompt_history order by 1')
  const wanted = project.prompts.map(({ id, text, topicId, tagIds, country }) => ({
    prompt_id: id,
    text,
    topic_id: topicId,
    tags: [...tagIds].sort(),
    country_code: country,
  }))
  expect(found).toEqual(wanted.sort((a, b) => (a.prompt_id < b.prompt_id ? -1 : 1)))
  const before = await versions()
  await setup.sync()
  expect(await versions()).toEqual(before)
})

test('a new text, topic, tag or country closes a prompt’s row and opens another, and only that prompt’s', async () => {
  const project = await start()
  const prompt = project.prompts[1]!
  const change = async (changes: Partial<typeof prompt>) => {
    Object.assign(prompt, changes)
    await setup.sync()
    await expectSound()
  }
  const [first, topic] = [{ ...prompt }, project.topics.find(({ id }) => id !== prompt.topicId)!.id]
  await change({ text: 'Another question?' })
  await change({ topicId: topic })
  await change({ tagIds: ['tg_new'] })
  await change({ tagIds: [] })
  await change({ country: 'PT' })
  const found = await rows(
    'select text, topic_id, tags, country_code, valid_to is null as open from visibility.prompt_history where prompt_id = $1 order by valid_from',
    [prompt.id],
  )
  const now = { text: 'Another question?', topic_id: topic, tags: [] as string[], country_code: 'PT', open: true }
  const was = { ...now, country_code: first.country, open: false }
  expect(found).toEqual([
    {
      text: first.text,
      topic_id: first.topicId,
      tags: [...first.tagIds].sort(),
      country_code: first.country,
      open: false,
    },
    { ...was, topic_id: first.topicId, tags: [...first.tagIds].sort() },
    { ...was, tags: [...first.tagIds].sort() },
    { ...was, tags: ['tg_new'] },
    was,
    now,
  ])
  expect(await rows('select from visibility.prompt_history where prompt_id <> $1', [prompt.id])).toHaveLength(3)
})

test('a prompt that is gone keeps its open row, and one that comes back unchanged adds none', async () => {
  const project = await start()
  const [gone] = project.prompts.splice(0, 1)
  await setup.sync()
  expect(await rows('select prompt_id from visibility.prompts where removed_at is not null')).toEqual([
    { prompt_id: gone!.id },
  ])
  await expectSound()
  const before = await versions()
  project.prompts.unshift(gone!)
  await setup.sync()
  await expectSound()
  expect(await versions()).toEqual(before)
})

test('a renamed brand closes its row, whether the service or the labels rename it', async () => {
  const project = await start()
  const brand = project.brands[0]!
  const first = brand.name
  setup.service.world.renameBrand(project, brand.id, 'Renamed')
  await setup.sync()
  await expectSound()
  await applyLabels(setup.database.warehouse, [project.id], {
    brands: { [brand.id]: { own: true, name: 'Labelled' } },
    topics: {},
    tags: {},
  })
  await expectSound()
  expect(
    await rows(
      'select name, valid_to is null as open from visibility.brand_history where brand_id = $1 order by valid_from',
      [brand.id],
    ),
  ).toEqual([
    { name: first, open: false },
    { name: 'Renamed', open: false },
    { name: 'Labelled', open: true },
  ])
})

test('a load that is rolled back leaves the history as it was, and the next one writes it once', async () => {
  const project = await start()
  const before = await versions()
  project.prompts[0]!.text = 'Asked otherwise?'
  const stop = new AbortController()
  // The run is stopped while the list is loaded: nothing of it is committed.
  await rows(
    `create function visibility.wait() returns trigger language plpgsql as 'begin perform pg_sleep(30); return null; end'`,
  )
  await rows(
    'create trigger wait after insert on visibility.prompt_history for each statement execute function visibility.wait()',
  )
  const run = setup.sync({ signal: stop.signal })
  const waiting = "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
  while ((await rows(waiting)).length === 0) await new Promise((done) => setTimeout(done, 20))
  stop.abort()
  expect((await run).outcome).toBe('interrupted')
  await rows('drop trigger wait on visibility.prompt_history')
  expect((await versions())[0]).toEqual(before[0])
  await setup.sync()
  await expectSound()
  expect(
    await rows('select text from visibility.prompt_history where prompt_id = $1', [project.prompts[0]!.id]),
  ).toHaveLength(2)
})

test('after a change of aliases or the pattern, the next run compares the whole history, and restatements name the brand', async () => {
  const reports = [{ name: 'brand_daily', dimensions: ['date'] }]
  const project = await start({ extras: 'all', config: { reports, extras: 'auto', lookback_days: 3 } })
  const [brand, other] = project.brands as [Brand, Brand]
  const checks = () => rows('select from visibility_ops.history_checks')
  await setup.sync()
  expect(await checks()).toHaveLength(1)
  const change = async (work: () => void) => {
    work()
    setup.service.world.rewriteDays(project, ['2026-03-05'])
    expect((await setup.sync()).outcome).toBe('complete')
    await expectExact(setup.database, {
      world: setup.service.world,
      range: { from: '2026-03-01', to: '2026-03-31' },
      reports,
    })
  }
  await change(() => {
    brand.aliases = ['another name']
  })
  await change(() => {
    other.regex = 'some.*pattern'
  })
  expect(await rows('select distinct date::text, cause from visibility_ops.restatements order by cause')).toEqual([
    ...[brand.name, other.name]
      .sort()
      .map((name) => ({ date: '2026-03-05', cause: expect.stringContaining(`the brand ${name} changed on`) })),
  ])
  expect(
    await rows('select aliases, regex from visibility.brand_history where valid_to is null and brand_id = $1', [
      brand.id,
    ]),
  ).toEqual([{ aliases: ['another name'], regex: null }])
  await expectSound()
})

test('after a prompt moves to another topic, the next run reads reports by topic again', async () => {
  const reports = ['topic_id', 'model_id'].map((name) => ({ name: `by_${name}`, dimensions: ['date', name] }))
  const project = await start({
    config: { reports: [{ name: 'daily', dimensions: ['date'] }, ...reports], lookback_days: 3 },
  })
  await setup.sync()
  const [prompt] = project.prompts
  prompt!.topicId = project.topics.find(({ id }) => id !== prompt!.topicId)!.id
  const { outcome, notes, streams } = await setup.sync()
  expect([outcome, notes]).toEqual(['complete', []])
  const days = new Map(streams.map(({ stream, days: read }) => [stream, read]))
  expect([days.get('by_topic_id'), days.get('by_model_id')]).toEqual([31, 3])
  const range = { from: '2026-03-01', to: '2026-03-31' }
  await expectExact(setup.database, { world: setup.service.world, range, reports })
})

test('a brand has the first day on which the report by date has rows of it', async () => {
  const project = await start()
  const firsts = () => rows('select brand_id, first_seen_on::text as first from visibility.brands order by 1')
  const wanted = (first: string) =>
    project.brands.map(({ id }) => ({ brand_id: id, first })).sort((a, b) => (a.brand_id < b.brand_id ? -1 : 1))
  expect(await firsts()).toEqual(wanted('2026-03-01'))
  await setup.sync({ command: 'backfill', range: { from: '2026-02-20', to: '2026-02-28' } })
  expect(await firsts()).toEqual(wanted('2026-02-20'))
})

describe('an unchanged list is detected by its digest', () => {
  /* Lists are read whole. One that did not change is told by its digest, so whatever differs must show in it. */

  const LISTS = ['project_profile', 'prompts', 'prompt_suggestions', 'domain_classifications']
  const TABLES = [
    'project_profiles',
    'prompts',
    'prompt_tags',
    'prompt_suggestions',
    'prompt_suggestion_tags',
    'domain_classifications',
  ]

  /** All rows that are on the lists, without when they came there. */
  const listed = async () => {
    const tables = TABLES.map(async (table) => {
      const rows = await setup.database.rows<{ row: Record<string, unknown> }>(
        `select to_jsonb(t) - 'first_seen_at' as row from visibility.${table} t order by (to_jsonb(t) - 'first_seen_at')::text`,
      )
      return rows.map(({ row }) => row).filter(({ removed_at }) => removed_at == null)
    })
    return Promise.all(tables)
  }

  const read = async (disabled: Setup['config']['disabled'] = []) => {
    setup.services.config = { ...setup.config, disabled }
    const report = await setup.sync({ streams: setup.services.streams.named(LISTS) })
    expect(report.outcome).toBe('complete')
    return report.streams.reduce((sum, { inserted, updated, deleted }) => sum + inserted + updated + deleted, 0)
  }

  const FIRST = '(select min(prompt_id) from visibility.prompts)'
  const BY_HAND = [
    `update visibility.prompts set text = text || '.' where prompt_id = ${FIRST}`,
    `update visibility.prompts set text = '' where prompt_id = ${FIRST}`,
    `update visibility.prompts set messages = '[]' where prompt_id = ${FIRST}`,
    `update visibility.prompts set user_location = '{"city": "Nowhere"}' where prompt_id = ${FIRST}`,
    `update visibility.prompts set topic_id = null where prompt_id = ${FIRST}`,
    `update visibility.prompts set removed_at = now() where prompt_id = ${FIRST}`,
    `with moved as (select prompt_id, lead(text) over w as text from visibility.prompts window w as (order by prompt_id))
   update visibility.prompts p set text = moved.text from moved where moved.prompt_id = p.prompt_id and moved.text is not null`,
    `delete from visibility.prompts where prompt_id = ${FIRST}`,
    `insert into visibility.prompts (project_id, prompt_id, text, messages) select project_id, 'pr_more', 'More?', '[]'
   from visibility.prompts limit 1`,
    'delete from visibility.prompt_tags where ctid in (select min(ctid) from visibility.prompt_tags)',
    `update visibility.prompt_tags set tag_id = 'another' where ctid in (select min(ctid) from visibility.prompt_tags)`,
    `insert into visibility.prompt_tags (project_id, prompt_id, tag_id) select project_id, prompt_id, 'one more'
   from visibility.prompts limit 1`,
    'update visibility.project_profiles set used_prepared_profile = not used_prepared_profile',
    "update visibility.project_profiles set industry = 'another'",
    "update visibility.project_profiles set audience_distribution = '{}'",
    'delete from visibility.domain_classifications',
  ]

  test('the next run restores a list that was changed in the database', async () => {
    setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 }, config: { reports: [] } })
    expect(await read()).toBeGreaterThan(10)
    const before = await listed()
    expect(before.map((rows) => rows.length > 0)).toEqual(TABLES.map(() => true))
    for (const statement of some(BY_HAND, 6)) {
      await setup.database.rows(statement)
      expect({ statement, listed: await listed() }).not.toEqual({ statement, listed: before })
      await read()
      expect({ statement, listed: await listed() }).toEqual({ statement, listed: before })
      expect(await read()).toBe(0)
    }
    // Compared row by row, there is nothing to change either.
    expect(await read(['window-digest'])).toBe(0)
  })
})
