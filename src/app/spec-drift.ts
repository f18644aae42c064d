import { readFileSync } from 'node:fs'
import { got } from 'got'
import { parse } from 'yaml'
import * as z from 'zod'
import { messageOf, UsageError } from '../core/errors.ts'
import { FILTER_OPERATORS } from '../core/vocabulary.ts'
import * as requests from '../source/requests.ts'
import type { Stream } from '../streams/stream.ts'

/* Compares a published OpenAPI description with what is sent to the service and read from it. */

interface SpecDrift {
  /** Parts that we use and that are no longer described. */
  gone: string[]
  /** Parts whose description differs from the way we read them. */
  different: string[]
  /** Parts that are described and not used. */
  added: string[]
}

interface Node {
  $ref?: string
  type?: string | string[]
  properties?: Record<string, Node>
  required?: string[]
  items?: Node
  enum?: unknown[]
  allOf?: Node[]
  anyOf?: Node[]
  oneOf?: Node[]
  name?: string
  schema?: Node
  content?: Record<string, Node>
  parameters?: Node[]
  requestBody?: Node
  responses?: Record<string, Node>
}
type Spec = { paths: Record<string, Record<string, unknown>> }

interface Use {
  /** As "GET prompts". */
  operation: string
  sends: string[]
  values: Record<string, readonly string[]>
  /** Undefined if nothing of the answer is needed. */
  reads?: Node
  isExtra?: boolean
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete']
const MOST_BYTES = 50_000_000

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
  const reader = createReader(spec)
  const uses = joinUses([...streams.map(useOf), ...creations()])
  for (const use of uses.values()) {
    const operation = reader.operations.get(use.operation)
    if (operation === undefined) drift[use.isExtra ? 'different' : 'gone'].push(`${use.operation}: no such operation`)
    else {
      compareSent(reader, operation, use, drift)
      compareRead(reader, operation, use, drift)
    }
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

function compareSent(reader: SpecReader, operation: Node, use: Use, { gone, added }: SpecDrift): void {
  const { operation: name, sends, values } = use
  const parameters = reader.parametersOf(operation)
  for (const parameter of sends) if (!parameters.has(parameter)) gone.push(`${name}: no parameter ${parameter}`)
  for (const [path, sent] of Object.entries(values)) {
    const allowed = reader.valuesOf(parameters, path)
    if (allowed === undefined) continue
    for (const value of sent) if (!allowed.includes(value)) gone.push(`${name}: ${path} has no ${value}`)
    for (const value of allowed) if (!sent.includes(value)) added.push(`${name}: ${path} also has ${value}`)
  }
}

function compareRead(reader: SpecReader, operation: Node, use: Use, drift: SpecDrift): void {
  const fields = use.reads && reader.fieldsOf(operation)
  if (fields === undefined) return
  const { properties: read = {}, required = [] } = use.reads!
  for (const [field, schema] of Object.entries(read)) {
    const described = fields[field]
    const other = described && otherType(reader, schema, described)
    if (described === undefined)
      drift[required.includes(field) ? 'gone' : 'different'].push(`${use.operation}: no field ${field} in the answer`)
    if (other !== undefined) drift.different.push(`${use.operation}: the field ${field} is ${other}`)
  }
  for (const field of Object.keys(fields))
    if (!(field in read)) drift.added.push(`${use.operation}: the answer also has ${field}`)
}

function otherType(reader: SpecReader, read: Node, described: Node): string | undefined {
  const [wanted, types] = [reader.typesOf(read), reader.typesOf(described)]
  if (wanted.length === 0 || types.length === 0 || types.some((type) => wanted.includes(type))) return undefined
  return `${types.join(' or ')}, read as ${wanted.join(' or ')}`
}

function useOf(stream: Stream): Use {
  const isReport = stream.operation.startsWith('POST')
  const isSingle = stream.by === 'list' && stream.isSingleObject === true
  const dimensions = stream.by === 'day' ? ['date', ...(stream.dimensions ?? [])] : []
  const sends = [
    ...(isSingle ? [] : ['limit', 'offset']),
    ...(stream.by === 'day' ? ['start_date', 'end_date'] : []),
    ...(isReport ? ['dimensions', 'filters'] : []),
  ]
  return {
    operation: stream.operation,
    sends: ['project_id', ...(stream.perChat ? [] : sends)],
    values: isReport ? { dimensions, 'filters.operator': FILTER_OPERATORS } : {},
    reads: z.toJSONSchema(stream.item, { unrepresentable: 'any', io: 'input' }) as Node,
    isExtra: stream.isExtra === true,
  }
}

function creations(): Use[] {
  const { createPromptRequest, createTopicRequest, createClassificationRequest } = requests
  const bodies = {
    prompts: createPromptRequest,
    topics: createTopicRequest,
    'classifications/domains': createClassificationRequest,
    'classifications/urls': createClassificationRequest,
  }
  return Object.entries(bodies).map(([path, { shape }]) => {
    const sends = Object.keys(shape).filter((name) => name !== 'project_id')
    return { operation: `POST ${path}`, sends, values: {} }
  })
}

type SpecReader = ReturnType<typeof createReader>

function createReader(spec: Spec) {
  function resolve(node: Node = {}): Node {
    let found = node
    for (let step = 0; found.$ref?.startsWith('#/') && step < 20; step++) {
      const names = found.$ref.slice(2).split('/')
      const plain = names.map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'))
      found = (plain.reduce<unknown>((at, name) => (at as Record<string, unknown> | undefined)?.[name], spec) ??
        {}) as Node
    }
    return found
  }

  /** A schema with its references followed and its alternatives joined. */
  function merged(schema?: Node, depth = 0): Node {
    const own = resolve(schema)
    const parts = [...(own.allOf ?? []), ...(own.anyOf ?? []), ...(own.oneOf ?? [])]
    if (parts.length === 0 || depth > 20) return own
    const all = [{ ...own, allOf: [], anyOf: [], oneOf: [] }, ...parts.map((part) => merged(part, depth + 1))]
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

  const bodyOf = ({ content = {} }: Node) =>
    merged(Object.entries(content).find(([type]) => type.includes('json'))?.[1].schema)

  return {
    operations: operationsOf(spec),

    parametersOf({ parameters = [], requestBody }: Node): ReadonlyMap<string, Node> {
      const inAddress = parameters.map((parameter) => {
        const { name = '', schema } = resolve(parameter)
        return [name.replace(/\[\]$/, ''), merged(schema)] as const
      })
      const inBody = Object.entries(bodyOf(resolve(requestBody)).properties ?? {})
      return new Map([...inAddress, ...inBody.map(([name, schema]) => [name, merged(schema)] as const)])
    },

    valuesOf(parameters: ReadonlyMap<string, Node>, path: string): string[] | undefined {
      const [name = '', field] = path.split('.')
      const schema = parameters.get(name)
      const item = merged(schema?.items ?? schema)
      return (field === undefined ? item : merged(item.properties?.[field])).enum?.map(String)
    },

    fieldsOf({ responses = {} }: Node): Record<string, Node> | undefined {
      const good = Object.entries(responses).find(([status]) => status.startsWith('2'))?.[1]
      const answer = bodyOf(resolve(good))
      const data = answer.properties?.data && merged(answer.properties.data)
      return merged(data?.items ?? answer.properties?.profile ?? data ?? answer).properties
    },

    typesOf(schema: Node): string[] {
      const { type, enum: values = [] } = merged(schema)
      const names = type === undefined ? values.map((value) => typeof value) : [type].flat()
      return [...new Set(names.map((name) => (name === 'integer' ? 'number' : name)))].filter((name) => name !== 'null')
    },
  }
}

function operationsOf({ paths }: Spec): ReadonlyMap<string, Node> {
  const operations = new Map<string, Node>()
  // The prefix of the paths that we know, such as /v1/. Other paths of the description may begin differently.
  const known = ['reports/brands', 'prompts/suggestions', 'project-profile']
  const starts = known.flatMap(
    (end) =>
      Object.keys(paths)
        .find((path) => path.endsWith(`/${end}`))
        ?.slice(0, -end.length) ?? [],
  )
  for (const [path, methods] of Object.entries(paths)) {
    const place = path.replace(starts[0] ?? '/', '').replaceAll(/\{[^}]*\}/g, '{id}')
    for (const method of METHODS) {
      const operation = methods[method] as Node | undefined
      if (operation === undefined) continue
      const parameters = [...((methods.parameters ?? []) as Node[]), ...(operation.parameters ?? [])]
      operations.set(`${method.toUpperCase()} ${place}`, { ...operation, parameters })
    }
  }
  return operations
}
