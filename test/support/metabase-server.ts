import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import * as z from 'zod'
import { DEFAULT_REPORTS } from '../../src/core/config/schema.ts'
import { relationsOf } from '../../src/packs/relations.ts'
import { configOf } from './config.ts'
import { listening } from './proxy.ts'

/*
 * A server that treats the calls of provisioning as Metabase's source does (versions 50 to 65): bodies are closed, an update of a
 * dashboard deletes whatever it leaves out, one of a database resets what it does not name, composite keys are crossed, and
 * lists are full of other people's things.
 */

const id = z.int().positive()
const parameter = z.looseObject({ id: z.string().min(1), type: z.string(), slug: z.string().optional() })
const mapping = z.object({ parameter_id: z.string().min(1), card_id: id.optional(), target: z.array(z.unknown()) })
const details = z.looseObject({
  host: z.string(),
  port: z.number(),
  dbname: z.string(),
  user: z.string(),
  password: z.string(),
  ssl: z.boolean().optional(),
  'ssl-mode': z.enum(['allow', 'prefer', 'require', 'verify-ca', 'verify-full']).optional(),
})
const templateTag = z.strictObject({
  id: z.string().min(1),
  name: z.string(),
  'display-name': z.string(),
  type: z.literal('dimension'),
  dimension: z.tuple([z.literal('field'), id, z.null()]),
  'widget-type': z.enum(['string/=', 'date/all-options']),
})
const query = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('native'),
    database: id,
    native: z.strictObject({ query: z.string().min(10), 'template-tags': z.record(z.string(), templateTag) }),
  }),
  z.strictObject({
    type: z.literal('query'),
    database: id,
    query: z.strictObject({
      'source-table': id,
      filter: z.array(z.unknown()).optional(),
      aggregation: z.array(z.array(z.unknown())).optional(),
      breakout: z.array(z.array(z.unknown())).optional(),
    }),
  }),
])
const resultColumn = z.looseObject({
  name: z.string(),
  display_name: z.string(),
  base_type: z.string().startsWith('type/'),
})
const cardFields = {
  name: z.string().min(1),
  description: z.string().min(1).nullable().optional(),
  display: z.enum(['table', 'line', 'bar', 'area']),
  dataset_query: query,
  parameters: z.array(parameter).optional(),
  visualization_settings: z.record(z.string(), z.unknown()),
  result_metadata: z.array(resultColumn).optional(),
  collection_id: id.nullable().optional(),
  type: z.enum(['question', 'model', 'metric']).optional(),
}
const dashcard = z.strictObject({
  id: z.int(),
  size_x: id,
  size_y: id,
  row: z.int().min(0),
  col: z.int().min(0),
  card_id: id.nullable().optional(),
  action_id: id.nullable().optional(),
  dashboard_tab_id: z.int().nullable().optional(),
  parameter_mappings: z.array(mapping).nullable().optional(),
  visualization_settings: z.record(z.string(), z.unknown()).nullable().optional(),
  inline_parameters: z.array(z.string()).nullable().optional(),
  series: z.array(z.strictObject({ id })).nullable().optional(),
})

const BODIES: Record<string, z.ZodType> = {
  'POST /api/session': z.strictObject({ username: z.string(), password: z.string() }),
  'POST /api/database': z.strictObject({
    name: z.string().min(1),
    engine: z.literal('postgres'),
    details,
    is_full_sync: z.boolean().optional(),
    is_on_demand: z.boolean().optional(),
  }),
  'PUT /api/database/:id': z.strictObject({
    name: z.string().min(1).optional(),
    engine: z.literal('postgres').optional(),
    details: details.optional(),
    is_full_sync: z.boolean().optional(),
    is_on_demand: z.boolean().optional(),
    cache_ttl: id.nullable().optional(),
  }),
  'POST /api/database/:id/sync_schema': z.unknown(),
  'PUT /api/field/:id': z.strictObject({
    semantic_type: z.enum(['type/FK', 'type/Percentage']).nullable().optional(),
    fk_target_field_id: id.nullable().optional(),
  }),
  'POST /api/collection': z.strictObject({ name: z.string().min(1), description: z.string().min(1).optional() }),
  'POST /api/card': z.strictObject(cardFields),
  'PUT /api/card/:id': z.strictObject(cardFields).partial(),
  'POST /api/dashboard': z.strictObject({ name: z.string().min(1), collection_id: id.nullable().optional() }),
  'PUT /api/dashboard/:id': z.strictObject({
    dashcards: z.array(dashcard).optional(),
    tabs: z.array(z.object({ id: z.int(), name: z.string().min(1) })).optional(),
    parameters: z.array(parameter).optional(),
  }),
}

interface Thing {
  id: number
  name: string
  [key: string]: any
}

export interface MetabaseServer {
  url: string
  store: Record<'database' | 'collection' | 'card' | 'dashboard' | 'field', Thing[]>
  calls: string[]
  /** Requests that a Metabase would refuse. */
  problems: string[]
  /** How often a new database is looked at before its first sync is over. */
  looksUntilSynced: number
  syncEnds: 'complete' | 'aborted'
  /** Views that are not there. */
  without: Set<string>
}

class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message)
  }
}

const BASE_TYPES: Record<string, string> = {
  date: 'type/Date',
  text: 'type/Text',
  boolean: 'type/Boolean',
  integer: 'type/Integer',
  bigint: 'type/BigInteger',
  'double precision': 'type/Float',
}

/** The fields as the sync of Metabase leaves them: keys of two columns crossed, types guessed from names. */
function syncedTables(schema: string, without: ReadonlySet<string>, nextId: () => number) {
  const tables = relationsOf(configOf({ reports: DEFAULT_REPORTS, extras: 'auto' }), [])
    .filter(({ name }) => !without.has(name))
    .map((relation) => ({
      id: nextId(),
      name: relation.name,
      schema,
      fields: relation.columns.map(
        (column): Thing => ({
          id: nextId(),
          name: column.name,
          base_type: BASE_TYPES[column.type] ?? 'type/*',
          semantic_type: column.name === 'margin_of_error' ? 'type/Income' : null,
          fk_target_field_id: null,
          display_name: column.name,
        }),
      ),
    }))
  const brands = tables.find(({ name }) => name === 'brands')!
  for (const { name, fields } of tables) {
    const crossed = fields.find((field) => field.name === 'brand_id' && name !== 'brands')
    if (crossed !== undefined)
      Object.assign(crossed, { semantic_type: 'type/FK', fk_target_field_id: brands.fields[0]!.id })
  }
  return tables
}

export async function startMetabase(): Promise<MetabaseServer> {
  let ids = 0
  const nextId = () => ++ids
  const looks = new Map<number, number>()
  const state: MetabaseServer = {
    url: '',
    store: { database: [], collection: [], card: [], dashboard: [], field: [] },
    calls: [],
    problems: [],
    looksUntilSynced: 1,
    syncEnds: 'complete',
    without: new Set(),
  }
  const { store } = state
  store.collection.push(
    { id: nextId(), name: 'AI visibility', location: '/', personal_owner_id: 7 },
    { id: nextId(), name: 'AI visibility', location: '/1/', personal_owner_id: null },
  )
  const isSynced = (database: Thing) => (looks.get(database.id) ?? 0) >= state.looksUntilSynced

  function checkCard(body: any): void {
    const asked = body.dataset_query
    if (asked === undefined) return
    if (asked.type === 'native') {
      const named = [...asked.native.query.matchAll(/\{\{(\w+)\}\}/g)].map((match: string[]) => match[1])
      const tags = Object.keys(asked.native['template-tags'])
      if (named.sort().join() !== tags.sort().join())
        throw new Refusal(400, `template tags ${tags}, in the query ${named}`)
      for (const tag of Object.values<any>(asked.native['template-tags'])) {
        if (!store.field.some((field) => field.id === tag.dimension[1])) throw new Refusal(400, 'no such field')
      }
    } else if (body.type === 'metric') {
      if (asked.query.aggregation?.length !== 1) throw new Refusal(400, 'a metric has one aggregation')
      const dates = (asked.query.breakout ?? []).map(([, fieldId]: [string, number]) =>
        store.field.find((field) => field.id === fieldId),
      )
      if (dates.length > 1 || dates.some((field: Thing | undefined) => field?.base_type !== 'type/Date'))
        throw new Refusal(400, 'a metric has at most one breakout, by date')
    }
  }

  function updateDashboard(dashboard: Thing, body: any): void {
    if (body.parameters !== undefined) dashboard.parameters = body.parameters
    if (body.dashcards === undefined) return
    const tabs: Thing[] = body.tabs ?? []
    const cards: Thing[] = body.dashcards.map((card: Thing) =>
      tabs.length === 1 ? { ...card, dashboard_tab_id: card.dashboard_tab_id ?? tabs[0]!.id } : card,
    )
    if (tabs.length > 0 && cards.some((card) => (card.dashboard_tab_id ?? null) === null))
      throw new Refusal(400, 'This dashboard has tab, makes sure every card has a tab')
    for (const { card_id } of cards) {
      if (card_id && !store.card.some((card) => card.id === card_id)) throw new Refusal(404, `no card ${card_id}`)
    }
    const kept = new Set(tabs.map((tab) => tab.id))
    dashboard.tabs = tabs
    dashboard.dashcards = cards
      .filter((card) => !card.dashboard_tab_id || kept.has(card.dashboard_tab_id))
      .map((card) => ({ ...card, id: card.id < 0 ? nextId() : card.id }))
  }

  /** What a dashboard shows of a card, beyond what may be sent back. */
  const hydrated = (card: Thing) => ({
    ...card,
    dashboard_id: 1,
    entity_id: 'x'.repeat(21),
    created_at: '2026-01-01T00:00:00Z',
    updated_at: '2026-01-01T00:00:00Z',
    collection_authority_level: null,
    card: { id: card.card_id, name: 'as it is', dataset_query: {} },
    series: (card.series ?? []).map(({ id: of }: Thing) => ({ id: of, name: 'other', display: 'line' })),
  })

  function itemsOf(collection: number, search: URLSearchParams): Thing[] {
    const kinds = search.getAll('models')
    const kindOf: Record<string, string> = { question: 'card', model: 'dataset', metric: 'metric' }
    const cards = store.card
      .filter((card) => card.collection_id === collection && kinds.includes(kindOf[card.type ?? 'question']!))
      .filter((card) => card.dashboard_id === undefined || search.get('show_dashboard_questions') === 'true')
    const dashboards = store.dashboard.filter((one) => one.collection_id === collection && kinds.includes('dashboard'))
    return [...cards, ...dashboards].map((item) => ({ id: item.id, name: item.name }))
  }

  function answerTo(call: string, body: any, request: { id: number; search: URLSearchParams }): unknown {
    const [method, path] = call.split(' ') as [string, string]
    const kind = path.split('/')[2] as keyof typeof store
    if (call === 'GET /api/database') return { data: store.database, total: store.database.length }
    if (call === 'GET /api/collection') return [{ id: 'root', name: 'Our analytics' }, ...store.collection]
    if (call === 'GET /api/collection/:id/items') return { data: itemsOf(request.id, request.search) }
    if (call === 'POST /api/database') {
      // It tries SSL by itself where nothing is said of it, and keeps what worked.
      const made = { is_on_demand: false, cache_ttl: null, ...body, id: nextId(), tables: [] as unknown[] }
      made.details = { ssl: true, ...body.details }
      store.database.push(made)
      return made
    }
    if (method === 'POST' && path === `/api/${kind}`) {
      checkCard(body)
      const made: Thing = { ...body, id: nextId() }
      if (kind === 'collection') Object.assign(made, { location: '/', personal_owner_id: null })
      if (kind === 'dashboard') Object.assign(made, { dashcards: [], tabs: [], parameters: [] })
      store[kind].push(made)
      return made
    }
    const found = store[kind]?.find((item) => item.id === request.id)
    if (found === undefined) throw new Refusal(404, 'Not found.')
    if (call === 'POST /api/database/:id/sync_schema') return { status: 'ok' }
    if (call === 'GET /api/database/:id') {
      looks.set(found.id, (looks.get(found.id) ?? 0) + 1)
      return { ...found, initial_sync_status: isSynced(found) ? state.syncEnds : 'incomplete' }
    }
    if (call === 'GET /api/database/:id/metadata') {
      if (isSynced(found) && found.tables.length === 0) {
        found.tables = syncedTables(found.details['schema-filters-patterns'], state.without, nextId)
        store.field.push(...found.tables.flatMap((table: { fields: Thing[] }) => table.fields))
      }
      return found
    }
    if (call === 'PUT /api/database/:id') {
      Object.assign(found, { details: { ...found.details, ...body.details } })
      // Whatever is not named is set back.
      Object.assign(found, { is_on_demand: body.is_on_demand ?? false, cache_ttl: body.cache_ttl ?? null })
    } else if (call === 'PUT /api/field/:id') {
      if (body.fk_target_field_id && !store.field.some((field) => field.id === body.fk_target_field_id))
        throw new Refusal(400, 'Invalid target field')
      Object.assign(found, body)
    } else if (call === 'PUT /api/card/:id') {
      checkCard({ type: found.type, ...body })
      Object.assign(found, body)
    } else if (call === 'PUT /api/dashboard/:id') updateDashboard(found, body)
    else if (call === 'GET /api/dashboard/:id') return { ...found, dashcards: found.dashcards.map(hydrated) }
    else throw new Refusal(404, 'API endpoint does not exist.')
    return found
  }

  const server = createServer((request, response) => {
    void text(request).then((sent) => {
      const body = sent === '' ? undefined : JSON.parse(sent)
      const { pathname, searchParams } = new URL(request.url!, 'http://metabase')
      const [, , kind, number, part] = pathname.split('/')
      const call = `${request.method} /api/${kind}${number === undefined ? '' : '/:id'}${part === undefined ? '' : `/${part}`}`
      state.calls.push(call)
      const answer = (status: number, value: unknown) =>
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
      const refuse = (status: number, reason: string) => {
        state.problems.push(`${call}: ${reason}`)
        return answer(status, { errors: reason })
      }
      const checked = request.method === 'GET' ? undefined : (BODIES[call] ?? z.never()).safeParse(body)
      if (checked?.success === false) return refuse(400, checked.error.message)
      if (call === 'POST /api/session') {
        if (body.username === 'two@example.com') return answer(200, { mfa_required: true })
        if (body.password !== 'right') return answer(401, { errors: { password: 'did not match' } })
        return answer(200, { id: 'session-1' })
      }
      if (request.headers['x-api-key'] !== 'mb_key' && request.headers['x-metabase-session'] !== 'session-1')
        return answer(401, 'Unauthenticated')
      try {
        return answer(200, answerTo(call, body, { id: Number(number), search: searchParams }))
      } catch (error) {
        if (error instanceof Refusal) return refuse(error.status, error.message)
        throw error
      }
    })
  })
  state.url = (await listening(server)).origin
  return state
}
