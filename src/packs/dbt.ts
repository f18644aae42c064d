import { checksOf, type Pack, type Relation, readChecks, referencesOf } from './relations.ts'
import { fill, parseTemplate, readRatios, readTemplate, yamlFile } from './template.ts'

/*
 * The dbt package: sources for every table and view, staging models, and the metrics as a semantic model. It depends on no other
 * package, so that "dbt deps" has nothing to download.
 */

/** A column of brand_days that adds up. */
type Measure = Record<'name' | 'description', string>
type Marts = { models: object[]; semantic_models: { measures: Measure[] }[]; metrics: object[] }

/** The reports that have metrics of their own, by their second dimension. */
const GRAINS = { model: 'model_id', channel: 'model_channel_id', topic: 'topic_id', country: 'country_code' }

/** Rows may mention prompts that the service no longer lists, so references to prompts are not tested. */
const ALWAYS_LISTED = ['brands', 'topics', 'tags', 'models']
const STAGED = ['projects', 'brands', 'topics', 'tags', 'models', 'prompts', 'prompt_tags', 'chats']

/** The measures that are not columns of a report. <<group>> is its key without the brand. */
const EXPRESSIONS: Record<string, string> = {
  answers: 'visibility_total',
  all_mentions: 'sum(mention_count) over (partition by <<group>>)',
  position_points: 'position * position_count',
  position_count: 'case when position is null then 0 else position_count end',
  sentiment_points: 'sentiment * sentiment_count',
  sentiment_count: 'case when sentiment is null then 0 else sentiment_count end',
}

export function dbtFiles({ relations, values }: Pack): Record<string, string> {
  const staged = relations.filter(({ name, kind }) => kind !== 'view' && (kind !== 'table' || STAGED.includes(name)))
  const abouts = Object.fromEntries(readRatios().map(({ name, about }) => [`about_${name}`, about]))
  const marts = fill(parseTemplate<Marts>('dbt/models/marts/marts.yml'), abouts)
  const { measures } = marts.semantic_models[0]!
  const grains = Object.entries(GRAINS).flatMap(([by, column]) => {
    const report = relations.find(({ key, addsUp }) => addsUp && key.join() === `project_id,date,brand_id,${column}`)
    return report === undefined || values.daily === '' ? [] : [{ ...abouts, by, column, report: report.name }]
  })
  for (const grain of grains) {
    const more = fill(parseTemplate<Marts>('dbt/models/marts/marts_by.yml'), grain)
    for (const part of ['models', 'semantic_models', 'metrics'] as const) (marts[part] as object[]).push(...more[part])
  }
  const views = relations.filter(({ kind }) => kind === 'view').map(({ name }) => `source('visibility', '${name}')`)
  const files = ['dbt_project.yml']
  // Without a report of brands by day there is nothing to compute the metrics from.
  if (values.daily !== '') {
    files.push('models/marts/brand_days.sql', 'models/marts/answer_days.sql', 'models/marts/calendar_days.sql')
    files.push('tests/ratios_agree_with_the_views.sql', 'tests/shares_are_shares.sql')
  }
  return {
    ...Object.fromEntries(files.map((path) => [path, fill(readTemplate(`dbt/${path}`), values)])),
    'macros/visibility_sync.sql': `${readTemplate('dbt/macros/visibility_sync.sql')}${checkMacros()}`,
    ...(values.daily !== '' && { 'models/marts/marts.yml': yamlFile(marts) }),
    ...Object.fromEntries(
      grains.map((grain) => [
        `models/marts/brand_days_by_${grain.by}.sql`,
        fill(readTemplate('dbt/models/marts/brand_days_by.sql'), grain),
      ]),
    ),
    'models/sources.yml': yamlFile(sourcesOf(relations, values.daily)),
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

function checkMacros(): string {
  const source = (name: string) => `{{ source('visibility', ${name}) }}`
  const names = {
    ...{ table: '{{ model }}', stream: '{{ stream }}', daily: source('daily'), daily_stream: '{{ daily }}' },
    ...{ freshness: source("'freshness'"), data_status: source("'data_status'") },
  }
  const tests = Object.entries(readChecks()).map(
    ([name, { about, sql }]) =>
      `\n{# ${about} #}\n{% test ${name}(model, stream, daily='') %}\n${fill(sql, names)}\n{% endtest %}\n`,
  )
  return tests.join('')
}

function sourcesOf(relations: readonly Relation[], daily: unknown): object {
  const { freshness, ...sources } = parseTemplate<{ freshness: object }>('dbt/models/sources.yml')
  const checks = readChecks()
  const tables = relations.map((relation) => {
    const { name, about, key, columns, stream } = relation
    return {
      name,
      description: jinjaText(about),
      ...(stream !== undefined && { config: fill(freshness, { stream }) }),
      data_tests: [
        { unique_key: { arguments: { columns: key } } },
        ...referencesOf(relation)
          .filter(({ target }) => ALWAYS_LISTED.includes(target))
          .map(({ column, target }) => ({
            listed_in: { arguments: { to: `source('visibility', '${target}')`, columns: ['project_id', column] } },
          })),
        ...checksOf(relation, daily).map((check) => ({
          [check]: {
            arguments: check === 'adds_up' ? { stream, daily } : { stream },
            config: { severity: checks[check]!.severity === 'error' ? 'error' : 'warn' },
          },
        })),
      ],
      columns: columns.map((column) => ({
        name: column.name,
        description: jinjaText(column.about),
        data_type: column.type,
        ...(column.required && { data_tests: ['not_null'] }),
      })),
    }
  })
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
    modelComment(`${about}${kind === 'brands' ? ' The parts of every ratio: sum them, then divide.' : ''}`),
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
    description: jinjaText(about),
    data_tests: [{ unique_key: { arguments: { columns: key } } }],
    columns: [
      ...kept.map((column) => ({ name: column.name, description: jinjaText(column.about) })),
      ...(kind === 'brands'
        ? measures.map((measure) => ({ name: measure.name, description: measure.description }))
        : []),
    ],
  }
}

/** dbt renders whole files, with their comments, and the descriptions in them. */
function jinjaText(text: string): string {
  return text.replaceAll(/\{[{%#]/g, (mark) => `{{ '${mark}' }}`)
}

/** A comment in a model of dbt: it ends with its line. */
function modelComment(text: string): string {
  return `-- ${jinjaText(text.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim())}`
}
