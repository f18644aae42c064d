import { readFileSync } from 'node:fs'
import { got } from 'got'
import { parse } from 'yaml'
import * as z from 'zod'
import { messageOf, UsageError } from '../core/errors.ts'
import { FILTER_OPERATORS } from '../core/vocabulary.ts'
import * as requests from '../source/requests.ts'
import type { Stream } from '../streams/stream.ts'

/* Compares a published OpenAPI description with what is sent to the service and read from it. */

export interface SpecDrift {
  /** What is used and not described any more. */
  gone: string[]
  /** What is described otherwise than it is read. */
  different: string[]
  /** What is described and not used. */
  added: string[]
}

/** The parts of OpenAPI and JSON Schema that matter here. */
interface Schema {
  $ref?: string
  type?: string | string[]
  properties?: Record<string, Schema>
  items?: Schema
  enum?: unknown[]
  allOf?: Schema[]
  anyOf?: Schema[]
  oneOf?: Schema[]
}
interface Content {
  content?: Record<string, { schema?: Schema }>
}
interface Parameter {
  $ref?: string
  name?: string
  schema?: Schema
}
interface Operation {
  parameters?: Parameter[]
  requestBody?: Content & { $ref?: string }
  responses?: Record<string, Content & { $ref?: string }>
}
type Spec = { paths: Record<string, Record<string, unknown>> }

/** What is sent to an operation, and what is read of its answer. */
interface Use {
  /** As "GET prompts". */
  operation: string
  sends: string[]
  /** Values that are sent, by the parameter that lists them. */
  values: Record<string, readonly string[]>
  /** Undefined if nothing of the answer is needed. */
  reads: Schema | undefined
  isExtra: boolean
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete']
const MOST_BYTES = 50_000_000

/** Reads a description from an address, without a key, or from a file. */
export async function readSpec(from: string, signal: AbortSignal): Promise<Spec> {
  const refuse = (reason: string) => new UsageError(`--spec: ${reason}`)
  let text: string
  try {
    text = /^https?:\/\//.test(from)
      ? await got(from, { timeout: { request: 30_000 }, retry: { limit: 1 }, signal }).text()
      : readFileSync(from, 'utf8')
  } catch (error) {
    throw refuse(`cannot read ${from} (${messageOf(error)})`)
  }
  if (text.length > MOST_BYTES) throw refuse(`${from} is larger than ${MOST_BYTES / 1e6} MB`)
  let spec: unknown
  try {
    // JSON is YAML, too, but takes less time to parse as JSON.
    spec = text.trimStart().startsWith('{') ? JSON.parse(text) : parse(text)
  } catch {
    throw refuse(`${from} is neither JSON nor YAML`)
  }
  if (typeof (spec as Spec | null)?.paths !== 'object')
    throw refuse(`${from} is no OpenAPI description: it has no paths`)
  return spec as Spec
}

export function compareSpec(spec: Spec, streams: readonly Stream[]): SpecDrift {
  const drift: SpecDrift = { gone: [], different: [], added: [] }
  const reader = new SpecReader(spec)
  const uses = joinUses([...streams.map(useOf), ...CREATIONS])
  for (const use of uses.values()) {
    const operation = reader.operations.get(use.operation)
    if (operation !== undefined) compareUse(reader, operation, use, drift)
    else drift[use.isExtra ? 'different' : 'gone'].push(`${use.operation}: no such operation`)
  }
  for (const name of reader.operations.keys()) if (!uses.has(name)) drift.added.push(`${name}: not used`)
  for (const list of Object.values(drift)) list.sort()
  return drift
}

/** Several streams may use one operation, each with other dimensions. */
function joinUses(uses: readonly Use[]): Map<string, Use> {
  const joined = new Map<string, Use>()
  for (const use of uses) {
    const { dimensions = [], ...values } = joined.get(use.operation)?.values ?? use.values
    const all = [...new Set([...dimensions, ...(use.values.dimensions ?? [])])]
    joined.set(use.operation, { ...use, values: all.length === 0 ? values : { ...values, dimensions: all } })
  }
  return joined
}

function compareUse(reader: SpecReader, operation: Operation, use: Use, { gone, different, added }: SpecDrift): void {
  const parameters = reader.parametersOf(operation)
  for (const name of use.sends) if (!parameters.has(name)) gone.push(`${use.operation}: no parameter ${name}`)
  for (const [path, values] of Object.entries(use.values)) {
    const allowed = reader.valuesOf(parameters, path)
    if (allowed === undefined) continue
    for (const value of values) if (!allowed.includes(value)) gone.push(`${use.operation}: ${path} has no ${value}`)
    for (const value of allowed) if (!values.includes(value)) added.push(`${use.operation}: ${path} also has ${value}`)
  }
  const fields = use.reads && reader.fieldsOf(operation)
  if (fields === undefined) return
  const { properties: read = {}, required = [] } = use.reads as Schema & { required?: string[] }
  for (const [name, schema] of Object.entries(read)) {
    const described = fields.get(name)
    if (described === undefined) {
      const list = required.includes(name) ? gone : different
      list.push(`${use.operation}: no field ${name} in the answer`)
      continue
    }
    const [wanted, types] = [reader.typesOf(schema), reader.typesOf(described)]
    if (wanted.size > 0 && types.size > 0 && ![...types].some((type) => wanted.has(type)))
      different.push(
        `${use.operation}: the field ${name} is ${[...types].join(' or ')}, read as ${[...wanted].join(' or ')}`,
      )
  }
  for (const name of fields.keys()) if (!(name in read)) added.push(`${use.operation}: the answer also has ${name}`)
}

function useOf(stream: Stream): Use {
  const isReport = stream.operation.startsWith('POST')
  const isSingle = stream.by === 'list' && stream.isSingleObject === true
  const dimensions = stream.by === 'day' ? ['date', ...(stream.dimensions ?? [])] : []
  return {
    operation: stream.operation,
    sends: [
      'project_id',
      ...(isSingle ? [] : ['limit', 'offset']),
      ...(stream.by === 'day' ? ['start_date', 'end_date'] : []),
      ...(isReport ? ['dimensions', 'filters'] : []),
    ].filter((name) => !(stream.perChat && name !== 'project_id')),
    values: isReport ? { dimensions, 'filters.operator': FILTER_OPERATORS } : {},
    reads: z.toJSONSchema(stream.item, { unrepresentable: 'any', io: 'input' }) as Schema,
    isExtra: stream.isExtra === true,
  }
}

const creation = (path: string, request: z.ZodObject): Use => ({
  operation: `POST ${path}`,
  sends: Object.keys(request.shape).filter((name) => name !== 'project_id'),
  values: {},
  reads: undefined,
  isExtra: false,
})
const CREATIONS: Use[] = [
  creation('prompts', requests.createPromptRequest),
  creation('topics', requests.createTopicRequest),
  creation('classifications/domains', requests.createClassificationRequest),
  creation('classifications/urls', requests.createClassificationRequest),
]

class SpecReader {
  /** All operations, as "GET prompts". */
  readonly operations = new Map<string, Operation>()

  constructor(private readonly spec: Spec) {
    const start = startOf(Object.keys(spec.paths))
    for (const [path, methods] of Object.entries(spec.paths)) {
      const place = path.replace(start, '').replaceAll(/\{[^}]*\}/g, '{id}')
      for (const method of METHODS) {
        const operation = methods[method] as Operation | undefined
        if (operation === undefined) continue
        const parameters = [...((methods.parameters ?? []) as Parameter[]), ...(operation.parameters ?? [])]
        this.operations.set(`${method.toUpperCase()} ${place}`, { ...operation, parameters })
      }
    }
  }

  /** The parameters of the address and the fields of the body, by name. */
  parametersOf({ parameters = [], requestBody }: Operation): Map<string, Schema> {
    const body = this.merged(jsonOf(this.resolve(requestBody ?? {})))
    return new Map([
      ...parameters.map((parameter): [string, Schema] => {
        const { name = '', schema = {} } = this.resolve(parameter)
        return [name.replace(/\[\]$/, ''), this.merged(schema)]
      }),
      ...Object.entries(body.properties ?? {}).map(([name, schema]): [string, Schema] => [name, this.merged(schema)]),
    ])
  }

  /** The values that a parameter, or a field of the objects in its list, may have; undefined if any. */
  valuesOf(parameters: ReadonlyMap<string, Schema>, path: string): string[] | undefined {
    const [name, field] = path.split('.') as [string, string | undefined]
    const schema = parameters.get(name)
    const item = this.merged(schema?.items ?? schema ?? {})
    const found = field === undefined ? item : this.merged(item.properties?.[field] ?? {})
    return found.enum?.map(String)
  }

  /** The fields of an item of the answer; undefined if the description has none. */
  fieldsOf({ responses = {} }: Operation): ReadonlyMap<string, Schema> | undefined {
    const good = Object.entries(responses).find(([status]) => status.startsWith('2'))?.[1]
    const answer = this.merged(jsonOf(this.resolve(good ?? {})))
    const data = answer.properties?.data && this.merged(answer.properties.data)
    const item = this.merged(data?.items ?? answer.properties?.profile ?? data ?? answer)
    return item.properties && new Map(Object.entries(item.properties))
  }

  typesOf(schema: Schema): Set<string> {
    const { type, enum: values } = this.merged(schema)
    const names = type === undefined ? (values ?? []).map((value) => typeof value) : [type].flat()
    return new Set(names.map((name) => (name === 'integer' ? 'number' : name)).filter((name) => name !== 'null'))
  }

  private resolve<T extends { $ref?: string }>(node: T): T {
    let found = node
    for (let step = 0; found.$ref?.startsWith('#/') && step < 20; step++) {
      const names = found.$ref
        .slice(2)
        .split('/')
        .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'))
      found = names.reduce<unknown>((at, name) => (at as Record<string, unknown> | undefined)?.[name], this.spec) as T
      if (found === undefined) return {} as T
    }
    return found
  }

  /** A schema with its references followed and its alternatives joined. */
  private merged(schema: Schema, depth = 0): Schema {
    const own = this.resolve(schema)
    const parts = [...(own.allOf ?? []), ...(own.anyOf ?? []), ...(own.oneOf ?? [])]
    if (parts.length === 0 || depth > 20) return own
    const all = [{ ...own, allOf: [], anyOf: [], oneOf: [] }, ...parts.map((part) => this.merged(part, depth + 1))]
    const types = all.flatMap(({ type = [] }) => type)
    const values = all.flatMap((part) => part.enum ?? [])
    const [items] = all.flatMap((part) => part.items ?? [])
    return {
      ...(types.length > 0 && { type: types }),
      ...(values.length > 0 && { enum: values }),
      ...(items && { items }),
      properties: Object.fromEntries(all.flatMap(({ properties = {} }) => Object.entries(properties))),
    }
  }
}

function jsonOf({ content = {} }: Content): Schema {
  return Object.entries(content).find(([type]) => type.includes('json'))?.[1].schema ?? {}
}

/** What comes before the paths that we know, as /v1/. Other paths of the description may begin otherwise. */
function startOf(paths: readonly string[]): string {
  const known = ['reports/brands', 'prompts/suggestions', 'project-profile']
  const [start = '/'] = known.flatMap(
    (end) => paths.find((path) => path.endsWith(`/${end}`))?.slice(0, -end.length) ?? [],
  )
  return start
}
