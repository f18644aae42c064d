import { beforeAll, describe, expect, test } from '@jest/globals'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { chatContent, domainReport, urlReport } from '../src/reference/sources.ts'
import { StreamSet } from '../src/streams/registry.ts'
import { reopenForRetry } from '../src/sync/quarantine.ts'
import { dueChats } from '../src/sync/run/read-chat-contents.ts'
import { runSync } from '../src/sync/run/run-sync.ts'
import { readFilters } from '../src/web/insights/filters.ts'
import { readPage } from '../src/web/insights/read-page.ts'
import { runCli } from './support/cli.ts'
import { openClient, startProxy, startRewriter } from './support/proxy.ts'
import { configOf, NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* Extra lists and reports. */

const SOURCES = [
  { name: 'domains_daily', of: 'domains', dimensions: ['date'] },
  { name: 'urls_daily', of: 'urls', dimensions: ['date', 'model_id'] },
]
const DAYS = { start_date: '2026-03-25', end_date: '2026-03-31' }
const range = { from: DAYS.start_date, to: DAYS.end_date }
const small = { projects: 1, prompts: 7, models: 2, brands: 3 }

const outcomes = ({ outcome, streams }: Awaited<ReturnType<Setup['sync']>>) => ({
  outcome,
  failed: streams.flatMap(({ failed }) => failed),
})
const paths = ({ service }: Setup) => service.requests.map(({ method, path }) => `${method} ${path.slice(3)}`)
const EXTRA = /projects|brands$|topics|tags|model-channels|classifications\/urls|reports\/(domains|urls)/

test('without extras no further request is sent; a service without extras is asked once for each', async () => {
  const setup = await setUp({
    world: small,
    config: { ...DAYS, reports: [{ name: 'brand_daily', dimensions: ['date'] }] },
  })
  expect(outcomes(await setup.sync())).toEqual({ outcome: 'complete', failed: [] })
  // The five streams that every service has and the report, one page each; the profile is one request, too.
  expect(paths(setup).filter((path) => !path.startsWith('POST /reports/brands') && EXTRA.test(path))).toEqual([])
  setup.service.requests.length = 0
  await setup.sync()
  const plain = paths(setup).length
  setup.service.requests.length = 0
  const more = withConfig(setup, { extras: 'auto', reports: [...(setup.fileConfig.reports as []), ...SOURCES] })
  const report = await more.sync()
  expect(outcomes(report)).toEqual({ outcome: 'complete', failed: [] })
  const asked = paths(setup).filter((path) => EXTRA.test(path) && path !== 'POST /reports/brands')
  expect(asked.sort()).toEqual([
    'GET /brands',
    'GET /classifications/urls',
    'GET /model-channels',
    'GET /projects',
    'GET /tags',
    'GET /topics',
    'POST /reports/domains',
    'POST /reports/urls',
  ])
  // Reports are asked for by name.
  expect(report.notes.filter((note) => note.includes('not offered'))).toEqual([
    expect.stringContaining('HTTP 404'),
    expect.stringContaining('HTTP 404'),
  ])
  // What is known not to be offered is not asked for by the next run.
  setup.service.requests.length = 0
  expect(outcomes(await more.sync())).toEqual({ outcome: 'complete', failed: [] })
  expect(paths(setup)).toHaveLength(plain)
  const fresh = await setup.database.warehouse.pool.query(
    "select stream, is_stale, missing_days from visibility.freshness where stream = 'urls_daily'",
  )
  expect(fresh.rows).toEqual([])
  // After a week it is.
  await setup.database.warehouse.pool.query(
    "update visibility_ops.not_offered set asked_at = asked_at - interval '8 days'",
  )
  setup.service.setExtras('all')
  expect(outcomes(await more.sync())).toEqual({ outcome: 'complete', failed: [] })
  const { rows } = await setup.database.warehouse.pool.query('select count(*) as n from visibility_ops.not_offered')
  expect(rows).toEqual([{ n: 0 }])
})

/** The same service and database under another configuration. */
function withConfig(setup: Setup, config: Record<string, unknown>): Pick<Setup, 'sync' | 'services'> {
  const changed = configOf({ ...setup.fileConfig, ...config }, setup.env)
  const services = { ...setup.services, config: changed, streams: new StreamSet(changed) }
  return {
    services,
    sync: (request = {}) =>
      runSync(services, { command: 'sync', projects: setup.projects, streams: services.streams.named(), ...request }),
  }
}

test('check lists which extras the service offers, and which not; only a failure is a fault', async () => {
  const setup = await setUp({
    world: small,
    extras: ['GET /tags', 'POST /reports/domains'],
    config: { ...DAYS, extras: 'auto', streams: ['prompts'], reports: SOURCES },
  })
  const verdict = async () => {
    const { json } = await runCli(['check', '--json'], { env: setup.env, config: setup.fileConfig })
    return json().verdicts.find(({ what }: { what: string }) => what === `extras of ${setup.projects[0]!.id}`)
  }
  const { ok, detail } = await verdict()
  expect(ok).toBe(true)
  const [offered, missing] = detail.split('; not offered: ')
  expect(offered.replace('offered: ', '').split(', ').sort()).toEqual(['domains_daily', 'tags'])
  expect(missing.split(', ')).toEqual(expect.arrayContaining(['topics (HTTP 404)', 'urls_daily (HTTP 404)']))
  setup.service.setFaults({ ...NO_LIMIT, server_error: 1, only_path: '/v1/tags' })
  expect(await verdict()).toMatchObject({ ok: false, detail: expect.stringMatching(/GET \/tags: HTTP 50/) })
})

describe('against a service that offers all of it', () => {
  let setup: Setup
  const rows = async (sql: string) => (await setup.database.warehouse.pool.query(sql)).rows
  beforeAll(async () => {
    const reports = [{ name: 'brand_daily', dimensions: ['date'] }, ...SOURCES]
    setup = await setUp({ world: small, extras: 'all', config: { ...DAYS, extras: 'auto', reports } })
    expect(outcomes(await setup.sync())).toEqual({ outcome: 'complete', failed: [] })
  })

  test('names, own brands and domains come from the service', async () => {
    const [project] = setup.service.world.projects
    expect(await rows('select name, status from visibility.projects')).toEqual([
      { name: project!.name, status: 'ACTIVE' },
    ])
    const brands = await rows('select name, is_own, domains from visibility.brands order by is_own desc, name')
    expect(brands).toHaveLength(3)
    expect(brands[0]).toEqual({ name: 'Fernweh', is_own: true, domains: ['fernweh.example'] })
    expect(brands.filter(({ is_own }) => is_own)).toHaveLength(1)
    expect(await rows('select count(*) as n from visibility.topics where name is null')).toEqual([{ n: 0 }])
    expect((await rows('select name from visibility.tags order by 1')).map(({ name }) => name)).toContain('Branded')
    expect(await rows('select name, model_id from visibility.model_channels order by 1')).toEqual([
      { name: 'Channel famA', model_id: 'famA-scraper' },
      { name: 'Channel famD', model_id: 'famD-4o-search' },
    ])
  })

  test('reports of domains and URLs match the service; rows with equal keys are added up', async () => {
    const { world } = setup.service
    const query = (dimensions: string[]) => ({ range, dimensions: dimensions as never, filters: [] })
    const domains = domainReport(world, world.projects[0]!, query(['date']))
    const sum = (items: Record<string, unknown>[], field: string) =>
      items.reduce((n, item) => n + (item[field] as number), 0)
    expect(
      await rows(
        'select count(*) as n, sum(citation_count) as cited, sum(retrieved_chat_count) as seen from visibility.domains_daily',
      ),
    ).toEqual([
      { n: domains.length, cited: sum(domains, 'citation_count'), seen: sum(domains, 'retrieved_chat_count') },
    ])
    const urls = urlReport(world, world.projects[0]!, query(['date', 'model_id']))
    const keys = new Set(urls.map(({ date, url, model }) => JSON.stringify([date, url, model])))
    expect(keys.size).toBeLessThan(urls.length)
    expect(
      await rows(
        'select count(*) as n, sum(usage_count) as used, sum(citation_count) as cited, sum(retrievals) as seen from visibility.urls_daily',
      ),
    ).toEqual([
      {
        n: keys.size,
        used: sum(urls, 'usage_count'),
        cited: sum(urls, 'citation_count'),
        seen: sum(urls, 'retrievals'),
      },
    ])
    expect(await rows('select count(*) as n from visibility_ops.quarantine')).toEqual([{ n: 0 }])
  })

  test('a second run changes nothing', async () => {
    const again = await setup.sync()
    expect(again.outcome).toBe('complete')
    for (const { stream, inserted, updated, deleted } of again.streams)
      expect({ stream, inserted, updated, deleted }).toEqual({ stream, inserted: 0, updated: 0, deleted: 0 })
  })

  test('after the service stops offering some extras, runs succeed and no row is lost', async () => {
    const counts = () =>
      rows(`select (select count(*) from visibility.brands where is_own) as own, (select count(*) from visibility.urls_daily) as urls,
        (select count(*) from visibility.topics where name is not null) as topics`)
    const before = await counts()
    setup.service.setExtras(['GET /projects', 'GET /tags', 'GET /model-channels', 'POST /reports/domains'])
    const report = await setup.sync()
    expect(outcomes(report)).toEqual({ outcome: 'complete', failed: [] })
    const said = report.notes.flatMap(
      (note) => /^(\w+) of .* any more \(HTTP 404\); its rows stay/.exec(note)?.[1] ?? [],
    )
    expect(said.sort()).toEqual(['brands', 'topics', 'urls_daily'])
    expect(await counts()).toEqual(before)
    const shown = await rows(
      "select stream from visibility.freshness where stream in ('brands', 'urls_daily') order by 1",
    )
    expect(shown.map(({ stream }) => stream)).toEqual(['brands', 'urls_daily'])
    setup.service.setExtras('all')
    // The next day it is asked for again.
    await rows("update visibility_ops.not_offered set asked_at = asked_at - interval '25 hours'")
    const again = (await setup.sync()).streams.map(({ stream }) => stream)
    expect(again).toEqual(expect.arrayContaining(['brands', 'topics', 'urls_daily']))
    expect(await rows("select stream from visibility_ops.not_offered where stream <> 'url_classifications'")).toEqual(
      [],
    )
  })

  test('a project that may not be read at all is a failure, not a stream that is not offered', async () => {
    const stranger = { id: 'or_other', caller: { key: 'reference-project-key-1', projectId: 'or_other' }, ownKey: true }
    const tags = setup.services.streams.named(['tags'])
    const report = await setup.sync({ projects: [stranger], streams: tags })
    expect(report.outcome).toBe('failed')
    expect(await rows("select stream from visibility_ops.not_offered where project_id = 'or_other'")).toEqual([])
    // A mistyped id leaves nothing.
    for (const table of ['projects', 'freshness'])
      expect(await rows(`select 1 from visibility.${table} where project_id = 'or_other'`)).toEqual([])
  })
})

test('a day of URLs that overflows a page is split by its dimensions, and equal keys still add up', async () => {
  const [dimensions, limit] = [['date', 'prompt_id', 'model_id'], 40]
  const day = { from: '2026-03-31', to: '2026-03-31' }
  const setup = await setUp({
    world: { ...small, prompts: 20, brands: 6 },
    extras: 'all',
    faults: { rate_limit: null, unstable_order: true },
    config: {
      ...{ start_date: day.from, end_date: day.to, streams: [], source: { page_limit: limit } },
      reports: [{ name: 'urls_daily', of: 'urls', dimensions }],
    },
  })
  expect(outcomes(await setup.sync())).toEqual({ outcome: 'complete', failed: [] })
  const { world } = setup.service
  const items = urlReport(world, world.projects[0]!, { range: day, dimensions: dimensions as never, filters: [] })
  const wanted = new Map<string, number[]>()
  for (const { url, prompt, model, usage_count, citation_count, retrievals } of items as Record<string, any>[]) {
    const key = [url, prompt.id, model.id].join(' ')
    const [used = 0, cited = 0, seen = 0] = wanted.get(key) ?? []
    wanted.set(key, [used + usage_count, cited + citation_count, seen + retrievals])
  }
  expect(wanted.size).toBeGreaterThan(limit)
  const rows = await setup.database.rows<Record<string, any>>(
    "select concat_ws(' ', url, prompt_id, model_id) as key, usage_count, citation_count, retrievals from visibility.urls_daily",
  )
  expect(new Map(rows.map((row) => [row.key, [row.usage_count, row.citation_count, row.retrievals]]))).toEqual(wanted)
  expect(await setup.database.rows('select * from visibility_ops.drift')).toEqual([])
  expect(setup.service.requests.some(({ body }) => Array.isArray(body.filters))).toBe(true)
})

test('a report with having has the selected rows with their shares unchanged, and no view reads it', async () => {
  const reports = [{ name: 'brand_daily', dimensions: ['date'] }]
  const setup = await setUp({
    world: { projects: 1, prompts: 6, models: 2, brands: 3 },
    extras: 'all',
    config: { reports },
  })
  const [brand] = setup.service.world.projects[0]!.brands
  const one = {
    name: 'one_brand',
    dimensions: ['date', 'model_id'],
    having: [{ field: 'brand_id', operator: 'in', values: [brand!.id] }],
  }
  const all = { name: 'all_brands', dimensions: ['date', 'model_id'] }
  const config = { ...setup.fileConfig, reports: [...reports, one, all] }
  const options = { env: setup.env, config }
  expect((await runCli(['sync'], options)).code).toBe(0)
  const columns = 'project_id, date, brand_id, model_id, mention_count, share_of_voice'
  const differing = (table: string, condition: string) =>
    setup.database.rows(`(select ${columns} from visibility.${table} except select ${columns} from visibility.all_brands where ${condition})
      union all (select ${columns} from visibility.all_brands where ${condition} except select ${columns} from visibility.${table})`)
  expect(await differing('one_brand', `brand_id = '${brand!.id}'`)).toEqual([])
  const [{ text }] = (await setup.database.rows(
    "select pg_get_viewdef('visibility.visibility_by_model_weekly'::regclass) as text",
  )) as [{ text: string }]
  expect(text).toContain('all_brands')
  const changed = { ...one, having: [{ field: 'mention_count', operator: 'gt', value: 1 }] }
  const refused = await runCli(['sync'], { ...options, config: { ...config, reports: [...reports, changed] } })
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('having')])
})

describe('channels', () => {
  /* A channel stays the same when the model behind it changes, so default reports by model have twins by channel. */

  const RANGE = { from: '2026-03-01', to: '2026-03-14' }
  const TWINS = [
    { name: 'brand_daily_by_topic_channel', dimensions: ['date', 'topic_id', 'model_channel_id'] },
    { name: 'brand_daily_by_prompt_channel', dimensions: ['date', 'prompt_id', 'model_channel_id'] },
  ]
  let setup: Setup

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
    const { sections: first } = await readPage(warehouse, request('/insights', {}))
    const heat = first['topics-by-model']
    const channels = await setup.database.rows<{ id: string; name: string }>(
      'select model_channel_id as id, name from visibility.model_channels order by 1',
    )
    expect(new Set(heat.rows.map(({ model }) => model))).toEqual(new Set(channels.map(({ name }) => name)))
    const topic = heat.rows.find(({ topic_id }) => topic_id !== null)!.topic_id!
    const { sections } = await readPage(warehouse, request('/insights/topic', { topic, channel: channels[0]!.id }))
    const [row] = sections['by-model'].rows
    const [expected] = await setup.database.rows(
      `select sum(visibility_count) as k, sum(visibility_total) as n from visibility.brand_daily_by_topic_channel
     where topic_id = $1 and model_channel_id = $2 and brand_id = $3`,
      [topic, channels[0]!.id, own],
    )
    expect({ k: row!.visibility_count, n: row!.answers }).toEqual(expected)
    expect(row!.name).toBe(channels[0]!.name)
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
    const sync = () => refusing.through(proxy.url, () => refusing.sync())
    expect((await sync()).outcome).toBe('complete')
    const first = asked.length
    expect(first).toBeGreaterThanOrEqual(2)
    expect((await sync()).outcome).toBe('complete')
    expect(asked.length).toBe(first)
    const { world } = refusing.service
    await expectExact(refusing.database, { world, range: RANGE, reports: DEFAULT_REPORTS as never })
  })
})

describe('contents of chats', () => {
  /* The contents of chats: one request each, within a daily budget. */

  const OFFERED = ['GET /chats/{id}/content'] as const
  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 1, prompts: 10, models: 2, brands: 3 },
      extras: OFFERED,
      config: { start_date: '2026-03-28', end_date: '2026-03-31', streams: ['chats'], reports: [] },
    })
    await setup.sync({ streams: setup.services.streams.named(['chats']) })
  })

  const project = () => setup.service.world.projects[0]!
  const rows = (sql: string) => setup.database.rows<Record<string, unknown>>(sql)
  const asked = () => setup.service.requests.filter(({ path }) => path.endsWith('/content')).length
  const countOf = async (table: string) => Number((await rows(`select count(*) as n from visibility.${table}`))[0]!.n)
  const contents = () => countOf('chat_contents')
  const clean = () =>
    rows(
      'truncate visibility.chat_contents, visibility_ops.unread_chats, visibility_ops.daily_requests, visibility_ops.not_offered',
    )

  /** A run as of a day, with its own settings. */
  async function run(chat_contents: Record<string, unknown>, now = '2026-03-31T12:00:00Z', services = setup.services) {
    const config = configOf({ ...setup.fileConfig, chat_contents }, setup.env)
    setup.service.requests.length = 0
    const all = { ...services, config, streams: new StreamSet(config), clock: () => new Date(now) }
    const report = await runSync(all, { command: 'sync', projects: setup.projects, streams: all.streams.named() })
    return { report, contents: report.streams.find(({ stream }) => stream === 'chat_contents') }
  }

  test('a share of the chats is read, newest first, within the budget of the day, and the next day goes on', async () => {
    const first = await run({ share: 1, requests_per_day: 30 })
    expect([first.report.outcome, first.contents?.inserted, asked()]).toEqual(['complete', 30, 30])
    const days = await rows(
      'select c.date, count(*)::int as n from visibility.chats c join visibility.chat_contents t using (project_id, chat_id) group by 1 order by 1 desc',
    )
    expect(days).toEqual([
      { date: '2026-03-31', n: 20 },
      { date: '2026-03-30', n: 10 },
    ])
    // The same day has nothing left, whichever run asks.
    const second = await run({ share: 1, requests_per_day: 30 }, '2026-03-31T23:00:00Z')
    expect([second.report.outcome, second.contents?.rows_read, asked()]).toEqual(['complete', 0, 0])
    const third = await run({ share: 1, requests_per_day: 30 }, '2026-04-01T01:00:00Z')
    expect([third.contents?.inserted, asked(), await contents()]).toEqual([30, 30, 60])
    await run({ share: 1, requests_per_day: 30 }, '2026-04-02T01:00:00Z')
    expect([asked(), await contents()]).toEqual([20, 80])
    const all = { projectId: project().id, range: { from: '2026-03-01', to: '2026-04-01' }, limit: 1 }
    expect(await dueChats(setup.database.warehouse, { share: 1, requests_per_day: 30 }, all)).toEqual({
      ids: [],
      count: 0,
    })
    const [stored] = await rows(
      'select t.*, c.date from visibility.chat_contents t join visibility.chats c using (project_id, chat_id) order by chat_id limit 1',
    )
    const chat = setup.service.world.chat(project(), stored!.chat_id as string)!
    const { messages, sources, brands_mentioned, queries } = chatContent(project(), chat)
    expect(stored).toMatchObject({ messages, sources, brands_mentioned, queries, removed_at: null })
    expect(await rows("select * from visibility_ops.drift where stream = 'chat_contents'")).toEqual([])
  })

  test('a chat that is gone is recorded and not asked for again', async () => {
    await clean()
    const [gone] = await rows("select chat_id from visibility.chats where date = '2026-03-31' order by chat_id limit 1")
    setup.service.world.dropChat(gone!.chat_id as string)
    // The list is not read again, so that the chat is still due.
    const read = async () => {
      const config = configOf({ ...setup.fileConfig, chat_contents: { share: 1, requests_per_day: 1000 } }, setup.env)
      setup.service.requests.length = 0
      const streams = new StreamSet(config)
      return runSync(
        { ...setup.services, config, streams },
        { command: 'sync', projects: setup.projects, streams: streams.named(['chat_contents']) },
      )
    }
    expect((await read()).outcome).toBe('complete')
    expect([asked(), await contents()]).toEqual([80, 79])
    expect(await rows('select chat_id, status from visibility_ops.unread_chats')).toEqual([{ ...gone, status: 404 }])
    await read()
    expect(asked()).toBe(0)
  })

  test('chats that fail are asked for again, in this run and the next, and every request counts', async () => {
    await clean()
    setup.service.setFaults({ ...NO_LIMIT, server_error: 0.3, only_path: '/content' })
    let sent = 0
    for (let times = 0; times < 4 && (await contents()) < (await countOf('chats')); times++) {
      await run({ share: 1, requests_per_day: 400 })
      sent += asked()
    }
    setup.service.setFaults(NO_LIMIT)
    const chats = await countOf('chats')
    expect(await contents()).toBe(chats)
    expect(sent).toBeGreaterThan(chats)
    const [used] = await rows('select requests from visibility_ops.daily_requests')
    expect(used!.requests).toBeGreaterThanOrEqual(sent)
  })

  test('if the service does not offer contents, or no longer does, no chat is recorded as gone', async () => {
    await clean()
    setup.service.setExtras([])
    const never = await run({ share: 1, requests_per_day: 1000 })
    expect([never.report.outcome, never.contents?.not_offered, asked()]).toEqual(['complete', 404, 20])
    expect((await run({ share: 1, requests_per_day: 1000 })).contents).toBeUndefined()
    await clean()
    setup.service.setExtras(OFFERED)
    await run({ share: 1, requests_per_day: 40 })
    setup.service.setExtras([])
    const stopped = await run({ share: 1, requests_per_day: 1000 })
    expect([stopped.report.outcome, stopped.contents?.not_offered]).toEqual(['complete', 404])
    expect(await rows('select count(*)::int as n from visibility_ops.unread_chats')).toEqual([{ n: 0 }])
    expect(await contents()).toBe(40)
    setup.service.setExtras(OFFERED)
  })

  test('invalid content goes to quarantine and is not requested again', async () => {
    await clean()
    const odd = await startRewriter(setup.service.url, (text, { url }) =>
      url!.includes('/content') ? text.replace('"role":"user"', '"role":"us\\u0000er"') : text,
    )
    const client = openClient(odd.url)
    const { report, contents: part } = await run({ share: 1, requests_per_day: 5 }, undefined, {
      ...setup.services,
      client,
    })
    expect([report.outcome, part?.quarantined, await contents()]).toEqual(['partial', 5, 0])
    await run({ share: 1, requests_per_day: 5 })
    expect(asked()).toBe(0)
    expect(await rows('select count(*)::int as n, min(status) as status from visibility_ops.unread_chats')).toEqual([
      { n: 5, status: 200 },
    ])
    // Contents of other chats leave them there.
    await run({ share: 1, requests_per_day: 10 })
    expect([asked(), await contents()]).toEqual([5, 5])
    expect(await reopenForRetry(setup.database.warehouse, {})).toHaveLength(5)
    await run({ share: 1, requests_per_day: 15 })
    expect([asked(), await contents()]).toEqual([5, 10])
  })
})
