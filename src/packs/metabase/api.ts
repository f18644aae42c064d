import { got, HTTPError } from 'got'
import * as z from 'zod'
import type { Config } from '../../core/config/load.ts'
import { connectionFailure } from '../../core/connection-failure.ts'
import { codeOf, messageOf, RefusedError, UsageError } from '../../core/errors.ts'
import type { Redactor } from '../../core/redactor.ts'
import { clip } from '../../core/text.ts'

/*
 * The part of Metabase's API that provisioning needs, as versions 50 to 65 have it. Bodies hold only keys that their
 * schemas name: newer versions take no others.
 */

export const named = z.object({ id: z.number(), name: z.string() })
/** Newer versions wrap lists in `data`. */
const listOf = <T extends z.ZodType>(item: T) =>
  z.union([z.array(item), z.object({ data: z.array(item) }).transform(({ data }) => data)])
const orEmpty = <T extends z.ZodType>(list: T) => z.preprocess((value) => value ?? [], list)

export const items = listOf(named)

export const databases = listOf(
  named.extend({ engine: z.string(), is_on_demand: z.boolean().nullish(), cache_ttl: z.number().nullish() }),
)

export const collections = listOf(
  named.extend({
    // The root collection has a word for an id.
    id: z.union([z.number(), z.string()]),
    /** The ids above it: "/" for one that lies in the root. */
    location: z.string().nullish(),
    personal_owner_id: z.number().nullish(),
  }),
)

const field = named.extend({
  base_type: z.string(),
  semantic_type: z.string().nullish(),
  fk_target_field_id: z.number().nullish(),
})
const table = named.extend({ schema: z.string().nullish(), fields: z.array(field) })
export type Field = z.infer<typeof field>
export type Table = z.infer<typeof table>
export const metadata = z.object({ tables: z.array(table) })

/** The fields of a dashboard card that may be sent. Other fields of an answer are computed by Metabase. */
const dashcard = z.object({
  /** Negative for a new one. */
  id: z.number(),
  card_id: z.number().nullish(),
  action_id: z.number().nullish(),
  row: z.number(),
  col: z.number(),
  size_x: z.number(),
  size_y: z.number(),
  dashboard_tab_id: z.number().nullish(),
  parameter_mappings: z.array(z.looseObject({ parameter_id: z.string() })).nullish(),
  visualization_settings: z.unknown().optional(),
  inline_parameters: z.array(z.string()).nullish(),
  series: z.array(z.object({ id: z.number() })).nullish(),
})
export type Dashcard = z.infer<typeof dashcard>

export const dashboard = z.object({
  dashcards: orEmpty(z.array(dashcard)),
  tabs: orEmpty(z.array(named)),
  parameters: orEmpty(z.array(z.looseObject({ id: z.string(), slug: z.string().nullish() }))),
})
export type Dashboard = z.infer<typeof dashboard>

export type Card = {
  name: string
  description: string
  type: 'question' | 'model' | 'metric'
  display: string
  dataset_query: object
  visualization_settings: object
  parameters?: object[]
  result_metadata?: object[]
}

const HINTS: Record<number, string> = {
  401: ' (check METABASE_API_KEY, or METABASE_USER and METABASE_PASSWORD)',
  403: ' (only an administrator may do this: a login or an API key of the group Administrators)',
}

const SECOND_FACTOR =
  'the login needs a second factor, which a command cannot give: set METABASE_API_KEY to an API key of the group ' +
  'Administrators (Admin settings → Authentication → API keys)'
export type Metabase = Awaited<ReturnType<typeof connectMetabase>>

type Settings = Pick<Config['metabase'], 'api_key' | 'user' | 'password'>

export async function connectMetabase(url: string, { api_key, user, password }: Settings, redactor: Redactor) {
  const client = got.extend({
    prefixUrl: `${url.replace(/\/+$/, '')}/api`,
    timeout: { request: 30_000 },
    retry: { limit: 0 },
    followRedirect: false,
  })
  let headers: Record<string, string> = {}

  async function call<S extends z.ZodType>(
    method: 'GET' | 'POST' | 'PUT',
    path: string,
    answer: S,
    json?: object,
  ): Promise<z.infer<S>> {
    const operation = `Metabase: ${method} /api/${path.split('?')[0]}`
    const body = await client(path, { method, headers, ...(json !== undefined && { json }) })
      .text()
      .catch((error: unknown) => {
        if (!(error instanceof HTTPError)) {
          const cause = connectionFailure(error)?.cause ?? codeOf(error) ?? clip(messageOf(error))
          const { origin } = new URL(url)
          throw new RefusedError(`${operation}: ${origin} does not answer: ${cause}. Start Metabase, or correct --url`)
        }
        const { statusCode: status, body: text } = error.response
        const reason = `HTTP ${status}: ${clip(String(text), 200)}${HINTS[status] ?? ''}`
        throw new RefusedError(`${operation}: ${reason}`, { status })
      })
    const parsed = answer.safeParse(parseJson(body))
    if (parsed.success) return parsed.data
    throw new RefusedError(`${operation}: an unexpected answer: ${clip(body, 120)}`)
  }

  if (api_key !== undefined) headers = { 'x-api-key': api_key }
  else if (user === undefined || password === undefined)
    throw new UsageError('set METABASE_API_KEY, or METABASE_USER and METABASE_PASSWORD')
  else {
    const answer = z.object({ id: z.string().optional() })
    const { id } = await call('POST', 'session', answer, { username: user, password })
    // The login was right, and Metabase waits for a code from a phone.
    if (id === undefined) throw new RefusedError(`Metabase: POST /api/session: ${SECOND_FACTOR}`)
    // This token signs its bearer in, and a later answer may repeat it.
    redactor.add([id])
    headers = { 'x-metabase-session': id }
  }
  return {
    get: <S extends z.ZodType>(path: string, answer: S) => call('GET', path, answer),
    post: <S extends z.ZodType>(path: string, json: object, answer: S) => call('POST', path, answer, json),
    put: (path: string, json: object) => call('PUT', path, z.unknown(), json),
  }
}

function parseJson(text: string): unknown {
  try {
    return text === '' ? null : JSON.parse(text)
  } catch {
    return undefined
  }
}
