import { SCHEMA_NOTES } from '../warehouse/schema/catalogue.ts'
import { POINTS_TO } from '../warehouse/schema/relations.ts'
import type { Relation } from './relations.ts'
import { fill, type Pack, parseTemplate, readRatios, readTemplate, yamlFile } from './template.ts'

/*
 * The dbt package: sources for every table and view, staging models, and the metrics as a semantic model. It depends on no other
 * package, so that "dbt deps" has nothing to download.
 */

interface Measure {
  name: string
  label: string
  description: string
}
interface Marts {
  models: { name: string; columns: object[] }[]
  semantic_models: { measures: Measure[] }[]
}

const SOURCE = 'visibility'
/** Rows may mention prompts that the service no longer lists, so references to prompts are not tested. */
const ALWAYS_LISTED = ['brands', 'topics', 'tags', 'models']
const STAGED = ['projects', 'brands', 'topics', 'tags', 'models', 'prompts', 'prompt_tags', 'chats']

/** The measures that are not columns of a report. <<group>> is its key without the brand. */
const EXPRESSIONS: Record<string, string> = {
  answers: 'visibility_total',
  all_mentions: 'sum(mention_count) over (partition by <<group>>)',
  position_points: 'position * position_count',
  sentiment_points: 'sentiment * sentiment_count',
}

export function dbtFiles({ relations, values }: Pack): Record<string, string> {
  const staged = relations.filter(({ name, kind }) => kind !== 'view' && (kind !== 'table' || STAGED.includes(name)))
  const marts = parseTemplate<Marts>('dbt/models/marts/marts.yml')
  const { measures } = marts.semantic_models[0]!
  const views = relations.filter(({ kind }) => kind === 'view').map(({ name }) => `source('${SOURCE}', '${name}')`)
  const files = ['dbt_project.yml', 'macros/visibility_sync.sql']
  // Without a report of brands by day there is nothing to compute the metrics from.
  if (values.daily !== '') {
    files.push('models/marts/brand_days.sql', 'models/marts/calendar_days.sql')
    files.push('tests/ratios_agree_with_the_views.sql', 'tests/shares_are_shares.sql')
  }
  return {
    ...Object.fromEntries(files.map((path) => [path, fill(readTemplate(`dbt/${path}`), values)])),
    ...(values.daily === '' ? {} : { 'models/marts/marts.yml': yamlFile(withMetrics(marts, measures)) }),
    'models/sources.yml': yamlFile({ version: 2, sources: [sourceOf(relations)] }),
    'models/exposures.yml': yamlFile(fill(parseTemplate('dbt/models/exposures.yml'), { views })),
    'models/staging/staging.yml': yamlFile({
      version: 2,
      models: staged.map((relation) => stagingNote(relation, measures)),
    }),
    ...Object.fromEntries(
      staged.map((relation) => [`models/staging/stg_${relation.name}.sql`, stagingSql(relation, measures)]),
    ),
  }
}

function sourceOf(relations: readonly Relation[]): object {
  return {
    name: SOURCE,
    description: SCHEMA_NOTES.schema,
    schema: "{{ var('visibility_schema') }}",
    tables: relations.map((relation) => ({
      name: relation.name,
      description: relation.about,
      ...freshnessOf(relation),
      data_tests: [
        { unique_key: { arguments: { columns: relation.key } } },
        ...referencesOf(relation).map(({ column, target }) => ({
          listed_in: { arguments: { to: `source('${SOURCE}', '${target}')`, columns: ['project_id', column] } },
        })),
      ],
      columns: relation.columns.map(({ name, about, type, required }) => ({
        name,
        description: about,
        data_type: type,
        ...(required ? { data_tests: ['not_null'] } : {}),
      })),
    })),
  }
}

/** When the project that was read longest ago was read. A project that was never read counts as read long ago. */
function freshnessOf({ stream }: Relation): object {
  if (stream === undefined) return {}
  return {
    config: {
      loaded_at_query:
        "select min(coalesce(last_read_at, timestamptz '2000-01-01')) from {{ this.schema }}.freshness " +
        `where stream = '${stream}' and {{ visibility_sync.in_visibility_projects() }}`,
      freshness: {
        warn_after: { count: "{{ var('visibility_warn_hours') | as_number }}", period: 'hour' },
        error_after: { count: "{{ var('visibility_error_hours') | as_number }}", period: 'hour' },
      },
    },
  }
}

function referencesOf({ name: own, kind, columns }: Relation): { column: string; target: string }[] {
  if (kind !== 'table' && kind !== 'brands') return []
  return columns.flatMap(({ name }) => {
    const target = POINTS_TO[name]
    return target === undefined || target === own || !ALWAYS_LISTED.includes(target) ? [] : [{ column: name, target }]
  })
}

/** Reports of brands lose their ratios: the columns that are left add up. */
function stagingSql({ name, kind, about, key, columns }: Relation, measures: readonly Measure[]): string {
  const group = key.filter((column) => column !== 'brand_id').join(', ')
  const parts = measures.map((measure) => {
    const expression = EXPRESSIONS[measure.name]?.replace('<<group>>', group)
    return expression === undefined ? measure.name : `${expression} as ${measure.name}`
  })
  const selected = kind === 'brands' ? [...key, ...parts, 'changed_at'] : columns.map((column) => `"${column.name}"`)
  return [
    `-- ${about}${kind === 'brands' ? ' The parts of every ratio: sum them, then divide.' : ''}`,
    `select\n${selected.map((column) => `  ${column}`).join(',\n')}`,
    `from {{ source('${SOURCE}', '${name}') }}`,
    'where {{ visibility_sync.in_visibility_projects() }}\n',
  ].join('\n')
}

function stagingNote({ name, kind, about, key, columns }: Relation, measures: readonly Measure[]): object {
  const kept = columns.filter(
    (column) => kind !== 'brands' || key.includes(column.name) || column.name === 'changed_at',
  )
  return {
    name: `stg_${name}`,
    description: about,
    data_tests: [{ unique_key: { arguments: { columns: key } } }],
    columns: [
      ...kept.map((column) => ({ name: column.name, description: column.about })),
      ...(kind === 'brands'
        ? measures.map((measure) => ({ name: measure.name, description: measure.description }))
        : []),
    ],
  }
}

function withMetrics(marts: Marts, measures: readonly Measure[]): object {
  return {
    ...marts,
    models: marts.models.map((model) =>
      model.name !== 'brand_days'
        ? model
        : {
            ...model,
            columns: [...model.columns, ...measures.map(({ name, description }) => ({ name, description }))],
          },
    ),
    metrics: [
      ...measures.map(({ name, label, description }) => ({
        name: `total_${name}`,
        label,
        description,
        type: 'simple',
        type_params: { measure: { name } },
      })),
      ...readRatios().map(({ name, label, about, numerator, denominator }) => ({
        name,
        label,
        description: about,
        type: 'ratio',
        type_params: { numerator: { name: `total_${numerator}` }, denominator: { name: `total_${denominator}` } },
      })),
    ],
  }
}
