import * as z from 'zod'
import * as requests from '../source/requests.ts'
import { widerReportRequest } from './aggregate.ts'
import { EXTRA_OPERATIONS, isExtra } from './extras.ts'

/* An OpenAPI description of what the service offers. Answers are described by an example of each. */

type Schema = Record<string, unknown>

const REQUESTS: Record<string, z.ZodObject> = {
  'POST /reports/brands': requests.reportRequest.omit({ having: true }),
  'POST /reports/domains': widerReportRequest,
  'POST /reports/urls': widerReportRequest,
  'GET /project-profile': requests.profileRequest,
  'GET /prompts': requests.promptsRequest,
  'GET /prompts/suggestions': requests.suggestionsRequest,
  'GET /classifications/domains': requests.classificationsRequest,
  'GET /chats': requests.chatsRequest,
  'POST /prompts': requests.createPromptRequest,
  'POST /topics': requests.createTopicRequest,
  'POST /classifications/domains': requests.createClassificationRequest,
  'POST /classifications/urls': requests.createClassificationRequest,
}
const CREATED = { type: 'object', properties: { id: { type: 'string' }, name: { type: 'string' } } }

/** The description of the operations that are offered. `ask` gives an answer of one that only reads. */
export function describeService(
  offers: (operation: string) => boolean,
  ask: (operation: string) => unknown,
): Record<string, unknown> {
  const extras = EXTRA_OPERATIONS.filter(offers)
  const names = [...Object.keys(REQUESTS).filter((name) => !isExtra(name)), ...extras]
  const isWider = extras.some((name) => name.startsWith('POST /reports/'))
  const paths: Record<string, Record<string, unknown>> = {}
  for (const name of names) {
    const [method, path] = name.split(' ') as [string, string]
    const request = isWider && name === 'POST /reports/brands' ? widerReportRequest : REQUESTS[name]
    const isReport = path.startsWith('/reports/')
    const schema = method === 'POST' && !isReport ? CREATED : schemaOf(ask(name))
    paths[path] ??= {}
    paths[path][method.toLowerCase()] = {
      ...asked(method, request ?? requests.classificationsRequest),
      responses: { [method === 'POST' && !isReport ? 201 : 200]: { content: { 'application/json': { schema } } } },
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
