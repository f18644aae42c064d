import { type Card, connectionDetails, type Dashcard, type Metabase } from './api.ts'
import type { Statement } from './questions.ts'

export interface Provisioned {
  database: { id: number; made: boolean }
  collection: { id: number; made: boolean }
  questions: { name: string; id: number; made: boolean }[]
  dashboard: { id: number; made: boolean }
}

const COLLECTION = 'AI visibility'
const DATABASE = 'AI visibility (visibility-sync)'
const DASHBOARD = 'AI visibility at a glance'
// Metabase's grid is 24 columns wide: two cards side by side.
const WIDTH = 12
const HEIGHT = 7

/** Makes the connection, the questions and the dashboard, or brings those that exist up to date. Others are left alone. */
export async function provision(
  metabase: Metabase,
  settings: { databaseUrl: string; schema: string; questions: Statement[] },
): Promise<Provisioned> {
  const database = await ensureDatabase(metabase, settings)
  const collection = await ensureCollection(metabase)
  const present = await metabase.items(collection.id, 'card')
  const questions: Provisioned['questions'] = []
  for (const question of settings.questions) {
    const card = cardOf(question, database.id, collection.id)
    const known = present.find(({ name }) => name === question.name)
    const id = known?.id ?? (await metabase.createCard(card)).id
    if (known !== undefined) await metabase.updateCard(known.id, card)
    questions.push({ name: question.name, id, made: known === undefined })
  }
  const dashboard = await ensureDashboard(
    metabase,
    collection.id,
    questions.map(({ id }) => id),
  )
  await metabase.syncSchema(database.id)
  return { database, collection, questions, dashboard }
}

async function ensureDatabase(
  metabase: Metabase,
  { databaseUrl, schema }: { databaseUrl: string; schema: string },
): Promise<Provisioned['database']> {
  const wanted = { name: DATABASE, engine: 'postgres', details: connectionDetails(databaseUrl, schema) }
  const known = (await metabase.databases()).find(({ name, engine }) => name === DATABASE && engine === 'postgres')
  if (known === undefined) return { id: (await metabase.createDatabase(wanted)).id, made: true }
  await metabase.updateDatabase(known.id, wanted)
  return { id: known.id, made: false }
}

async function ensureCollection(metabase: Metabase): Promise<Provisioned['collection']> {
  const known = (await metabase.collections()).find(({ name }) => name === COLLECTION)
  if (known !== undefined) return { id: known.id, made: false }
  const about = 'Made by visibility-sync. Questions of these names are brought up to date when it runs again.'
  return { id: (await metabase.createCollection(COLLECTION, about)).id, made: true }
}

function cardOf(question: Statement, database: number, collection: number): Card {
  const drawn = question.dimensions.length > 0
  return {
    name: question.name,
    display: question.display,
    collection_id: collection,
    dataset_query: { type: 'native', database, native: { query: question.sql, 'template-tags': {} } },
    visualization_settings: drawn ? { 'graph.dimensions': question.dimensions, 'graph.metrics': question.metrics } : {},
  }
}

/** Cards that people added to the dashboard stay; ours keep their places once they are on it. */
async function ensureDashboard(
  metabase: Metabase,
  collection: number,
  cards: number[],
): Promise<Provisioned['dashboard']> {
  const known = (await metabase.items(collection, 'dashboard')).find(({ name }) => name === DASHBOARD)
  const id = known?.id ?? (await metabase.createDashboard(DASHBOARD, collection)).id
  const { dashcards } = await metabase.dashboard(id)
  const there = new Set(dashcards.map(({ card_id }) => card_id))
  const missing = cards.filter((card) => !there.has(card))
  if (missing.length > 0) {
    const added = missing.map((card, index): Dashcard => {
      const place = cards.indexOf(card)
      return {
        id: -(index + 1),
        card_id: card,
        row: Math.floor(place / 2) * HEIGHT,
        col: (place % 2) * WIDTH,
        size_x: WIDTH,
        size_y: HEIGHT,
      }
    })
    await metabase.updateDashboard(id, [...(dashcards as Dashcard[]), ...added])
  }
  return { id, made: known === undefined }
}
