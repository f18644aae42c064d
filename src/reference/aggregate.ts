import * as z from 'zod'
import { addDays, type Day, dayNumber, daysIn, type Range } from '../core/day.ts'
import {
  type COMPARISONS,
  DIMENSIONS,
  type Dimension,
  FILTER_FIELDS,
  FILTER_OPERATORS,
  type Filter,
  type Having,
} from '../core/vocabulary.ts'
import { reportRequest } from '../source/requests.ts'
import type { Brand, Chat, Project, World } from './world.ts'

/** Besides those that every service has, the weeks and months that the live service knows. */
export type ReportDimension = Dimension | 'week' | 'month'

export interface ReportQuery {
  range: Range
  dimensions: ReportDimension[]
  filters: Filter[]
}

interface Totals {
  brand: Brand
  mentions: number
  seen: number
  sentimentSum: number
  positionSum: number
}

interface Group {
  values: DimensionValues
  chats: number
  mentions: number
  brands: Map<string, Totals>
}

export function brandReport(world: World, project: Project, query: ReportQuery): Record<string, unknown>[] {
  const brandFilters = query.filters.filter(({ field }) => field === 'brand_id')
  const brands = project.brands.filter((brand) => brandFilters.every((filter) => passes(brand.id, filter)))
  const chatFilters = query.filters.filter(({ field }) => field !== 'brand_id')
  const groups = new Map<string, Group>()
  for (const date of daysIn(query.range)) {
    for (const chat of world.chatsOf(project, date)) {
      // A prompt with several tags counts in each of them: rows by tag overlap.
      for (const tagId of tagsFor(query.dimensions, chat)) {
        if (chatFilters.every((filter) => chatPasses(chat, tagId, filter)))
          count(groups, { dimensions: query.dimensions, brands }, chat, tagId)
      }
    }
  }
  const rows: Record<string, unknown>[] = []
  for (const group of groups.values())
    for (const totals of group.brands.values()) rows.push(row(group, totals, query.dimensions))
  // The ordering by default: visibility first, then as grouped.
  return rows.sort((a, b) => (b.visibility as number) - (a.visibility as number))
}

export function tagsFor(dimensions: readonly ReportDimension[], chat: Chat): (string | null)[] {
  if (!dimensions.includes('tag_id')) return [null]
  return chat.prompt.tagIds.length === 0 ? [null] : chat.prompt.tagIds
}

export function chatPasses(chat: Chat, tagId: string | null, filter: Filter): boolean {
  if (filter.field !== 'tag_id') return passes(valueOf(chat, filter.field as Dimension, tagId), filter)
  if (tagId !== null) return passes(tagId, filter)
  const any = chat.prompt.tagIds.some((tag) => filter.values.includes(tag))
  return filter.operator === 'in' ? any : !any
}

function passes(value: string | null, filter: Filter): boolean {
  const among = value !== null && filter.values.includes(value)
  return filter.operator === 'in' ? among : !among
}

const VALUES: Record<ReportDimension, (chat: Chat, tagId: string | null) => string | null> = {
  prompt_id: ({ prompt }) => prompt.id,
  model_id: ({ modelId }) => modelId,
  model_channel_id: ({ channelId }) => channelId,
  tag_id: (_, tagId) => tagId,
  topic_id: ({ prompt }) => prompt.topicId,
  country_code: ({ prompt }) => prompt.country,
  chat_id: ({ id }) => id,
  date: ({ date }) => date,
  week: ({ date }) => addDays(date, -((dayNumber(date) + 3) % 7)),
  month: ({ date }) => `${date.slice(0, 7)}-01`,
}

export function valueOf(chat: Chat, dimension: ReportDimension, tagId: string | null): string | null {
  return VALUES[dimension](chat, tagId)
}

function count(
  groups: Map<string, Group>,
  { dimensions, brands }: { dimensions: ReportDimension[]; brands: Brand[] },
  chat: Chat,
  tagId: string | null,
): void {
  let name = ''
  for (const dimension of dimensions) name += `${valueOf(chat, dimension, tagId)}\u0001`
  let group = groups.get(name)
  if (group === undefined) {
    group = {
      values: Object.fromEntries(dimensions.map((dimension) => [dimension, valueOf(chat, dimension, tagId)])),
      chats: 0,
      mentions: 0,
      brands: new Map(
        brands.map((brand) => [brand.id, { brand, mentions: 0, seen: 0, sentimentSum: 0, positionSum: 0 }]),
      ),
    }
    groups.set(name, group)
  }
  group.chats++
  for (const mention of chat.mentions) {
    const totals = group.brands.get(mention.brand.id)
    if (totals === undefined) continue
    group.mentions += mention.mentions
    totals.mentions += mention.mentions
    totals.seen++
    totals.sentimentSum += mention.sentiment
    totals.positionSum += mention.position
  }
}

const FIELDS: Record<ReportDimension, string> = {
  week: 'week',
  month: 'month',
  prompt_id: 'prompt',
  model_id: 'model',
  model_channel_id: 'model_channel',
  tag_id: 'tag',
  topic_id: 'topic',
  chat_id: 'chat',
  country_code: 'country_code',
  date: 'date',
}

function row(group: Group, totals: Totals, dimensions: ReportDimension[]): Record<string, unknown> {
  const { brand, mentions, seen, sentimentSum, positionSum } = totals
  const item: Record<string, unknown> = {
    brand: { id: brand.id, name: brand.name },
    mention_count: mentions,
    visibility: seen / group.chats,
    visibility_count: seen,
    visibility_total: group.chats,
    share_of_voice: group.mentions === 0 ? 0 : mentions / group.mentions,
    sentiment: seen === 0 ? null : (sentimentSum / seen / 2 + 0.5) * 100,
    sentiment_sum: sentimentSum,
    sentiment_count: seen,
    position: seen === 0 ? null : positionSum / seen,
    position_sum: positionSum,
    position_count: seen,
  }
  return { ...item, ...dimensionFields(group.values, dimensions) }
}

export type DimensionValues = Partial<Record<ReportDimension, string | null>>

/** The dimensions of a row as the service writes them: ids as objects, days and countries plain. */
export function dimensionFields(
  values: DimensionValues,
  dimensions: readonly ReportDimension[],
): Record<string, unknown> {
  const fields: Record<string, unknown> = {}
  for (const dimension of dimensions) {
    const value = values[dimension] ?? null
    const plain = ['date', 'week', 'month', 'country_code'].includes(dimension)
    fields[FIELDS[dimension]] = plain || value === null ? value : { id: value }
  }
  return fields
}

export function chatList(
  world: World,
  project: Project,
  range: Range,
  keep: (chat: Chat) => boolean,
): Record<string, unknown>[] {
  return daysIn(range).flatMap((date: Day) =>
    world
      .chatsOf(project, date)
      .filter(keep)
      .map((chat) => ({
        id: chat.id,
        prompt: { id: chat.prompt.id },
        model: { id: chat.modelId },
        model_channel: { id: chat.channelId },
        date: chat.date,
      })),
  )
}

/* What reports of the live service take besides. */

const IS: Record<(typeof COMPARISONS)[number], (value: number, than: number) => boolean> = {
  gt: (value: number, than: number) => value > than,
  gte: (value: number, than: number) => value >= than,
  lt: (value: number, than: number) => value < than,
  lte: (value: number, than: number) => value <= than,
}

export const widerReportRequest = reportRequest.extend({
  dimensions: z.array(z.enum([...DIMENSIONS, 'week', 'month'])).optional(),
  filters: z
    .array(
      z.strictObject({
        field: z.enum([...FILTER_FIELDS, 'classification']),
        operator: z.enum(FILTER_OPERATORS),
        values: z.array(z.string()).min(1),
      }),
    )
    .optional(),
})
export type WiderReportRequest = z.infer<typeof widerReportRequest>

/** Narrows the rows after the sums are made, so that shares keep their denominators. */
export function applyHaving(
  rows: Record<string, unknown>[],
  having: readonly Having[] = [],
): Record<string, unknown>[] {
  return rows.filter((row) =>
    having.every((condition) => {
      if (condition.operator === 'in') return condition.values.includes(idIn(row, condition.field))
      const found = row[condition.field]
      return typeof found === 'number' && IS[condition.operator](found, condition.value)
    }),
  )
}

function idIn(row: Record<string, unknown>, field: string): string {
  const value = row[field === 'brand_id' ? 'brand' : FIELDS[field as ReportDimension]]
  return typeof value === 'string' ? value : ((value as { id?: string } | null | undefined)?.id ?? '')
}
