import { beforeAll, expect, test } from '@jest/globals'
import { addDays, type Day, dayNumber } from '../src/core/day.ts'
import type { Dimension } from '../src/core/vocabulary.ts'
import { brandReport } from '../src/reference/aggregate.ts'
import { brandDomain } from '../src/reference/extras.ts'
import { domainReport } from '../src/reference/sources.ts'
import { StreamSet } from '../src/streams/registry.ts'
import { VIEWS, viewsOf } from '../src/warehouse/schema/catalogue.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { readFilters } from '../src/web/insights/filters.ts'
import { readPage } from '../src/web/insights/read-page.ts'
import { insightsPage } from '../src/web/pages/insights-page.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'
import { newcombe, verdict, wilson } from './support/statistics.ts'

/* The views of cited sources, against what is worked out here from the rows of the reference service. */

type Row = Record<string, unknown>

const range = { from: '2026-03-09', to: '2026-03-29' }
const BRANDS = [
  { name: 'brand_daily', dimensions: ['date'] },
  { name: 'by_prompt', dimensions: ['date', 'prompt_id', 'model_id'] },
]
const SOURCES = [
  { name: 'domains_daily', of: 'domains', dimensions: ['date'] },
  { name: 'domains_by_prompt', of: 'domains', dimensions: ['date', 'prompt_id', 'model_id'] },
  { name: 'urls_daily', of: 'urls', dimensions: ['date', 'model_id'] },
]
const settings = { start_date: range.from, end_date: range.to, extras: 'auto', reports: [...BRANDS, ...SOURCES] }
const weekOf = (day: Day) => addDays(day, -((dayNumber(day) + 3) % 7))
const sum = (items: Row[], field: string) => items.reduce((total, item) => total + (item[field] as number), 0)

let setup: Setup
const rowsOf = (sql: string) => setup.database.rows<Row>(sql)
const project = () => setup.service.world.projects[0]!
const own = () => project().brands.at(-1)!
/** Whose domain it is: true for the own brand, false for a rival, undefined for nobody's. */
const isOwn = (domain: unknown) => {
  const brand = project().brands.find((candidate) => brandDomain(candidate) === domain)
  return brand === undefined ? undefined : brand.id === own().id
}
const query = (dimensions: string[]) => ({ range, dimensions: dimensions as Dimension[], filters: [] })

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 1, prompts: 6, models: 2, brands: 5 },
    extras: 'all',
    // The views are there before the first row is, and before the reports are configured.
    config: { ...settings, reports: BRANDS },
  })
  expect((await migrate(setup.database.warehouse, setup.config)).views.empty.map(({ name }) => name)).toEqual(
    viewsOf(13),
  )
  for (const name of viewsOf(13)) {
    const { fields, rows } = await setup.database.warehouse.pool.query(`select * from visibility.${name}`)
    expect([fields.map((field) => field.name), rows]).toEqual([Object.keys(VIEWS[name].columns), []])
  }
  // The service says that the first brand is own; a label says otherwise.
  const labels = { brands: { [own().id]: { own: true } } }
  Object.assign(setup.config, configOf({ ...setup.fileConfig, ...settings, labels }, setup.env))
  Object.assign(setup.services, { streams: new StreamSet(setup.config) })
  expect((await setup.sync()).outcome).toBe('complete')
}, 60_000)

/** Numbers to the digits in which two ways of adding up agree. */
const shown = (row: Row) =>
  JSON.stringify(
    Object.fromEntries(
      Object.entries(row)
        .map(([name, value]) => [name, typeof value === 'number' ? Number(value.toPrecision(10)) : value] as const)
        .toSorted(([a], [b]) => (a < b ? -1 : 1)),
    ),
  )
const same = (found: Row[], wanted: Row[]) => expect(found.map(shown).sort()).toEqual(wanted.map(shown).sort())
const byRank = (rows: Row[], among: (row: Row) => unknown) =>
  rows.map((row) => ({
    ...row,
    rank:
      1 +
      rows.filter(
        (other) => among(other) === among(row) && (other.citation_count as number) > (row.citation_count as number),
      ).length,
  }))
function groupBy(items: Row[], nameOf: (item: Row) => string): Map<string, Row[]> {
  const groups = new Map<string, Row[]>()
  for (const item of items) groups.set(nameOf(item), [...(groups.get(nameOf(item)) ?? []), item])
  return groups
}

const common = () => ({ project_id: project().id, project: project().name })
const whole = { days: 7, is_complete: true, is_provisional: false }

/** The page of a prompt or a source, as it is read and drawn. */
async function detail(path: '/insights/prompt' | '/insights/source', subject: Record<string, string>) {
  const { config } = setup.services
  const known = { projects: setup.projects, interest: range, today: range.to }
  const filters = readFilters({ ...subject, ...range }, known, path)
  const read = await readPage(setup.database.warehouse, { reports: config.reports, filters })
  return { read, page: insightsPage({ version: '', now: new Date(), projects: [], filters, found: read }) }
}

test('the page of a source has the prompts and pages that the views have', async () => {
  const [gap] = await rowsOf(
    'select domain from visibility.source_gaps group by 1 order by sum(prompts) desc, 1 limit 1',
  )
  const { read, page } = await detail('/insights/source', { domain: gap!.domain as string })
  const prompts = await rowsOf(
    `select distinct a.prompt_id, a.model_id from visibility.absent_prompts a join visibility.domains_by_prompt r
       on r.prompt_id = a.prompt_id and r.model_id = a.model_id and date_trunc('week', r.date::timestamp)::date = a.week
     where r.domain = '${gap!.domain}'`,
  )
  expect(prompts.length).toBeGreaterThan(0)
  expect(read.sections['source-prompts'].rows.length).toBe(prompts.length)
  const pages = await rowsOf(`select distinct url from visibility.page_gaps_weekly where domain = '${gap!.domain}'`)
  expect(read.sections['source-pages'].rows.length).toBe(pages.length)
  for (const { prompt_id } of prompts) expect(page).toContain(`/insights/prompt?prompt=${prompt_id}`)
})

test('the page of a prompt shows the text and citations of its answers, in each shape that the service sends', async () => {
  const [{ prompt_id: prompt }] = (await rowsOf('select prompt_id from visibility.chats order by 1 limit 1')) as [Row]
  const ofPrompt = `from visibility.chats where prompt_id = '${prompt}' order by date desc, chat_id`
  const [good, odd, worse] = (await rowsOf(`select chat_id ${ofPrompt} limit 3`)).map(({ chat_id }) => chat_id)
  const source = (domain: string, citationCount: unknown, url = `https://${domain}/page`) => ({
    domain,
    citationCount,
    url,
  })
  const save = (id: unknown, messages: unknown, sources: unknown, brands: unknown) =>
    setup.database.rows(
      `insert into visibility.chat_contents (project_id, chat_id, messages, sources, brands_mentioned)
       values ($1, $2, $3, $4, $5)`,
      [project().id, id, ...[messages, sources, brands].map((value) => JSON.stringify(value))],
    )
  const answer = { role: 'assistant', content: 'Look at <b>Tarka</b>.' }
  await save(
    good,
    [{ role: 'user', content: '?' }, answer],
    [source('a.example', 3), source('b.example', 2)],
    [{ name: 'Tarka' }],
  )
  await save(odd, { role: 'assistant' }, [source('a.example', 'many', 'javascript:alert(1)'), 7, null], 'Tarka')
  await save(worse, [null, { role: 'assistant', content: 5 }], { domain: 'c.example' }, [null, 3])
  try {
    const { read, page } = await detail('/insights/prompt', { prompt: prompt as string })
    expect(page).toContain('Look at &lt;b&gt;Tarka&lt;/b&gt;.')
    expect(page).toContain('href="https://a.example/page"')
    expect(page).not.toContain('href="javascript:')
    expect(read.sections.cited.rows.slice(0, 2)).toMatchObject([
      { domain: 'a.example', citation_count: 3, answers: 2 },
      { domain: 'b.example', citation_count: 2, answers: 1 },
    ])
    const other = await detail('/insights/prompt', { prompt: prompt as string, model: 'another-model' })
    expect(other.read.sections.cited.rows).toEqual([])
  } finally {
    await setup.database.rows('delete from visibility.chat_contents')
  }
})

test('domains by week: retrieved, cited, own or of a rival, as ratios of sums, and the week before', async () => {
  const items = domainReport(setup.service.world, project(), query(['date']))
  const days = new Map(items.map((item) => [item.date as Day, item.total_chat_count as number]))
  const answersOf = (week: Day) => {
    const found = [...days].filter(([day]) => weekOf(day) === week)
    return found.length === 0 ? null : found.reduce((total, [, answers]) => total + answers, 0)
  }
  const weeks = [...new Set([...days.keys()].map(weekOf))]
  const wanted = weeks.flatMap((week) =>
    [...new Set(items.filter(({ date }) => weekOf(date as Day) === week).map(({ domain }) => domain))].map((domain) => {
      const of = (monday: Day) => items.filter((item) => item.domain === domain && weekOf(item.date as Day) === monday)
      const [now, before] = [of(week), of(addDays(week, -7))]
      const previous = answersOf(addDays(week, -7))
      const k = sum(now, 'retrieved_chat_count')
      const n = answersOf(week)!
      const previousK = previous === null ? null : sum(before, 'retrieved_chat_count')
      const sampleBefore = previous === null ? undefined : { k: previousK!, n: previous }
      const [low, high] = newcombe({ k, n }, sampleBefore) ?? [null, null]
      const kind = now.at(-1)!.classification
      return {
        ...common(),
        week,
        domain,
        classification: kind,
        is_own: isOwn(domain) === true,
        is_rival: isOwn(domain) === false,
        retrieved_chat_count: k,
        answers: n,
        retrieved_share: k / n,
        retrieved_share_low: wilson(k, n)![0],
        retrieved_share_high: wilson(k, n)![1],
        enough_answers: n >= 30,
        citation_count: sum(now, 'citation_count'),
        citations_per_answer: sum(now, 'citation_count') / k,
        previous_retrieved_chat_count: previousK,
        previous_answers: previous,
        previous_retrieved_share: previous === null ? null : previousK! / previous,
        change: previous === null ? null : k / n - previousK! / previous,
        change_low: low,
        change_high: high,
        verdict: verdict({ k, n }, sampleBefore),
        previous_citation_count: previous === null ? null : sum(before, 'citation_count'),
        ...whole,
        comparison_is_complete: previous === null ? null : true,
        retrieval_count: sum(now, 'retrieval_count'),
        retrieval_rate: sum(now, 'retrieval_count') / n,
        citation_rate: sum(now, 'citation_count') / sum(now, 'retrieval_count'),
      }
    }),
  )
  expect(wanted.length).toBeGreaterThan(20)
  same(
    await rowsOf('select * from visibility.sources_weekly'),
    byRank(wanted, ({ week }) => week),
  )
})

test.each([
  ['http://example.com', 'example.com'],
  ['https://example.com:443/a/', 'example.com/a'],
  ['https://example.com/a?id=3&utm_source=x&b=2#part', 'example.com/a?id=3&b=2'],
])('the page behind %s is %s', async (url, key) => {
  expect(await rowsOf(`select visibility.url_key('${url}') as key`)).toEqual([{ key }])
})

test('gaps are the domains cited for prompts and models where rivals appear in a week and the own brand does not', async () => {
  const { world } = setup.service
  const by = ['date', 'prompt_id', 'model_id']
  const groupOf = (item: Row) =>
    [weekOf(item.date as Day), (item.prompt as { id: string }).id, (item.model as { id: string }).id].join()
  const named = new Map<string, Set<string>>()
  for (const item of brandReport(world, project(), query(by))) {
    if ((item.visibility_count as number) === 0) continue
    const group = named.get(groupOf(item)) ?? new Set()
    named.set(groupOf(item), group.add((item.brand as { id: string }).id))
  }
  const isAbsent = (item: Row) => named.has(groupOf(item)) && !named.get(groupOf(item))!.has(own().id)
  const items = domainReport(world, project(), query(by)).filter(isAbsent)
  const wanted = [...groupBy(items, ({ domain, date }) => `${weekOf(date as Day)} ${domain}`).values()]
    .filter((rows) => sum(rows, 'citation_count') > 0)
    .map((rows) => ({
      ...common(),
      week: weekOf(rows[0]!.date as Day),
      own_brand_id: own().id,
      own_brand: own().name,
      domain: rows[0]!.domain,
      classification: rows[0]!.classification,
      is_own: isOwn(rows[0]!.domain) === true,
      is_rival: isOwn(rows[0]!.domain) === false,
      prompts: new Set(rows.map((row) => (row.prompt as { id: string }).id)).size,
      models: new Set(rows.map((row) => (row.model as { id: string }).id)).size,
      citation_count: sum(rows, 'citation_count'),
      retrieved_chat_count: sum(rows, 'retrieved_chat_count'),
      ...whole,
    }))
  expect(wanted.length).toBeGreaterThan(5)
  same(
    await rowsOf('select * from visibility.source_gaps'),
    byRank(wanted, ({ week }) => week),
  )
})

test('the insights show the sources of the range, and no such section without rows', async () => {
  const names = [{ id: project().id, name: project().name }]
  const page = async () => {
    const filters = readFilters(
      { from: range.from, to: range.to },
      { projects: names, interest: range, today: '2026-03-31' },
    )
    const found = await readPage(setup.database.warehouse, { reports: setup.config.reports, filters })
    const html = insightsPage({ version: 'test', now: new Date(), projects: names, filters, found })
    return { sources: found.sections.sources, html }
  }
  const { sources, html } = await page()
  expect(html).toContain('Sources cited')
  expect(html).toContain('Sources of answers without you')
  const items = domainReport(setup.service.world, project(), query(['date']))
  const [first] = sources.rows
  const ofFirst = items.filter(({ domain }) => domain === first!.domain)
  const answers = [...new Map(items.map((item) => [item.date, item.total_chat_count as number])).values()]
  expect(first).toMatchObject({
    citation_count: sum(ofFirst, 'citation_count'),
    retrieved_chat_count: sum(ofFirst, 'retrieved_chat_count'),
    answers: answers.reduce((total, count) => total + count, 0),
  })
  // A day on which the service leaves a number out: what would be divided by it is unknown, not smaller.
  await rowsOf(`update visibility.domains_daily set total_chat_count = null where date = '${range.from}'`)
  expect((await page()).sources.rows[0]).toMatchObject({ answers: null, retrieved_share: null })
  expect(
    await rowsOf(
      `select distinct answers, retrieved_share, verdict from visibility.sources_weekly where week = '${weekOf(range.from)}'`,
    ),
  ).toEqual([{ answers: null, retrieved_share: null, verdict: null }])
})
