import { DEFAULT_REPORTS } from '../../core/config/schema.ts'
import { otherDimensions } from '../../streams/brand-report.ts'
import { SCHEMA_NOTES } from '../../warehouse/schema/catalogue.ts'
import { POINTS_TO } from '../../warehouse/schema/relations.ts'
import { QUESTIONS, VIEWS, viewsOf } from '../../warehouse/schema/view-notes.ts'
import { MEASURES, semanticModel } from './dbt-semantics.ts'
import { type Column, type Relation, relations } from './relations.ts'
import { streamOf } from './streams.ts'
import { yamlFile } from './yaml.ts'

/*
 * The dbt package: sources for every table and view, staging models for the tables that people build on, and the metrics as a
 * semantic model. It stands on no other package, so that "dbt deps" has nothing to download.
 */

const SOURCE = 'visibility'
/** Rows may mention prompts that the service no longer lists: no row is wrong for that. */
const ALWAYS_LISTED = new Set(['brands', 'topics', 'tags', 'models'])

export function dbtFiles(): Record<string, string> {
  return {
    'dbt/models/sources.yml': yamlFile({ version: 2, sources: [source()] }),
    'dbt/models/staging/staging.yml': yamlFile({ version: 2, models: staged().map(stagingNote) }),
    ...Object.fromEntries(
      staged().map((relation) => [`dbt/models/staging/stg_${relation.name}.sql`, stagingSql(relation)]),
    ),
    'dbt/models/marts/brand_days.sql': brandDaysSql(),
    'dbt/models/marts/marts.yml': yamlFile({ version: 2, ...semanticModel() }),
    'dbt/models/exposures.yml': yamlFile({ version: 2, exposures: [exposure()] }),
  }
}

function source(): object {
  return {
    name: SOURCE,
    description: SCHEMA_NOTES.schema,
    schema: "{{ var('visibility_schema', 'visibility') }}",
    tables: relations().map((relation) => ({
      name: relation.name,
      description: relation.about,
      ...freshnessOf(relation),
      data_tests: [
        { unique_key: { arguments: { columns: relation.key } } },
        ...referencesOf(relation).map(({ column, target }) => ({
          listed_in: { arguments: { to: `source('${SOURCE}', '${target}')`, columns: ['project_id', column] } },
        })),
      ],
      columns: relation.columns.map(columnNote),
    })),
  }
}

function columnNote({ name, about, type, required }: Column): object {
  return { name, description: about, data_type: type, ...(required ? { data_tests: ['not_null'] } : {}) }
}

/** When the project that was read longest ago was read. One that was never read counts as read long ago. */
function freshnessOf(relation: Relation): object {
  const stream = streamOf(relation)
  if (stream === undefined) return {}
  return {
    config: {
      loaded_at_query:
        "select min(coalesce(last_read_at, timestamptz '2000-01-01')) from {{ this.schema }}.freshness " +
        `where stream = '${stream}'`,
      freshness: {
        warn_after: { count: "{{ var('visibility_warn_hours', 26) | as_number }}", period: 'hour' },
        error_after: { count: "{{ var('visibility_error_hours', 72) | as_number }}", period: 'hour' },
      },
    },
  }
}

function referencesOf(relation: Relation): { column: string; target: string }[] {
  if (relation.kind === 'view') return []
  return relation.columns.flatMap(({ name }) => {
    const target = POINTS_TO[name]
    return target === undefined || target === relation.name || !ALWAYS_LISTED.has(target)
      ? []
      : [{ column: name, target }]
  })
}

const STAGED = new Set(['projects', 'brands', 'topics', 'tags', 'models', 'prompts', 'prompt_tags', 'chats'])

function staged(): Relation[] {
  return relations().filter(({ name, kind }) => kind === 'report' || STAGED.has(name))
}

/** Reports lose their ratios: what is left adds up. */
function stagingSql(relation: Relation): string {
  const from = `from {{ source('${SOURCE}', '${relation.name}') }}`
  if (relation.kind !== 'report') {
    return `-- ${relation.about}\nselect\n${relation.columns.map(({ name }) => `  ${name}`).join(',\n')}\n${from}\n`
  }
  const group = relation.key.filter((name) => name !== 'brand_id').join(', ')
  const columns = [
    ...relation.key,
    ...MEASURES.map(({ name, expression }) => `${expression.replace('{group}', group)} as ${name}`),
    'changed_at',
  ]
  return [
    `-- ${relation.about} The parts of every ratio, to be summed and then divided.`,
    'select',
    columns.map((column) => `  ${column.replace(/^(\w+) as \1$/, '$1')}`).join(',\n'),
    from,
    '',
  ].join('\n')
}

function stagingNote(relation: Relation): object {
  const measures = relation.kind === 'report' ? MEASURES.map(({ name, about }) => ({ name, description: about })) : []
  const kept = relation.columns.filter(
    ({ name }) => relation.kind !== 'report' || relation.key.includes(name) || name === 'changed_at',
  )
  return {
    name: `stg_${relation.name}`,
    description: relation.about,
    data_tests: [{ unique_key: { arguments: { columns: relation.key } } }],
    columns: [...kept.map(({ name, about }) => ({ name, description: about })), ...measures],
  }
}

function brandDaysSql(): string {
  return `-- Every brand day by day, with names: what the metrics are made of.
select
  days.project_id || '/' || days.date || '/' || days.brand_id as brand_day_id,
  days.project_id,
  coalesce(projects.name, days.project_id) as project,
  days.date,
  days.brand_id,
  coalesce(brands.name, days.brand_id) as brand,
  coalesce(brands.is_own, false) as is_own,
${MEASURES.map(({ name }) => `  days.${name}`).join(',\n')}
from {{ ref('stg_${DEFAULT_REPORTS.find((report) => otherDimensions(report).length === 0)!.name}') }} as days
left join {{ ref('stg_projects') }} as projects on projects.project_id = days.project_id
left join {{ ref('stg_brands') }} as brands on brands.project_id = days.project_id and brands.brand_id = days.brand_id
`
}

function exposure(): object {
  const views = QUESTIONS.flatMap((_, index) => viewsOf(index + 1))
  return {
    name: 'ai_visibility_at_a_glance',
    label: 'AI visibility at a glance',
    type: 'dashboard',
    maturity: 'high',
    description:
      'The dashboard that "visibility-sync metabase" makes, and its kin in Superset and Grafana. It reads the views of the warehouse.',
    owner: { name: 'The team that runs visibility-sync' },
    depends_on: views.filter((name) => name in VIEWS).map((name) => `source('${SOURCE}', '${name}')`),
  }
}
