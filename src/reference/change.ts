import * as z from 'zod'
import { isDay } from '../core/day.ts'
import { hashText } from './names.ts'
import type { Project, World } from './world.ts'

/* Changes to the world that the live service makes too: history rewritten, things deleted and renamed. */

const action = <Name extends string, Fields extends z.ZodRawShape>(name: Name, fields: Fields) =>
  z.strictObject({ action: z.literal(name), project_id: z.string(), ...fields })

export const changeSchema = z.discriminatedUnion('action', [
  action('rewrite_days', { days: z.array(z.string().refine(isDay)) }),
  action('delete_prompt', { prompt_id: z.string() }),
  action('delete_topic', { topic_id: z.string() }),
  action('rename_brand', { brand_id: z.string(), name: z.string() }),
  action('move_channel', { channel_id: z.string(), model_id: z.string() }),
  action('drop_chat', { chat_id: z.string() }),
])
type Change = z.infer<typeof changeSchema>

export function changeWorld(world: World, project: Project, change: Change): void {
  switch (change.action) {
    case 'rewrite_days':
      return world.rewriteDays(project, change.days)
    case 'delete_prompt':
      return world.deletePrompt(project, change.prompt_id)
    case 'delete_topic':
      return world.deleteTopic(project, change.topic_id)
    case 'rename_brand':
      return world.renameBrand(project, change.brand_id, change.name)
    case 'move_channel':
      return void world.movedChannels.set(change.channel_id, change.model_id)
    case 'drop_chat':
      return world.dropChat(change.chat_id)
  }
}

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
  /** Some rows occur twice in an answer. */
  duplicate_rows: chance,
  /** Lists and reports answer with no rows at all. */
  empty: z.boolean().default(false),
  /** A 400 for a larger limit. */
  limit_max: z.int().min(1).nullable().default(null),
  /** Truncates every answer to this many rows silently. */
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

/** Adds unknown fields, malformed rows and repeated rows to an answer, always at the same rows. */
export function mangle(items: unknown[], faults: Faults): unknown[] {
  if (!faults.extra_fields && faults.malformed === 0 && faults.duplicate_rows === 0) return items
  const mangled: unknown[] = []
  for (const item of items as Record<string, unknown>[]) {
    const draw = share(item)
    let changed: unknown = item
    if (draw < faults.malformed) changed = broken(item, draw * 1e6)
    else if (faults.extra_fields) changed = { ...item, is_archived: false, sampling: { weight: 1 } }
    mangled.push(changed)
    if (share(item, 'twice') < faults.duplicate_rows) mangled.push(changed)
  }
  return mangled
}

/** A number from 0 up to 1 that depends on the row's identity, not on its place or its values. */
function share(item: Record<string, unknown>, salt = ''): number {
  const { brand, id, name, date, prompt, model, topic, tag, country_code, chat } = item
  return (
    hashText(JSON.stringify([salt, brand, id, name, date, prompt, model, topic, tag, country_code, chat])) /
    4_294_967_296
  )
}

function broken(item: Record<string, unknown>, draw: number): unknown {
  if (item.brand !== undefined) {
    const ways = [
      { ...item, mention_count: 'many' },
      { ...item, brand: null },
      { ...item, visibility: null },
      { ...item, date: '2026-02-30' },
      { ...item, position: 'first' },
    ]
    return ways[Math.floor(draw) % ways.length]
  }
  const ways = [{ ...item, id: 7, name: 7 }, { ...item, id: undefined, name: undefined }, 'not an object']
  return ways[Math.floor(draw) % ways.length]
}
