import { createHash } from 'node:crypto'
import { RATIOS, type Ratio } from './ratios.ts'
import { type Column, type Relation, relations } from './relations.ts'
import { CHARTS, type Chart } from './superset-charts.ts'
import { yamlFile } from './yaml.ts'

/*
 * A bundle that Superset imports: the database, datasets with descriptions, ratio metrics, charts and a dashboard. Ids come from
 * names, so that an import over an older one updates it.
 */

const FOLDER = 'packs/superset/visibility_sync'
const DATABASE = 'AI visibility'
const VERSION = '1.0.0'

export function supersetFiles(): Record<string, string> {
  const datasets = [...new Set(CHARTS.map(({ view }) => view))].map(
    (name) => relations().find((relation) => relation.name === name)!,
  )
  const entries: [string, object][] = [
    ['metadata.yaml', { version: VERSION, type: 'Dashboard', timestamp: '2026-01-01T00:00:00+00:00' }],
    ['databases/AI_visibility.yaml', database()],
    ...datasets.map((relation): [string, object] => [
      `datasets/AI_visibility/${relation.name}.yaml`,
      dataset(relation),
    ]),
    ['datasets/AI_visibility/brands_of_projects.yaml', choices()],
    ...CHARTS.map((chart): [string, object] => [`charts/${fileName(chart.name)}.yaml`, chartFile(chart)]),
    ['dashboards/AI_visibility.yaml', dashboard()],
  ]
  return Object.fromEntries(entries.map(([path, content]) => [`${FOLDER}/${path}`, yamlFile(content)]))
}

function fileName(name: string): string {
  return name.replaceAll(/\W+/g, '_')
}

/** The same name always has the same id. */
export function idOf(kind: string, name: string): string {
  const hex = createHash('sha256').update(`visibility-sync/${kind}/${name}`).digest('hex')
  const variant = ((Number.parseInt(hex[16]!, 16) & 3) | 8).toString(16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

function database(): object {
  return {
    database_name: DATABASE,
    // The password is asked for when the bundle is imported.
    sqlalchemy_uri: 'postgresql+psycopg2://superset_reader:XXXXXXXXXX@localhost:5432/visibility',
    cache_timeout: null,
    expose_in_sqllab: true,
    allow_run_async: false,
    allow_ctas: false,
    allow_cvas: false,
    allow_dml: false,
    allow_csv_upload: false,
    extra: {
      allows_virtual_table_explore: true,
      // Days are UTC: in another zone, weeks that Superset makes of days begin a day early.
      engine_params: { connect_args: { options: '-c timezone=UTC' } },
    },
    uuid: idOf('database', DATABASE),
    version: VERSION,
  }
}

function dataset(relation: Relation): object {
  const time = ['date', 'week', 'month'].find((name) => relation.columns.some((column) => column.name === name))
  return {
    table_name: relation.name,
    main_dttm_col: time ?? null,
    description: relation.about,
    default_endpoint: null,
    offset: 0,
    cache_timeout: null,
    schema: 'visibility',
    sql: null,
    params: null,
    template_params: null,
    filter_select_enabled: true,
    fetch_values_predicate: null,
    extra: null,
    uuid: idOf('dataset', relation.name),
    metrics: metricsOf(relation),
    columns: relation.columns.map(columnOf),
    version: VERSION,
    database_uuid: idOf('database', DATABASE),
  }
}

/** The ratios that the view has the parts of, and the sums of those parts. */
function metricsOf({ columns }: Relation): object[] {
  const there = new Set(columns.map(({ name }) => name))
  const ratios = RATIOS.filter(({ numerator, denominator }) => there.has(numerator) && there.has(denominator))
  return [
    ...ratios.map((ratio) => metric(ratio.name, ratio.label, ratioOf(ratio), ratio.about, ratio.share ? '.1%' : '.2f')),
    ...(there.has('answers') && !there.has('brand_id')
      ? [metric('answers_total', 'Answers', 'sum(answers)', 'Number of answers.', ',d')]
      : []),
    metric('rows_total', 'Rows', 'count(*)', 'Number of rows.', ',d'),
  ]
}

function ratioOf({ numerator, denominator }: Ratio): string {
  return `sum(${numerator}) / nullif(sum(${denominator}), 0)`
}

function metric(name: string, label: string, expression: string, about: string, d3format: string): object {
  return {
    metric_name: name,
    verbose_name: label,
    metric_type: null,
    expression,
    description: about,
    d3format,
    extra: null,
    warning_text: null,
  }
}

const TYPES: Record<string, string> = { 'timestamp with time zone': 'TIMESTAMP WITH TIME ZONE', 'text[]': 'ARRAY' }

function columnOf({ name, about, type }: Pick<Column, 'name' | 'about' | 'type'>): object {
  const isTime = type === 'date' || type.startsWith('timestamp')
  return {
    column_name: name,
    verbose_name: null,
    is_dttm: isTime,
    is_active: true,
    type: TYPES[type] ?? type.toUpperCase(),
    groupby: !['double precision', 'jsonb', 'text[]'].includes(type),
    filterable: !['jsonb', 'text[]'].includes(type),
    expression: null,
    description: about,
    python_date_format: null,
  }
}

/** What the filters choose from: the tables of projects and brands, not the larger views. */
function choices(): object {
  const text = (name: string, about: string) => columnOf({ name, about, type: 'text' })
  return {
    table_name: 'brands_of_projects',
    main_dttm_col: null,
    description: 'The choices of the dashboard’s filters, from the tables of projects and brands.',
    schema: 'visibility',
    sql:
      'select coalesce(p.name, p.project_id) as project, coalesce(b.name, b.brand_id) as brand, b.is_own\n' +
      'from visibility.projects p join visibility.brands b on b.project_id = p.project_id',
    filter_select_enabled: true,
    uuid: idOf('dataset', 'brands_of_projects'),
    metrics: [metric('rows_total', 'Rows', 'count(*)', 'Number of brands.', ',d')],
    columns: [
      text('project', 'The name of the project, or its id.'),
      text('brand', 'The name of the brand, or its id.'),
      columnOf({ name: 'is_own', about: 'True for own brands.', type: 'boolean' }),
    ],
    version: VERSION,
    database_uuid: idOf('database', DATABASE),
  }
}

function chartFile(chart: Chart): object {
  return {
    slice_name: chart.name,
    description: chart.about,
    viz_type: chart.kind,
    params: { viz_type: chart.kind, datasource: '0__table', ...chart.params },
    // Without it, the data of a chart cannot be asked for before somebody saved it by hand.
    query_context: JSON.stringify({
      datasource: { id: 0, type: 'table' },
      force: false,
      queries: [chart.query],
      form_data: { viz_type: chart.kind, datasource: '0__table', ...chart.params },
      result_format: 'json',
      result_type: 'full',
    }),
    cache_timeout: null,
    uuid: idOf('chart', chart.name),
    version: VERSION,
    dataset_uuid: idOf('dataset', chart.view),
  }
}

function dashboard(): object {
  const rows = CHARTS.map((_, index) => index).filter((index) => index % 2 === 0)
  const rowIds = rows.map((index) => `ROW-${index / 2}`)
  const chartId = (index: number) => `CHART-${idOf('chart', CHARTS[index]!.name).slice(0, 8)}`
  const position = {
    DASHBOARD_VERSION_KEY: 'v2',
    ROOT_ID: { id: 'ROOT_ID', type: 'ROOT', children: ['GRID_ID'] },
    GRID_ID: { id: 'GRID_ID', type: 'GRID', children: rowIds, parents: ['ROOT_ID'] },
    HEADER_ID: { id: 'HEADER_ID', type: 'HEADER', meta: { text: 'AI visibility at a glance' } },
    ...Object.fromEntries(
      rows.map((index, position) => [
        rowIds[position],
        {
          id: rowIds[position],
          type: 'ROW',
          meta: { background: 'BACKGROUND_TRANSPARENT' },
          children: [index, index + 1].filter((number) => number < CHARTS.length).map(chartId),
          parents: ['ROOT_ID', 'GRID_ID'],
        },
      ]),
    ),
    ...Object.fromEntries(
      CHARTS.map((chart, index) => [
        chartId(index),
        {
          id: chartId(index),
          type: 'CHART',
          children: [],
          parents: ['ROOT_ID', 'GRID_ID', rowIds[Math.floor(index / 2)]],
          meta: { chartId: index + 1, height: 50, width: 6, sliceName: chart.name, uuid: idOf('chart', chart.name) },
        },
      ]),
    ),
  }
  return {
    dashboard_title: 'AI visibility at a glance',
    description: 'How visible the brands are in answers, as ratios of sums.',
    css: '',
    slug: null,
    published: true,
    uuid: idOf('dashboard', 'AI visibility at a glance'),
    position,
    metadata: {
      native_filter_configuration: [choice('project', 'Project'), choice('brand', 'Brand'), timeFilter()],
      color_scheme: '',
      cross_filters_enabled: true,
    },
    version: VERSION,
  }
}

const NOTHING = { extraFormData: {}, filterState: {}, ownState: {} }

function choice(column: string, name: string): object {
  return {
    id: `NATIVE_FILTER-${column}`,
    name,
    filterType: 'filter_select',
    type: 'NATIVE_FILTER',
    description: '',
    targets: [{ column: { name: column }, datasetUuid: idOf('dataset', 'brands_of_projects') }],
    controlValues: { multiSelect: true, enableEmptyFilter: false, inverseSelection: false, searchAllOptions: false },
    defaultDataMask: NOTHING,
    // Brands of the chosen projects alone.
    cascadeParentIds: column === 'brand' ? ['NATIVE_FILTER-project'] : [],
    scope: { rootPath: ['ROOT_ID'], excluded: [] },
  }
}

function timeFilter(): object {
  return {
    id: 'NATIVE_FILTER-dates',
    name: 'Dates',
    filterType: 'filter_time',
    type: 'NATIVE_FILTER',
    description: '',
    targets: [{}],
    controlValues: {},
    defaultDataMask: NOTHING,
    cascadeParentIds: [],
    scope: { rootPath: ['ROOT_ID'], excluded: [] },
  }
}
