import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
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

/** The fields that a body may have, and which of them it must have. */
const body = (required: string, optional = '') => {
  const names = (list: string) => list.split(' ').filter(Boolean)
  return z.strictObject({
    ...Object.fromEntries(names(required).map((name) => [name, z.any().refine((value) => value !== undefined)])),
    ...Object.fromEntries(names(optional).map((name) => [name, z.any().optional()])),
  })
}
const DATABASE = 'engine details is_full_sync is_on_demand'
const CARD = 'name display dataset_query visualization_settings'
const CARD_TOO = 'description parameters result_metadata collection_id type'
const dashcard = body(
  'id size_x size_y row col',
  'card_id action_id dashboard_tab_id parameter_mappings visualization_settings inline_parameters series',
)

const BODIES: Record<string, z.ZodType> = {
  'POST /api/database': body('name engine details', DATABASE),
  'PUT /api/database/:id': body('', `name ${DATABASE} cache_ttl`),
  'POST /api/database/:id/sync_schema': z.unknown(),
  'PUT /api/field/:id': body('', 'semantic_type fk_target_field_id'),
  'POST /api/collection': body('name', 'description'),
  'POST /api/card': body(CARD, CARD_TOO),
  'PUT /api/card/:id': body('', `${CARD} ${CARD_TOO}`),
  'POST /api/dashboard': body('name', 'collection_id'),
  'PUT /api/dashboard/:id': body('', 'tabs parameters').extend({
    dashcards: z.array(dashcard.extend({ series: z.array(body('id')).nullish() })).optional(),
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

/** The fields as the sync of Metabase leaves them: keys of two columns crossed, types guessed from names. */
function syncedTables(schema: string, without: ReadonlySet<string>, nextId: () => number) {
  const fieldOf = (column: { name: string; type: string }): Thing => ({
    ...{ id: nextId(), name: column.name, display_name: column.name, fk_target_field_id: null },
    base_type: column.type === 'date' ? 'type/Date' : 'type/Text',
    semantic_type: column.name === 'margin_of_error' ? 'type/Income' : null,
  })
  const tables = relationsOf(configOf({ reports: DEFAULT_REPORTS, extras: 'auto' }), [])
    .filter(({ name }) => !without.has(name))
    .map(({ name, columns }) => ({ id: nextId(), name, schema, fields: columns.map(fieldOf) }))
  const [crossedTo] = tables.find(({ name }) => name === 'brands')!.fields
  for (const { name, fields } of tables) {
    const crossed = fields.find((field) => field.name === 'brand_id' && name !== 'brands')
    Object.assign(crossed ?? {}, { semantic_type: 'type/FK', fk_target_field_id: crossedTo!.id })
  }
  return tables
}

export async function startMetabase(): Promise<MetabaseServer> {
  let ids = 0
  const nextId = () => ++ids
  const looks = new Map<number, number>()
  const state: MetabaseServer = {
    ...{ url: '', calls: [], problems: [], looksUntilSynced: 1, syncEnds: 'complete', without: new Set() },
    store: { database: [], collection: [], card: [], dashboard: [], field: [] },
  }
  const { store } = state
  for (const [location, personal_owner_id] of [
    ['/', 7],
    ['/1/', null],
  ])
    store.collection.push({ id: nextId(), name: 'AI visibility', location, personal_owner_id })

  function checkCard(asked: any): void {
    if (asked?.type !== 'native') return
    const named = [...asked.native.query.matchAll(/\{\{(\w+)\}\}/g)].map((match: string[]) => match[1])
    const tags = Object.keys(asked.native['template-tags'])
    if (named.sort().join() !== tags.sort().join()) throw new Error(`template tags ${tags}, in the query ${named}`)
  }

  function updateDashboard(dashboard: Thing, { parameters, tabs = [], dashcards }: any): void {
    if (parameters !== undefined) dashboard.parameters = parameters
    if (dashcards === undefined) return
    if (tabs.length > 0 && dashcards.some((one: Thing) => (one.dashboard_tab_id ?? null) === null))
      throw new Error('This dashboard has tab, makes sure every card has a tab')
    dashboard.tabs = tabs
    dashboard.dashcards = dashcards.map((one: Thing) => ({ ...one, id: one.id < 0 ? nextId() : one.id }))
  }

  /** What a dashboard shows of a card, beyond what may be sent back. */
  const hydrated = (one: Thing) => ({
    ...one,
    ...{ dashboard_id: 1, entity_id: 'x'.repeat(21), created_at: '2026-01-01T00:00:00Z' },
    card: { id: one.card_id, name: 'as it is', dataset_query: {} },
    series: (one.series ?? []).map(({ id: of }: Thing) => ({ id: of, name: 'other', display: 'line' })),
  })

  function itemsOf(collection: number, search: URLSearchParams): Thing[] {
    const kinds = search.getAll('models')
    const kindOf: Record<string, string> = { question: 'card', model: 'dataset', metric: 'metric' }
    const cards = store.card.filter(({ type }) => kinds.includes(kindOf[type ?? 'question']!))
    const dashboards = kinds.includes('dashboard') ? store.dashboard : []
    const ours = [...cards, ...dashboards].filter(({ collection_id }) => collection_id === collection)
    return ours.map((item) => ({ id: item.id, name: item.name }))
  }

  function make(kind: keyof typeof store, body: any): Thing {
    checkCard(body.dataset_query)
    const made: Thing = { ...body, id: nextId() }
    if (kind === 'collection') Object.assign(made, { location: '/', personal_owner_id: null })
    if (kind === 'dashboard') Object.assign(made, { dashcards: [], tabs: [], parameters: [] })
    // It tries SSL by itself where nothing is said of it, and keeps what worked.
    const kept = { is_on_demand: false, cache_ttl: null, tables: [], details: { ssl: true, ...body.details } }
    if (kind === 'database') Object.assign(made, kept)
    store[kind].push(made)
    return made
  }

  function answerTo(call: string, body: any, number: number, search: URLSearchParams): unknown {
    const [method, path] = call.split(' ') as [string, string]
    const kind = path.split('/')[2] as keyof typeof store
    if (call === 'GET /api/database') return { data: store.database, total: store.database.length }
    if (call === 'GET /api/collection') return [{ id: 'root', name: 'Our analytics' }, ...store.collection]
    if (call === 'GET /api/collection/:id/items') return { data: itemsOf(number, search) }
    if (method === 'POST' && path === `/api/${kind}`) return make(kind, body)
    const found = store[kind]?.find((item) => item.id === number)
    if (found === undefined) throw new Error('Not found.')
    const isSynced = () => (looks.get(found.id) ?? 0) >= state.looksUntilSynced
    switch (call) {
      case 'POST /api/database/:id/sync_schema':
        return { status: 'ok' }
      case 'GET /api/database/:id':
        looks.set(found.id, (looks.get(found.id) ?? 0) + 1)
        return { ...found, initial_sync_status: isSynced() ? state.syncEnds : 'incomplete' }
      case 'GET /api/database/:id/metadata':
        if (isSynced() && found.tables.length === 0)
          found.tables = syncedTables(found.details['schema-filters-patterns'], state.without, nextId)
        store.field = found.tables.flatMap(({ fields }: { fields: Thing[] }) => fields)
        return found
      case 'PUT /api/database/:id':
        // Whatever is not named is set back.
        return Object.assign(found, {
          ...{ is_on_demand: false, cache_ttl: null, ...body },
          details: { ...found.details, ...body.details },
        })
      case 'PUT /api/field/:id':
        return Object.assign(found, body)
      case 'PUT /api/card/:id':
        checkCard(body.dataset_query)
        return Object.assign(found, body)
      case 'PUT /api/dashboard/:id':
        updateDashboard(found, body)
        return found
      case 'GET /api/dashboard/:id':
        return { ...found, dashcards: found.dashcards.map(hydrated) }
      default:
        throw new Error('API endpoint does not exist.')
    }
  }

  const respond = async (request: IncomingMessage, response: ServerResponse) => {
    const sent = await text(request)
    const body = sent === '' ? undefined : JSON.parse(sent)
    const { pathname, searchParams } = new URL(request.url!, 'http://metabase')
    const [, , kind, number, part] = pathname.split('/')
    const call = `${request.method} /api/${[kind, number && ':id', part].filter(Boolean).join('/')}`
    state.calls.push(call)
    const answer = (status: number, value: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
    if (call === 'POST /api/session')
      return answer(body.password === 'right' ? 200 : 401, { id: 'session-1', errors: { password: 'did not match' } })
    if (request.headers['x-api-key'] !== 'mb_key' && request.headers['x-metabase-session'] !== 'session-1')
      return answer(401, 'Unauthenticated')
    try {
      if (request.method !== 'GET') (BODIES[call] ?? z.never()).parse(body)
      return answer(200, answerTo(call, body, Number(number), searchParams))
    } catch (error) {
      state.problems.push(`${call}: ${(error as Error).message}`)
      return answer(400, { errors: (error as Error).message })
    }
  }
  const server = createServer((request, response) => void respond(request, response))
  state.url = (await listening(server)).origin
  return state
}
