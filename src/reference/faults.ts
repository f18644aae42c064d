import * as z from 'zod'

/*
 * How the reference service can be made to misbehave. Probabilities run from 0 to 1 and are drawn from the seed, so a
 * schedule of faults can be replayed.
 */

const chance = z.number().min(0).max(1).default(0)

export const faultsSchema = z.strictObject({
  seed: z.int().default(1),
  /** `hang`, `server_error` and `reset` are for requests of this project, or to this path, alone. */
  only_project: z.string().nullable().default(null),
  only_path: z.string().nullable().default(null),
  /** Requests for each project in a period; null turns the limit off. */
  rate_limit: z.int().min(1).nullable().default(200),
  rate_window_ms: z.int().min(1).default(60_000),
  /** False: a 429 comes without any header that says how long to wait. */
  rate_headers: z.boolean().default(true),
  retry_after: z.boolean().default(false),
  /** Sent as `Retry-After` with every 429 and 5xx, whatever it says: seconds, a date or nonsense. */
  retry_after_value: z.union([z.string(), z.number()]).nullable().default(null),
  /** How far the service's clock, as its `Date` header shows it, is ahead. */
  clock_ahead_seconds: z.int().default(0),
  latency_ms: z.int().min(0).default(0),
  hang: chance,
  server_error: chance,
  reset: chance,
  /** Sends the header and half of the body, then closes the connection. */
  truncate: chance,
  /** Answers 200 with half of the JSON and a matching length. */
  cut_json: chance,
  html: chance,
  /** Answers 200 with JSON that lacks what was asked for. */
  wrong_shape: chance,
  /** Every list and report comes in another order each time. */
  unstable_order: z.boolean().default(false),
  extra_fields: z.boolean().default(false),
  /** A share of rows that is malformed: always the same rows. */
  malformed: chance,
  /** Some rows stand twice in an answer. */
  duplicate_rows: chance,
  /** Lists and reports answer with no rows at all. */
  empty: z.boolean().default(false),
  /** A 400 for a larger limit. */
  limit_max: z.int().min(1).nullable().default(null),
  /** Cuts every answer to this many rows without a word. */
  silent_cap: z.int().min(1).nullable().default(null),
  /** Another number for reports. */
  report_cap: z.int().min(1).nullable().default(null),
  /** A 400 for any report filter. */
  refuse_filters: z.boolean().default(false),
  /** Filters are accepted and have no effect. */
  ignore_filters: z.boolean().default(false),
  /** A 400 for a report filter with more values. */
  max_values: z.int().min(1).nullable().default(null),
  /** A 400 for a longer range of days. */
  max_days: z.int().min(1).nullable().default(null),
  /** Redirects every request to this address. */
  redirect_to: z.string().nullable().default(null),
  /** `total_count` instead of `totalCount`, neither, or a wrong number. */
  totals: z.enum(['camel', 'snake', 'none', 'wrong']).default('camel'),
  /** Acts on creations, then drops the connection before answering. */
  drop_after_create: chance,
})
export type Faults = z.infer<typeof faultsSchema>
export type FaultSettings = z.input<typeof faultsSchema>
