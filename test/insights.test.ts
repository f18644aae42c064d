/// <reference lib="dom" />
import { beforeAll, describe, expect, test } from '@jest/globals'
import { parse } from 'csv-parse/sync'
import type { BrowserContextOptions, Page } from 'playwright-core'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { inBrowser, launchTabs, type Tabs, violationsIn } from './support/chromium.ts'
import { type RunningCli, startCli } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
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
    world: { projects: 3, prompts: 16, models: 3, brands: 5 },
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

const ENTITIES: Record<string, string> = { '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&amp;': '&' }
const unescaped = (text: string) => text.replaceAll(/&[#\w]+;/g, (entity) => ENTITIES[entity]!)
const plain = (text: string) =>
  unescaped(text.replaceAll(/<[^>]*>/g, ' '))
    .replaceAll(/\s+/g, ' ')
    .trim()

async function csv(section: string, query = RANGE): Promise<Record<string, string>[]> {
  const { status, text, headers } = await get(`${url}/insights/${section}.csv?project=${project}&${query}`)
  expect(status).toBe(200)
  expect(headers.get('content-type')).toContain('text/csv')
  return parse(text, { columns: true }) as Record<string, string>[]
}

test('a file with a wrong parameter is an error for programs, not a page', async () => {
  const { status, text, headers } = await get(`${url}/insights/movers.csv?project=${project}&page=x`)
  expect([status, headers.get('content-type'), JSON.parse(text)]).toEqual([
    400,
    expect.stringContaining('application/json'),
    { error: expect.stringContaining('page: got "x"') },
  ])
})

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

test('a model with few answers comes last, though the own brand is furthest behind there', async () => {
  const [{ id: topic } = {}, rival] = [
    setup.service.world.projects[0]!.topics[0],
    setup.service.world.projects[0]!.brands[0]!.id,
  ]
  for (const table of ['brand_daily_by_model', 'brand_daily_by_topic_model']) {
    const few = { model_id: 'rare', topic_id: topic, visibility_total: 2 }
    closeLater(() => setup.database.rows(`delete from visibility.${table} where model_id = 'rare'`))
    await setup.database.rows(
      `insert into visibility.${table}
       select (jsonb_populate_record(null::visibility.${table}, to_jsonb(r) || $1 || jsonb_build_object(
         'visibility_count', case when brand_id = $2 then 0 else 2 end))).*
       from visibility.brand_daily r where date = '2026-03-10' and project_id = $3 and brand_id in ($2, $4)`,
      [few, own, project, rival],
    )
  }
  const byModel = await csv('topic/by-model', `topic=${topic}&${RANGE}`)
  expect(byModel.map(({ name }) => name).at(-1)).toBe('rare')
  const headToHead = await csv('head-to-head-by-model', `rival=${rival}&${RANGE}`)
  expect(headToHead.map(({ model_id }) => model_id).at(-1)).toBe('rare')
})

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
  expect(text).toContain('2026-03-02 to 2026-03-29, compared with 2026-02-02 to 2026-03-01.')
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

  const daily = tableIn(await page(`${RANGE}&grain=day`), 'visibility')
  expect(daily.length).toBe(57)
  const day = await sums(own, '2026-03-10', '2026-03-10')
  expect(daily.find(([date]) => date === '2026-03-10')![1]).toBe(shown(day.k / day.n))
})

test('a day that was held makes its week incomplete, and both are drawn as such', async () => {
  await setup.database.rows(
    "update visibility_ops.coverage set state = 'held' where project_id = $1 and stream = 'brand_daily' and date = '2026-02-11'",
    [project],
  )
  const weekly = await page('from=2026-02-02&to=2026-03-01')
  expect(tableIn(weekly, 'visibility').map((row) => [row[0], row.at(-1)])).toContainEqual(['2026-02-09', 'incomplete'])
  expect(weekly).toMatch(/<g class="c0" data-series="0">.*<path class="open"/)
  const daily = await page('from=2026-02-02&to=2026-03-01&grain=day')
  expect(tableIn(daily, 'visibility').map((row) => [row[0], row.at(-1)])).toContainEqual(['2026-02-11', 'incomplete'])
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
  expect(leads.length).toBe(4)
  for (const lead of leads) {
    const rival = await sums(lead.rival_brand_id!, '2026-03-02', '2026-03-29')
    expect(Number(lead.lead)).toBeCloseTo(all.k / all.n - rival.k / rival.n, 10)
    const [mine, theirs] = [wilson(all.k, all.n)!, wilson(rival.k, rival.n)!]
    expect(lead.lead_verdict).toBe(mine[0] > theirs[1] ? 'ahead' : mine[1] < theirs[0] ? 'behind' : 'no_clear_lead')
  }
  const byModel = await csv('head-to-head-by-model', `${RANGE}&rival=${leads.at(-1)!.rival_brand_id!}`)
  expect(byModel.reduce((sum, row) => sum + Number(row.own_answers), 0)).toBe(all.n)
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
    const text = plain(await page(query))
    const reason = 'of the 10 days from 2026-01-23 to 2026-02-01, 7 are complete, and a comparison needs 8.'
    // Above the headlines, and instead of the movers.
    expect(text.split(reason).length - 1).toBe(isCompared ? 0 : 2)
    const movers = await get(`${url}/insights/movers.csv?project=${project}&${query}`)
    expect(movers.status).toBe(isCompared ? 200 : 400)
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
    expect(plain(text)).toContain(`${absent.length} in 9 complete weeks from 2026-01-26 to 2026-03-29`)
    found.push(...tableIn(text, 'absent-prompts').slice(1))
  }
  const key = (...parts: (string | number)[]) => parts.join(' | ')
  expect(found.map(([prompt, , model, weeks]) => key(prompt!, model!, weeks!)).sort()).toEqual(
    absent.map(({ prompt, model_id, weeks }) => key(prompt, model_id, weeks)).sort(),
  )
  expect((await csv('absent-prompts', query)).length).toBe(absent.length)
})

test('the SQL on the page gives what its file holds, and no cell of a file is taken for a formula', async () => {
  const rival = setup.service.world.projects[0]!.brands[1]!
  await setup.database.rows('update visibility.brands set name = $2 where brand_id = $1', [rival.id, '=1+1,"x"'])
  const query = 'from=2026-02-23&to=2026-03-22'
  const text = await page(query)
  const blocks = [...text.matchAll(/aria-label="SQL of [^"]*"><code>([\s\S]*?)<\/code>/g)].map(([, sql]) =>
    unescaped(sql!),
  )
  expect(blocks.length).toBe(10)
  for (const sql of blocks) expect((await setup.database.rows(sql)).length).toBeGreaterThan(0)
  const leads = (await get(`${url}/insights/head-to-head.csv?project=${project}&${query}`)).text
  expect(leads).toContain(`,"'=1+1,""x""",`)
  const rows = await csv('visibility', query)
  expect(rows.length).toBe((await setup.database.rows(blocks[1]!)).length)
  await setup.database.rows('update visibility.brands set name = $2 where brand_id = $1', [rival.id, rival.name])
})

test('bad parameters are refused with a sentence, on the page and for files', async () => {
  for (const [query, sentence] of [
    ['period=2w', 'period: got "2w"; allowed: week, 4w, 90d, 1y'],
    ['brand=kw_nobody', 'brand: got "kw_nobody"; own brands are: kw_'],
    ["rival=' or 1=1", 'rival: got'],
    ['week=2026-03-10', 'allowed: a Monday, such as 2026-03-09'],
    ['page=-1', 'page: got "-1"'],
    ['colour=blue', 'colour: unknown'],
  ] as const) {
    const answer = await get(`${url}/insights?project=${project}&${query}`)
    expect([answer.status, plain(answer.text)]).toEqual([400, expect.stringContaining(sentence)])
    expect((await get(`${url}/insights/head-to-head-by-model.csv?project=${project}&${query}`)).status).toBe(400)
  }
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
  })

  test('leads to its prompts and back, with the filters that it was opened with', async () => {
    const query = `${RANGE}&grain=day&compare=none`
    const first = await of('/insights', query)
    const links = (text: string, path: string) =>
      [...text.matchAll(/href="(\/insights[^"]*)"/g)]
        .map(([, href]) => new URL(href!.replaceAll('&amp;', '&'), url))
        .filter(({ pathname }) => pathname === path)
    const [toTopic] = links(first, '/insights/topic').filter(({ searchParams }) => !searchParams.has('model'))
    const follow = ({ pathname, search }: URL) => of(pathname, search.slice(1).replace(/&?project=[^&]*/, ''))
    const [toPrompt] = links(await follow(toTopic!), '/insights/prompt')
    const ofPrompt = await follow(toPrompt!)
    const back = links(ofPrompt, '/insights').find(({ search }) => search !== '')
    for (const link of [toTopic!, toPrompt!, back!])
      expect(Object.fromEntries(link.searchParams)).toMatchObject(Object.fromEntries(new URLSearchParams(query)))
    const prompt = toPrompt!.searchParams.get('prompt')!
    const [{ chats }] = (await setup.database.rows<{ chats: number }>(
      "select count(*)::int as chats from visibility.chats where prompt_id = $1 and date between '2026-03-02' and '2026-03-29'",
      [prompt],
    )) as [{ chats: number }]
    expect((await file('/insights/prompt/chats', `prompt=${prompt}&${RANGE}`)).length).toBe(chats)
    expect(tableIn(ofPrompt, 'chats').length).toBe(21)
    // The page of a model has its topics, and a page without its subject is refused.
    const text = await of('/insights/model', `model=${encodeURIComponent(await modelId())}&${RANGE}`)
    expect(tableIn(text, 'by-topic').length).toBeGreaterThan(3)
    const refused = await get(`${url}/insights/topic?project=${project}`)
    expect([refused.status, plain(refused.text)]).toEqual([400, expect.stringContaining('topic: not given')])
  })
})

test('presets move with the days, and the numbers are compared with the same weekdays a year ago, or with nothing', async () => {
  expect(await page('period=week')).toContain('2026-03-23 to 2026-03-29, compared with 2026-03-16 to 2026-03-22.')
  // The form sends its dates together with the period that replaces them.
  expect(await page('period=4w&from=2026-03-01&to=2026-03-02')).toContain('2026-03-04 to 2026-03-31')
  const none = await page(`${RANGE}&compare=none`)
  expect(none).toContain('Nothing is compared, as chosen.')
  expect(none).not.toContain('period before</text>')
  expect((await csv('summary', `${RANGE}&compare=none`)).map(({ verdict }) => verdict)).toEqual(['', '', '', ''])
  expect(await page(`${RANGE}&compare=year`)).toContain('of the 28 days from 2025-03-03 to 2025-03-30, 0 are complete')
})

test('a page without data names the cause and the next step', async () => {
  const see = async (query: string) => plain((await get(`${url}/insights?${query}`)).text)
  expect(await see(`project=${never}`)).toContain(`visibility-sync sync --project ${never}`)
  const unread = await see(`project=${project}&from=2025-01-01&to=2025-02-28`)
  expect(unread).toContain('Days from 2026-01-26 to 2026-03-31 were read.')
  expect(unread).toContain(`visibility-sync backfill --project ${project} --from 2025-01-01 --to 2025-02-28`)
  const nobody = await see(`project=${other}`)
  expect(nobody).toContain('No brand is marked as your own')
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
    expect(await opened.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360)
  })

  test('axe finds no violation in light and dark mode, and the page is small', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      const opened = await open('', { colorScheme })
      expect(await violationsIn(opened, colorScheme)).toEqual([])
      const bytes = await opened.evaluate(() =>
        performance
          .getEntries()
          .reduce((sum, entry) => sum + ((entry as PerformanceResourceTiming).decodedBodySize ?? 0), 0),
      )
      expect(bytes).toBeGreaterThan(20_000)
      expect(bytes).toBeLessThan(150_000)
    }
    // No page logged an error.
    expect(tabs.problems).toEqual([])
  })
})

test('a character that Postgres cannot store is refused in every parameter of every page and file', async () => {
  const PARAMETERS = {
    '/insights': ['project', 'brand', 'rival', 'week', 'page'],
    '/insights/topic': ['topic', 'model', 'channel', 'brand'],
    '/insights/model': ['model'],
    '/insights/channel': ['channel'],
    '/insights/prompt': ['prompt', 'model', 'channel'],
    '/insights/source': ['domain'],
    '/': ['project', 'q', 'day'],
    '/quarantine': ['project', 'stream', 'state'],
    '/restatements': ['project', 'stream', 'from'],
    '/api/status': ['project'],
  }
  const FILES: Record<string, string> = {
    '/insights': 'summary',
    ...Object.fromEntries(['topic', 'model', 'channel', 'prompt'].map((name) => [`/insights/${name}`, 'trend'])),
    '/insights/source': 'source-pages',
  }
  for (const [path, [first, ...others]] of Object.entries(PARAMETERS)) {
    const files = FILES[path] === undefined ? [] : [`${path}/${FILES[path]}.csv`]
    for (const address of [path, ...files]) {
      for (const name of [first!, ...others]) {
        const needed = name === first ? '' : `${first}=x&`
        const { status, text } = await get(
          `${url}${address}?${path === '/insights' || path === '/' ? '' : needed}${name}=a%00b`,
        )
        expect([address, name, status]).toEqual([address, name, 400])
        expect(text).toContain(`${name}: `)
      }
    }
  }
})
