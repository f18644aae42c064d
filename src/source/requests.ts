import * as z from 'zod'
import { isDay } from '../core/day.ts'
import {
  CLASSIFICATION_NAME_MAX,
  COLORS,
  COMPARISONS,
  COUNTRIES,
  DIMENSIONS,
  FILTER_FIELDS,
  FILTER_OPERATORS,
  PAGE_LIMIT_MAX,
  PROMPT_TEXT_MAX,
  TOPIC_NAME_MAX,
} from '../core/vocabulary.ts'

/*
 * Requests, strictly as the API documents them: the client refuses anything else before it is sent,
 * and the reference service refuses it on arrival.
 */

/** Lengths count characters as people count them, not UTF-16 units. */
function textOf(from: number, to: number) {
  const error = `a text of ${from} to ${to} characters`
  return z.string({ error }).refine((text) => [...text].length >= from && [...text].length <= to, { error })
}

const day = z.string().refine(isDay, { error: 'a real calendar date, YYYY-MM-DD' })
const country = z.enum(COUNTRIES, { error: 'a country code of the API, such as DE' })
const id = z.string().min(1)

const paging = {
  limit: z
    .int()
    .min(1, { error: `a limit from 1 to ${PAGE_LIMIT_MAX}` })
    .max(PAGE_LIMIT_MAX, { error: `a limit from 1 to ${PAGE_LIMIT_MAX}` })
    .optional(),
  offset: z.int().min(0, { error: 'an offset of 0 or more' }).optional(),
}
const project = { project_id: id.optional() }
const dates = { start_date: day.optional(), end_date: day.optional() }

export const reportRequest = z.strictObject({
  ...project,
  ...paging,
  ...dates,
  dimensions: z.array(z.enum(DIMENSIONS)).optional(),
  filters: z
    .array(
      z.strictObject({
        field: z.enum(FILTER_FIELDS),
        operator: z.enum(FILTER_OPERATORS),
        values: z.array(z.string()).min(1),
      }),
    )
    .optional(),
  having: z
    .array(
      z.union([
        z.strictObject({ field: z.enum(FILTER_FIELDS), operator: z.literal('in'), values: z.array(z.string()).min(1) }),
        z.strictObject({ field: z.string().min(1), operator: z.enum(COMPARISONS), value: z.number() }),
      ]),
    )
    .optional(),
  order_by: z
    .array(z.strictObject({ field: z.string().min(1), direction: z.enum(['asc', 'desc']).default('desc') }))
    .optional(),
})
export type ReportRequest = z.input<typeof reportRequest>

export const profileRequest = z.strictObject({ ...project })
export const promptsRequest = z.strictObject({ ...project, ...paging, topic_id: id.optional(), tag_id: id.optional() })
export const suggestionsRequest = z.strictObject({ ...project, ...paging, topic_id: id.optional() })
export const classificationsRequest = z.strictObject({ ...project, ...paging })
export const chatsRequest = z.strictObject({
  ...project,
  ...paging,
  ...dates,
  brand_id: id.optional(),
  prompt_id: id.optional(),
  model_id: id.optional(),
})

export const createPromptRequest = z.strictObject({
  text: textOf(1, PROMPT_TEXT_MAX),
  country_code: country,
  tag_ids: z.array(id).optional(),
  topic_id: id.optional(),
})
export const createTopicRequest = z.strictObject({ name: textOf(1, TOPIC_NAME_MAX), country_code: country.optional() })
export const createClassificationRequest = z.strictObject({
  ...project,
  name: textOf(1, CLASSIFICATION_NAME_MAX),
  color: z.enum(COLORS, { error: `a colour: ${COLORS.join(', ')}` }).optional(),
})

export type CreatePromptRequest = z.infer<typeof createPromptRequest>
