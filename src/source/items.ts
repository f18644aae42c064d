import * as z from 'zod'
import type { Dimension } from '../core/vocabulary.ts'

/*
 * Items that are received, read tolerantly: fields that the live service is known to leave out may be absent or null, unknown
 * fields are dropped, new models, colours and countries are data. No transforms here: zod's compiled path is three to
 * five times slower with them, so rows are flattened afterwards.
 */

// Ids are indexed, and an index entry has a size limit in Postgres.
const id = z.string().min(1).max(255)
const reference = z.object({ id })
const looseReference = z.object({ id: id.nullish() }).nullish()
const metric = z.number().nullish()

// Chats and rows of reports come by the million, and checks take zod off its fast path: their ids and days are checked where
// they are sifted, and of reports only the dimensions that were asked for are looked at.
const plainReference = z.object({ id: z.string().nullish() }).nullish()

const reportShape = {
  brand: z.object({ id: z.string(), name: z.string().nullish() }),
  mention_count: z.number(),
  visibility: z.number(),
  visibility_count: z.number(),
  visibility_total: z.number(),
  // Checked against the window that was asked for, which is stricter and cheaper than being a calendar date.
  date: z.string(),
  prompt: plainReference,
  model: plainReference,
  model_channel: plainReference,
  tag: plainReference,
  topic: plainReference,
  country_code: z.string().nullish(),
  chat: plainReference,
  share_of_voice: metric,
  sentiment: metric,
  sentiment_sum: metric,
  sentiment_count: metric,
  position: metric,
  position_sum: metric,
  position_count: metric,
}

const DIMENSION_FIELDS = {
  prompt_id: 'prompt',
  model_id: 'model',
  model_channel_id: 'model_channel',
  tag_id: 'tag',
  topic_id: 'topic',
  country_code: 'country_code',
  chat_id: 'chat',
} as const

/** A row of a report with these dimensions. Fields of other dimensions are accepted and not validated. */
export function reportItem(dimensions: readonly Dimension[]) {
  const fields = { ...reportShape }
  for (const [dimension, field] of Object.entries(DIMENSION_FIELDS)) {
    if (!dimensions.includes(dimension as Dimension)) Object.assign(fields, { [field]: z.unknown().optional() })
  }
  return z.object(fields)
}
export type ReportItem = z.infer<ReturnType<typeof reportItem>>

export const chatItem = z.object({
  id: z.string(),
  prompt: plainReference,
  model: plainReference,
  model_channel: plainReference,
  date: z.string(),
})
export type ChatItem = z.infer<typeof chatItem>

export const promptItem = z.object({
  id,
  messages: z.array(z.object({ content: z.string() })),
  tags: z.array(reference).nullish(),
  topic: looseReference,
  user_location: z.record(z.string(), z.unknown()).nullish(),
  volume: z.union([z.number(), z.string()]).nullish(),
})
export type PromptItem = z.infer<typeof promptItem>

export const classificationItem = z.object({ name: z.string().min(1).max(255), color: z.string().nullish() })
export type ClassificationItem = z.infer<typeof classificationItem>

const market = z.object({ location: z.string().nullish(), osmId: z.union([z.string(), z.number()]).nullish() })

export const profileItem = z.object({
  name: z.string().nullish(),
  occupation: z.string().nullish(),
  industry: z.string().nullish(),
  brandPresentation: z.array(z.string()).nullish(),
  productsAndServices: z.array(z.string()).nullish(),
  targetMarkets: z.array(market).nullish(),
  target_markets: z.array(market).nullish(),
  audienceDistribution: z.record(z.string(), z.number().nullable()).nullish(),
  usedPreparedProfile: z.boolean().nullish(),
})
export type ProfileItem = z.infer<typeof profileItem>

export const listEnvelope = z.object({
  data: z.array(z.unknown()),
  totalCount: z.unknown().optional(),
  total_count: z.unknown().optional(),
})
/** The profile is null if the project has none. */
export const profileEnvelope = z.object({ profile: z.unknown().refine((profile) => profile !== undefined) })
export const contentEnvelope = z.record(z.string(), z.unknown())

export const createdPrompt = z.object({ id, warning: z.string().nullish() })
export const createdTopic = z.object({ id })
export const createdClassification = z.object({ name: z.string(), color: z.string().nullish() })
