import { describe, expect, test } from '@jest/globals'
import type { Brand, Project } from '../src/reference/world.ts'
import { applyLabels } from '../src/warehouse/load/own-brands.ts'
import { type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* What ids meant, and when. */

let setup: Setup

async function start(options: SetupOptions = {}): Promise<Project> {
  const reports = [{ name: 'brand_daily', dimensions: ['date'] }]
  const config = { reports, start_date: '2026-03-25' }
  setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 }, config, ...options })
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

test('a new text, topic or tag closes a prompt’s row and opens another, and only that prompt’s', async () => {
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
  const found = await rows(
    'select text, topic_id, tags, valid_to is null as open from visibility.prompt_history where prompt_id = $1 order by valid_from',
    [prompt.id],
  )
  const was = { text: first.text, topic_id: first.topicId, tags: [...first.tagIds].sort(), open: false }
  expect(found).toEqual([
    was,
    { ...was, text: 'Another question?' },
    { ...was, text: 'Another question?', topic_id: topic },
    { text: 'Another question?', topic_id: topic, tags: ['tg_new'], open: true },
  ])
  expect(await rows('select from visibility.prompt_history where prompt_id <> $1', [prompt.id])).toHaveLength(3)
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
    `with moved as (select prompt_id, lead(text) over w as text from visibility.prompts window w as (order by prompt_id))
   update visibility.prompts p set text = moved.text from moved where moved.prompt_id = p.prompt_id and moved.text is not null`,
    `delete from visibility.prompts where prompt_id = ${FIRST}`,
    'delete from visibility.prompt_tags where ctid in (select min(ctid) from visibility.prompt_tags)',
    'delete from visibility.domain_classifications',
  ]

  test('the next run restores a list that was changed in the database', async () => {
    setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 }, config: { reports: [] } })
    expect(await read()).toBeGreaterThan(10)
    const before = await listed()
    expect(before.map((rows) => rows.length > 0)).toEqual(TABLES.map(() => true))
    for (const statement of BY_HAND) {
      await setup.database.rows(statement)
      expect({ statement, listed: await listed() }).not.toEqual({ statement, listed: before })
      await read()
      expect({ statement, listed: await listed() }).toEqual({ statement, listed: before })
    }
    expect(await read()).toBe(0)
    // Compared row by row, there is nothing to change either.
    expect(await read(['window-digest'])).toBe(0)
  })
})

test('days whose digests are not known, as after an upgrade, are not read again if their totals are the same', async () => {
  const project = await start({ config: { lookback_days: 3 } })
  const forget = () =>
    rows(
      'with h as (delete from visibility_ops.history_checks) update visibility_ops.control_totals set rows_digest = 0',
    )
  await forget()
  const days = async () => {
    const { outcome, streams } = await setup.sync()
    expect(outcome).toBe('complete')
    return streams.filter(({ days }) => days > 0).map(({ days }) => days)
  }
  expect(new Set(await days())).toEqual(new Set([3]))
  expect(await rows('select from visibility_ops.control_totals where rows_digest = 0')).toEqual([])
  await forget()
  setup.service.world.rewriteDays(project, ['2026-03-05'])
  expect(new Set(await days())).toEqual(new Set([4]))
})
