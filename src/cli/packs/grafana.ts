/* Two dashboards for Grafana: operations on the metrics, visibility on the views. */

interface Panel {
  title: string
  about: string
  type: 'timeseries' | 'stat' | 'table' | 'barchart'
  unit?: string
  width: number
  height?: number
  targets: object[]
}

const PROMETHEUS = { type: 'prometheus', uid: '${metrics}' }
const POSTGRES = { type: 'grafana-postgresql-datasource', uid: '${warehouse}' }
const P = 'visibility_sync'

export function grafanaFiles(): Record<string, string> {
  return {
    'packs/grafana/operations.json': json(operations()),
    'packs/grafana/visibility.json': json(visibility()),
  }
}

function json(content: object): string {
  return `${JSON.stringify(content, null, 2)}\n`
}

function dashboard(uid: string, title: string, description: string, variables: object[], panels: Panel[]): object {
  let [x, y, row] = [0, 0, 0]
  const placed = panels.map(({ width, height = 8, about, unit, targets, ...panel }, index) => {
    if (x + width > 24) [x, y, row] = [0, y + row, 0]
    const gridPos = { x, y, w: width, h: height }
    x += width
    row = Math.max(row, height)
    const datasource = 'expr' in (targets[0] ?? {}) ? PROMETHEUS : POSTGRES
    return {
      id: index + 1,
      ...panel,
      description: about,
      datasource,
      gridPos,
      fieldConfig: { defaults: unit === undefined ? {} : { unit }, overrides: [] },
      options: panel.type === 'timeseries' ? { tooltip: { mode: 'multi', sort: 'desc' } } : {},
      targets: targets.map((target, place_) => ({ refId: String.fromCharCode(65 + place_), datasource, ...target })),
    }
  })
  return {
    uid,
    title,
    description,
    tags: ['visibility-sync'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    timezone: 'utc',
    time: { from: uid.endsWith('operations') ? 'now-24h' : 'now-90d', to: 'now' },
    refresh: uid.endsWith('operations') ? '1m' : '',
    templating: { list: variables },
    panels: placed,
  }
}

function dataSource(name: string, label: string, query: string): object {
  return { type: 'datasource', name, label, query, refresh: 1, hide: 0 }
}

function choice(name: string, label: string, datasource: object, query: unknown): object {
  return {
    type: 'query',
    name,
    label,
    datasource,
    query,
    refresh: 2,
    multi: true,
    includeAll: true,
    current: { text: ['All'], value: ['$__all'] },
    sort: 1,
  }
}

function prom(expr: string, legendFormat: string, instant = false): object {
  return instant ? { expr, legendFormat, instant: true, format: 'table' } : { expr, legendFormat }
}

function operations(): object {
  const metric = (name: string) => `${P}_${name}{project=~"$project",stream=~"$stream"}`
  const values = (label: string) => ({
    query: `label_values(${P}_missing_dates, ${label})`,
    refId: 'values',
  })
  return dashboard(
    'visibility-sync-operations',
    'visibility-sync: operations',
    'Whether syncs run, and what they leave undone. On the metrics of "visibility-sync serve".',
    [
      dataSource('metrics', 'Metrics', 'prometheus'),
      choice('project', 'Project', PROMETHEUS, values('project')),
      choice('stream', 'Stream', PROMETHEUS, values('stream')),
    ],
    [
      stat('Database', 'Whether the warehouse answers: 1 or 0.', prom(`${P}_database_up`, 'up')),
      stat('Days missing', 'Days of interest that were never read.', prom(`sum(${metric('missing_dates')})`, 'days')),
      stat('Days held', 'Days whose answer is held for review.', prom(`sum(${metric('held_dates')})`, 'days')),
      stat(
        'Rows in quarantine',
        'Rows that failed validation.',
        prom(`sum(${metric('quarantined_rows')}) or vector(0)`, 'rows'),
      ),
      lines('Runs', 'Runs by outcome, in an hour.', 12, 'short', [
        prom(`sum by (command, outcome) (increase(${P}_runs_total[1h])) > 0`, '{{command}} {{outcome}}'),
      ]),
      lines('How long runs take', 'The slowest tenth of runs, by command.', 12, 's', [
        prom(`histogram_quantile(0.9, sum by (command, le) (increase(${P}_run_seconds_bucket[6h])))`, '{{command}}'),
      ]),
      lines('Staleness', 'Time since a stream was last read.', 12, 's', [
        prom(`max by (project, stream) (${metric('staleness_seconds')})`, '{{project}} {{stream}}'),
      ]),
      lines('Rows written', 'Rows by what became of them, in an hour.', 12, 'short', [
        prom(`sum by (effect) (increase(${P}_rows_total{stream=~"$stream"}[1h]))`, '{{effect}}'),
      ]),
      lines('Requests', 'Attempts by status, in five minutes.', 12, 'short', [
        prom(`sum by (status) (increase(${P}_requests_total[5m]))`, '{{status}}'),
      ]),
      lines('Request budget', 'Requests left in this minute, as the service says.', 12, 'short', [
        prom(`min by (project) (${P}_budget_remaining{project=~"$project"})`, '{{project}}'),
      ]),
      lines('Queue', 'Windows in the shared queue, and workers. Empty where there is no queue.', 12, 'short', [
        prom(`${P}_queue_windows`, '{{state}}'),
        prom(`${P}_workers`, 'workers'),
      ]),
      lines('Retries', 'Attempts that failed in a way that is tried again, in five minutes.', 12, 'short', [
        prom(`increase(${P}_retries_total[5m])`, 'retries'),
      ]),
    ],
  )
}

function stat(title: string, about: string, target: object): Panel {
  return { title, about, type: 'stat', width: 6, height: 4, unit: 'short', targets: [target] }
}

function lines(title: string, about: string, width: number, unit: string, targets: object[]): Panel {
  return { title, about, type: 'timeseries', width, unit, targets }
}

function sql(rawSql: string, format: 'time_series' | 'table'): object {
  return { rawSql, format, rawQuery: true, editorMode: 'code' }
}

/** Conditions of the variables. Names are quoted by Grafana itself. */
const CHOSEN = 'project in (${project:sqlstring}) and brand in (${brand:sqlstring})'
/** One name for each series, as in metabase/questions: the same brand name occurs in several projects, or twice in one. */
const SERIES = `case when min(project_id) over () <> max(project_id) over () then project || ': ' else '' end || brand
  || case when min(project_id || '/' || brand_id) over same_name <> max(project_id || '/' || brand_id) over same_name
    then ' (' || project_id || '/' || brand_id || ')' else '' end`

function visibility(): object {
  return dashboard(
    'visibility-sync-visibility',
    'visibility-sync: visibility',
    'How visible the brands are in answers. On the views of the warehouse; name its schema where it is not "visibility".',
    [
      dataSource('warehouse', 'Warehouse', 'grafana-postgresql-datasource'),
      {
        type: 'textbox',
        name: 'schema',
        label: 'Schema',
        query: 'visibility',
        current: { text: 'visibility', value: 'visibility' },
      },
      choice(
        'project',
        'Project',
        POSTGRES,
        'select distinct coalesce(name, project_id) from ${schema}.projects order by 1',
      ),
      choice(
        'brand',
        'Brand',
        POSTGRES,
        'select distinct coalesce(b.name, b.brand_id) from ${schema}.brands b join ${schema}.projects p using (project_id) ' +
          'where coalesce(p.name, p.project_id) in (${project:sqlstring}) order by 1',
      ),
    ],
    [
      lines('Visibility by week', 'Share of answers that name the brand, a ratio of sums.', 12, 'percentunit', [
        sql(weekly('visibility_weekly', 'visibility'), 'time_series'),
      ]),
      lines('Share of voice by week', "The brand's mentions over those of all tracked brands.", 12, 'percentunit', [
        sql(weekly('share_of_voice_weekly', 'share_of_voice'), 'time_series'),
      ]),
      lines('Visibility by model', 'Own brands, by model and week.', 12, 'percentunit', [
        sql(
          weekly('visibility_by_model_weekly', 'visibility', ", ' || coalesce(model_id, '(no model)')"),
          'time_series',
        ),
      ]),
      lines('Mean position by model', 'Own brands; lower is better.', 12, 'short', [
        sql(weekly('position_by_model_weekly', 'position', ", ' || coalesce(model_id, '(no model)')"), 'time_series'),
      ]),
      lines('Answers by day', 'The sample behind the shares.', 12, 'short', [
        sql(
          'select date::timestamp as "time", project as metric, answers as value\nfrom ${schema}.answers_daily\n' +
            'where $__timeFilter(date::timestamp) and project in (${project:sqlstring})\norder by 1',
          'time_series',
        ),
      ]),
      {
        title: 'Clearest changes of the newest week',
        about: 'Rank 1 is the clearest change, not the largest.',
        type: 'table',
        width: 12,
        targets: [
          sql(
            'select week, project, brand, topic, model_id, visibility, previous_visibility, change, verdict, answers\n' +
              `from \${schema}.movers_weekly\nwhere ${CHOSEN} and rank <= 10\n` +
              '  and week = (select max(week) from ${schema}.movers_weekly where comparison_is_complete)\norder by rank',
            'table',
          ),
        ],
      },
      {
        title: 'Freshness',
        about: 'How fresh and how whole each stream is.',
        type: 'table',
        width: 24,
        targets: [
          sql(
            'select project, stream, last_read_at, first_day, last_day, missing_days, held_days, quarantined_rows, is_stale\n' +
              'from ${schema}.freshness\nwhere project in (${project:sqlstring})\norder by project, stream',
            'table',
          ),
        ],
      },
    ],
  )
}

/** Grafana adds nothing up: two rows with the same time and series would be drawn as one jagged line. */
function weekly(view: string, value: string, more?: string): string {
  const series = more === undefined ? SERIES : `${SERIES} || '${more}`
  const own = more === undefined ? '' : ' and is_own'
  return (
    `select week::timestamp as "time", ${series} as metric, ${value} as value\nfrom \${schema}.${view}\n` +
    `where $__timeFilter(week::timestamp) and ${CHOSEN}${own}\nwindow same_name as (partition by project, brand)\norder by 1`
  )
}
