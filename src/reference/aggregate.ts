import * as z from 'zod'
import { addDays, type Day, dayNumber, daysIn, type Range } from '../core/day.ts'
import {
  type COMPARISONS,
  DIMENSIONS,
  type Dimension,
  FILTER_FIELDS,
  type Filter,
  type Having,
} from '../core/vocabulary.ts'
import { reportRequest } from '../source/requests.ts'
import type { Chat, Project, World } from './world.ts'

/** Besides those that every service has, the weeks and months that the live service knows. */
type ReportDimension = Dimension | 'week' | 'month'

export interface ReportQuery {
  range: Range
  dimensions: ReportDimension[]
  filters: Filter[]
}

/** A dimension's field in a row, and its value. Of a chat with several tags, each gives a value. */
const FIELDS: Record<ReportDimension, [field: string, valueOf: (chat: Chat, tagId: string | null) => string | null]> = {
  prompt_id: ['prompt', ({ prompt }) => prompt.id],
  model_id: ['model', ({ modelId }) => modelId],
  model_channel_id: ['model_channel', ({ channelId }) => channelId],
  tag_id: ['tag', (_, tagId) => tagId],
  topic_id: ['topic', ({ prompt }) => prompt.topicId],
  country_code: ['country_code', ({ prompt }) => prompt.country],
  chat_id: ['chat', ({ id }) => id],
  date: ['date', ({ date }) => date],
  week: ['week', ({ date }) => addDays(date, -((dayNumber(date) + 3) % 7))],
  month: ['month', ({ date }) => `${date.slice(0, 7)}-01`],
}

export function brandReport(world: World, project: Project, query: ReportQuery): Record<string, unknown>[] {
  const brandFilters = query.filters.filter(({ field }) => field === 'brand_id')
  const brands = project.brands.filter((brand) => brandFilters.every((filter) => passes(brand.id, filter)))
  const chatFilters = query.filters.filter(({ field }) => field !== 'brand_id')
  const rows = groupChats(world, project, { ...query, filters: chatFilters }).flatMap(({ values, chats }) => {
    const ofBrands = brands.map((brand) => ({ brand, mentions: 0, seen: 0, sentimentSum: 0, positionSum: 0 }))
    const byId = new Map(ofBrands.map((totals) => [totals.brand.id, totals]))
    let all = 0
    for (const { brand, mentions, sentiment, position } of chats.flatMap((chat) => chat.mentions)) {
      const totals = byId.get(brand.id)
      if (totals === undefined) continue
      all += mentions
      totals.mentions += mentions
      totals.seen++
      totals.sentimentSum += sentiment
      totals.positionSum += position
    }
    return ofBrands.map(({ brand, mentions, seen, sentimentSum, positionSum }) => ({
      brand: { id: brand.id, name: brand.name },
      mention_count: mentions,
      visibility: seen / chats.length,
      visibility_count: seen,
      visibility_total: chats.length,
      share_of_voice: all === 0 ? 0 : mentions / all,
      sentiment: seen === 0 ? null : (sentimentSum / seen / 2 + 0.5) * 100,
      sentiment_sum: sentimentSum,
      sentiment_count: seen,
      position: seen === 0 ? null : positionSum / seen,
      position_sum: positionSum,
      position_count: seen,
      ...dimensionFields(values, query.dimensions),
    }))
  })
  // The ordering by default: visibility first, then as grouped.
  return rows.sort((a, b) => b.visibility - a.visibility)
}

/** The chats that pass the filters, by dimensions. One of a prompt with several tags counts in each: rows by tag overlap. */
export function groupChats(
  world: World,
  project: Project,
  { range, dimensions, filters }: ReportQuery,
): { values: DimensionValues; chats: Chat[] }[] {
  const groups = new Map<string, { values: DimensionValues; chats: Chat[] }>()
  for (const date of daysIn(range)) {
    for (const chat of world.chatsOf(project, date)) {
      const { tagIds } = chat.prompt
      for (const tagId of dimensions.includes('tag_id') && tagIds.length > 0 ? tagIds : [null]) {
        if (!filters.every((filter) => chatPasses(chat, tagId, filter))) continue
        const found = dimensions.map((dimension) => FIELDS[dimension][1](chat, tagId))
        const name = found.join('\u0001')
        const group = groups.get(name)
        if (group !== undefined) group.chats.push(chat)
        else {
          const values = Object.fromEntries(dimensions.map((dimension, index) => [dimension, found[index]!]))
          groups.set(name, { values, chats: [chat] })
        }
      }
    }
  }
  return [...groups.values()]
}

function chatPasses(chat: Chat, tagId: string | null, filter: Filter): boolean {
  if (filter.field !== 'tag_id') return passes(FIELDS[filter.field as Dimension][1](chat, tagId), filter)
  if (tagId !== null) return passes(tagId, filter)
  const any = chat.prompt.tagIds.some((tag) => filter.values.includes(tag))
  return filter.operator === 'in' ? any : !any
}

function passes(value: string | null, filter: Filter): boolean {
  const among = value !== null && filter.values.includes(value)
  return filter.operator === 'in' ? among : !among
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
    fields[FIELDS[dimension][0]] = plain || value === null ? value : { id: value }
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

/* Parameters that only the live service accepts. */

const IS: Record<(typeof COMPARISONS)[number], (value: number, than: number) => boolean> = {
  gt: (value, than) => value > than,
  gte: (value, than) => value >= than,
  lt: (value, than) => value < than,
  lte: (value, than) => value <= than,
}

export const widerReportRequest = reportRequest.extend({
  dimensions: z.array(z.enum([...DIMENSIONS, 'week', 'month'])).optional(),
  filters: z
    .array(reportRequest.shape.filters.unwrap().element.extend({ field: z.enum([...FILTER_FIELDS, 'classification']) }))
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
  const value = row[field === 'brand_id' ? 'brand' : FIELDS[field as ReportDimension]?.[0]]
  return typeof value === 'string' ? value : ((value as { id?: string } | null | undefined)?.id ?? '')
}
