import { RefusedError } from '../../core/errors.ts'
import { sleep } from '../../core/sleep.ts'
import type { Metabase } from './api.ts'
import { type CardResult, metricCards, modelCards, questionCard } from './cards.ts'
import { connectionDetails } from './connection-details.ts'
import { ensureDashboard, type Placed } from './dashboard.ts'
import { pinFields } from './fields.ts'
import type { Question } from './questions.ts'

interface Made {
  name: string
  id: number
  made: boolean
}

export interface Provisioned {
  database: { id: number; made: boolean }
  collection: { id: number; made: boolean }
  questions: Made[]
  models: Made[]
  metrics: Made[]
  /** How many fields got their meaning. */
  fields: number
  /** Cards that were not made, because Metabase does not know the view that they need. */
  left: { name: string; view: string }[]
  dashboard: { id: number; made: boolean }
}

const COLLECTION = 'AI visibility'
const DATABASE = 'AI visibility (visibility-sync)'
const FIRST_LOOK_MS = 250
const SLOWEST_LOOK_MS = 5000
const SYNC_PATIENCE_MS = 600_000

/**
 * Makes the connection, sets what its fields mean, and makes questions, models, metrics and the dashboard, or
 * brings those that exist up to date. Others are left alone.
 */
export async function provision(
  metabase: Metabase,
  settings: { databaseUrl: string; schema: string; questions: Question[] },
): Promise<Provisioned> {
  const database = await ensureDatabase(metabase, settings)
  await waitForSync(metabase, database.id)
  const tables = (await metabase.tables(database.id)).filter(
    ({ schema }) => (schema ?? settings.schema) === settings.schema,
  )
  const fields = await pinFields(metabase, tables)
  const collection = await ensureCollection(metabase)
  const present = await metabase.cards(collection.id)
  const left: Provisioned['left'] = []
  const placed: Placed[] = []

  async function ensureCards(wanted: { name: string; result: CardResult }[]): Promise<Made[]> {
    const done: Made[] = []
    for (const { name, result } of wanted) {
      if ('missing' in result) {
        left.push({ name, view: result.missing })
        continue
      }
      const { type, ...card } = result.card
      const known = present.find((item) => item.name === name)
      const id = known?.id ?? (await metabase.createCard({ type, ...card, collection_id: collection.id })).id
      // Without its type: people may have made a model of a question. Without its collection: it may be in the dashboard now.
      if (known !== undefined) await metabase.updateCard(known.id, card)
      if (type === 'question') placed.push({ id, filters: result.filters })
      done.push({ name, id, made: known === undefined })
    }
    return done
  }

  const models = await ensureCards(modelCards(database.id, tables))
  const metrics = await ensureCards(metricCards(database.id, tables))
  const questions = await ensureCards(
    settings.questions.map((question) => ({
      name: question.name,
      result: questionCard(question, database.id, tables),
    })),
  )
  const dashboard = await ensureDashboard(metabase, collection.id, placed)
  return { database, collection, questions, models, metrics, fields, left, dashboard }
}

async function ensureDatabase(
  metabase: Metabase,
  { databaseUrl, schema }: { databaseUrl: string; schema: string },
): Promise<Provisioned['database']> {
  const details = connectionDetails(databaseUrl, schema)
  const known = (await metabase.databases()).find(({ name, engine }) => name === DATABASE && engine === 'postgres')
  if (known === undefined) {
    const { id } = await metabase.createDatabase({ name: DATABASE, engine: 'postgres', details })
    return { id, made: true }
  }
  // An update without these two would set them back.
  const { is_on_demand, cache_ttl } = known
  await metabase.updateDatabase(known.id, {
    details,
    is_on_demand: is_on_demand ?? false,
    ...(cache_ttl === undefined || cache_ttl === null ? {} : { cache_ttl }),
  })
  await metabase.syncSchema(known.id)
  return { id: known.id, made: false }
}

/** Fields are known, and keep what is set, once Metabase has looked at the whole database for the first time. */
async function waitForSync(metabase: Metabase, database: number): Promise<void> {
  let pause = FIRST_LOOK_MS
  for (let waited = 0; waited < SYNC_PATIENCE_MS; waited += pause, pause = Math.min(pause * 2, SLOWEST_LOOK_MS)) {
    const status = await metabase.syncStatus(database)
    if (status === 'complete') return
    if (status === 'aborted')
      throw new RefusedError(
        `Metabase: the first sync of database ${database} was aborted: see Admin settings → Databases, then run this again`,
      )
    await sleep(pause)
  }
  throw new RefusedError(
    `Metabase: the first sync of database ${database} is not complete after ${SYNC_PATIENCE_MS / 60_000} minutes: run this ` +
      'again once Admin settings → Databases shows it as complete',
  )
}

async function ensureCollection(metabase: Metabase): Promise<Provisioned['collection']> {
  // The list has collections of every level, and other people's own.
  const known = (await metabase.collections()).find(
    ({ name, location, personal_owner_id }) =>
      name === COLLECTION && (location ?? '/') === '/' && (personal_owner_id ?? null) === null,
  )
  if (typeof known?.id === 'number') return { id: known.id, made: false }
  const about = 'Made by visibility-sync. What has these names is brought up to date when it runs again.'
  return { id: (await metabase.createCollection(COLLECTION, about)).id, made: true }
}
