import type { Pack, Relation } from './relations.ts'
import { fill, parseTemplate, readRatios, readTemplate, yamlFile } from './template.ts'

/*
 * The dbt package: sources for every table and view, staging models, and the metrics as a semantic model. It depends on no other
 * package, so that "dbt deps" has nothing to download.
 */

/** A column of brand_days that adds up. */
type Measure = Record<'name' | 'description', string>
type Marts = { semantic_models: { measures: Measure[] }[] }

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
  const abouts = Object.fromEntries(readRatios().map(({ name, about }) => [`about_${name}`, about]))
  const marts = fill(parseTemplate<Marts>('dbt/models/marts/marts.yml'), abouts)
  const { measures } = marts.semantic_models[0]!
  const views = relations.filter(({ kind }) => kind === 'view').map(({ name }) => `source('visibility', '${name}')`)
  const files = ['dbt_project.yml', 'macros/visibility_sync.sql']
  // Without a report of brands by day there is nothing to compute the metrics from.
  if (values.daily !== '') {
    files.push('models/marts/brand_days.sql', 'models/marts/calendar_days.sql')
    files.push('tests/ratios_agree_with_the_views.sql', 'tests/shares_are_shares.sql')
  }
  return {
    ...Object.fromEntries(files.map((path) => [path, fill(readTemplate(`dbt/${path}`), values)])),
    ...(values.daily === '' ? {} : { 'models/marts/marts.yml': yamlFile(marts) }),
    'models/sources.yml': yamlFile(sourcesOf(relations)),
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

function sourcesOf(relations: readonly Relation[]): object {
  const { freshness, ...sources } = parseTemplate<{ freshness: object }>('dbt/models/sources.yml')
  const tables = relations.map(({ name, about, key, columns, references, stream }) => ({
    name,
    description: about,
    ...(stream === undefined ? {} : { config: fill(freshness, { stream }) }),
    data_tests: [
      { unique_key: { arguments: { columns: key } } },
      ...references
        .filter(({ target }) => ALWAYS_LISTED.includes(target))
        .map(({ column, target }) => ({
          listed_in: { arguments: { to: `source('visibility', '${target}')`, columns: ['project_id', column] } },
        })),
    ],
    columns: columns.map((column) => ({
      name: column.name,
      description: column.about,
      data_type: column.type,
      ...(column.required ? { data_tests: ['not_null'] } : {}),
    })),
  }))
  return fill(sources, { tables })
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
    `from {{ source('visibility', '${name}') }}`,
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
