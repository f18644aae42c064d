import { createHash } from 'node:crypto'
import type { BiView } from '../core/vocabulary.ts'
import type { Relation } from './relations.ts'
import { fill, type Pack, parseTemplate, readRatios, type Values, yamlFile } from './template.ts'

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

interface ChartType {
  about: string
  params: Values
  query: Values & { axis?: object }
}

interface Template {
  charts: Chart[]
  types: Record<Chart['type'], ChartType>
  database: Values & { database_name: string }
  dataset: Values
  metric: Values
  choices: Pick<Relation, 'name' | 'about' | 'columns'> & { sql: string }
  dashboard: Values & { dashboard_title: string }
}

const ROW_LIMIT = 10_000

export function supersetFiles({ relations, projects, values }: Pack): Record<string, string> {
  const template = parseTemplate<Template>('superset.yml')
  const { database, choices } = template
  const charts = template.charts.filter(({ view }) => relations.some(({ name }) => name === view))
  const dataset = (relation: Omit<Template['choices'], 'sql'>, sql: string | null = null) => ({
    ...datasetOf(template, relation, { schema: values.schema, sql }),
    database_uuid: idOf('database', database.database_name),
  })
  const folder = 'datasets/AI_visibility'
  const entries: [string, object][] = [
    ['metadata', { type: 'Dashboard', timestamp: '2026-01-01T00:00:00+00:00' }],
    ['databases/AI_visibility', { ...database, uuid: idOf('database', database.database_name) }],
    ...relations
      .filter(({ name }) => charts.some(({ view }) => view === name))
      .map((view): [string, object] => [`${folder}/${view.name}`, dataset(view)]),
    [`${folder}/${choices.name}`, dataset(choices, fill(choices.sql, values))],
    ...charts.map((chart): [string, object] => [
      `charts/${chart.name.replaceAll(/\W+/g, '_')}`,
      chartOf(template.types[chart.type], chart, projects),
    ]),
    ['dashboards/AI_visibility', dashboardOf(template, charts)],
  ]
  return Object.fromEntries(
    entries.map(([path, content]) => [`${path}.yaml`, yamlFile({ ...content, version: '1.0.0' })]),
  )
}

/** The same name always has the same id. */
function idOf(kind: string, name: string): string {
  const hex = createHash('sha256').update(`visibility-sync/${kind}/${name}`).digest('hex')
  const variant = ((Number.parseInt(hex[16]!, 16) & 3) | 8).toString(16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** With a metric for each ratio of which the view has both parts. */
function datasetOf(template: Template, relation: Omit<Template['choices'], 'sql'>, place: Values): object {
  const { name, about, columns } = relation
  const there = new Set(columns.map((column) => column.name))
  const metrics = [
    ...readRatios()
      .filter(({ numerator, denominator }) => there.has(numerator) && there.has(denominator))
      .map(({ numerator, denominator, share, ...ratio }) => ({
        ...ratio,
        expression: `sum(${numerator}) / nullif(sum(${denominator}), 0)`,
        format: share ? '.1%' : '.2f',
      })),
    { name: 'answers_total', label: 'Answers', expression: 'sum(answers)', about: 'Number of answers.', format: ',d' },
    { name: 'rows_total', label: 'Rows', expression: 'count(*)', about: 'Number of rows.', format: ',d' },
  ]
  // Every brand of a view has the same number of answers: a sum over brands is wrong.
  const hasAnswers = there.has('answers') && !there.has('brand_id')
  return {
    ...fill(template.dataset, {
      ...place,
      name,
      about,
      time: ['date', 'week', 'month'].find((time) => there.has(time)) ?? null,
    }),
    uuid: idOf('dataset', name),
    metrics: metrics
      .filter((metric) => metric.name !== 'answers_total' || hasAnswers)
      .map((metric) => fill(template.metric, metric)),
    columns: columns.map((column) => ({
      column_name: column.name,
      verbose_name: null,
      is_dttm: column.type === 'date' || column.type.startsWith('timestamp'),
      is_active: true,
      type: column.type === 'text[]' ? 'ARRAY' : column.type.toUpperCase(),
      groupby: !['double precision', 'jsonb', 'text[]'].includes(column.type),
      filterable: !['jsonb', 'text[]'].includes(column.type),
      expression: null,
      description: column.about,
      python_date_format: null,
    })),
  }
}

function chartOf(type: ChartType, chart: Chart, projects: readonly string[]): object {
  const time = chart.type === 'lines' ? chart.x : chart.type === 'bars' ? 'week' : undefined
  const conditions = [
    ...(chart.own ? [['is_own', '==', true]] : []),
    ...(chart.top === undefined ? [] : [['rank', '<=', chart.top]]),
    ...(projects.length === 0 ? [] : [['project_id', 'IN', projects]]),
    ...(time === undefined ? [] : [[time, 'TEMPORAL_RANGE', 'No filter']]),
  ]
  const { split = ['project', 'brand'] } = chart
  const filled = fill(type, { split, ...chart })
  const params = {
    ...filled.params,
    datasource: '0__table',
    row_limit: ROW_LIMIT,
    adhoc_filters: conditions.map(([subject, operator, comparator]) => ({
      ...{ clause: 'WHERE', expressionType: 'SIMPLE', subject, operator, comparator },
    })),
    ...(chart.order && { order_by_cols: chart.order.map((pair) => JSON.stringify(pair)) }),
    ...(chart.shares && {
      column_config: Object.fromEntries(chart.shares.map((column) => [column, { d3NumberFormat: '.1%' }])),
    }),
  }
  const { axis, ...query } = filled.query
  const filters = conditions.map(([col, op, val]) => ({ col, op, val }))
  const more = { filters, row_limit: ROW_LIMIT, post_processing: [], ...(axis && { columns: [axis, ...split] }) }
  return {
    slice_name: chart.name,
    description: type.about,
    viz_type: filled.params.viz_type,
    params,
    // Without it, the API cannot query the data of a chart before somebody saved the chart by hand.
    query_context: JSON.stringify({
      datasource: { id: 0, type: 'table' },
      force: false,
      queries: [{ ...query, ...more }],
      form_data: params,
      result_format: 'json',
      result_type: 'full',
    }),
    cache_timeout: null,
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
