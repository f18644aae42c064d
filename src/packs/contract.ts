import { POINTS_TO } from '../warehouse/schema/relations.ts'
import type { Column, Relation } from './relations.ts'
import { fill, type Pack, parseTemplate, yamlFile } from './template.ts'

/* The data contract, in the Open Data Contract Standard 3.1: what readers of the warehouse may rely on. */

const LOGICAL: Record<string, string> = {
  ...{ text: 'string', date: 'date', 'timestamp with time zone': 'timestamp', 'text[]': 'array', jsonb: 'object' },
  ...{ boolean: 'boolean', integer: 'integer', bigint: 'integer', 'double precision': 'number' },
}

interface Template {
  quality: Record<'unique' | 'fresh' | 'whole' | 'share', object>
  slaProperties: object[]
}

export function contractFiles({ relations, values }: Pack): Record<string, string> {
  const { quality, slaProperties, ...head } = parseTemplate<Template>('contract.yml')
  const objects = relations.map((relation) => ({ ...objectOf(relation), quality: rulesOf(relation, quality) }))
  const whole = { ...fill(head, values), schema: objects, slaProperties: fill(slaProperties, values) }
  return { 'visibility.odcs.yaml': yamlFile(whole) }
}

function objectOf(relation: Relation): object {
  const { name, kind, about, key, columns } = relation
  const links = linksOf(relation)
  return {
    name,
    physicalName: name,
    physicalType: kind === 'view' ? 'view' : 'table',
    description: about,
    dataGranularityDescription: `One row for each ${key.join(', ')}.`,
    properties: columns.map((column) => propertyOf(relation, column)),
    ...(links.length === 0 ? {} : { relationships: links }),
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
    ...(share ? { logicalTypeOptions: { minimum: /^(change|lead|gap)/.test(name) ? -1 : 0, maximum: 1 } } : {}),
    ...(required ? { required: true } : {}),
    ...(position >= 0 && primary ? { primaryKey: true, primaryKeyPosition: position + 1 } : {}),
    ...(type === 'text[]' ? { items: { logicalType: 'string', physicalType: 'text' } } : {}),
  }
}

function linksOf({ name: own, kind, columns }: Relation): object[] {
  if (kind !== 'table' && kind !== 'brands') return []
  return columns.flatMap(({ name }) => {
    const target = POINTS_TO[name]
    if (target === undefined || target === own) return []
    const side = (table: string) => [`${table}.project_id`, `${table}.${name}`]
    return [{ type: 'foreignKey', from: side(own), to: side(target) }]
  })
}

function rulesOf({ kind, key, columns, stream }: Relation, rules: Template['quality']): object[] {
  const shares = columns.filter(({ name }) => ['visibility', 'share_of_voice'].includes(name) && kind !== 'rows')
  return [
    fill(rules.unique, { key: key.join(', '), quoted_key: key.map((name) => `"${name}"`).join(', ') }),
    ...(stream === undefined ? [] : [fill(rules.fresh, { stream }), fill(rules.whole, { stream })]),
    ...shares.map(({ name }) => fill(rules.share, { column: name })),
  ]
}
