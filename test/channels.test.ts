import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { readQuestions } from '../src/packs/metabase/cards.ts'
import { packFiles, type Tool } from '../src/packs/pack-files.ts'
import { createClient } from '../src/source/client.ts'
import { CHANNEL_TWINS } from '../src/warehouse/schema/catalogue.ts'
import { viewsByChannel } from '../src/warehouse/schema/views.ts'
import { readFilters } from '../src/web/insights/filters.ts'
import { type GroupRow, readDetail } from '../src/web/insights/read-detail.ts'
import { readInsights } from '../src/web/insights/read-insights.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { startMetabase } from './support/metabase-server.ts'
import { startProxy } from './support/proxy.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* A channel stays the same when the model behind it changes, so default reports by model have twins by channel. */

const RANGE = { from: '2026-03-01', to: '2026-03-14' }
const TWINS = [
  { name: 'brand_daily_by_topic_channel', dimensions: ['date', 'topic_id', 'model_channel_id'] },
  { name: 'brand_daily_by_prompt_channel', dimensions: ['date', 'prompt_id', 'model_channel_id'] },
]
let setup: Setup
afterAll(() => setup.close())

const start = () =>
  setUp({
    world: { projects: 1, prompts: 6, models: 3, brands: 3 },
    extras: 'all',
    config: { start_date: RANGE.from, end_date: RANGE.to, extras: 'auto', reports: DEFAULT_REPORTS },
  })
beforeAll(async () => {
  setup = await start()
  expect((await setup.sync()).outcome).toBe('complete')
})
const request = (path: '/insights' | '/insights/topic', query: object) => {
  const { config, projects } = { config: setup.services.config, projects: setup.projects }
  const filters = readFilters({ ...query, ...RANGE }, { projects, interest: RANGE, today: RANGE.to }, path)
  return { reports: config.reports, filters }
}

test('with extras: auto the twins are loaded exactly, and the pages prefer channels', async () => {
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

test('questions and packs use channels instead of models', async () => {
  const { config } = setup.services
  const replaced = await viewsByChannel(setup.database.warehouse, config.reports)
  expect([...replaced].sort()).toEqual(Object.keys(CHANNEL_TWINS).sort())
  const use = { channelViews: replaced, unused: [] }
  const charts = Object.keys(packFiles('superset', config, [], use))
  expect(charts).toEqual(expect.arrayContaining(['charts/Visibility_by_channel.yaml']))
  const packs = ['superset', 'grafana'].map((tool) => JSON.stringify(packFiles(tool as Tool, config, [], use)))
  for (const [view, twin] of Object.entries(CHANNEL_TWINS).filter(([name]) => name !== 'head_to_head_weekly')) {
    for (const text of packs) expect([text.includes(view), text.includes(twin)]).toEqual([false, true])
  }
  const questions = readQuestions('visibility', replaced)
  const listed = await setup.database.rows('select model_channel_id as id from visibility.model_channels')
  const known = new Set(listed.map(({ id }) => id))
  for (const { name, sql, view } of questions) {
    const rows = await setup.database.rows(sql)
    if (!Object.values<string>(CHANNEL_TWINS).includes(view)) continue
    expect(sql).not.toMatch(/model_id/)
    const channels = rows.map(({ channel, model_channel_id }) => channel ?? model_channel_id)
    expect({ name, ids: channels.filter((id) => id !== null && !known.has(id)) }).toEqual({ name, ids: [] })
  }
  expect(questions.map(({ name }) => name)).toEqual(readQuestions('visibility').map(({ name }) => name))
})

test('Metabase gets its questions and models by channel', async () => {
  const server = await startMetabase()
  const metabase = { METABASE_API_KEY: 'mb_key', METABASE_DATABASE_URL: 'postgres://reader:word@db:5433/wh' }
  const options = { env: { ...setup.env, ...metabase }, config: setup.fileConfig }
  const { code, stderr } = await runCli(['metabase', '--url', server.url], options)
  await server.close()
  expect({ code, stderr, problems: server.problems }).toEqual({ code: 0, stderr: '', problems: [] })
  const sqlOf = (name: string) => JSON.stringify(server.store.card.find((card) => card.name.startsWith(name)))
  expect(sqlOf('3. Which models')).toContain('from visibility.visibility_by_channel_weekly')
  expect(sqlOf('7. Is our average position')).toContain('from visibility.position_by_channel_weekly')
  expect(sqlOf('Visibility by channel and week')).toContain('"type":"model"')
})

test('twins are read in shorter windows if the service limits the range of days', async () => {
  const short = await start()
  try {
    short.service.setFaults({ rate_limit: null, max_days: 3 })
    expect((await short.sync()).outcome).toBe('complete')
    await expectExact(short.database, { world: short.service.world, range: RANGE, reports: TWINS as never })
  } finally {
    await short.close()
  }
})

test('a service that refuses channels with other dimensions is read without the twins, and is not asked again', async () => {
  const refusing = await start()
  const asked: string[] = []
  const proxy = await startProxy(
    refusing.service.url,
    (_, body) => {
      const refused = /model_channel_id/.test(body) && /topic_id|prompt_id/.test(body)
      if (refused) asked.push(body)
      return refused
    },
    400,
  )
  const honest = refusing.services.client
  refusing.services.client = createClient({ baseUrl: proxy.url, compress: false, requestsPerMinute: 100_000 })
  try {
    expect((await refusing.sync()).outcome).toBe('complete')
    const first = asked.length
    expect(first).toBeGreaterThanOrEqual(2)
    expect((await refusing.sync()).outcome).toBe('complete')
    expect(asked.length).toBe(first)
    await expectExact(refusing.database, {
      world: refusing.service.world,
      range: RANGE,
      reports: DEFAULT_REPORTS as never,
    })
  } finally {
    refusing.services.client.close()
    refusing.services.client = honest
    await proxy.close()
    await refusing.close()
  }
})

test('without extras, and for reports of other names, there are no twins', () => {
  const names = (settings: Record<string, unknown>) => configOf(settings).reports.map(({ name }) => name)
  const own = DEFAULT_REPORTS.map(({ name }) => name)
  expect(names({ extras: 'auto', reports: DEFAULT_REPORTS })).toEqual([...own, ...TWINS.map(({ name }) => name)])
  const reports = [{ name: 'mine', dimensions: ['date', 'topic_id', 'model_id'] }]
  expect(names({ extras: 'auto', reports })).toEqual(['mine'])
  expect(names({ reports: DEFAULT_REPORTS })).toEqual(own)
})

test('packs are by model if a project has no rows by channel, or the database cannot be asked', async () => {
  const { config } = setup.services
  await setup.database.rows('delete from visibility.brand_daily_by_channel')
  expect([...(await viewsByChannel(setup.database.warehouse, config.reports))]).toEqual(['movers_weekly'])
  await setup.database.rows("insert into visibility.projects (project_id) values ('new')")
  await setup.database.rows(
    "insert into visibility.brand_daily_by_topic_model (project_id, date, brand_id) values ('new', '2026-03-01', 'b')",
  )
  expect((await viewsByChannel(setup.database.warehouse, config.reports)).size).toBe(0)
  const env = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none', VISIBILITY_API_URL: 'reference' }
  const folder = temporaryFolder()
  const { code, stderr } = await runCli(['pack', 'grafana', '--out', folder.path], { env, config: { extras: 'auto' } })
  folder.remove()
  expect({ code, isSaid: stderr.includes('models are used') }).toEqual({ code: 0, isSaid: true })
})
