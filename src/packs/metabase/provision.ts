import * as z from 'zod'
import { RefusedError } from '../../core/errors.ts'
import { sleep } from '../../core/waiting.ts'
import { byChannel } from '../../warehouse/schema/catalogue.ts'
import { POINTS_TO } from '../../warehouse/schema/relations.ts'
import { isShare, type Use } from '../relations.ts'
import { fill } from '../template.ts'
import {
  collections,
  type Dashboard,
  type Dashcard,
  dashboard,
  databases,
  type Field,
  items,
  type Metabase,
  metadata,
  named,
  type Table,
} from './api.ts'
import { metricCards, modelCard, questionCard, readMetabaseTemplate, readQuestions, type WantedCard } from './cards.ts'

interface Ensured {
  id: number
  made: boolean
}

interface Wanted extends Use {
  schema: string
  client: string | undefined
}

const FIRST_LOOK_MS = 250
const SLOWEST_LOOK_MS = 5000
const SYNC_PATIENCE_MS = 600_000
// Without the last one, questions that people moved into a dashboard are left out.
const CARDS = 'models=card&models=dataset&models=metric&show_dashboard_questions=true'
const made = z.object({ id: z.number() })
const syncState = z.object({ initial_sync_status: z.string() })

/** Updates what exists by its name; everything else in Metabase stays as it is. With a client, all of it is made for that client. */
export async function provision(metabase: Metabase, details: object, { schema, client, channelViews, unused }: Wanted) {
  const template = readMetabaseTemplate()
  const nameOf = (what: 'database' | 'collection' | 'dashboard') =>
    client === undefined ? template[what] : `${template[what]}: ${client}`
  const database = await ensureDatabase(metabase, nameOf('database'), details)
  await waitForSync(metabase, database.id)
  const tables = (await metabase.get(`database/${database.id}/metadata`, metadata)).tables.filter(
    (table) => (table.schema ?? schema) === schema,
  )
  const fields = await describeFields(metabase, tables)
  const collection = await ensureCollection(metabase, nameOf('collection'))
  const present = await metabase.get(`collection/${collection.id}/items?${CARDS}`, items)
  // Cards that were not made, because Metabase does not know the view that they need.
  const left: { name: string; view: string }[] = []
  const placed: Placed[] = []

  async function ensureCards(wanted: WantedCard[]): Promise<(Ensured & { name: string })[]> {
    const done: (Ensured & { name: string })[] = []
    for (const { name, view, make } of wanted) {
      const table = tables.find((candidate) => candidate.name === view)
      const made = table && make(table)
      if (made === undefined) {
        left.push({ name, view })
        continue
      }
      const { type, ...card } = made.card
      const known = present.find((item) => item.name === name)
      const id = known?.id ?? (await metabase.post('card', { type, ...card, collection_id: collection.id }, named)).id
      // Without its type: people may have made a model of a question. Without its collection: it may be in the dashboard now.
      if (known !== undefined) await metabase.put(`card/${known.id}`, card)
      if (type === 'question') placed.push({ id, filters: made.filters ?? [] })
      done.push({ name, id, made: known === undefined })
    }
    return done
  }

  const views = Object.entries(template.models)
    .filter(([, view]) => !unused.includes(view))
    .map((model) => (channelViews.has(model[1]) ? byChannel(model) : model))
  const models = await ensureCards(views.map((model) => modelCard(model, template, database.id)))
  const metrics = await ensureCards(metricCards(template, database.id))
  const asked = readQuestions(schema, channelViews).map((question) => questionCard(question, template, database.id))
  const questions = await ensureCards(asked)
  const lists = Object.fromEntries(
    Object.entries(template.filters).flatMap(([filter, { values = [] }]) => {
      const [model, column] = values
      const card = models.find(({ name }) => name === model)?.id
      const table = tables.find(({ name }) => name === template.models[model ?? ''])
      const field = table?.fields.find(({ name }) => name === column)?.id
      return card === undefined || field === undefined ? [] : [[filter, { card, field }] as const]
    }),
  )
  const home = { name: nameOf('dashboard'), collection: collection.id, lists }
  const dashboard = await ensureDashboard(metabase, home, placed)
  return { database, collection, questions, models, metrics, fields, left, dashboard }
}

async function ensureDatabase(metabase: Metabase, name: string, details: object): Promise<Ensured> {
  const known = (await metabase.get('database', databases)).find(
    (one) => one.name === name && one.engine === 'postgres',
  )
  if (known === undefined) {
    const { id } = await metabase.post('database', { name, engine: 'postgres', details }, made)
    return { id, made: true }
  }
  // An update without these two would reset them.
  const { is_on_demand, cache_ttl } = known
  await metabase.put(`database/${known.id}`, {
    details,
    is_on_demand: is_on_demand ?? false,
    ...(cache_ttl === undefined || cache_ttl === null ? {} : { cache_ttl }),
  })
  await metabase.post(`database/${known.id}/sync_schema`, {}, z.unknown())
  return { id: known.id, made: false }
}

/** Metabase knows the fields, and keeps what is set, once its first sync of the database is complete. */
async function waitForSync(metabase: Metabase, database: number): Promise<void> {
  const sync = `Metabase: the first sync of database ${database}`
  let pause = FIRST_LOOK_MS
  for (let waited = 0; waited < SYNC_PATIENCE_MS; waited += pause, pause = Math.min(pause * 2, SLOWEST_LOOK_MS)) {
    const { initial_sync_status: status } = await metabase.get(`database/${database}`, syncState)
    if (status === 'complete') return
    if (status === 'aborted')
      throw new RefusedError(`${sync} was aborted: see Admin settings → Databases, then run this again`)
    await sleep(pause)
  }
  throw new RefusedError(
    `${sync} is not complete after ${SYNC_PATIENCE_MS / 60_000} minutes: run this again once Admin settings → Databases ` +
      'shows it as complete',
  )
}

async function ensureCollection(metabase: Metabase, collection: string): Promise<Ensured> {
  // The list has collections of every level, and other people's own.
  const known = (await metabase.get('collection', collections)).find(
    ({ name, location, personal_owner_id }) =>
      name === collection && (location ?? '/') === '/' && (personal_owner_id ?? null) === null,
  )
  if (typeof known?.id === 'number') return { id: known.id, made: false }
  const description = 'Made by visibility-sync. What has these names is brought up to date when it runs again.'
  return { id: (await metabase.post('collection', { name: collection, description }, named)).id, made: true }
}

/**
 * Metabase reads a foreign key of two columns as if each pointed to both, and guesses from names: it takes `margin_of_error`
 * for money. Returns how many fields were written.
 */
async function describeFields(metabase: Metabase, tables: readonly Table[]): Promise<number> {
  let written = 0
  for (const table of tables) {
    for (const field of table.fields) {
      const wanted = meaningOf(table, field, tables)
      if (Object.entries(wanted).every(([name, value]) => field[name as keyof Field] === value)) continue
      await metabase.put(`field/${field.id}`, wanted)
      written++
    }
  }
  return written
}

function meaningOf(table: Table, field: Field, tables: readonly Table[]): Partial<Field> {
  if (isShare(table.name, field.name)) return { semantic_type: 'type/Percentage' }
  const column = field.name.replace(/^(own|rival)_(?=brand_id$)/, '')
  const target = column === 'project_id' ? 'projects' : POINTS_TO[column]
  // A table's own key points nowhere.
  if (target === undefined || target === table.name) return {}
  const key = tables
    .find(({ name, schema }) => name === target && schema === table.schema)
    ?.fields.find(({ name }) => name === column)
  return key === undefined ? {} : { semantic_type: 'type/FK', fk_target_field_id: key.id }
}

// Metabase's grid is 24 columns wide: two cards side by side.
const WIDTH = 12
const HEIGHT = 7

interface Placed {
  id: number
  filters: string[]
}

/** By the name of a filter, the model and the field that list its values. */
type Lists = Record<string, { card: number; field: number }>

/** What people added, moved or filtered by stays as it is. */
async function ensureDashboard(
  metabase: Metabase,
  { name, collection, lists }: { name: string; collection: number; lists: Lists },
  cards: readonly Placed[],
): Promise<Ensured> {
  const known = (await metabase.get(`collection/${collection}/items?models=dashboard`, items)).find(
    (dashboard) => dashboard.name === name,
  )
  const id = known?.id ?? (await metabase.post('dashboard', { name, collection_id: collection }, named)).id
  const before = await metabase.get(`dashboard/${id}`, dashboard)
  const after = completed(before, cards, lists)
  if (JSON.stringify(after) !== JSON.stringify(before)) await metabase.put(`dashboard/${id}`, after)
  return { id, made: known === undefined }
}

/** The whole dashboard, since an update deletes the cards, tabs and filters that it leaves out. */
function completed(dashboard: Dashboard, cards: readonly Placed[], lists: Lists): Dashboard {
  const { filters, dashboard_parameter, values } = readMetabaseTemplate()
  const taken = new Set(dashboard.parameters.map(({ slug }) => slug))
  const ours = Object.entries(filters).map(([name, filter]) => ({
    ...fill(dashboard_parameter, { name, ...filter }),
    ...(filter.default !== undefined && { default: filter.default }),
    ...(lists[name] !== undefined && fill(values, lists[name])),
  }))
  const parameters = [...dashboard.parameters, ...ours.filter(({ slug }) => !taken.has(slug))]
  const ids = new Set(parameters.map(({ id }) => id))
  const ofCard = new Map(cards.map((card) => [card.id, card]))
  const dashcards = dashboard.dashcards.map((dashcard) => {
    const card = ofCard.get(dashcard.card_id ?? 0)
    return card === undefined ? dashcard : withFilters(dashcard, card, ids)
  })
  const there = new Set(dashcards.map(({ card_id }) => card_id))
  const tab = tabFor(dashboard, ofCard)
  const onTab = dashcards.filter((card) => tab === undefined || card.dashboard_tab_id === tab)
  const below = Math.max(0, ...onTab.map(({ row, size_y }) => row + size_y))
  const added = cards
    .filter(({ id }) => !there.has(id))
    .map((card, index) => {
      const place = { row: below + Math.floor(index / 2) * HEIGHT, col: (index % 2) * WIDTH }
      const dashcard = { id: -(index + 1), card_id: card.id, ...place, size_x: WIDTH, size_y: HEIGHT }
      const ofTab = tab === undefined ? {} : { dashboard_tab_id: tab }
      return withFilters({ ...dashcard, ...ofTab, visualization_settings: {} }, card, ids)
    })
  return { dashcards: [...dashcards, ...added], tabs: dashboard.tabs, parameters }
}

/** Every card of a dashboard with tabs is on one: new cards go where ours are, or to the first tab. */
function tabFor(dashboard: Dashboard, ours: ReadonlyMap<number, Placed>): number | undefined {
  const mine = dashboard.dashcards.find(({ card_id }) => ours.has(card_id ?? 0))
  return dashboard.tabs.length === 0 ? undefined : (mine?.dashboard_tab_id ?? dashboard.tabs[0]!.id)
}

function withFilters(dashcard: Dashcard, card: Placed, parameters: ReadonlySet<string>): Dashcard {
  const mappings = dashcard.parameter_mappings ?? []
  const mapped = new Set(mappings.map(({ parameter_id }) => parameter_id))
  const wanted = card.filters
    .map((name) => ({
      parameter_id: `visibility-sync-${name}`,
      card_id: card.id,
      target: ['dimension', ['template-tag', name]],
    }))
    .filter(({ parameter_id }) => parameters.has(parameter_id) && !mapped.has(parameter_id))
  return wanted.length === 0 ? dashcard : { ...dashcard, parameter_mappings: [...mappings, ...wanted] }
}
