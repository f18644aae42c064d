import { UsageError } from '../core/errors.ts'
import { type Checks, type Column, checksOf, type Pack, type Relation, readChecks, referencesOf } from './relations.ts'
import { fill, parseTemplate, type Values, yamlFile } from './template.ts'

/* The data contract, in the Open Data Contract Standard 3.1: what readers of the warehouse may rely on. */

const LOGICAL: Record<string, string> = {
  ...{ text: 'string', date: 'date', 'timestamp with time zone': 'timestamp', 'text[]': 'array', jsonb: 'object' },
  ...{ boolean: 'boolean', integer: 'integer', bigint: 'integer', 'double precision': 'number' },
}

interface Template {
  quality: Record<'unique' | 'fresh' | 'share' | 'check', object>
  slaProperties: object[]
}

export function contractFiles({ relations, projects, values }: Pack): Record<string, string> {
  if (projects.length > 0)
    throw new UsageError('--project: the contract describes tables, which have the rows of all projects; leave it out')
  const { quality, slaProperties, ...head } = parseTemplate<Template>('contract.yml')
  const checks = readChecks()
  const objects = relations.map((relation) => ({
    ...objectOf(relation),
    quality: rulesOf(relation, quality, { ...values, checks }),
  }))
  const whole = { ...fill(head, values), schema: objects, slaProperties: fill(slaProperties, values) }
  return { 'visibility.odcs.yaml': yamlFile(whole) }
}

function objectOf(relation: Relation): object {
  const { name, kind, about, key, columns } = relation
  const side = (table: string, column: string) => [`${table}.project_id`, `${table}.${column}`]
  const relationships = referencesOf(relation).map(({ column, target }) => ({
    type: 'foreignKey',
    from: side(name, column),
    to: side(target, column),
  }))
  return {
    name,
    physicalName: name,
    physicalType: kind === 'view' ? 'view' : 'table',
    description: about,
    dataGranularityDescription: `One row for each ${key.join(', ')}.`,
    properties: columns.map((column) => propertyOf(relation, column)),
    ...(relationships.length > 0 && { relationships }),
  }
}

function propertyOf({ key, columns }: Relation, { name, about, type, required, share }: Column): object {
  const position = key.indexOf(name)
  // By the standard, a key with a null in it is no primary key. The rule on duplicates below covers it.
  const primary = key.every((part) => columns.find((column) => column.name === part)?.required)
  return {
    name,
    description: about,
    logicalType: LOGICAL[type],
    physicalType: type,
    ...(share && { logicalTypeOptions: { minimum: /^(change|lead|gap)/.test(name) ? -1 : 0, maximum: 1 } }),
    ...(required && { required: true }),
    ...(position >= 0 && primary && { primaryKey: true, primaryKeyPosition: position + 1 }),
    ...(type === 'text[]' && { items: { logicalType: 'string', physicalType: 'text' } }),
  }
}

function rulesOf(
  relation: Relation,
  rules: Template['quality'],
  { schema, daily, checks }: Values & { checks: Checks },
): object[] {
  const { kind, key, columns, stream } = relation
  const shares = columns.filter(({ name }) => ['visibility', 'share_of_voice'].includes(name) && kind !== 'rows')
  const of = (name: unknown) => `"${String(schema)}"."${String(name)}"`
  const views = { freshness: of('freshness'), data_status: of('data_status') }
  const names = { table: '${table}', ...views, daily: of(daily), daily_stream: daily }
  return [
    fill(rules.unique, { key: key.join(', '), quoted_key: key.map((name) => `"${name}"`).join(', ') }),
    ...(stream === undefined ? [] : [fill(rules.fresh, { stream, ...views })]),
    ...checksOf(relation, daily).map((name) => {
      const { sql, ...check } = checks[name]!
      return fill(rules.check, { ...check, name: name.replaceAll('_', ' '), sql: fill(sql, { ...names, stream }) })
    }),
    ...shares.map(({ name }) => fill(rules.share, { column: name })),
  ]
}
