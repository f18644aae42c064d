import { createHash } from 'node:crypto'
import type { BiView } from '../core/vocabulary.ts'
import { byChannel } from '../warehouse/schema/catalogue.ts'
import type { Pack, Relation } from './relations.ts'
import { fill, parseTemplate, readRatios, type Values, yamlFile } from './template.ts'

/* A bundle that Superset imports. Ids come from names, so that an import over an older bundle updates it. */

interface Chart {
  type: 'lines' | 'bars' | 'table'
  name: string
  view: BiView
  /** Of lines and bars. */
  x?: string
  split?: string[]
  own?: boolean
  /** Of tables. */
  top?: number
  order?: [column: string, ascending: boolean][]
  shares?: string[]
}

type Described = Pick<Relation, 'name' | 'about' | 'columns'>

/** templates/superset.yml */
interface Template extends Record<'dataset' | 'column' | 'metric' | 'chart' | 'filter' | 'context', object> {
  charts: Chart[]
  types: Record<Chart['type'], { about: string; params: Values; query: Values & { axis?: object } }>
  database: { database_name: string }
  choices: Described & { sql: string }
  dashboard: { dashboard_title: string }
}

const ROW_LIMIT = 10_000

export function supersetFiles({ relations, projects, channelViews, values }: Pack): Record<string, string> {
  const template = parseTemplate<Template>('superset.yml')
  const { database, choices } = template
  const charts = template.charts
    .map((chart) => (channelViews.has(chart.view) ? byChannel(chart) : chart))
    .filter(({ view }) => relations.some(({ name }) => name === view))
  const database_uuid = idOf('database', database.database_name)
  const views = relations.filter(({ name }) => charts.some(({ view }) => view === name))
  const dataset = (relation: Described, sql: string | null) => {
    const content = datasetOf(template, relation, { schema: values.schema, sql })
    return [`datasets/AI_visibility/${relation.name}`, { ...content, database_uuid }] as const
  }
  const datasets = [...views.map((view) => dataset(view, null)), dataset(choices, fill(choices.sql, values))]
  const files: Record<string, object> = {
    metadata: { type: 'Dashboard', timestamp: '2026-01-01T00:00:00+00:00' },
    'databases/AI_visibility': { ...database, uuid: database_uuid },
    ...Object.fromEntries(datasets),
    ...Object.fromEntries(
      charts.map((chart) => [`charts/${chart.name.replaceAll(/\W+/g, '_')}`, chartOf(template, chart, projects)]),
    ),
    'dashboards/AI_visibility': dashboardOf(template, charts),
  }
  return Object.fromEntries(
    Object.entries(files).map(([path, content]) => [`${path}.yaml`, yamlFile({ ...content, version: '1.0.0' })]),
  )
}

function idOf(kind: string, name: string): string {
  const hex = createHash('sha256').update(`visibility-sync/${kind}/${name}`).digest('hex')
  const variant = ((Number.parseInt(hex[16]!, 16) & 3) | 8).toString(16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** With a metric for each ratio of which the view has both parts. */
function datasetOf(template: Template, { name, about, columns }: Described, place: Values): object {
  const there = new Set(columns.map((column) => column.name))
  const ratios = readRatios().filter(({ numerator, denominator }) => there.has(numerator) && there.has(denominator))
  const metrics = ratios.map(({ name: metric, label, about: text, numerator, denominator, share }) => {
    const expression = `sum(${numerator}) / nullif(sum(${denominator}), 0)`
    return { name: metric, label, about: text, expression, format: share ? '.1%' : '.2f' }
  })
  const count = (metric: string, label: string, expression: string) =>
    metrics.push({ name: metric, label, about: `Number of ${label.toLowerCase()}.`, expression, format: ',d' })
  // Every brand of a view has the same number of answers: a sum over brands is wrong.
  if (there.has('answers') && !there.has('brand_id')) count('answers_total', 'Answers', 'sum(answers)')
  count('rows_total', 'Rows', 'count(*)')
  const time = ['date', 'week', 'month'].find((column) => there.has(column)) ?? null
  return {
    ...fill(template.dataset, { ...place, name, about, time }),
    uuid: idOf('dataset', name),
    metrics: metrics.map((metric) => fill(template.metric, metric)),
    columns: columns.map(({ type, ...column }) =>
      fill(template.column, {
        ...column,
        type: type === 'text[]' ? 'ARRAY' : type.toUpperCase(),
        is_time: type === 'date' || type.startsWith('timestamp'),
        is_grouped: !['double precision', 'jsonb', 'text[]'].includes(type),
        is_filtered: !['jsonb', 'text[]'].includes(type),
      }),
    ),
  }
}

function chartOf(template: Template, chart: Chart, projects: readonly string[]): object {
  const time = chart.type === 'lines' ? chart.x : chart.type === 'bars' ? 'week' : undefined
  const conditions = [
    ...(chart.own ? [['is_own', '==', true]] : []),
    ...(chart.top === undefined ? [] : [['rank', '<=', chart.top]]),
    ...(projects.length === 0 ? [] : [['project_id', 'IN', projects]]),
    ...(time === undefined ? [] : [[time, 'TEMPORAL_RANGE', 'No filter']]),
  ]
  const { split = ['project', 'brand'] } = chart
  const filled = fill(template.types[chart.type], { split, ...chart })
  const params = {
    ...filled.params,
    datasource: '0__table',
    row_limit: ROW_LIMIT,
    adhoc_filters: conditions.map(([subject, operator, comparator]) =>
      fill(template.filter, { subject, operator, comparator }),
    ),
    ...(chart.order && { order_by_cols: chart.order.map((pair) => JSON.stringify(pair)) }),
    ...(chart.shares && {
      column_config: Object.fromEntries(chart.shares.map((column) => [column, { d3NumberFormat: '.1%' }])),
    }),
  }
  const { axis, ...query } = filled.query
  const filters = conditions.map(([col, op, val]) => ({ col, op, val }))
  const more = { filters, row_limit: ROW_LIMIT, post_processing: [], ...(axis && { columns: [axis, ...split] }) }
  const context = JSON.stringify(fill(template.context, { params, query: { ...query, ...more } }))
  const { about } = filled
  return {
    ...fill(template.chart, { name: chart.name, about, viz_type: filled.params.viz_type, params, context }),
    uuid: idOf('chart', chart.name),
    dataset_uuid: idOf('dataset', chart.view),
  }
}

function dashboardOf({ dashboard, choices }: Template, charts: readonly Chart[]): object {
  const cells = charts.map(({ name }, index) => {
    const uuid = idOf('chart', name)
    const row = `ROW-${Math.floor(index / 2)}`
    const meta = { chartId: index + 1, height: 50, width: 6, sliceName: name, uuid }
    return { id: `CHART-${uuid.slice(0, 8)}`, type: 'CHART', children: [], parents: ['ROOT_ID', 'GRID_ID', row], meta }
  })
  const rows = [...new Set(cells.map(({ parents }) => parents[2]!))].map((id) => ({
    id,
    type: 'ROW',
    meta: { background: 'BACKGROUND_TRANSPARENT' },
    children: cells.filter(({ parents }) => parents[2] === id).map((cell) => cell.id),
    parents: ['ROOT_ID', 'GRID_ID'],
  }))
  const entries = [
    { id: 'ROOT_ID', type: 'ROOT', children: ['GRID_ID'] },
    { id: 'GRID_ID', type: 'GRID', children: rows.map(({ id }) => id), parents: ['ROOT_ID'] },
    { id: 'HEADER_ID', type: 'HEADER', meta: { text: dashboard.dashboard_title } },
    ...rows,
    ...cells,
  ]
  return {
    ...fill(dashboard, { choices: idOf('dataset', choices.name) }),
    uuid: idOf('dashboard', dashboard.dashboard_title),
    position: { DASHBOARD_VERSION_KEY: 'v2', ...Object.fromEntries(entries.map((entry) => [entry.id, entry])) },
  }
}
