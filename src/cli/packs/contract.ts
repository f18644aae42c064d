import { SCHEMA_NOTES } from '../../warehouse/schema/catalogue.ts'
import { POINTS_TO } from '../../warehouse/schema/relations.ts'
import { type Column, type Relation, relations } from './relations.ts'
import { streamOf } from './streams.ts'
import { yamlFile } from './yaml.ts'

/* The data contract, in the Open Data Contract Standard 3.1: what readers of the warehouse may rely on. */

const LOGICAL: Record<string, string> = {
  text: 'string',
  date: 'date',
  'timestamp with time zone': 'timestamp',
  'text[]': 'array',
  jsonb: 'object',
  boolean: 'boolean',
  integer: 'integer',
  bigint: 'integer',
  'double precision': 'number',
}

export function contractFiles(version: string): Record<string, string> {
  return {
    'contract/visibility.odcs.yaml': yamlFile({
      apiVersion: 'v3.1.0',
      kind: 'DataContract',
      id: 'visibility-sync-warehouse',
      name: 'AI answer visibility',
      version,
      status: 'active',
      description: {
        purpose: SCHEMA_NOTES.schema,
        usage:
          'Read the views: their ratios are ratios of sums, with samples and intervals beside them. Ratios must not be averaged, ' +
          'and rows of different tags overlap.',
        limitations:
          'Days are UTC. The service rewrites history: is_provisional says which numbers may still change. Columns are only ever added.',
      },
      servers: [
        {
          server: 'warehouse',
          type: 'postgres',
          host: 'localhost',
          port: 5432,
          database: 'visibility',
          schema: 'visibility',
          description: 'Yours: fill in host and database, and the schema where it has another name.',
        },
      ],
      schema: relations().map(object),
      slaProperties: [
        {
          property: 'latency',
          value: 26,
          unit: 'h',
          element: 'freshness.last_read_at',
          driver: 'operational',
          description:
            'Every stream is read at least this often; serve.max_staleness in the configuration says the same.',
        },
        {
          property: 'frequency',
          value: 1,
          unit: 'h',
          element: 'freshness.last_read_at',
          description: 'The default schedule.',
        },
      ],
    }),
  }
}

function object(relation: Relation): object {
  const links = relation.kind === 'view' ? [] : linksOf(relation)
  return {
    name: relation.name,
    physicalName: relation.name,
    physicalType: relation.kind === 'view' ? 'view' : 'table',
    description: relation.about,
    dataGranularityDescription: `One row for each ${relation.key.join(', ')}.`,
    properties: relation.columns.map((column) => property(relation, column)),
    ...(links.length === 0 ? {} : { relationships: links }),
    quality: qualityOf(relation),
  }
}

function property(relation: Relation, { name, about, type, required, share }: Column): object {
  const position = relation.key.indexOf(name)
  // A key with a null in it is no primary key by the standard: the rule on duplicates below says that it is unique.
  const primary = relation.key.every((part) => relation.columns.find((column) => column.name === part)?.required)
  return {
    name,
    description: about,
    logicalType: LOGICAL[type],
    physicalType: type,
    ...(share ? { logicalTypeOptions: { minimum: /^(change|lead|gap)/.test(name) ? -1 : 0, maximum: 1 } } : {}),
    ...(required ? { required: true } : {}),
    ...(position >= 0 && primary ? { primaryKey: true, primaryKeyPosition: position + 1 } : {}),
    ...(type === 'text[]' ? { items: { logicalType: 'string', physicalType: 'text' } } : {}),
  }
}

function linksOf(relation: Relation): object[] {
  return relation.columns.flatMap(({ name }) => {
    const target = POINTS_TO[name]
    if (target === undefined || target === relation.name) return []
    const side = (table: string) => [`${table}.project_id`, `${table}.${name}`]
    return [{ type: 'foreignKey', from: side(relation.name), to: side(target) }]
  })
}

function qualityOf(relation: Relation): object[] {
  const key = relation.key.join(', ')
  const stream = streamOf(relation)
  return [
    {
      type: 'sql',
      name: 'unique key',
      description: `No two rows have the same ${key}; a null counts as a value.`,
      dimension: 'uniqueness',
      severity: 'error',
      query: `select count(*) from (select from \${table} group by ${key} having count(*) > 1) twice`,
      mustBe: 0,
    },
    ...(stream === undefined
      ? []
      : [
          {
            type: 'sql',
            name: 'fresh',
            description: 'No project is staler than the configuration allows.',
            dimension: 'timeliness',
            severity: 'warning',
            query: `select count(*) from freshness where stream = '${stream}' and is_stale`,
            mustBe: 0,
          },
          {
            type: 'sql',
            name: 'whole',
            description: 'No day of interest is missing, and none is held for review.',
            dimension: 'completeness',
            severity: 'warning',
            query: `select count(*) from freshness where stream = '${stream}' and (missing_days > 0 or held_days > 0)`,
            mustBe: 0,
          },
        ]),
    ...relation.columns
      .filter(({ name }) => name === 'visibility' || name === 'share_of_voice')
      .map(({ name }) => ({
        type: 'sql',
        name: `${name} is a share`,
        description: `${name} lies between 0 and 1.`,
        dimension: 'conformity',
        severity: 'error',
        query: `select count(*) from \${table} where ${name} not between 0 and 1`,
        mustBe: 0,
      })),
  ]
}
