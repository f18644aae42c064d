import type { BiView } from '../../core/vocabulary.ts'

/* The charts of the bundle: each with its controls, and with the query that it asks. */

export interface Chart {
  name: string
  about: string
  view: BiView
  kind: 'echarts_timeseries_line' | 'echarts_timeseries_bar' | 'table'
  params: object
  query: object
}

interface Condition {
  column: string
  operator: '==' | '<=' | 'IN'
  value: boolean | number
}

const OWN: Condition = { column: 'is_own', operator: '==', value: true }
const ROW_LIMIT = 10_000

export const CHARTS: readonly Chart[] = [
  byWeek('Visibility by week', 'visibility_daily', 'date', 'visibility', '.1%', ['project', 'brand'], [OWN]),
  byWeek('Share of voice by week', 'share_of_voice_daily', 'date', 'share_of_voice', '.1%', ['project', 'brand'], []),
  byName('Visibility by model', 'visibility_by_model_weekly', 'model_id', 'visibility', '.1%', [OWN]),
  byName('Visibility by country', 'visibility_by_country_weekly', 'country_code', 'visibility', '.1%', [OWN]),
  byWeek('Mean position by week', 'position_by_model_weekly', 'week', 'position', '.2f', ['project', 'brand'], [OWN]),
  byWeek(
    'Mean sentiment by week',
    'sentiment_by_topic_weekly',
    'week',
    'sentiment',
    '.2f',
    ['project', 'brand'],
    [OWN],
  ),
  byName('Visibility by topic', 'topics_weekly', 'topic', 'visibility', '.1%', [OWN]),
  byWeek('Answers by week', 'answers_daily', 'date', 'answers_total', ',d', ['project'], []),
  list(
    'Clearest changes',
    'movers_weekly',
    [
      'week',
      'project',
      'brand',
      'topic',
      'model_id',
      'visibility',
      'previous_visibility',
      'change',
      'verdict',
      'rank',
      'answers',
    ],
    [{ column: 'rank', operator: '<=', value: 10 }],
    ['week', 'project', 'rank'],
    ['visibility', 'previous_visibility', 'change'],
  ),
  list(
    'Sources cited',
    'sources_weekly',
    [
      'week',
      'project',
      'domain',
      'classification',
      'is_own',
      'is_rival',
      'citation_count',
      'retrieved_chat_count',
      'retrieved_share',
      'answers',
      'rank',
    ],
    [{ column: 'rank', operator: '<=', value: 20 }],
    ['week', 'project', 'rank'],
    ['retrieved_share'],
  ),
  list(
    'Freshness',
    'freshness',
    [
      'project',
      'stream',
      'last_read_at',
      'first_day',
      'last_day',
      'missing_days',
      'held_days',
      'quarantined_rows',
      'is_stale',
    ],
    [],
    ['project', 'stream'],
    [],
  ),
]

function filters(conditions: readonly Condition[]): object[] {
  return conditions.map(({ column, operator, value }) => ({ col: column, op: operator, val: value }))
}

function controls(conditions: readonly Condition[], time?: string): object[] {
  const times = time === undefined ? [] : [{ column: time, operator: 'TEMPORAL_RANGE', value: 'No filter' }]
  return [...conditions, ...times].map(({ column, operator, value }) => ({
    clause: 'WHERE',
    expressionType: 'SIMPLE',
    subject: column,
    operator,
    comparator: value,
  }))
}

function byWeek(
  name: string,
  view: BiView,
  time: string,
  metric: string,
  format: string,
  split: string[],
  conditions: Condition[],
): Chart {
  const axis = { timeGrain: 'P1W', columnType: 'BASE_AXIS', sqlExpression: time, label: time, expressionType: 'SQL' }
  return {
    name,
    about: 'A ratio of sums by week, split by project: the same brand name occurs in several.',
    view,
    kind: 'echarts_timeseries_line',
    params: {
      x_axis: time,
      time_grain_sqla: 'P1W',
      metrics: [metric],
      groupby: split,
      adhoc_filters: controls(conditions, time),
      row_limit: ROW_LIMIT,
      y_axis_format: format,
      rich_tooltip: true,
      show_legend: true,
      markerEnabled: true,
    },
    query: {
      filters: [...filters(conditions), { col: time, op: 'TEMPORAL_RANGE', val: 'No filter' }],
      extras: { time_grain_sqla: 'P1W', having: '', where: '' },
      columns: [axis, ...split],
      metrics: [metric],
      orderby: [[metric, false]],
      series_columns: split,
      series_limit: 0,
      order_desc: true,
      row_limit: ROW_LIMIT,
      post_processing: [],
    },
  }
}

function byName(
  name: string,
  view: BiView,
  column: string,
  metric: string,
  format: string,
  conditions: Condition[],
): Chart {
  const split = ['project', 'brand']
  return {
    name,
    about: 'A ratio of sums over the chosen dates, split by project and brand.',
    view,
    kind: 'echarts_timeseries_bar',
    params: {
      x_axis: column,
      xAxisForceCategorical: true,
      metrics: [metric],
      groupby: split,
      adhoc_filters: controls(conditions, 'week'),
      row_limit: ROW_LIMIT,
      y_axis_format: format,
      show_legend: true,
    },
    query: {
      filters: [...filters(conditions), { col: 'week', op: 'TEMPORAL_RANGE', val: 'No filter' }],
      extras: { having: '', where: '' },
      columns: [{ columnType: 'BASE_AXIS', sqlExpression: column, label: column, expressionType: 'SQL' }, ...split],
      metrics: [metric],
      orderby: [[metric, false]],
      series_columns: split,
      series_limit: 0,
      order_desc: true,
      row_limit: ROW_LIMIT,
      post_processing: [],
    },
  }
}

function list(
  name: string,
  view: BiView,
  columns: string[],
  conditions: Condition[],
  order: string[],
  shares: string[],
): Chart {
  return {
    name,
    about: 'Rows of the view as they are.',
    view,
    kind: 'table',
    params: {
      query_mode: 'raw',
      all_columns: columns,
      adhoc_filters: controls(conditions),
      order_by_cols: order.map((column) => JSON.stringify([column, column !== 'week'])),
      row_limit: ROW_LIMIT,
      column_config: Object.fromEntries(shares.map((column) => [column, { d3NumberFormat: '.1%' }])),
    },
    query: {
      filters: filters(conditions),
      extras: { having: '', where: '' },
      columns,
      metrics: [],
      orderby: order.map((column) => [column, column !== 'week']),
      row_limit: ROW_LIMIT,
      post_processing: [],
    },
  }
}
