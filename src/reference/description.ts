import * as z from 'zod'
import { EXTRA_OPERATIONS, isCreation, isExtra } from './extras.ts'
import { OPERATIONS, requestOf } from './routes.ts'

/* An OpenAPI description of what the service offers. Answers are described by an example of each. */

type Schema = Record<string, unknown>

const CREATED = { type: 'object', properties: { id: { type: 'string' }, name: { type: 'string' } } }

/** @param ask gives an answer of an operation that only reads */
export function describeService(
  offers: (operation: string) => boolean,
  ask: (operation: string) => unknown,
): Record<string, unknown> {
  const extras = EXTRA_OPERATIONS.filter(offers)
  const names = [...OPERATIONS.filter((name) => !isExtra(name)), ...extras]
  const paths: Record<string, Record<string, unknown>> = {}
  for (const name of names) {
    const [method, path] = name.split(' ') as [string, string]
    const creates = isCreation(method, path)
    const schema = creates ? CREATED : schemaOf(ask(name))
    paths[path] ??= {}
    paths[path][method.toLowerCase()] = {
      ...asked(method, requestOf(name, offers)),
      responses: { [creates ? 201 : 200]: { content: { 'application/json': { schema } } } },
    }
  }
  return { openapi: '3.1.0', info: { title: 'Reference service', version: '1' }, paths }
}

function asked(method: string, request: z.ZodObject): Schema {
  const schema = z.toJSONSchema(request, { unrepresentable: 'any', io: 'input' }) as {
    properties?: Record<string, Schema>
  }
  if (method === 'POST') return { requestBody: { content: { 'application/json': { schema } } } }
  const parameters = Object.entries(schema.properties ?? {}).map(([name, of]) => ({ name, in: 'query', schema: of }))
  return { parameters }
}

function schemaOf(value: unknown): Schema {
  if (Array.isArray(value)) return { type: 'array', items: value.map(schemaOf).reduce(merged, {}) }
  if (typeof value !== 'object' || value === null) return value === null ? {} : { type: typeof value }
  const properties = Object.fromEntries(Object.entries(value).map(([name, field]) => [name, schemaOf(field)]))
  return { type: 'object', properties }
}

function merged(one: Schema, other: Schema): Schema {
  const [left, right] = [one.properties as Record<string, Schema>, other.properties as Record<string, Schema>]
  if (left === undefined || right === undefined) return { ...one, ...other }
  const names = [...new Set([...Object.keys(left), ...Object.keys(right)])]
  const properties = Object.fromEntries(names.map((name) => [name, merged(left[name] ?? {}, right[name] ?? {})]))
  return { ...one, properties }
}
