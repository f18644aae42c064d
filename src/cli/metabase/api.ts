import { got, HTTPError } from 'got'
import * as z from 'zod'
import { codeOf, messageOf, RefusedError, UsageError } from '../../core/errors.ts'
import type { Redactor } from '../../core/redactor.ts'
import { decoded } from '../../core/secret-forms.ts'
import { clip } from '../../core/text.ts'

/* The part of Metabase's public API that provisioning needs. */

export type Login = { apiKey: string } | { user: string; password: string }

const named = z.object({ id: z.number(), name: z.string() })
const database = named.extend({ engine: z.string() })
/** Newer versions wrap lists in `data`. */
const listOf = <T extends z.ZodType>(item: T) =>
  z.union([z.array(item), z.object({ data: z.array(item) }).transform(({ data }) => data)])

export interface Card {
  name: string
  display: string
  collection_id: number
  dataset_query: { type: 'native'; database: number; native: { query: string; 'template-tags': object } }
  visualization_settings: object
}

export interface Dashcard {
  /** Negative for a new one. */
  id: number
  card_id: number
  row: number
  col: number
  size_x: number
  size_y: number
}

export type Metabase = Awaited<ReturnType<typeof connectMetabase>>

/** Signs in and gives the calls. Every answer is checked; an unexpected one ends the command with what was asked. */
export async function connectMetabase(url: string, login: Login, redactor: Redactor) {
  const client = got.extend({
    prefixUrl: `${url.replace(/\/+$/, '')}/api`,
    timeout: { request: 30_000 },
    retry: { limit: 0 },
    followRedirect: false,
  })

  async function call<S extends z.ZodType>(
    method: 'GET' | 'POST' | 'PUT',
    path: string,
    answer: S,
    json?: object,
    headers: Record<string, string> = {},
  ): Promise<z.infer<S>> {
    const place = `Metabase: ${method} /api/${path.split('?')[0]}`
    const body = await client(path, { method, headers, ...(json === undefined ? {} : { json }) })
      .text()
      .catch((error: unknown) => {
        if (error instanceof HTTPError) {
          const { statusCode, body: told } = error.response
          const hint = statusCode === 401 ? ' (check METABASE_API_KEY, or METABASE_USER and METABASE_PASSWORD)' : ''
          throw new RefusedError(`${place}: HTTP ${statusCode}: ${clip(String(told), 200)}${hint}`, {
            status: statusCode,
          })
        }
        throw new RefusedError(`${place}: ${codeOf(error) ?? clip(messageOf(error))}`)
      })
    const parsed = answer.safeParse(parseJson(body))
    if (parsed.success) return parsed.data
    throw new RefusedError(`${place}: an unexpected answer: ${clip(body, 120)}`)
  }

  async function signIn(user: string, password: string): Promise<Record<string, string>> {
    const { id } = await call('POST', 'session', z.object({ id: z.string() }), { username: user, password })
    // Whoever has it is signed in, and a later answer may repeat it.
    redactor.add([id])
    return { 'x-metabase-session': id }
  }

  const headers = 'apiKey' in login ? { 'x-api-key': login.apiKey } : await signIn(login.user, login.password)
  const get = <S extends z.ZodType>(path: string, answer: S) => call('GET', path, answer, undefined, headers)
  const post = <S extends z.ZodType>(path: string, answer: S, json: object) => call('POST', path, answer, json, headers)
  const put = (path: string, json: object) => call('PUT', path, z.unknown(), json, headers)

  return {
    databases: () => get('database', listOf(database)),
    createDatabase: (json: object) => post('database', z.object({ id: z.number() }), json),
    updateDatabase: (id: number, json: object) => put(`database/${id}`, json),
    syncSchema: (id: number) => post(`database/${id}/sync_schema`, z.unknown(), {}),
    // The root collection has a word for an id.
    collections: async () =>
      (await get('collection', listOf(z.object({ id: z.union([z.number(), z.string()]), name: z.string() })))).flatMap(
        ({ id, name }) => (typeof id === 'number' ? [{ id, name }] : []),
      ),
    createCollection: (name: string, description: string) => post('collection', named, { name, description }),
    items: (collection: number, model: 'card' | 'dashboard') =>
      get(`collection/${collection}/items?models=${model}`, listOf(named)),
    createCard: (card: Card) => post('card', named, card),
    updateCard: (id: number, card: Card) => put(`card/${id}`, card),
    createDashboard: (name: string, collection: number) =>
      post('dashboard', named, { name, collection_id: collection }),
    dashboard: (id: number) =>
      get(
        `dashboard/${id}`,
        z.object({ dashcards: z.array(z.object({ id: z.number(), card_id: z.number().nullish() })).default([]) }),
      ),
    updateDashboard: (id: number, dashcards: Dashcard[]) => put(`dashboard/${id}`, { dashcards }),
  }
}

function parseJson(text: string): unknown {
  if (text === '') return null
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The parts of a connection string as Metabase wants them. */
export function connectionDetails(url: string, schema: string): Record<string, unknown> {
  let parsed: URL
  try {
    parsed = new URL(url)
  } catch {
    throw new UsageError(
      'METABASE_DATABASE_URL: not a valid address; it looks like postgres://user:password@host:5432/name',
    )
  }
  return {
    host: parsed.hostname,
    port: Number(parsed.port || 5432),
    dbname: decoded(parsed.pathname.slice(1)),
    user: decoded(parsed.username),
    password: decoded(parsed.password),
    ssl: ['require', 'verify-ca', 'verify-full'].includes(parsed.searchParams.get('sslmode') ?? ''),
    'schema-filters-type': 'inclusion',
    'schema-filters-patterns': schema,
  }
}
