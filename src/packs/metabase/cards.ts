import type { BiView } from '../../core/vocabulary.ts'
import { byChannel, VIEWS } from '../../warehouse/schema/catalogue.ts'
import { isShare } from '../relations.ts'
import { fill, parseTemplate, readRatios, readTemplate } from '../template.ts'
import type { Card, Table } from './api.ts'

/* Questions, models and metrics as Metabase stores them: all are cards. */

interface MetabaseTemplate {
  database: string
  collection: string
  dashboard: string
  models: Record<string, BiView>
  filters: Record<string, Filter>
  tag: object
  parameter: object
  column: object
  ratio: object
  sum: object
  dashboard_parameter: { id: string; slug: string }
  values: object
  question: CardKind
  model: CardKind
  metric: CardKind
}

interface Filter {
  label: string
  widget: string
  section: string
  columns: string[]
  default?: string
  /** A model and its column. Metabase would collect the values from every view on the dashboard. */
  values?: [string, string]
}

type CardKind = Pick<Card, 'type' | 'display' | 'dataset_query'>

/** A card that is to be made of a view, once Metabase knows its table. */
export interface WantedCard {
  name: string
  view: BiView
  make(table: Table): { card: Card; filters?: string[] } | undefined
}

type Question = ReturnType<typeof readQuestions>[number]

const BY_PERCENT = { number_style: 'percent', decimals: 1 }

export function readMetabaseTemplate(): MetabaseTemplate {
  return parseTemplate<MetabaseTemplate>('metabase.yml')
}

/**
 * Reads templates/questions.sql. Of each statement the first line is the question, the second says how it is shown, the third
 * which view it reads and by which columns it can be filtered.
 */
export function readQuestions(schema: string, channelViews: ReadonlySet<string> = new Set()) {
  const texts = readTemplate('questions.sql').split(/\n(?=-- \d+\. )/)
  return texts.map((text) => {
    const [title = '', ...lines] = text.split('\n')
    const isByChannel = [...channelViews].some((name) => lines[1]?.includes(` ${name} `))
    const [shown = '', filtered = '', ...rest] = isByChannel ? byChannel(lines) : lines
    const [display = 'table', dimensions = '', metrics = ''] = shown.replace('-- Shown as: ', '').split(' ')
    const [view = '', ...columns] = filtered.replace('-- Filtered by: ', '').split(' ')
    const listed = (names: string) => names.split(',').filter((name) => name !== '')
    return {
      name: title.replace('-- ', ''),
      sql: rest.join('\n').trim().replaceAll('visibility.', `${schema}.`),
      display,
      // The columns that the chart is drawn by, and what it measures. A chart adds up rows that have the same dimensions.
      dimensions: listed(dimensions),
      metrics: listed(metrics),
      view: view as BiView,
      columns,
    }
  })
}

export function questionCard(question: Question, template: MetabaseTemplate, database: number): WantedCard {
  const { name, view, dimensions } = question
  const make = ({ fields }: Table) => {
    const filters = Object.entries(template.filters).flatMap(([filter, settings]) => {
      const column = question.columns.find((candidate) => settings.columns.includes(candidate))
      const field = fields.find((candidate) => candidate.name === column)
      return field === undefined ? [] : [{ ...settings, name: filter, field: field.id }]
    })
    const conditions = filters.map((filter) => `[[and {{${filter.name}}}]]`).join(' ')
    const sql = question.sql.replace('-- filters', conditions).replace(/ +\n/g, '\n')
    const tags = Object.fromEntries(filters.map((filter) => [filter.name, fill(template.tag, filter)]))
    const card: Card = {
      name,
      description: VIEWS[view].about,
      ...fill(template.question, { display: question.display, database, sql, tags }),
      parameters: filters.map((filter) => fill(template.parameter, filter)),
      visualization_settings: {
        ...(dimensions.length > 0 && { 'graph.dimensions': dimensions, 'graph.metrics': question.metrics }),
        ...percentages(sharesOf(view, fields)),
      },
    }
    return { card, filters: filters.map((filter) => filter.name) }
  }
  return { name, view, make }
}

export function modelCard(
  [name, view]: readonly [string, BiView],
  template: MetabaseTemplate,
  database: number,
): WantedCard {
  const { about, columns } = VIEWS[view]
  const make = ({ id: table, fields }: Table) => ({
    card: {
      name,
      description: about,
      ...fill(template.model, { database, table }),
      visualization_settings: percentages(sharesOf(view, fields)),
      result_metadata: fields.map((field) =>
        fill(template.column, {
          ...field,
          label: field.name.charAt(0).toUpperCase() + field.name.slice(1).replaceAll('_', ' '),
          about: columns[field.name] ?? null,
          semantic_type: isShare(view, field.name) ? 'type/Percentage' : (field.semantic_type ?? null),
        }),
      ),
    },
  })
  return { name, view, make }
}

/** Metrics of own brands, as ratios of sums by week, and the number of answers. */
export function metricCards(template: MetabaseTemplate, database: number): WantedCard[] {
  const ratios = readRatios().map(({ label, about, view, share, ...ratio }) => ({
    ...{ title: `${label} of own brands`, about, view, shares: share ? [ratio.name] : [] },
    ...{ query: template.ratio, texts: { name: ratio.name, label } },
    columns: { date: 'date', above: ratio.numerator, below: ratio.denominator, is_own: 'is_own' },
  }))
  const answers = {
    ...{ title: 'Answers', about: VIEWS.answers_daily.about, view: 'answers_daily' as const, shares: [] },
    ...{ query: template.sum, texts: {} },
    columns: { date: 'date', answers: 'answers' },
  }
  return [...ratios, answers].map(({ title, view, ...metric }) => {
    const make = ({ id: table, fields }: Table) => {
      const idOf = (column: string) => fields.find(({ name }) => name === column)?.id
      const ids = Object.entries(metric.columns).map(([role, column]) => [role, idOf(column)] as const)
      if (ids.some(([, id]) => id === undefined)) return undefined
      const query = fill(metric.query, { ...metric.texts, table, ...Object.fromEntries(ids) })
      const settings = { description: metric.about, visualization_settings: percentages(metric.shares) }
      return { card: { name: title, ...fill(template.metric, { database, query }), ...settings } }
    }
    return { name: title, view, make }
  })
}

function sharesOf(view: BiView, fields: Table['fields']): string[] {
  return fields.map(({ name }) => name).filter((name) => isShare(view, name))
}

/** Columns are named by a text of JSON in Metabase's settings. */
function percentages(columns: string[]): object {
  if (columns.length === 0) return {}
  const settings = columns.map((column) => [JSON.stringify(['name', column]), BY_PERCENT])
  return { column_settings: Object.fromEntries(settings) }
}
