/// <reference lib="dom" />
import { beforeAll, describe, expect, test } from '@jest/globals'
import { parse } from 'csv-parse/sync'
import type { BrowserContextOptions, Page } from 'playwright-core'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { inBrowser, launchTabs, type Tabs, violationsIn } from './support/chromium.ts'
import { type RunningCli, startCli } from './support/cli.ts'
import { get, NEVER } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'
import { clarity, newcombe, verdict, wilson } from './support/statistics.ts'

/* The insights page: its numbers against SQL and formulas that do not go through its views, and how it is to use. */

// Those that the page reads.
const REPORTS = DEFAULT_REPORTS.filter(({ dimensions }) =>
  ['date', 'date,model_id', 'date,topic_id,model_id', 'date,prompt_id,model_id'].includes(dimensions.join()),
)
const RANGE = 'from=2026-03-02&to=2026-03-29'
let setup: Setup
let running: RunningCli
let url: string
let project: string
let own: string
let other: string
let never: string

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 3, prompts: 12, models: 4, brands: 7 },
    config: {
      start_date: '2026-01-26',
      end_date: '2026-03-31',
      reports: REPORTS,
      streams: ['project_profile', 'prompts', 'chats'],
    },
  })
  const { projects } = setup.service.world
  ;[project, other, never] = projects.map(({ id }) => id) as [string, string, string]
  own = projects[0]!.brands.at(-1)!.id
  const labels = {
    brands: {
      [own]: { own: true },
      // Named like its profile, it would be own.
      ...Object.fromEntries(projects.slice(1).map(({ brands }) => [brands[0]!.id, { own: false }])),
    },
    topics: Object.fromEntries(projects.flatMap(({ topics }) => topics.map(({ id, name }) => [id, name]))),
  }
  running = startCli(['serve', '--port', '0'], {
    env: setup.env,
    config: { ...setup.fileConfig, labels, schedule: { cron: NEVER, audit_cron: NEVER } },
  })
  await running.saw('run ended')
  url = /Serving: +(\S+)/.exec(running.output())![1]!
  for (const table of ['visibility.brand_daily', 'visibility.brands', 'visibility_ops.coverage'])
    await setup.database.rows(`delete from ${table} where project_id = $1`, [never])
})

const page = async (query = RANGE) => {
  const { status, text } = await get(`${url}/insights?project=${project}&${query}`)
  expect(status).toBe(200)
  return text
}

/** The part of a page with an id, as texts of the cells of its rows. */
function tableIn(text: string, id: string): string[][] {
  const section = text.slice(text.indexOf(`id="${id}"`))
  const table = /<table[\s\S]*?<\/table>/.exec(section)![0]
  return [...table.matchAll(/<tr[^>]*>([\s\S]*?)<\/tr>/g)].map(([, row]) =>
    [...row!.matchAll(/<t[hd][^>]*>([\s\S]*?)<\/t[hd]>/g)].map(([, cell]) => plain(cell!)),
  )
}

function plain(text: string): string {
  const entities: Record<string, string> = { '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&amp;': '&' }
  return text
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll(/&[#\w]+;/g, (entity) => entities[entity]!)
    .replaceAll(/\s+/g, ' ')
    .trim()
}

async function csv(section: string, query = RANGE): Promise<Record<string, string>[]> {
  const { status, text, headers } = await get(`${url}/insights/${section}.csv?project=${project}&${query}`)
  expect(status).toBe(200)
  expect(headers.get('content-type')).toContain('text/csv')
  return parse(text, { columns: true }) as Record<string, string>[]
}

const modelId = async () =>
  (await setup.database.rows<{ id: string }>('select min(model_id) as id from visibility.brand_daily_by_model'))[0]!.id

const shown = (share: number) => `${Number((share * 100).toFixed(1))} %`

interface Sums {
  k: number
  n: number
  mentions: number
  all_mentions: number
  position: number
  position_count: number
  sentiment: number
}

/** Straight from the report by day. */
async function sums(brand: string, from: string, to: string): Promise<Sums> {
  const [row] = await setup.database.rows(
    `select sum(visibility_count) as k, sum(visibility_total) as n, sum(mention_count) as mentions,
       (select sum(mention_count) from visibility.brand_daily where project_id = $1 and date between $3 and $4) as all_mentions,
       sum(position * position_count) / sum(position_count) as position, sum(position_count) as position_count,
       sum(sentiment * sentiment_count) / sum(sentiment_count) as sentiment
     from visibility.brand_daily where project_id = $1 and brand_id = $2 and date between $3 and $4`,
    [project, brand, from, to],
  )
  return row as unknown as Sums
}

test('the headlines are ratios of sums over the range and the previous range, with verdict, interval and sample', async () => {
  const now = await sums(own, '2026-03-02', '2026-03-29')
  const before = await sums(own, '2026-02-02', '2026-03-01')
  const rows = new Map((await csv('summary')).map((row) => [row.metric, row]))
  const visibility = rows.get('visibility')!
  expect(Number(visibility.value)).toBeCloseTo(now.k / now.n, 10)
  expect(Number(visibility.change)).toBeCloseTo(now.k / now.n - before.k / before.n, 10)
  expect([visibility.low, visibility.high].map(Number)).toEqual(
    wilson(now.k, now.n)!.map((end) => expect.closeTo(end, 10)),
  )
  expect([visibility.change_low, visibility.change_high].map(Number)).toEqual(
    newcombe(now, before)!.map((end) => expect.closeTo(end, 10)),
  )
  expect(visibility.verdict).toBe(verdict(now, before))
  expect(Number(rows.get('share_of_voice')!.value)).toBeCloseTo(now.mentions / now.all_mentions, 10)
  expect(Number(rows.get('position')!.value)).toBeCloseTo(now.position, 10)
  expect(Number(rows.get('position')!.sample)).toBe(now.position_count)
  expect(Number(rows.get('sentiment')!.value)).toBeCloseTo(now.sentiment, 10)
  // Without an interval, nothing is called clear.
  expect(['share_of_voice', 'position', 'sentiment'].map((name) => rows.get(name)!.verdict)).toEqual(['', '', ''])

  const text = await page()
  const tile = plain(/id="tile-visibility">([\s\S]*?)<\/li>/.exec(text)![1]!)
  expect(tile).toContain(`Visibility ${shown(now.k / now.n)} `)
  expect(tile).toContain(`${now.k} of ${now.n.toLocaleString('en-US')} answers`)
  const words = { up: 'Clear rise', down: 'Clear fall', no_clear_change: 'No clear change' }
  expect(tile).toContain(words[verdict(now, before) as keyof typeof words])
  expect(plain(/id="tile-share-of-voice">([\s\S]*?)<\/li>/.exec(text)![1]!)).toContain('chance is not ruled out')
  expect(text).toContain('2026-03-02 to 2026-03-29, compared with 2026-02-02 to 2026-03-01.')
  expect(text).not.toMatch(/\d\.0 %/)
})

test('charts are by week unless days are asked for, and have the numbers of the report', async () => {
  const weekly = tableIn(await page(), 'visibility')
  // Four weeks, and the four before them.
  expect(weekly.slice(1).map(([week]) => week)).toEqual([
    ...['2026-02-02', '2026-02-09', '2026-02-16', '2026-02-23'],
    ...['2026-03-02', '2026-03-09', '2026-03-16', '2026-03-23'],
  ])
  const week = await sums(own, '2026-03-09', '2026-03-15')
  expect(weekly[6]!.slice(1, 4)).toEqual([
    shown(week.k / week.n),
    wilson(week.k, week.n)!.map(shown).join(' to '),
    String(week.n),
  ])
  expect(weekly[0]![1]).toBe(setup.service.world.projects[0]!.brands.at(-1)!.name)
  const byWeek = (await csv('position')).find((row) => row.brand_id === own && row.week === '2026-03-09')!
  expect(Number(byWeek.position)).toBeCloseTo(week.position, 10)
  expect(byWeek.is_complete).toBe('true')

  const daily = tableIn(await page(`${RANGE}&grain=day`), 'visibility')
  expect(daily.length).toBe(57)
  const day = await sums(own, '2026-03-10', '2026-03-10')
  expect(daily.find(([date]) => date === '2026-03-10')![1]).toBe(shown(day.k / day.n))
  // A short range has hardly a week.
  expect(tableIn(await page('from=2026-03-01&to=2026-03-07'), 'visibility').length).toBe(15)
})

test('a day that was held makes its week incomplete, and both are drawn as such', async () => {
  await setup.database.rows(
    "update visibility_ops.coverage set state = 'held' where project_id = $1 and stream = 'brand_daily' and date = '2026-02-11'",
    [project],
  )
  const weekly = await page('from=2026-02-02&to=2026-03-01')
  expect(tableIn(weekly, 'visibility').map((row) => [row[0], row.at(-1)])).toContainEqual(['2026-02-09', 'incomplete'])
  expect(weekly).toMatch(/<g class="c0" data-series="0">.*<path class="open"/)
  expect(weekly).toContain('1 of them is incomplete')
  const daily = await page('from=2026-02-02&to=2026-03-01&grain=day')
  for (const section of ['visibility', 'position'])
    expect(tableIn(daily, section).map((row) => [row[0], row.at(-1)])).toContainEqual(['2026-02-11', 'incomplete'])
  await setup.database.rows("update visibility_ops.coverage set state = 'read' where state = 'held'")
})

test('the heat map and head to head count the days of the range', async () => {
  const rows = await setup.database.rows(
    `select coalesce(t.name, '(no topic)') as topic, r.model_id, sum(r.visibility_count) as k, sum(r.visibility_total) as n
     from visibility.brand_daily_by_topic_model r left join visibility.topics t using (project_id, topic_id)
     where r.project_id = $1 and r.brand_id = $2 and r.date between '2026-03-02' and '2026-03-29' group by 1, 2`,
    [project, own],
  )
  const text = await page()
  const [heads, ...map] = tableIn(text, 'topics-by-model')
  expect(rows.length).toBe((heads!.length - 2) * (map.length - 1))
  for (const { topic, model_id, k, n } of rows as unknown as {
    topic: string
    model_id: string
    k: number
    n: number
  }[]) {
    const cell = map.find(([name]) => name === topic)![heads!.indexOf(model_id)]!
    expect(cell.replaceAll(/[▲▼] /g, '')).toBe(`${shown(k / n)} ${n}`)
  }
  const all = await sums(own, '2026-03-02', '2026-03-29')
  expect(map.at(-1)![1]).toBe(`${shown(all.k / all.n)} ${all.n.toLocaleString('en-US')}`)

  const leads = await csv('head-to-head')
  expect(leads.length).toBe(6)
  for (const lead of leads) {
    const rival = await sums(lead.rival_brand_id!, '2026-03-02', '2026-03-29')
    expect(Number(lead.lead)).toBeCloseTo(all.k / all.n - rival.k / rival.n, 10)
    const [mine, theirs] = [wilson(all.k, all.n)!, wilson(rival.k, rival.n)!]
    expect(lead.lead_verdict).toBe(mine[0] > theirs[1] ? 'ahead' : mine[1] < theirs[0] ? 'behind' : 'no_clear_lead')
  }
  const rival = leads.at(-1)!.rival_brand_id!
  const byModel = await csv('head-to-head-by-model', `${RANGE}&rival=${rival}`)
  const sumOf = (name: string) => byModel.reduce((sum, row) => sum + Number(row[name]), 0)
  expect(byModel.length).toBe(4)
  expect(sumOf('own_answers')).toBe(all.n)
})

test('movers of a week are those of the view, and movers of a range are computed in the same way', async () => {
  const shown = await csv('movers', `${RANGE}&week=2026-03-23`)
  const rows = await setup.database.rows<Record<string, unknown>>(
    `select rank, brand, topic, model_id, grain, clarity, q_value, verdict from visibility.movers_weekly
     where project_id = $1 and week = '2026-03-23' order by rank, clarity desc, brand_id, topic_id, model_id`,
    [project],
  )
  expect(shown.length).toBeGreaterThan(10)
  expect(shown.map((row) => [row.rank, row.brand, row.topic, row.model_id, row.grain, row.verdict])).toEqual(
    rows.map((row) =>
      [row.rank, row.brand, row.topic, row.model_id, row.grain, row.verdict].map((cell) =>
        cell === null ? '' : `${cell as string | number}`,
      ),
    ),
  )
  expect(Number(shown[0]!.q_value)).toBeCloseTo(rows[0]!.q_value as number, 8)
  const text = await page(`${RANGE}&week=2026-03-09`)
  expect(text).toContain('Week of 2026-03-09 against the week before')
  expect(plain(text)).toContain('None of')

  // By default the whole range is compared with the one before.
  const [clear] = await csv('movers')
  const [now] = (await setup.database.rows(
    `select sum(r.visibility_count) filter (where r.date >= '2026-03-02') as k, sum(r.visibility_total) filter (where r.date >= '2026-03-02') as n,
       sum(r.visibility_count) filter (where r.date < '2026-03-02') as previous_k, sum(r.visibility_total) filter (where r.date < '2026-03-02') as previous_n
     from visibility.brand_daily_by_topic_model r join visibility.brands b using (project_id, brand_id)
     left join visibility.topics t using (project_id, topic_id)
     where r.project_id = $1 and r.date between '2026-02-02' and '2026-03-29'
       and b.name = $2 and $3 in (coalesce(t.name, '(no topic)'), '(all topics)') and $4 in (r.model_id, '')`,
    [project, clear!.brand, clear!.topic, clear!.model_id],
  )) as unknown as { k: number; n: number; previous_k: number; previous_n: number }[]
  const samples = [
    { k: now!.k, n: now!.n },
    { k: now!.previous_k, n: now!.previous_n },
  ] as const
  expect(clear!.rank).toBe('1')
  expect(Number(clear!.clarity)).toBeCloseTo(clarity(...samples)!, 8)
  expect(clear!.verdict).toBe(verdict(...samples))
})

test('without 80 % of the days before nothing is compared, and the page gives the reason', async () => {
  // Eight of ten days were read before the first range, and seven before the second.
  for (const [query, isCompared] of [
    ['from=2026-02-03&to=2026-02-12', true],
    ['from=2026-02-02&to=2026-02-11', false],
  ] as const) {
    const summary = await csv('summary', query)
    expect(summary.map(({ change }) => change !== '')).toEqual(summary.map(() => isCompared))
    expect(summary[0]!.verdict).not.toBe(isCompared ? 'new' : 'no_clear_change')
    const cells = await csv('topics-by-model', query)
    expect(cells.every(({ change, verdict }) => (change !== '' || verdict === 'too_few') === isCompared)).toBe(true)
    const text = plain(await page(query))
    const reason = 'of the 10 days from 2026-01-23 to 2026-02-01, 7 are complete, and a comparison needs 8.'
    // Above the headlines, and instead of the movers.
    expect(text.split(reason).length - 1).toBe(isCompared ? 0 : 2)
    expect(text.includes('Table of movers')).toBe(false)
    expect(/[+−][\d.]+ points/.test(text.slice(0, text.indexOf('Head to head')))).toBe(isCompared)
    const movers = await get(`${url}/insights/movers.csv?project=${project}&${query}`)
    expect(movers.status).toBe(isCompared ? 200 : 400)
  }
  const year = plain(await page('period=1y'))
  expect(year).toContain('The first day that was read is 2026-01-26.')
  expect(year).not.toMatch(/Higher|Lower|Clear rise|Clear fall/)
  // A week is compared with the week before under the same condition.
  expect(plain(await page(`${RANGE}&week=2026-01-26`))).toContain('0 are complete, and a comparison needs 6.')
})

test('a section is compared only if enough days of its own report were read before', async () => {
  const query = 'from=2026-03-09&to=2026-03-29'
  const hold = (state: string) =>
    setup.database.rows(
      `update visibility_ops.coverage set state = $2
       where project_id = $1 and stream = 'brand_daily_by_topic_model' and date between '2026-02-16' and '2026-02-22'`,
      [project, state],
    )
  await hold('held')
  try {
    expect((await csv('summary', query))[0]!.change).not.toBe('')
    expect((await csv('topics-by-model', query)).every(({ change }) => change === '')).toBe(true)
    expect(plain(await page(query))).toContain('14 are complete, and a comparison needs 17.')
    expect((await get(`${url}/insights/movers.csv?project=${project}&${query}`)).status).toBe(400)
  } finally {
    await hold('read')
  }
})

test('absent prompts are all there, page by page, and counted whole', async () => {
  const absent = (await setup.database.rows(
    `with weeks as (
       select date_trunc('week', date::timestamp)::date as week, prompt_id, model_id,
         sum(visibility_count) filter (where brand_id = $2) as mine, sum(visibility_count) filter (where brand_id <> $2) as theirs
       from visibility.brand_daily_by_prompt_model where project_id = $1 and date between '2026-01-26' and '2026-03-29' group by 1, 2, 3)
     select p.text as prompt, w.model_id, count(*)::int as weeks from weeks w join visibility.prompts p using (prompt_id)
     where p.project_id = $1 and w.mine = 0 and w.theirs > 0 group by w.prompt_id, p.text, w.model_id`,
    [project, own],
  )) as unknown as { prompt: string; model_id: string; weeks: number }[]
  expect(absent.length).toBeGreaterThan(25)
  const query = 'from=2026-01-26&to=2026-03-29'
  const found: string[][] = []
  for (let at = 1; at <= Math.ceil(absent.length / 25); at++) {
    const text = await page(`${query}&page=${at}`)
    expect(plain(text)).toContain(`${absent.length} in the weeks from 2026-01-26 to 2026-03-29`)
    found.push(...tableIn(text, 'absent-prompts').slice(1))
  }
  const key = (...parts: (string | number)[]) => parts.join(' | ')
  expect(found.map(([prompt, , model, weeks]) => key(prompt!, model!, weeks!)).sort()).toEqual(
    absent.map(({ prompt, model_id, weeks }) => key(prompt, model_id, weeks)).sort(),
  )
  // Pages may vanish between two looks: the last one is shown.
  const beyond = await page(`${query}&page=999`)
  expect(plain(beyond)).toContain(`to ${absent.length} of ${absent.length}`)
  expect((await csv('absent-prompts', query)).length).toBe(absent.length)
})

test('the SQL on the page gives what its file holds, and no cell of a file is taken for a formula', async () => {
  const rival = setup.service.world.projects[0]!.brands[1]!
  await setup.database.rows('update visibility.brands set name = $2 where brand_id = $1', [rival.id, '=1+1,"x"'])
  const query = 'from=2026-02-23&to=2026-03-22'
  const text = await page(query)
  const blocks = [...text.matchAll(/aria-label="SQL of [^"]*"><code>([\s\S]*?)<\/code>/g)].map(([, sql]) =>
    sql!
      .replaceAll('&#39;', "'")
      .replaceAll('&lt;', '<')
      .replaceAll('&gt;', '>')
      .replaceAll('&quot;', '"')
      .replaceAll('&amp;', '&'),
  )
  expect(blocks.length).toBe(10)
  for (const sql of blocks) expect((await setup.database.rows(sql)).length).toBeGreaterThan(0)
  const leads = (await get(`${url}/insights/head-to-head.csv?project=${project}&${query}`)).text
  expect(leads).toContain(`,"'=1+1,""x""",`)
  const rows = await csv('visibility', query)
  expect(rows.length).toBe((await setup.database.rows(blocks[1]!)).length)
  await setup.database.rows('update visibility.brands set name = $2 where brand_id = $1', [rival.id, rival.name])
})

test('links of sections keep the filters, and presets move with the days', async () => {
  const query = `${RANGE}&grain=day&brand=${own}&rival=${setup.service.world.projects[0]!.brands[2]!.id}`
  const text = await page(query)
  const links = [...text.matchAll(/href="(\/insights[^"]*)"/g)].map(
    ([, href]) => new URL(href!.replaceAll('&amp;', '&'), url),
  )
  for (const section of ['visibility', 'movers', 'absent-prompts', 'head-to-head', 'topics-by-model', 'summary']) {
    const link = links.find(({ hash, pathname }) => hash === `#${section}` && pathname === '/insights')!
    const file = links.find(({ pathname }) => pathname === `/insights/${section}.csv`)!
    for (const { searchParams } of [link, file])
      expect(Object.fromEntries(searchParams)).toMatchObject(Object.fromEntries(new URLSearchParams(query)))
  }
  const preset = await page('period=90d')
  expect(preset).toContain('2026-01-01 to 2026-03-31')
  expect(preset).toContain('<option value="90d" selected>90 days')
  expect(await page('period=week')).toContain('2026-03-23 to 2026-03-29, compared with 2026-03-16 to 2026-03-22.')
  // The form sends its dates together with the period that replaces them.
  expect(await page('period=4w&from=2026-03-01&to=2026-03-02')).toContain('2026-03-04 to 2026-03-31')
  // Where less than twice 90 days is of interest, there is nothing that 90 days could be compared with.
  expect(await page('')).toContain('2026-03-04 to 2026-03-31, compared with 2026-02-04 to 2026-03-03.')
  expect(await page('period=1y')).toContain('2025-04-01 to 2026-03-31')
})

test.each([
  ['period=2w', 'period: got "2w"; allowed: week, 4w, 90d, 1y'],
  ['compare=never', 'compare: got "never"; allowed: before, year, none'],
  ['topic=to_1', 'topic: unknown'],
  ['grain=hour', 'grain: got "hour"; allowed: week, day'],
  ['brand=kw_nobody', 'brand: got "kw_nobody"; own brands are: kw_'],
  ["rival=' or 1=1", 'rival: got'],
  ['week=2026-03-10', 'allowed: a Monday, such as 2026-03-09'],
  ['page=0', 'page: got "0"'],
  ['page=-1', 'page: got "-1"'],
  ['print=yes', 'print: got "yes"'],
  ['colour=blue', 'colour: unknown'],
])('%s is refused with a sentence, on the page and for files', async (query, sentence) => {
  const answer = await get(`${url}/insights?project=${project}&${query}`)
  expect(answer.status).toBe(400)
  expect(plain(answer.text)).toContain(sentence)
  const file = await get(`${url}/insights/head-to-head-by-model.csv?project=${project}&${query}`)
  expect(file.status).toBe(400)
})

describe('the page of a topic', () => {
  const of = async (path: string, query: string) => {
    const { status, text } = await get(`${url}${path}?project=${project}&${query}`)
    expect(status).toBe(200)
    return text
  }
  const file = async (path: string, query: string) =>
    parse((await get(`${url}${path}.csv?project=${project}&${query}`)).text, { columns: true }) as Record<
      string,
      string
    >[]
  const topic = () => setup.service.world.projects[0]!.topics[0]!

  test('has the sums of its report: by week, by brand, by model and by prompt', async () => {
    const query = `topic=${topic().id}&${RANGE}`
    const rows = (columns: string, table: string, where: string) =>
      setup.database.rows<{ id: string; k: number; n: number }>(
        `select ${columns} as id, sum(visibility_count) as k, max(n) as n from (
           select *, sum(visibility_total) over (partition by ${columns}, brand_id) as n from visibility.${table}
           where project_id = $1 and date between '2026-03-02' and '2026-03-29' and ${where}
         ) r where brand_id = $2 group by 1`,
        [project, own],
      )
    const inTopic = `topic_id = '${topic().id}'`
    const ofPrompts = `prompt_id in (select prompt_id from visibility.prompts where topic_id = '${topic().id}')`
    const expected = {
      trend: await rows("date_trunc('week', date::timestamp)::date", 'brand_daily_by_topic_model', inTopic),
      'by-model': await rows('model_id', 'brand_daily_by_topic_model', inTopic),
      prompts: await rows('prompt_id', 'brand_daily_by_prompt_model', ofPrompts),
      brands: await rows('brand_id', 'brand_daily_by_topic_model', inTopic),
    }
    for (const [section, sums] of Object.entries(expected)) {
      const found = (await file(`/insights/topic/${section}`, query)).filter(
        (row) => (row.brand_id ?? own) === own && (row.week ?? '2026-03-02') >= '2026-03-02',
      )
      expect(found.length).toBe(sums.length)
      for (const { id, k, n } of sums) {
        const row = found.find((one) => [one.week, one.id, one.brand_id].includes(id))!
        expect([Number(row.visibility_count), Number(row.answers)]).toEqual([k, n])
        expect(Number(row.visibility)).toBeCloseTo(k / n, 10)
        expect([row.visibility_low, row.visibility_high].map(Number)).toEqual(
          wilson(k, n)!.map((end) => expect.closeTo(end, 10)),
        )
      }
    }
    const shownBrands = tableIn(await of('/insights/topic', query), 'brands')
    const { k, n } = expected.brands[0]!
    expect(shownBrands.find(([name]) => name === setup.service.world.projects[0]!.brands.at(-1)!.name)![1]).toBe(
      shown(k / n),
    )
  })

  test('counts the own brand in the answers since it is tracked, and calls it new', async () => {
    const table = 'visibility.brand_daily_by_topic_model'
    const model = await modelId()
    const before = `from ${table} where project_id = '${project}' and brand_id = '${own}' and date < '2026-03-05'`
    await setup.database.rows(`create table public.kept as select * ${before}`)
    await setup.database.rows(`delete ${before}`)
    const see = (day: string) =>
      setup.database.rows('update visibility.brands set first_seen_on = $2 where brand_id = $1', [own, day])
    const [seen] = await setup.database.rows<{ day: string }>(
      'select first_seen_on::text as day from visibility.brands where brand_id = $1',
      [own],
    )
    await see('2026-03-05')
    try {
      for (const from of ['2026-03-02', '2026-03-05']) {
        const query = `from=${from}&to=2026-03-22`
        const heat = await csv('topics-by-model', query)
        for (const row of await file('/insights/model/by-topic', `${query}&model=${encodeURIComponent(model)}`)) {
          const cell = heat.find((one) => one.topic_id === row.id && one.model_id === model)!
          expect([row.answers, row.visibility, row.verdict]).toEqual([cell.answers, cell.visibility, cell.verdict])
          expect(row.verdict).toBe('new')
        }
      }
    } finally {
      await see(seen!.day)
      await setup.database.rows(`insert into ${table} select * from public.kept`)
      await setup.database.rows('drop table public.kept')
    }
  })

  test('leads to its prompts and back, with the filters that it was opened with', async () => {
    const query = `${RANGE}&grain=day&compare=none`
    const first = await of('/insights', query)
    const links = (text: string, path: string) =>
      [...text.matchAll(/href="(\/insights[^"]*)"/g)]
        .map(([, href]) => new URL(href!.replaceAll('&amp;', '&'), url))
        .filter(({ pathname }) => pathname === path)
    for (const path of ['/insights/topic', '/insights/model']) expect(links(first, path).length).toBeGreaterThan(0)
    const [toTopic] = links(first, '/insights/topic').filter(({ searchParams }) => !searchParams.has('model'))
    const ofTopic = await of('/insights/topic', toTopic!.search.slice(1).replace(/&?project=[^&]*/, ''))
    const [toPrompt] = links(ofTopic, '/insights/prompt')
    const ofPrompt = await of('/insights/prompt', toPrompt!.search.slice(1).replace(/&?project=[^&]*/, ''))
    const back = links(ofPrompt, '/insights').find(({ search }) => search !== '')
    for (const link of [toTopic!, toPrompt!, back!])
      expect(Object.fromEntries(link.searchParams)).toMatchObject(Object.fromEntries(new URLSearchParams(query)))
    expect(links(ofPrompt, '/insights/topic').length).toBeGreaterThan(0)
    const prompt = toPrompt!.searchParams.get('prompt')!
    const [{ chats }] = (await setup.database.rows<{ chats: number }>(
      "select count(*)::int as chats from visibility.chats where prompt_id = $1 and date between '2026-03-02' and '2026-03-29'",
      [prompt],
    )) as [{ chats: number }]
    expect((await file('/insights/prompt/chats', `prompt=${prompt}&${RANGE}`)).length).toBe(chats)
    expect(tableIn(ofPrompt, 'chats').length).toBe(21)
  })

  test('of a model has its topics, and a page without its subject is refused', async () => {
    const text = await of('/insights/model', `model=${encodeURIComponent(await modelId())}&${RANGE}`)
    expect(tableIn(text, 'by-topic').length).toBeGreaterThan(3)
    const refused = await get(`${url}/insights/topic?project=${project}`)
    expect(refused.status).toBe(400)
    expect(plain(refused.text)).toContain('topic: not given')
    expect(refused.text).toContain('<a href="/insights">Open this page without filters</a>')
  })
})

test('the numbers are compared with the same weekdays a year ago, or with nothing', async () => {
  const none = await page(`${RANGE}&compare=none`)
  expect(none).toContain('Nothing is compared, as chosen.')
  expect(none).not.toContain('period before</text>')
  expect(await page(`${RANGE}&compare=year`)).toContain('of the 28 days from 2025-03-03 to 2025-03-30, 0 are complete')
})

test('the heat map uses its colours for the shares that there are', async () => {
  const text = await page()
  const cells = [...text.matchAll(/<td class="n heat-(\d)"/g)].map(([, step]) => step)
  expect(new Set(cells).size).toBeGreaterThanOrEqual(4)
  expect([Math.min(...cells.map(Number)), Math.max(...cells.map(Number))]).toEqual([0, 5])
})

test('topics without a name are listed with a template to copy', async () => {
  const { id, name } = setup.service.world.projects[0]!.topics[0]!
  expect(await page()).not.toContain('topic has no name')
  await setup.database.rows('update visibility.topics set name = null where topic_id = $1', [id])
  try {
    // A range that no other test asks for: pages are cached.
    const text = plain(await page('from=2026-03-03&to=2026-03-30'))
    expect(text.includes('1 topic has no name')).toBe(true)
    expect(text.includes(`labels: topics: ${id}: …`)).toBe(true)
  } finally {
    await setup.database.rows('update visibility.topics set name = $2 where topic_id = $1', [id, name])
  }
})

test('the next steps name prompts and clear falls, and nothing that chance explains', async () => {
  const text = await page()
  const section = /<section class="card next"[\s\S]*?<\/section>/.exec(text)?.[0] ?? ''
  const lines = [...section.matchAll(/<li>([\s\S]*?)<\/li>/g)].map(([, line]) => plain(line!))
  const falls = (await csv('movers')).filter(
    ({ brand_id, verdict: judged, q_value }) => brand_id === own && judged === 'down' && Number(q_value) <= 0.1,
  )
  const listed = await csv('absent-prompts')
  const absent = listed.filter(({ answers }) => Number(answers) >= 30)
  expect(listed.slice(0, absent.length)).toEqual(absent)
  expect(lines.filter((line) => line.includes('a clear fall')).length).toBe(Math.min(3, falls.length))
  expect(lines.filter((line) => line.includes('is in none of')).length).toBe(Math.min(3, absent.length))
  for (const { answers, prompt } of absent.slice(0, 3))
    expect(lines.some((line) => line.includes(prompt!) && line.includes(`none of ${answers} answers`))).toBe(true)
})

test('what was not examined is not called absent', async () => {
  const text = plain(await page('from=2026-03-24&to=2026-03-24&compare=none'))
  expect(text).toContain('The day was read.')
  expect(text).toContain('No week begins in this range.')
  expect(text).toMatch(/Nothing stands out: no prompt|What to do next (?!Nothing)/)
  const falls = (read: string) => read.match(/a clear fall/g)?.length
  expect(falls(await page(`${RANGE}&week=2026-01-26`))).toBe(falls(await page(RANGE)))
})

test('a page without data names the cause and the next step', async () => {
  const read = async (query: string) => (await get(`${url}/insights?${query}`)).text
  const see = async (query: string) => plain(await read(query))
  expect(await see(`project=${never}`)).toContain(`visibility-sync sync --project ${never}`)
  const unread = await see(`project=${project}&from=2025-01-01&to=2025-02-28`)
  expect(unread).toContain('Days from 2026-01-26 to 2026-03-31 were read.')
  expect(unread).toContain(`visibility-sync backfill --project ${project} --from 2025-01-01 --to 2025-02-28`)
  const nobody = await see(`project=${other}`)
  expect(nobody).toContain('No brand is marked as your own')
  expect(nobody).toMatch(/labels: brands: kw_\S+ \{ own: true \}/)
  expect(await read(`project=${other}`)).toContain('aria-label="Visibility by week')
  await setup.database.rows('drop view visibility.movers_weekly')
  const week = `project=${project}&from=2026-03-02&to=2026-03-28&week=2026-03-16`
  expect(await see(week)).toContain('The view movers_weekly is not there')
  expect((await get(`${url}/insights/movers.csv?${week}`)).status).toBe(400)
  expect((await get(`${url}/insights/nothing.csv`)).status).toBe(404)
})

inBrowser('in a browser', () => {
  let tabs: Tabs

  beforeAll(async () => {
    tabs = await launchTabs()
  })

  async function open(query = '', options: BrowserContextOptions = {}): Promise<Page> {
    const { viewport = { width: 1280, height: 720 }, colorScheme = 'light', ...others } = options
    const opened = await tabs.get(others)
    await opened.setViewportSize(viewport!)
    await opened.emulateMedia({ colorScheme, media: null })
    await opened.goto(`${url}/insights?project=${project}${query}`)
    return opened
  }

  test('the numbers under the pointer are shown, and by the keyboard too', async () => {
    const opened = await open()
    const plot = opened.locator('#visibility .plot')
    await plot.scrollIntoViewIfNeeded()
    const { x, y, width, height } = (await plot.locator('.area').boundingBox())!
    await opened.mouse.move(x + width * 0.99, y + height / 2)
    const tip = opened.locator('#visibility .tip')
    await tip.filter({ hasText: /30 Mar 2026.*incomplete.*%.*answers/ }).waitFor()
    await opened.mouse.move(0, 0)
    await tip.waitFor({ state: 'hidden' })
    await plot.focus()
    await opened.keyboard.press('ArrowLeft')
    await tip.filter({ hasText: '23 Mar 2026' }).waitFor()
    await opened.keyboard.press('Home')
    await tip.filter({ hasText: '9 Feb 2026' }).waitFor()
    await opened.keyboard.press('Escape')
    await tip.waitFor({ state: 'hidden' })
    await opened.getByText('SQL', { exact: true }).nth(1).click()
    await opened.getByRole('button', { name: 'Copy the SQL of Visibility' }).click()
    await opened.locator('#visibility .copy', { hasText: /Copied|Selected/ }).waitFor()
  })

  test('on a phone nothing is wider than the screen, and without a script the charts and links are there', async () => {
    const opened = await open('', { viewport: { width: 360, height: 740 }, javaScriptEnabled: false })
    expect(await opened.locator('.plot .c0 path').count()).toBeGreaterThanOrEqual(4)
    await opened.getByLabel('Steps').selectOption('day')
    await opened.locator('select[name=period]').selectOption('90d')
    await opened.getByRole('button', { name: 'Apply' }).click()
    await opened.waitForURL(/period=90d&grain=day/)
    const narrow = await open('', { viewport: { width: 360, height: 740 } })
    expect(await narrow.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360)
  })

  test('a filter applies at once, and dates appear when they are asked for', async () => {
    const opened = await open()
    expect(await opened.getByRole('button', { name: 'Apply' }).isVisible()).toBe(false)
    await opened.getByLabel('Compared with').selectOption('none')
    await opened.waitForURL(/compare=none/)
    await opened.locator('select[name=period]').selectOption('dates')
    await opened.waitForURL(/period=dates/)
    await opened.locator('input[name=from]').fill('2026-03-02')
    await opened.waitForURL(/from=2026-03-02/)
    await opened.getByText('2026-03-02 to 2026-03-31. All 30 days').waitFor()
  })

  test('a line or a legend entry highlights its brand, and the tip does not cover the labels', async () => {
    const opened = await open()
    const box = opened.locator('#visibility .chart-box')
    const opacity = (colour: number) =>
      box.locator(`.lines [data-series="${colour}"]`).evaluate((element) => Number(getComputedStyle(element).opacity))
    await box.locator('.legend button').nth(1).hover()
    expect([await opacity(0), await opacity(1)]).toEqual([0.18, 1])
    await box.locator('.legend button').nth(2).focus()
    await opened.mouse.move(0, 0)
    expect([await opacity(1), await opacity(2)]).toEqual([0.18, 1])
    await box.locator('.legend button').nth(2).blur()
    const area = (await box.locator('.area').boundingBox())!
    await opened.mouse.move(area.x + area.width - 2, area.y + 5)
    const [tip, ends] = [(await box.locator('.tip').boundingBox())!, (await box.locator('.ends').boundingBox())!]
    expect(tip.x + tip.width).toBeLessThanOrEqual(ends.x + 1)
    await box.locator('.ends .when', { hasText: 'Week of 23 Mar' }).waitFor()
  })

  test.each([
    [1440, 900, 'light'],
    [390, 844, 'dark'],
  ] as const)(
    'no page is wider than a screen of %i by %i px, no table is clipped, and axe finds no violation, %s',
    async (width, height, colorScheme) => {
      const { topics } = setup.service.world.projects[0]!
      const [{ prompt }] = (await setup.database.rows<{ prompt: string }>(
        'select min(prompt_id) as prompt from visibility.prompts where project_id = $1',
        [project],
      )) as [{ prompt: string }]
      const model = await modelId()
      const pages = [
        '',
        `/topic?topic=${topics[0]!.id}`,
        `/prompt?prompt=${prompt}`,
        `/model?model=${encodeURIComponent(model)}`,
      ]
      for (const path of pages) {
        const opened = await open('', { viewport: { width, height }, colorScheme })
        if (path !== '') await opened.goto(`${url}/insights${path}&project=${project}`)
        for (const details of await opened.locator('details:has(.scroll)').all())
          await details.evaluate((element) => element.setAttribute('open', ''))
        const found = await opened.evaluate(() => ({
          width: document.documentElement.scrollWidth,
          cut: [...document.querySelectorAll('.scroll')]
            .filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1)
            .map((box) => box.ariaLabel),
          loose: [...document.querySelectorAll('.scroll th[scope=row]')].filter(
            (cell) => getComputedStyle(cell).position !== 'sticky',
          ).length,
        }))
        expect({ path, width: found.width, loose: found.loose }).toEqual({ path, width, loose: 0 })
        if (width > 1000) expect({ path, cut: found.cut }).toEqual({ path, cut: [] })
        if (path === '') {
          const value = (await opened.locator('.tile .value').first().boundingBox())!
          expect(value.y + value.height).toBeLessThan(height)
        } else {
          expect(await violationsIn(opened, colorScheme)).toEqual([])
        }
      }
    },
  )

  test('axe finds no violation in light and dark mode, and the page is small', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      const opened = await open('', { colorScheme })
      for (const details of await opened.locator('details').all())
        await details.evaluate((element) => element.setAttribute('open', ''))
      expect(await violationsIn(opened, colorScheme)).toEqual([])
      const ground = await opened.evaluate(() => getComputedStyle(document.querySelector('.card')!).backgroundColor)
      expect(ground === 'rgb(255, 255, 255)').toBe(colorScheme === 'light')
      const bytes = await opened.evaluate(() =>
        performance
          .getEntries()
          .reduce((sum, entry) => sum + ((entry as PerformanceResourceTiming).decodedBodySize ?? 0), 0),
      )
      expect(bytes).toBeGreaterThan(20_000)
      expect(bytes).toBeLessThan(150_000)
    }
  })

  test('the report fits on one sheet of paper', async () => {
    const opened = await open('&print=1', { colorScheme: 'dark' })
    const pdf = (await opened.pdf({ preferCSSPageSize: true })).toString('latin1')
    expect([...pdf.matchAll(/\/Type\s*\/Page\b/g)].length).toBe(1)
    // A4 without its margins, at 96 dots an inch.
    await opened.setViewportSize({ width: 718, height: 1047 })
    await opened.emulateMedia({ media: 'print' })
    const cut = await opened.evaluate(() =>
      [...document.querySelectorAll('.scroll')]
        .filter((box) => box.scrollWidth > box.clientWidth + 1)
        .map((box) => box.ariaLabel),
    )
    expect(cut).toEqual([])
    expect(await opened.locator('form, details').count()).toBe(0)
  })

  test('no page logs an error', () => {
    expect(tabs.problems).toEqual([])
  })
})
