import { afterEach, expect, test } from '@jest/globals'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { createClient } from '../src/source/client.ts'
import { readFilters } from '../src/web/insights/filters.ts'
import { type GroupRow, readDetail } from '../src/web/insights/read-detail.ts'
import { readInsights } from '../src/web/insights/read-insights.ts'
import { startProxy } from './support/proxy.ts'
import { type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* A channel stays the same when the model behind it changes, so default reports by model have twins by channel. */

const RANGE = { from: '2026-03-01', to: '2026-03-14' }
const TWINS = [
  { name: 'brand_daily_by_topic_channel', dimensions: ['date', 'topic_id', 'model_channel_id'] },
  { name: 'brand_daily_by_prompt_channel', dimensions: ['date', 'prompt_id', 'model_channel_id'] },
]
let setup: Setup
afterEach(() => setup.close())

const start = async () => {
  const config = { start_date: RANGE.from, end_date: RANGE.to, extras: 'auto', reports: DEFAULT_REPORTS }
  setup = await setUp({ world: { projects: 1, prompts: 6, models: 3, brands: 3 }, extras: 'all', config })
}
const request = (path: '/insights' | '/insights/topic', query: object) => {
  const { config, projects } = { config: setup.services.config, projects: setup.projects }
  const filters = readFilters({ ...query, ...RANGE }, { projects, interest: RANGE, today: RANGE.to }, path)
  return { reports: config.reports, filters }
}

test('with extras: auto the twins are loaded exactly, and the pages prefer channels', async () => {
  await start()
  expect((await setup.sync()).outcome).toBe('complete')
  await expectExact(setup.database, { world: setup.service.world, range: RANGE, reports: TWINS as never })
  const own = setup.service.world.projects[0]!.brands[0]!.id
  await setup.database.rows('update visibility.brands set is_own = brand_id = $1', [own])
  const { warehouse } = setup.database
  const { heat } = await readInsights(warehouse, request('/insights', {}))
  const channels = await setup.database.rows<{ id: string; name: string }>(
    'select model_channel_id as id, name from visibility.model_channels order by 1',
  )
  expect(new Set(heat.rows.map(({ model }) => model))).toEqual(new Set(channels.map(({ name }) => name)))
  const topic = heat.rows.find(({ topic_id }) => topic_id !== null)!.topic_id!
  const { sections } = await readDetail(warehouse, request('/insights/topic', { topic, channel: channels[0]!.id }))
  const [row] = sections['by-model']!.rows as GroupRow[]
  const [expected] = await setup.database.rows(
    `select sum(visibility_count) as k, sum(visibility_total) as n from visibility.brand_daily_by_topic_channel
     where topic_id = $1 and model_channel_id = $2 and brand_id = $3`,
    [topic, channels[0]!.id, own],
  )
  expect({ k: row!.visibility_count, n: row!.answers }).toEqual(expected)
  expect(row!.name).toBe(channels[0]!.name)
})

test('a service that refuses channels with other dimensions is read without the twins, and is not asked again', async () => {
  await start()
  const asked: string[] = []
  const proxy = await startProxy(
    setup.service.url,
    (_, body) => {
      const refused = /model_channel_id/.test(body) && /topic_id|prompt_id/.test(body)
      if (refused) asked.push(body)
      return refused
    },
    400,
  )
  const honest = setup.services.client
  setup.services.client = createClient({ baseUrl: proxy.url, compress: false, requestsPerMinute: 100_000 })
  try {
    expect((await setup.sync()).outcome).toBe('complete')
    const first = asked.length
    expect(first).toBeGreaterThanOrEqual(2)
    expect((await setup.sync()).outcome).toBe('complete')
    expect(asked.length).toBe(first)
    await expectExact(setup.database, { world: setup.service.world, range: RANGE, reports: DEFAULT_REPORTS as never })
  } finally {
    setup.services.client.close()
    setup.services.client = honest
    await proxy.close()
  }
})

test('without extras, and for reports of other names, there are no twins', async () => {
  await start()
  const names = setup.services.config.reports.map(({ name }) => name)
  expect(names.slice(DEFAULT_REPORTS.length)).toEqual(TWINS.map(({ name }) => name))
  await setup.close()
  const reports = [{ name: 'mine', dimensions: ['date', 'topic_id', 'model_id'] }]
  setup = await setUp({ config: { extras: 'auto', reports } })
  expect(setup.services.config.reports.length).toBe(1)
  await setup.close()
  setup = await setUp({ config: { reports: DEFAULT_REPORTS } })
  expect(setup.services.config.reports.length).toBe(DEFAULT_REPORTS.length)
})
