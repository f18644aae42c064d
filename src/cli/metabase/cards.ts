import { isShare } from '../../warehouse/schema/column-kinds.ts'
import { VIEWS } from '../../warehouse/schema/view-notes.ts'
import { RATIOS, type Ratio } from '../packs/ratios.ts'
import type { Card, Field, Table } from './api.ts'
import { FILTERS, type Filter, filteredSql, type Question } from './questions.ts'

/* Questions, models and metrics as Metabase stores them: all are cards. */

/** A card, or why there is none. */
export type CardResult = { card: Card; filters: Filter[] } | { missing: string }

const BY_PERCENT = { number_style: 'percent', decimals: 1 }
const DISPLAY_NAMES: Record<Filter, string> = { project: 'Project', dates: 'Dates', brand: 'Brand' }

/** The kind of widget that sets a filter. */
export const WIDGETS: Record<Filter, string> = { project: 'string/=', dates: 'date/all-options', brand: 'string/=' }

/** Views that people start from by clicking, with names and meanings of their columns. */
const MODELS: Record<string, keyof typeof VIEWS> = {
  'Visibility by day': 'visibility_daily',
  'Visibility by week': 'visibility_weekly',
  'Share of voice by week': 'share_of_voice_weekly',
  'Visibility by model and week': 'visibility_by_model_weekly',
  'Topics by week': 'topics_weekly',
  'Answers by day': 'answers_daily',
  'Sources by week': 'sources_weekly',
}

export function questionCard(question: Question, database: number, tables: readonly Table[]): CardResult {
  const view = tables.find(({ name }) => name === question.view)
  if (view === undefined) return { missing: question.view }
  const tags = FILTERS.flatMap((name) => {
    const field = view.fields.find((candidate) => candidate.name === question.filters[name])
    return field === undefined ? [] : [{ name, tag: templateTag(name, field) }]
  })
  const filters = tags.map(({ name }) => name)
  const drawn = question.dimensions.length > 0
  return {
    filters,
    card: {
      name: question.name,
      description: VIEWS[question.view as keyof typeof VIEWS].about,
      type: 'question',
      display: question.display,
      dataset_query: {
        type: 'native',
        database,
        native: {
          query: filteredSql(question, filters),
          'template-tags': Object.fromEntries(tags.map(({ name, tag }) => [name, tag])),
        },
      },
      parameters: filters.map((name) => ({
        id: `visibility-sync-${name}`,
        type: WIDGETS[name],
        target: ['dimension', ['template-tag', name]],
        name: DISPLAY_NAMES[name],
        slug: name,
      })),
      visualization_settings: {
        ...(drawn ? { 'graph.dimensions': question.dimensions, 'graph.metrics': question.metrics } : {}),
        ...percentages(view.fields.filter(({ name }) => isShare(view.name, name)).map(({ name }) => name)),
      },
    },
  }
}

export function modelCards(database: number, tables: readonly Table[]): { name: string; result: CardResult }[] {
  return Object.entries(MODELS).map(([name, view]) => {
    const table = tables.find((candidate) => candidate.name === view)
    if (table === undefined) return { name, result: { missing: view } }
    const notes = VIEWS[view]
    const shares = table.fields.filter((field) => isShare(view, field.name))
    const card: Card = {
      name,
      description: notes.about,
      type: 'model',
      display: 'table',
      dataset_query: { type: 'query', database, query: { 'source-table': table.id } },
      visualization_settings: percentages(shares.map((field) => field.name)),
      result_metadata: table.fields.map((field) => ({
        name: field.name,
        display_name: words(field.name),
        description: notes.columns[field.name] ?? null,
        base_type: field.base_type,
        semantic_type: isShare(view, field.name) ? 'type/Percentage' : (field.semantic_type ?? null),
        id: field.id,
        field_ref: ['field', field.id, null],
      })),
    }
    return { name, result: { card, filters: [] } }
  })
}

/** Metrics of own brands, as ratios of sums by week. */
export function metricCards(database: number, tables: readonly Table[]): { name: string; result: CardResult }[] {
  return [
    ...RATIOS.map((ratio) => {
      const name = `${ratio.label} of own brands`
      return { name, result: metricCard(name, ratio, database, tables) }
    }),
    { name: 'Answers', result: answersCard(database, tables) },
  ]
}

function metricCard(name: string, ratio: Ratio, database: number, tables: readonly Table[]): CardResult {
  const fields = fieldsOf(tables, ratio.view, [ratio.numerator, ratio.denominator, 'is_own', 'date'])
  if (fields === undefined) return { missing: ratio.view }
  const [numerator, denominator, isOwn, date] = fields.refs
  return metric(name, ratio.about, ratio.share ? [ratio.name] : [], database, {
    'source-table': fields.table,
    filter: ['=', isOwn, true],
    aggregation: [
      [
        'aggregation-options',
        ['/', ['sum', numerator], ['sum', denominator]],
        { name: ratio.name, 'display-name': ratio.label },
      ],
    ],
    breakout: [byWeek(date!)],
  })
}

function answersCard(database: number, tables: readonly Table[]): CardResult {
  const fields = fieldsOf(tables, 'answers_daily', ['answers', 'date'])
  if (fields === undefined) return { missing: 'answers_daily' }
  const [answers, date] = fields.refs
  return metric('Answers', VIEWS.answers_daily.about, [], database, {
    'source-table': fields.table,
    aggregation: [['sum', answers]],
    breakout: [byWeek(date!)],
  })
}

type FieldRef = ['field', number, null]

function metric(name: string, description: string, shares: string[], database: number, query: object): CardResult {
  const card: Card = {
    name,
    description,
    type: 'metric',
    display: 'line',
    dataset_query: { type: 'query', database, query },
    visualization_settings: percentages(shares),
  }
  return { card, filters: [] }
}

function byWeek([kind, id]: FieldRef): unknown[] {
  return [kind, id, { 'temporal-unit': 'week' }]
}

function fieldsOf(
  tables: readonly Table[],
  view: string,
  columns: string[],
): { table: number; refs: FieldRef[] } | undefined {
  const table = tables.find(({ name }) => name === view)
  const found = columns.map((column) => table?.fields.find(({ name }) => name === column))
  if (table === undefined || found.some((field) => field === undefined)) return undefined
  return { table: table.id, refs: found.map((field) => ['field', field!.id, null]) }
}

function templateTag(name: Filter, field: Field): object {
  return {
    id: `visibility-sync-${name}`,
    name,
    'display-name': DISPLAY_NAMES[name],
    type: 'dimension',
    dimension: ['field', field.id, null],
    'widget-type': WIDGETS[name],
  }
}

/** Columns are named by a text of JSON in Metabase's settings. */
function percentages(columns: string[]): object {
  if (columns.length === 0) return {}
  const settings = columns.map((column) => [JSON.stringify(['name', column]), BY_PERCENT])
  return { column_settings: Object.fromEntries(settings) }
}

function words(name: string): string {
  const text = name.replaceAll('_', ' ')
  return text.charAt(0).toUpperCase() + text.slice(1)
}

/** The filters that stand above the dashboard. */
export function dashboardParameters(): { id: string; slug: string; [key: string]: unknown }[] {
  return FILTERS.map((name) => ({
    id: `visibility-sync-${name}`,
    name: DISPLAY_NAMES[name],
    slug: name,
    type: WIDGETS[name],
    sectionId: name === 'dates' ? 'date' : 'string',
  }))
}

/** Which filter of the dashboard sets which of a question. */
export function mappingsOf(
  card: number,
  filters: readonly Filter[],
): { parameter_id: string; [key: string]: unknown }[] {
  return filters.map((name) => ({
    parameter_id: `visibility-sync-${name}`,
    card_id: card,
    target: ['dimension', ['template-tag', name]],
  }))
}
