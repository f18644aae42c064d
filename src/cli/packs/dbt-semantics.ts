import { RATIOS } from './ratios.ts'

/* The metrics for dbt's semantic layer: sums, and ratios of them. */

/** What is summed. In `{group}` stand the columns of a report's key but the brand. */
export const MEASURES: readonly { name: string; expression: string; about: string; label: string }[] = [
  {
    name: 'visibility_count',
    label: 'Answers that name the brand',
    expression: 'visibility_count',
    about: 'Number of answers that name the brand.',
  },
  {
    name: 'answers',
    label: 'Answers',
    expression: 'visibility_total',
    about: "Number of answers. It stands on every brand's row: never sum it over brands.",
  },
  {
    name: 'mention_count',
    label: 'Mentions',
    expression: 'mention_count',
    about: 'How often the answers name the brand.',
  },
  {
    name: 'all_mentions',
    label: 'Mentions of all brands',
    expression: 'sum(mention_count) over (partition by {group})',
    about: 'How often the answers name any tracked brand: never sum it over brands.',
  },
  {
    name: 'position_points',
    label: 'Position points',
    expression: 'position * position_count',
    about: 'The position times position_count.',
  },
  {
    name: 'position_count',
    label: 'Answers with a position',
    expression: 'position_count',
    about: 'Number of answers with a position.',
  },
  {
    name: 'sentiment_points',
    label: 'Sentiment points',
    expression: 'sentiment * sentiment_count',
    about: 'The sentiment times sentiment_count.',
  },
  {
    name: 'sentiment_count',
    label: 'Mentions with a sentiment',
    expression: 'sentiment_count',
    about: 'Number of mentions with a sentiment.',
  },
]

const categorical = (name: string, description: string) => ({ name, type: 'categorical', description })

export function semanticModel(): object {
  return {
    models: [
      {
        name: 'brand_days',
        description: 'Every brand day by day, with names: what the metrics are made of.',
        data_tests: [{ unique_key: { arguments: { columns: ['project_id', 'date', 'brand_id'] } } }],
        columns: [
          {
            name: 'brand_day_id',
            description: 'Project, day and brand as one text.',
            data_tests: ['unique', 'not_null'],
          },
          { name: 'project', description: 'The name of the project, or its id.', data_tests: ['not_null'] },
          { name: 'brand', description: 'The name of the brand, or its id.', data_tests: ['not_null'] },
          { name: 'date', description: 'The day, UTC.', data_tests: ['not_null'] },
          { name: 'is_own', description: 'True for own brands.', data_tests: ['not_null'] },
          ...MEASURES.map(({ name, about }) => ({ name, description: about })),
        ],
      },
      {
        name: 'calendar_days',
        description: 'One row for each day, for metrics over time.',
        time_spine: { standard_granularity_column: 'date_day' },
        columns: [{ name: 'date_day', granularity: 'day', data_tests: ['unique', 'not_null'] }],
      },
    ],
    semantic_models: [
      {
        name: 'brand_days',
        description: 'Brands by day. Ratios are metrics, never measures: a ratio that is averaged is wrong.',
        model: "ref('brand_days')",
        defaults: { agg_time_dimension: 'date' },
        entities: [
          { name: 'brand_day', type: 'primary', expr: 'brand_day_id' },
          { name: 'brand_of_project', type: 'foreign', expr: "project_id || '/' || brand_id" },
        ],
        dimensions: [
          { name: 'date', type: 'time', type_params: { time_granularity: 'day' } },
          categorical('project', 'The same brand name occurs in several projects: split by both.'),
          categorical('brand', 'The name of the brand, or its id.'),
          categorical('is_own', 'True for own brands.'),
        ],
        measures: MEASURES.map(({ name, about }) => ({ name, description: about, agg: 'sum' })),
      },
    ],
    metrics: [
      ...MEASURES.map(({ name, label, about }) => ({
        name: `total_${name}`,
        label,
        description: about,
        type: 'simple',
        type_params: { measure: { name } },
      })),
      ...RATIOS.map(({ name, label, about, numerator, denominator }) => ({
        name,
        label,
        description: about,
        type: 'ratio',
        type_params: { numerator: { name: `total_${numerator}` }, denominator: { name: `total_${denominator}` } },
      })),
    ],
  }
}
