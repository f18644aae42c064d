import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { addDays, type Day, dayNumber, daysIn } from '../src/core/day.ts'
import { readQuestions } from '../src/packs/metabase/cards.ts'
import type { Chat, Project } from '../src/reference/world.ts'
import { VIEWS, viewsOf } from '../src/warehouse/schema/catalogue.ts'
import { grantReader } from '../src/warehouse/schema/grant-reader.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { closeLater } from './support/close-later.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'
import { clarity, newcombe, pValue, type Sample, verdict, wilson } from './support/statistics.ts'

/* The views against answers that are worked out here, one by one, from the raw chats of the reference service. */

type Row = Record<string, unknown>

const range = { from: '2026-02-16', to: '2026-03-22' }
let setup: Setup
let projects: Project[]
let own: Set<string>
let chats: Map<string, Chat[]>
const topicNames = new Map<string, string>()
const tagNames = new Map<string, string>()

const TOPIC_CHANNEL = { name: 'brand_daily_by_topic_channel', dimensions: ['date', 'topic_id', 'model_channel_id'] }

beforeAll(async () => {
  const world = { projects: 2, prompts: 12, models: 3, brands: 4, awkward: true }
  setup = await setUp({
    world,
    config: { start_date: range.from, end_date: range.to, reports: [...DEFAULT_REPORTS, TOPIC_CHANNEL] },
  })
  projects = setup.service.world.projects
  own = new Set(projects.flatMap(({ brands }, index) => brands.slice(index === 0 ? -1 : -2).map(({ id }) => id)))
  for (const { topics, prompts } of projects) {
    topicNames.set(topics[0]!.id, 'Running shoes')
    for (const tag of prompts[0]!.tagIds) tagNames.set(tag, 'Branded')
  }
  Object.assign(setup.config, {
    labels: {
      brands: Object.fromEntries([...own].map((id) => [id, { own: true }])),
      topics: Object.fromEntries(topicNames),
      tags: Object.fromEntries(tagNames),
    },
  })
  expect((await setup.sync()).outcome).toBe('complete')
  chats = new Map(
    projects.map((project) => [project.id, daysIn(range).flatMap((day) => setup.service.world.chatsOf(project, day))]),
  )
})

const weekOf = (day: Day) => addDays(day, -((dayNumber(day) + 3) % 7))
const monthOf = (day: Day) => `${day.slice(0, 7)}-01`
const monthBefore = (month: Day) => monthOf(addDays(month, -1))

interface Sums {
  seen: number
  answers: number
  mentions: number
  position: number
  positions: number
  sentiment: number
  sentiments: number
}

/** What some answers say of a brand; undefined where there are no answers. */
function sumsOf(answers: Chat[] | undefined, brandId: string): Sums | undefined {
  if (answers === undefined || answers.length === 0) return undefined
  const sums = { seen: 0, answers: answers.length, mentions: 0, position: 0, positions: 0, sentiment: 0, sentiments: 0 }
  for (const chat of answers) {
    for (const mention of chat.mentions) {
      if (mention.brand.id !== brandId) continue
      sums.seen++
      sums.mentions += mention.mentions
      sums.position += mention.position
      sums.positions++
      sums.sentiment += mention.sentiment
      sums.sentiments++
    }
  }
  return sums
}

const ratio = (above: number | undefined, below: number | undefined) =>
  above === undefined || below === undefined || below === 0 ? null : above / below
const minus = (a: number | null, b: number | null) => (a === null || b === null ? null : a - b)
const visibility = (sums: Sums | undefined) => ratio(sums?.seen, sums?.answers)
const position = (sums: Sums | undefined) => ratio(sums?.position, sums?.positions)
/** As the reference service scales it. */
const sentiment = (sums: Sums | undefined) => {
  const mean = ratio(sums?.sentiment, sums?.sentiments)
  return mean === null ? null : (mean / 2 + 0.5) * 100
}
const points = (value: number | null, count: number | undefined) => (value === null ? null : value * count!)
const sample = (sums: Sums): Sample => ({ k: sums.seen, n: sums.answers })
const sampleBefore = ({ before }: Pick<Cell, 'before'>) => (before === undefined ? undefined : sample(before))

/** Groups the answers of a project by the texts that `keysOf` gives; an answer may stand in several groups. */
function groupsOf(projectId: string, keysOf: (chat: Chat) => (string | null)[][]): Map<string, Chat[]> {
  const groups = new Map<string, Chat[]>()
  for (const chat of chats.get(projectId)!) {
    for (const key of keysOf(chat)) {
      const name = JSON.stringify(key)
      groups.set(name, [...(groups.get(name) ?? []), chat])
    }
  }
  return groups
}

interface Cell {
  project: Project
  brand: { id: string; name: string }
  key: (string | null)[]
  now: Sums
  before: Sums | undefined
  group: Chat[]
  groupBefore: Chat[] | undefined
}

/** Every brand in every group; the first part of a key is its week. */
function* cells(keysOf: (chat: Chat) => (string | null)[][]): Generator<Cell> {
  for (const project of projects) {
    const groups = groupsOf(project.id, keysOf)
    for (const [name, group] of groups) {
      const key = JSON.parse(name) as (string | null)[]
      const groupBefore = groups.get(JSON.stringify([addDays(key[0]!, -7), ...key.slice(1)]))
      for (const brand of project.brands) {
        const now = sumsOf(group, brand.id)!
        yield { project, brand, key, now, before: sumsOf(groupBefore, brand.id), group, groupBefore }
      }
    }
  }
}

/** A project is called what its profile says. */
const nameOf = ({ profile }: Project) => profile!.name as string

const base = ({ project, brand, key }: Cell) => ({
  project_id: project.id,
  project: nameOf(project),
  week: key[0],
  brand_id: brand.id,
  brand: brand.name,
  is_own: own.has(brand.id),
})
const compared = ({ now, before }: Cell) => ({
  visibility: visibility(now),
  visibility_count: now.seen,
  answers: now.answers,
  previous_visibility: visibility(before),
  previous_answers: before?.answers ?? null,
  change: minus(visibility(now), visibility(before)),
})
const interval = ({ now }: Pick<Cell, 'now'>) => ({
  visibility_low: wilson(now.seen, now.answers)![0],
  visibility_high: wilson(now.seen, now.answers)![1],
  enough_answers: now.answers >= 30,
})
const change = (cell: Pick<Cell, 'now' | 'before'>) => {
  const [low, high] = newcombe(sample(cell.now), sampleBefore(cell)) ?? [null, null]
  return {
    ...interval(cell),
    previous_visibility_count: cell.before?.seen ?? null,
    change_low: low,
    change_high: high,
    verdict: verdict(sample(cell.now), sampleBefore(cell)),
  }
}

/** The weeks of the range are whole; its months are not. */
const read = (week: Day) => ({ days: 7, is_complete: daysIn(range).includes(week), is_provisional: false })
const bothRead = (week: Day, before: unknown) => ({
  ...read(week),
  comparison_is_complete: before === undefined || before === null ? null : true,
})

/** The change over the prompts that have answers in both. */
function changeOfSamePrompts({ brand, group, groupBefore }: Pick<Cell, 'brand' | 'group' | 'groupBefore'>) {
  const ids = (chats: Chat[]) => new Set(chats.map(({ prompt }) => prompt.id))
  const [now, before] = [ids(group), ids(groupBefore ?? [])]
  const among = (chats: Chat[]) => chats.filter(({ prompt }) => now.has(prompt.id) && before.has(prompt.id))
  return minus(visibility(sumsOf(among(group), brand.id)), visibility(sumsOf(among(groupBefore ?? []), brand.id)))
}

const ranked = (all: Cell[], cell: Cell, group: (other: Cell) => boolean, value: (other: Cell) => number) =>
  1 + all.filter((other) => group(other) && value(other) > value(cell)).length
const sameBrandAndWeek = (a: Cell) => (b: Cell) =>
  b.project === a.project && b.brand.id === a.brand.id && b.key[0] === a.key[0]
const allMentions = (group: Chat[] | undefined) =>
  group?.flatMap((chat) => chat.mentions).reduce((sum, { mentions }) => sum + mentions, 0)
const topicName = (id: string | null) => (id === null ? '(no topic)' : (topicNames.get(id) ?? id))

const byWeek = (chat: Chat) => [[weekOf(chat.date)]]
const byModel = (chat: Chat) => [[weekOf(chat.date), seriesOf(chat)]]
let seriesOf = ({ modelId }: Chat) => modelId
const byTopic = (chat: Chat) => [[weekOf(chat.date), chat.prompt.topicId]]
const byPrompt = (chat: Chat) => [[weekOf(chat.date), chat.prompt.id]]

function sentimentRow(cell: Cell): Row {
  const [now, before] = [sentiment(cell.now), sentiment(cell.before)]
  return {
    ...base(cell),
    sentiment: now,
    sentiment_count: cell.now.sentiments,
    previous_sentiment: before,
    previous_sentiment_count: cell.before?.sentiments ?? null,
    change: minus(now, before),
    is_falling: now === null || before === null ? null : now < before,
    answers: cell.now.answers,
    sentiment_points: points(now, cell.now.sentiments),
    previous_sentiment_points: points(before, cell.before?.sentiments),
    ...bothRead(cell.key[0]!, cell.before),
  }
}

function rankedRows(column: string, keyOf: (chat: Chat) => string | null): Row[] {
  const all = [...cells((chat) => [[weekOf(chat.date), keyOf(chat)]])]
  return all.map((cell) => ({
    ...base(cell),
    [column]: cell.key[1],
    ...compared(cell),
    rank: ranked(all, cell, sameBrandAndWeek(cell), ({ now }) => visibility(now)!),
    ...change(cell),
    ...bothRead(cell.key[0]!, cell.before),
  }))
}

function leadOf(mine: Cell, rival: Cell): string {
  if (mine.now.answers < 30) return 'too_few'
  if (interval(mine).visibility_low > interval(rival).visibility_high) return 'ahead'
  return interval(mine).visibility_high < interval(rival).visibility_low ? 'behind' : 'no_clear_lead'
}

/** The rows that a view by model would have if channels were models. */
function byChannel(rowsByModel: () => Row[]): Row[] {
  const ofModel = seriesOf
  seriesOf = ({ channelId }) => channelId
  try {
    return rowsByModel().map(({ model_id, ...row }) => ({
      ...row,
      model_channel_id: model_id,
      ...('grain' in row && { grain: String(row.grain).replace('model', 'channel') }),
    }))
  } finally {
    seriesOf = ofModel
  }
}

/** Views of domains and URLs have tests of their own. */
const expected = {
  visibility_daily: () =>
    [...cells((chat) => [[chat.date]])].map((cell) => {
      const { week, ...rest } = base(cell)
      return {
        ...rest,
        date: week,
        visibility: visibility(cell.now),
        visibility_count: cell.now.seen,
        answers: cell.now.answers,
        mention_count: cell.now.mentions,
        position: position(cell.now),
        position_count: cell.now.positions,
        sentiment: sentiment(cell.now),
        sentiment_count: cell.now.sentiments,
        ...interval(cell),
        position_points: points(position(cell.now), cell.now.positions),
        sentiment_points: points(sentiment(cell.now), cell.now.sentiments),
        usual_visibility: null,
        is_unusual: null,
      }
    }),
  visibility_weekly: () =>
    [...cells(byWeek)].map((cell) => ({
      ...base(cell),
      ...compared(cell),
      ...change(cell),
      change_same_prompts: changeOfSamePrompts(cell),
      ...bothRead(cell.key[0]!, cell.before),
    })),
  visibility_monthly: () => {
    const all = [...cells((chat) => [[monthOf(chat.date)]])]
    return all.map((cell) => {
      const { week: month, ...rest } = base(cell)
      const before = all.find(
        (other) =>
          other.project === cell.project && other.brand.id === cell.brand.id && other.key[0] === monthBefore(month!),
      )
      const pair = { ...cell, before: before?.now, groupBefore: before?.group }
      return {
        ...rest,
        month,
        ...compared(pair),
        ...change(pair),
        change_same_prompts: changeOfSamePrompts(pair),
        days: daysIn(range).filter((day) => monthOf(day) === month).length,
        is_complete: false,
        is_provisional: false,
        comparison_is_complete: before === undefined ? null : false,
      }
    })
  },
  share_of_voice_daily: () =>
    [...cells((chat) => [[chat.date]])].map((cell) => {
      const { week, ...rest } = base(cell)
      const all = allMentions(cell.group)!
      return {
        ...rest,
        date: week,
        share_of_voice: ratio(cell.now.mentions, all),
        mention_count: cell.now.mentions,
        all_mentions: all,
        answers: cell.now.answers,
        enough_answers: cell.now.answers >= 30,
        usual_share_of_voice: null,
        is_unusual: null,
      }
    }),
  share_of_voice_weekly: () =>
    [...cells(byWeek)].map((cell) => {
      const share = ratio(cell.now.mentions, allMentions(cell.group))
      const before = ratio(cell.before?.mentions, allMentions(cell.groupBefore))
      return {
        ...base(cell),
        share_of_voice: share,
        mention_count: cell.now.mentions,
        all_mentions: allMentions(cell.group),
        answers: cell.now.answers,
        previous_share_of_voice: before,
        previous_all_mentions: allMentions(cell.groupBefore) ?? null,
        change: minus(share, before),
        enough_answers: cell.now.answers >= 30,
        previous_mention_count: cell.before?.mentions ?? null,
        ...bothRead(cell.key[0]!, cell.before),
      }
    }),
  visibility_by_model_weekly: () => {
    const rows = rankedRows('model_id', ({ modelId }) => modelId)
    return [...cells(byModel)].map((cell, index) => ({
      ...rows[index],
      change_same_prompts: changeOfSamePrompts(cell),
      share_of_voice: ratio(cell.now.mentions, allMentions(cell.group)),
      mention_count: cell.now.mentions,
      all_mentions: allMentions(cell.group),
    }))
  },
  visibility_by_prompt_weekly: () =>
    [...cells(byPrompt)].map((cell) => {
      const prompt = cell.project.prompts.find(({ id }) => id === cell.key[1])!
      return {
        ...base(cell),
        prompt_id: prompt.id,
        prompt: prompt.text,
        topic_id: prompt.topicId,
        topic: topicName(prompt.topicId),
        ...compared(cell),
        ...change(cell),
        ...bothRead(cell.key[0]!, cell.before),
      }
    }),
  visibility_by_channel_weekly: () => rankedRows('model_channel_id', ({ channelId }) => channelId),
  head_to_head_weekly: () => {
    const all = [...cells(byModel)]
    return all.flatMap((mine) =>
      all.flatMap((rival) => {
        const sameGroup = mine.project === rival.project && mine.group === rival.group
        if (!sameGroup || !own.has(mine.brand.id) || own.has(rival.brand.id)) return []
        return [
          {
            project_id: mine.project.id,
            project: nameOf(mine.project),
            week: mine.key[0],
            model_id: mine.key[1],
            own_brand_id: mine.brand.id,
            own_brand: mine.brand.name,
            rival_brand_id: rival.brand.id,
            rival_brand: rival.brand.name,
            own_visibility: visibility(mine.now),
            rival_visibility: visibility(rival.now),
            lead: (mine.now.seen - rival.now.seen) / mine.now.answers,
            own_share_of_both: ratio(mine.now.mentions, mine.now.mentions + rival.now.mentions),
            own_mention_count: mine.now.mentions,
            rival_mention_count: rival.now.mentions,
            answers: mine.now.answers,
            own_visibility_count: mine.now.seen,
            own_answers: mine.now.answers,
            rival_visibility_count: rival.now.seen,
            own_visibility_low: interval(mine).visibility_low,
            own_visibility_high: interval(mine).visibility_high,
            rival_visibility_low: interval(rival).visibility_low,
            rival_visibility_high: interval(rival).visibility_high,
            enough_answers: mine.now.answers >= 30,
            lead_verdict: leadOf(mine, rival),
            ...bothRead(mine.key[0]!, mine.before),
            previous_own_visibility: visibility(mine.before),
            previous_own_answers: mine.before?.answers ?? null,
            own_change: minus(visibility(mine.now), visibility(mine.before)),
            own_verdict: change(mine).verdict,
            previous_rival_visibility: visibility(rival.before),
            previous_rival_answers: rival.before?.answers ?? null,
            rival_change: minus(visibility(rival.now), visibility(rival.before)),
            rival_verdict: change(rival).verdict,
          },
        ]
      }),
    )
  },
  head_to_head_by_channel_weekly: () => byChannel(expected.head_to_head_weekly),
  position_by_channel_weekly: () => byChannel(expected.position_by_model_weekly),
  movers_by_channel_weekly: () => byChannel(expected.movers_weekly),
  topics_weekly: () => {
    const all = [...cells(byTopic)]
    return all.map((cell) => {
      const peers = all.filter((other) => other.group === cell.group)
      const best = Math.max(...peers.map(({ now }) => now.seen))
      const rank = 1 + peers.filter(({ now }) => now.seen > cell.now.seen).length
      return {
        ...base(cell),
        topic_id: cell.key[1],
        topic: topicName(cell.key[1]!),
        ...compared(cell),
        rank,
        leads: rank === 1 && cell.now.seen > 0,
        is_invisible: cell.now.seen === 0,
        gap_to_leader: (cell.now.seen - best) / cell.now.answers,
        ...change(cell),
        ...bothRead(cell.key[0]!, cell.before),
      }
    })
  },
  position_by_model_weekly: () =>
    [...cells(byModel)].map((cell) => {
      const [now, before] = [position(cell.now), position(cell.before)]
      return {
        ...base(cell),
        model_id: cell.key[1],
        position: now,
        position_count: cell.now.positions,
        previous_position: before,
        previous_position_count: cell.before?.positions ?? null,
        change: minus(now, before),
        is_improving: now === null || before === null ? null : now < before,
        answers: cell.now.answers,
        position_points: points(now, cell.now.positions),
        previous_position_points: points(before, cell.before?.positions),
        ...bothRead(cell.key[0]!, cell.before),
      }
    }),
  sentiment_by_topic_weekly: () =>
    [...cells(byTopic)].map((cell) => ({
      ...sentimentRow(cell),
      topic_id: cell.key[1],
      topic: topicName(cell.key[1]!),
    })),
  movers_weekly: () => {
    const grains: [string, (chat: Chat) => (string | null)[]][] = [
      ['topic and model', (chat) => [weekOf(chat.date), chat.prompt.topicId, seriesOf(chat)]],
      ['topic', ({ date, prompt }) => [weekOf(date), prompt.topicId]],
      ['model', (chat) => [weekOf(chat.date), null, seriesOf(chat)]],
      ['brand', ({ date }) => [weekOf(date)]],
    ]
    const isEnough = ({ now, before }: Cell) => now.answers >= 30 && before!.answers >= 30
    const moved = ({ now, before }: Cell) => Math.abs(visibility(now)! - visibility(before)!)
    const clear = ({ now, before }: Cell) => clarity(sample(now), sample(before!))!
    const byGrain = grains.map(([grain, key]) => ({
      grain,
      all: [...cells((chat) => [key(chat)])].filter(({ before }) => before !== undefined),
    }))
    return projects.flatMap((project) =>
      daysIn(range).flatMap((week) => {
        const ofWeek = byGrain.map(({ grain, all }) => ({
          grain,
          found: all.filter((cell) => cell.project === project && cell.key[0] === week),
        }))
        const { grain, found } = ofWeek.find((one) => one.found.some(isEnough)) ?? ofWeek[0]!
        const judged = found.filter(isEnough).sort((one, other) => clear(other) - clear(one))
        const qValues = judged.map((one, index) => (pValue(clear(one)) * judged.length) / (index + 1))
        return found.map((cell) => ({
          ...base(cell),
          topic_id: cell.key[1] ?? null,
          topic: grain.startsWith('topic') ? topicName(cell.key[1]!) : '(all topics)',
          model_id: cell.key[2] ?? null,
          ...compared(cell),
          rank: isEnough(cell)
            ? ranked(
                judged,
                cell,
                () => true,
                (other) => Number(clear(other).toFixed(9)),
              )
            : null,
          ...change(cell),
          clarity: clear(cell),
          rank_by_size: ranked(found, cell, () => true, moved),
          ...bothRead(cell.key[0]!, cell.before),
          grain,
          is_mover: isEnough(cell) && Math.min(...qValues.slice(judged.indexOf(cell))) <= 0.1 && clear(cell) > 1,
        }))
      }),
    )
  },
  visibility_by_tag_weekly: () =>
    [
      ...cells((chat) =>
        (chat.prompt.tagIds.length === 0 ? [null] : chat.prompt.tagIds).map((tag) => [weekOf(chat.date), tag]),
      ),
    ].map((cell) => {
      const tag = cell.key[1]!
      return {
        ...base(cell),
        tag_id: tag,
        tag: tag === null ? '(no tag)' : (tagNames.get(tag) ?? tag),
        ...compared(cell),
        ...change(cell),
        ...bothRead(cell.key[0]!, cell.before),
      }
    }),
  visibility_by_country_weekly: () => rankedRows('country_code', ({ prompt }) => prompt.country),
  sample_sizes_daily: () =>
    projects.flatMap((project) => {
      const days = groupsOf(project.id, (chat) => [[chat.date]])
      return [...groupsOf(project.id, (chat) => [[chat.date, chat.modelId]])].map(([name, group]) => {
        const [date, model] = JSON.parse(name) as string[]
        const prompts = (some: Chat[]) => new Set(some.map(({ prompt }) => prompt.id)).size
        const ofTheDay = prompts(days.get(JSON.stringify([date]))!)
        return {
          project_id: project.id,
          project: nameOf(project),
          date,
          model_id: model,
          chats: group.length,
          answers: group.length,
          agrees: true,
          prompts_asked: prompts(group),
          prompts_of_the_day: ofTheDay,
          prompts_missing: ofTheDay - prompts(group),
          margin_of_error: 0.98 / Math.sqrt(group.length),
          enough_answers: group.length >= 30,
        }
      })
    }),
}

/** One row as one text, numbers to the last digits that two ways of adding up may differ in. */
function shown(row: Row): string {
  const value = (cell: unknown) => {
    if (Array.isArray(cell)) return [...cell].sort()
    if (typeof cell !== 'number') return cell
    return Math.abs(cell) < 1e-12 ? 0 : Number(cell.toPrecision(11))
  }
  return JSON.stringify(
    Object.fromEntries(
      Object.keys(row)
        .sort()
        .map((key) => [key, value(row[key])]),
    ),
  )
}

test('of a brand that is tracked since Wednesday, days before count neither in its share of voice nor head to head', async () => {
  const [{ id: project, brands }] = projects as [Project]
  const rival = brands.find(({ id }) => !own.has(id))!.id
  const client = await setup.database.warehouse.pool.connect()
  const only = async (query: string) => (await client.query<Row>(query, [project, rival])).rows
  try {
    await client.query('begin')
    for (const table of ['brand_daily', 'brand_daily_by_model'])
      await only(`delete from visibility.${table} where project_id = $1 and brand_id = $2 and date < '2026-03-11'`)
    await only("update visibility.brands set first_seen_on = '2026-03-11' where project_id = $1 and brand_id = $2")
    const shares = await only(
      `select week, share_of_voice, previous_share_of_voice from visibility.share_of_voice_weekly
       where project_id = $1 and brand_id = $2 order by week`,
    )
    const days = await only(
      `select sum(mention_count) filter (where date < '2026-03-16') / sum(all_mentions) filter (where date < '2026-03-16') as first
       from visibility.share_of_voice_daily where project_id = $1 and brand_id = $2`,
    )
    expect(shares.map(({ week }) => week)).toEqual(['2026-03-09', '2026-03-16'])
    expect(shares[0]!.share_of_voice).toBeCloseTo(days[0]!.first as number, 12)
    expect(shares[1]!.previous_share_of_voice).toBeCloseTo(days[0]!.first as number, 12)
    const leads = await only(
      `select h.own_mention_count, h.own_answers, h.answers, h.previous_own_answers, h.rival_verdict, m.mentions
       from visibility.head_to_head_weekly h join lateral (
         select sum(mention_count) as mentions from visibility.brand_daily_by_model r
         where r.project_id = $1 and r.brand_id = h.own_brand_id and r.model_id = h.model_id and r.date between '2026-03-11' and '2026-03-15'
       ) m on true
       where h.project_id = $1 and h.rival_brand_id = $2 and h.week = '2026-03-09'`,
    )
    expect(leads.length).toBe(3)
    for (const lead of leads) {
      expect([lead.own_mention_count, lead.own_answers]).toEqual([lead.mentions, lead.answers])
      expect([lead.previous_own_answers, lead.rival_verdict]).toEqual([null, 'new'])
    }
  } finally {
    await client.query('rollback')
    client.release()
  }
})

describe('every view agrees with the raw chats', () => {
  test.each(Object.keys(expected) as (keyof typeof expected)[])('%s', async (name) => {
    const found = await setup.database.rows<Row>(`select * from visibility.${name}`)
    const wanted = expected[name]()
    expect(wanted.length).toBeGreaterThan(10)
    expect(Object.keys(found[0]!)).toEqual(Object.keys(VIEWS[name].columns))
    // The formula of p-values is exact to six digits; it has a test of its own.
    const have = new Set(found.map(({ p_value: _p, q_value: _q, ...row }) => shown(row)))
    const want = new Set(wanted.map(shown))
    // A few of the differences say more than all of them.
    expect([...want].filter((row) => !have.has(row)).slice(0, 3)).toEqual([])
    expect([...have].filter((row) => !want.has(row)).slice(0, 3)).toEqual([])
    expect(found.length).toBe(wanted.length)
  })
})

test('a view whose report is not configured is left out and explained, and made once it is there', async () => {
  const few = await setUp({ emptyDatabase: true, config: { reports: [{ name: 'total', dimensions: ['date'] }] } })
  const first = await migrate(few.database.warehouse, few.config)
  const needNone = ['data_status', 'freshness', ...viewsOf(13)]
  expect(first.views.made).toEqual([...viewsOf(1), ...viewsOf(2), 'answers_daily', ...needNone])
  expect(first.views.left).toContainEqual({
    name: 'topics_weekly',
    reason: 'needs an unfiltered report by date, topic_id, and none is configured',
  })
  const reports = [
    { name: 'total', dimensions: ['date'] },
    { name: 'own_name', dimensions: ['topic_id', 'date'] },
    {
      name: 'filtered',
      dimensions: ['date', 'model_id'],
      filters: [{ field: 'country_code', operator: 'in', values: ['DE'] }],
    },
  ]
  const second = await migrate(few.database.warehouse, configOf({ reports }))
  expect(second.views.made).toEqual(['topics_weekly', 'sentiment_by_topic_weekly'])
  expect(second.views.left.map(({ name }) => name)).toContain('visibility_by_model_weekly')
})

test('each unique key of a table, and each join of a view, names the project', async () => {
  const keys = await setup.database.rows<{ key: string; first: string }>(
    `select i.indexrelid::regclass::text as key, pg_get_indexdef(i.indexrelid, 1, true) as first
     from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'visibility' and i.indisunique`,
  )
  expect(keys.length).toBeGreaterThan(10)
  expect(keys.filter(({ first }) => first !== 'project_id')).toEqual([])
  const views = await setup.database.rows<{ name: string; text: string }>(
    `select c.oid::regclass::text as name, pg_get_viewdef(c.oid, 0) as text
     from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'visibility' and c.relkind = 'v'`,
  )
  const isOfNoProject =
    /^ *(?:visibility_ops\.)?(?:calendar|weeks_compared|months_compared)\b|^ *\( SELECT DISTINCT calendar\.week/
  const joins = views.flatMap(({ name, text }) =>
    text
      .split(/ JOIN (?!LATERAL)/)
      .slice(1)
      .filter((join) => !isOfNoProject.test(join))
      .map((join) => ({ name, join: join.split('\n')[0]! })),
  )
  expect(joins.length).toBeGreaterThan(20)
  expect(joins.filter(({ join }) => !join.includes('project_id'))).toEqual([])
})

test('an upgrade replaces views and leaves what people built on them, and takes no name that is taken', async () => {
  const upgraded = await setUp({ config: { reports: [{ name: 'total', dimensions: ['date'] }] } })
  const { database, config } = upgraded
  await database.rows('create schema if not exists visibility')
  await database.rows('create table visibility.share_of_voice_daily (theirs text)')
  const first = await migrate(database.warehouse, config)
  expect(first.views.left).toContainEqual({
    name: 'share_of_voice_daily',
    reason: 'has a name that another table or view of this schema took first',
  })
  await database.rows('create view mine as select brand, visibility from visibility.visibility_weekly')
  // As if an earlier version had made another text of it.
  await database.rows("update visibility_ops.views set fingerprint = 'older'")
  const again = await migrate(database.warehouse, config)
  expect(again.views.made).toContain('visibility_weekly')
  expect(await database.rows('select * from mine')).toEqual([])
  // A column that would have to change its type cannot be replaced under a view of theirs: the old one stays.
  await database.rows('drop view visibility.visibility_monthly')
  await database.rows('create view visibility.visibility_monthly as select 1::int as project_id')
  await database.rows("update visibility_ops.views set fingerprint = 'older'")
  const kept = await migrate(database.warehouse, config)
  expect(kept.views.left.find(({ name }) => name === 'visibility_monthly')?.reason).toContain('stays as it is')
  expect(kept.views.made).toContain('visibility_weekly')
})

test('the questions list rows with enough answers first, for each week or day and each series', async () => {
  // Of a model and a country with two answers, both of which name the own brand.
  const rare = { model_id: 'rare', country_code: 'ZZ', visibility_count: 2, visibility_total: 2 }
  for (const name of ['by_model', 'by_country']) {
    const column = name === 'by_model' ? 'model_id' : 'country_code'
    closeLater(() =>
      setup.database.rows(`delete from visibility.brand_daily_${name} where ${column} in ('rare', 'ZZ')`),
    )
    await setup.database.rows(
      `insert into visibility.brand_daily_${name}
       select (jsonb_populate_record(null::visibility.brand_daily_${name}, to_jsonb(r) || $1)).*
       from visibility.brand_daily r where date = '2026-03-16' and brand_id = any($2)`,
      [rare, [...own]],
    )
  }
  const mixed = new Set<string>()
  // The last one shows each day and model, enough or not.
  for (const { name, sql } of readQuestions('visibility').slice(0, -1)) {
    const groups = new Map<string, boolean[]>()
    for (const { week, date, series, answers } of await setup.database.rows(sql)) {
      const group = `${week ?? date} ${series}`
      groups.set(group, [...(groups.get(group) ?? []), Number(answers) >= 30])
    }
    for (const [group, isEnough] of groups) {
      if (new Set(isEnough).size === 2) mixed.add(name)
      expect([name, group, isEnough]).toEqual([name, group, isEnough.toSorted((a, b) => Number(b) - Number(a))])
    }
  }
  expect([...mixed].map((name) => name.split('.')[0])).toEqual(['3', '5', '10', '11'])
})

test('every statement of the docs runs, and grant does what the page says', async () => {
  const statementsOf = (page: string) => {
    const text = readFileSync(new URL(`../docs/${page}.md`, import.meta.url), 'utf8')
    return [...text.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, sql]) => sql!.replaceAll(/^ {3}/gm, ''))
  }
  const setUps = statementsOf('how-to/grant-access')
  expect(setUps.length).toBe(2)
  const role = `reader_${randomBytes(4).toString('hex')}`
  for (const text of setUps) await setup.database.rows(text.replaceAll('metabase_reader', role))
  const { statements: done } = await grantReader(setup.database.warehouse, { role, unused: [] })
  expect(setUps[1]!.trim().split('\n')).toEqual(
    done.map((statement) => `${statement.replaceAll('"', '').replaceAll(role, 'metabase_reader')};`),
  )
  await setup.database.rows(`grant ${role} to current_user; drop owned by ${role}; drop role ${role}`)
  const questions = statementsOf('reference/questions')
  expect(questions.filter((text) => /^-- \d+\. /.test(text)).length).toBeGreaterThanOrEqual(12)
  for (const text of questions) {
    // Views of domains and URLs are empty without their reports; sources.test.ts runs them with rows.
    if ((await setup.database.rows(text)).length === 0 && !viewsOf(13).some((name) => text.includes(`.${name}`)))
      throw new Error(`no rows: ${text}`)
  }
})
