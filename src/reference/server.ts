import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import type { z } from 'zod'
import { hashText, seededRandom } from '../core/random.ts'
import { clip } from '../core/text.ts'
import * as requests from '../source/requests.ts'
import { brandReport, chatList } from './aggregate.ts'
import { type FaultSettings, type Faults, faultsSchema } from './faults.ts'
import { mangle } from './mangle.ts'
import { COMPANY_KEY, type Project, type Prompt, type World } from './world.ts'

/* The whole interface over the synthetic world. What the interface leaves open is listed in docs/reference-service.md. */

export interface ReferenceOptions {
  world: World
  faults?: FaultSettings
  host?: string
  port?: number
  compress?: boolean
}

export interface ReferenceRequest {
  method: string
  path: string
  query: Record<string, string>
  body: Record<string, unknown>
  status: number
}

export interface ReferenceService {
  url: string
  world: World
  /** Every request since the start, or since it was emptied. */
  requests: ReferenceRequest[]
  setFaults(faults: FaultSettings): void
  close(): Promise<void>
}

const DEFAULT_LIMIT = 1000
const DEFAULT_DAY = '2026-01-01'
const BODY_MAX = 4_194_304
const REQUESTS_KEPT = 20_000

/** An answer that is not a success. */
class Refusal extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

interface Call {
  method: string
  path: string
  query: Record<string, string>
  body: Record<string, unknown>
  key: string | undefined
}

export async function startReference(options: ReferenceOptions): Promise<ReferenceService> {
  const { world } = options
  let faults = faultsSchema.parse(options.faults ?? {})
  let random = seededRandom(faults.seed)
  const seen: ReferenceRequest[] = []
  const periods = new Map<string, { startedAt: number; used: number }>()
  const setFaults = (settings: FaultSettings) => {
    faults = faultsSchema.parse(settings)
    random = seededRandom(faults.seed)
    periods.clear()
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      if (!response.headersSent) reply(response, 500, { message: clip(String(error)) })
      else response.destroy()
    })
  })

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = await readCall(request)
    if (call.path === '/control/faults' && call.method === 'POST') {
      setFaults(call.body as FaultSettings)
      return reply(response, 200, { faults })
    }
    let status = 200
    let created = false
    let body: unknown
    try {
      const project = authenticate(call)
      spend(project?.id ?? '', response)
      if (faults.latency_ms > 0) await new Promise((done) => setTimeout(done, faults.latency_ms))
      if (faults.redirect_to !== null) {
        response.setHeader('location', faults.redirect_to)
        throw new Refusal(302, 'moved')
      }
      if (random() < faults.server_error)
        throw new Refusal([500, 502, 503, 504][Math.floor(random() * 4)]!, 'try again')
      if (random() < faults.reset) return void request.socket.destroy()
      const result = route(call, project)
      body = result.body
      created = result.created
      status = created ? 201 : 200
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      status = error.status
      body = { message: error.message }
    }
    if (seen.length < REQUESTS_KEPT) {
      seen.push({ method: call.method, path: call.path, query: call.query, body: call.body, status })
    }
    if (created && random() < faults.drop_after_create) return void request.socket.destroy()
    send(request, response, status, body)
  }

  function authenticate(call: Call): Project | undefined {
    if (!call.path.startsWith('/v1/')) throw new Refusal(404, 'no such address; the base address ends in /v1')
    if (call.key === undefined) throw new Refusal(401, 'the X-API-Key header is missing')
    const wanted = (call.query.project_id ?? call.body.project_id) as string | undefined
    const own = world.projects.find(({ key }) => key === call.key)
    if (own !== undefined) {
      if (wanted !== undefined && wanted !== own.id) throw new Refusal(403, 'this key does not cover that project')
      return own
    }
    if (call.key !== COMPANY_KEY) throw new Refusal(401, 'the API key is wrong')
    if (wanted === undefined) throw new Refusal(400, 'project_id is required with a company key')
    const project = world.project(wanted)
    if (project === undefined) throw new Refusal(403, 'this key does not cover that project')
    return project
  }

  /** One request from the project's budget. */
  function spend(projectId: string, response: ServerResponse): void {
    if (faults.rate_limit === null) return
    const now = Date.now()
    let period = periods.get(projectId)
    if (period === undefined || now - period.startedAt >= faults.rate_window_ms) {
      period = { startedAt: now, used: 0 }
      periods.set(projectId, period)
    }
    period.used++
    const resetSeconds = Math.ceil((period.startedAt + faults.rate_window_ms - now) / 1000)
    if (faults.rate_headers) {
      response.setHeader('x-ratelimit-limit', faults.rate_limit)
      response.setHeader('x-ratelimit-remaining', Math.max(0, faults.rate_limit - period.used))
      response.setHeader('x-ratelimit-reset', resetSeconds)
    }
    if (period.used <= faults.rate_limit) return
    if (faults.retry_after) response.setHeader('retry-after', resetSeconds)
    throw new Refusal(429, 'too many requests')
  }

  function route(call: Call, project: Project | undefined): { body: unknown; created: boolean } {
    if (project === undefined) throw new Refusal(403, 'no project')
    const name = `${call.method} ${call.path.slice('/v1'.length)}`
    switch (name) {
      case 'POST /reports/brands':
        return listed(reportItems(call, project))
      case 'GET /project-profile':
        valid(requests.profileRequest, call.query)
        return { body: { profile: project.profile }, created: false }
      case 'GET /prompts': {
        const query = valid(requests.promptsRequest, numbers(call.query))
        const found = project.prompts.filter(
          (prompt) =>
            (query.topic_id === undefined || prompt.topicId === query.topic_id) &&
            (query.tag_id === undefined || prompt.tagIds.includes(query.tag_id)),
        )
        return listed(paged(found.map(promptItem), query), found.length)
      }
      case 'GET /prompts/suggestions': {
        const query = valid(requests.suggestionsRequest, numbers(call.query))
        const found = project.suggestions.filter(
          ({ topicId }) => query.topic_id === undefined || topicId === query.topic_id,
        )
        return listed(paged(found.map(promptItem), query))
      }
      case 'GET /classifications/domains': {
        const query = valid(requests.classificationsRequest, numbers(call.query))
        return listed(paged(project.classifications, query), project.classifications.length)
      }
      case 'GET /chats': {
        const query = valid(requests.chatsRequest, numbers(call.query))
        const found = chatList(world, project, rangeOf(query), (chat) => {
          if (query.prompt_id !== undefined && chat.prompt.id !== query.prompt_id) return false
          if (query.model_id !== undefined && chat.modelId !== query.model_id) return false
          return query.brand_id === undefined || chat.mentions.some(({ brand }) => brand.id === query.brand_id)
        })
        return listed(paged(found, query))
      }
      case 'POST /prompts':
        return { body: createPrompt(valid(requests.createPromptRequest, call.body), project), created: true }
      case 'POST /topics': {
        const { name: topic } = valid(requests.createTopicRequest, call.body)
        if (project.topics.some((known) => known.name === topic)) throw new Refusal(409, 'a topic of this name exists')
        const made = { id: world.newId('to', project.id, topic), name: topic }
        project.topics.push(made)
        return { body: { id: made.id }, created: true }
      }
      case 'POST /classifications/domains':
      case 'POST /classifications/urls': {
        const { name: title, color } = valid(requests.createClassificationRequest, call.body)
        const list = call.path.endsWith('urls') ? project.urlClassifications : project.classifications
        if (list.some((known) => known.name === title)) throw new Refusal(409, 'a classification of this name exists')
        const made = { name: title, color: color ?? 'orange' }
        list.push(made)
        return { body: made, created: true }
      }
      default:
        throw new Refusal(404, `no such operation: ${clip(name, 80)}`)
    }
  }

  function reportItems(call: Call, project: Project): unknown[] {
    const query = valid(requests.reportRequest, call.body)
    const filters = query.filters ?? []
    if (faults.refuse_filters && filters.length > 0) throw new Refusal(400, 'filters: this plan has no filters')
    const rows = brandReport(world, project, {
      range: rangeOf(query),
      dimensions: query.dimensions ?? [],
      filters: faults.ignore_filters ? [] : filters,
    })
    sortRows(rows, query.order_by ?? [])
    return paged(rows, query)
  }

  function createPrompt(request: requests.CreatePromptRequest, project: Project): unknown {
    const same = (prompt: Prompt) => prompt.text === request.text && prompt.country === request.country_code
    if (project.prompts.some(same)) throw new Refusal(409, 'this prompt exists already')
    if (project.credits <= 0) throw new Refusal(402, 'the credits are used up')
    project.credits--
    const id = world.newId('pr', project.id, request.text, request.country_code)
    world.addPrompt(project, {
      id,
      text: request.text,
      topicId: request.topic_id ?? null,
      tagIds: request.tag_ids ?? [],
      country: request.country_code,
      volume: undefined,
    })
    return request.text.length < 15 ? { id, warning: 'short prompts seldom name brands' } : { id }
  }

  /** A page of a list: order, cap and emptiness as the faults say. */
  function paged<T>(
    items: T[],
    { limit = DEFAULT_LIMIT, offset = 0 }: { limit?: number | undefined; offset?: number | undefined },
  ): T[] {
    if (faults.limit_max !== null && limit > faults.limit_max)
      throw new Refusal(400, `limit must not exceed ${faults.limit_max}`)
    if (faults.empty) return []
    const ordered = faults.unstable_order ? shuffled(items) : items
    return ordered.slice(offset, offset + Math.min(limit, faults.silent_cap ?? limit))
  }

  function shuffled<T>(items: T[]): T[] {
    const copy = [...items]
    for (let index = copy.length - 1; index > 0; index--) {
      const other = Math.floor(random() * (index + 1))
      ;[copy[index], copy[other]] = [copy[other]!, copy[index]!]
    }
    return copy
  }

  function listed(items: unknown[], total?: number): { body: unknown; created: boolean } {
    const data = mangle(items, faults)
    const body: Record<string, unknown> = { data }
    if (total !== undefined && faults.totals !== 'none') {
      body[faults.totals === 'snake' ? 'total_count' : 'totalCount'] = faults.totals === 'wrong' ? total + 3 : total
    }
    return { body, created: false }
  }

  function send(request: IncomingMessage, response: ServerResponse, status: number, body: unknown): void {
    const text = JSON.stringify(body)
    if (status === 200) {
      if (random() < faults.html) return raw(response, 200, 'text/html', '<html><body>Just a moment…</body></html>')
      if (random() < faults.wrong_shape) return reply(response, 200, { ok: true })
      if (random() < faults.cut_json)
        return raw(response, 200, 'application/json', text.slice(0, Math.floor(text.length / 2)))
      if (random() < faults.truncate) {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) })
        response.write(text.slice(0, Math.floor(text.length / 2)), () => request.socket.destroy())
        return
      }
    }
    if (options.compress && text.length > 1024 && /\bgzip\b/.test(request.headers['accept-encoding'] ?? '')) {
      response.setHeader('content-encoding', 'gzip')
      return raw(response, status, 'application/json', gzipSync(text, { level: 1 }))
    }
    raw(response, status, 'application/json', text)
  }

  await new Promise<void>((done, fail) => {
    server.once('error', fail)
    server.listen(options.port ?? 0, options.host ?? '127.0.0.1', done)
  })
  const address = server.address() as { port: number }
  const host = options.host ?? '127.0.0.1'
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${address.port}/v1`,
    world,
    requests: seen,
    setFaults,
    close: () => closeServer(server),
  }
}

function closeServer(server: Server): Promise<void> {
  return new Promise((done) => {
    server.close(() => done())
    server.closeAllConnections()
  })
}

async function readCall(request: IncomingMessage): Promise<Call> {
  const url = new URL(request.url ?? '/', 'http://reference')
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > BODY_MAX) throw new Refusal(413, 'the body is too large')
    chunks.push(chunk)
  }
  let body: Record<string, unknown> = {}
  try {
    if (size > 0) body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as Record<string, unknown>
  } catch {
    body = { '': 'not JSON' }
  }
  const key = request.headers['x-api-key']
  return {
    method: request.method ?? 'GET',
    path: url.pathname,
    query: Object.fromEntries(url.searchParams),
    body,
    key: Array.isArray(key) ? key[0] : key,
  }
}

function valid<S extends z.ZodType>(schema: S, value: unknown): z.infer<S> {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  throw new Refusal(400, result.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; '))
}

/** Query parameters are texts; the paging ones are numbers. */
function numbers(query: Record<string, string>): Record<string, unknown> {
  const parsed: Record<string, unknown> = { ...query }
  for (const name of ['limit', 'offset']) if (query[name] !== undefined) parsed[name] = Number(query[name])
  return parsed
}

function rangeOf(query: { start_date?: string | undefined; end_date?: string | undefined }) {
  return { from: query.start_date ?? DEFAULT_DAY, to: query.end_date ?? DEFAULT_DAY }
}

function sortRows(rows: Record<string, unknown>[], order: { field: string; direction: string }[]): void {
  if (order.length === 0) return
  const value = (row: Record<string, unknown>, field: string) => {
    const found = row[field] ?? (row[field.replace(/_id$/, '')] as { id?: unknown } | null | undefined)?.id
    return found ?? null
  }
  for (const { field } of order) {
    const known = rows.length === 0 || rows.some((row) => field in row || field.replace(/_id$/, '') in row)
    if (!known) throw new Refusal(400, `order_by: unknown field ${clip(field, 40)}`)
  }
  rows.sort((a, b) => {
    for (const { field, direction } of order) {
      const [left, right] = [value(a, field), value(b, field)]
      if (left === right) continue
      if (left === null) return 1
      if (right === null) return -1
      return (left < right ? -1 : 1) * (direction === 'asc' ? 1 : -1)
    }
    return 0
  })
}

function promptItem(prompt: Prompt): Record<string, unknown> {
  const shape = hashText(prompt.id) % 3
  const item: Record<string, unknown> = {
    id: prompt.id,
    messages: [{ content: prompt.text }],
    tags: prompt.tagIds.map((id) => ({ id })),
    topic: prompt.topicId === null ? null : { id: prompt.topicId },
  }
  // The live service gives an object, an empty object, null or nothing.
  if (prompt.country !== null) item.user_location = { country: prompt.country }
  else if (shape < 2) item.user_location = shape === 0 ? {} : null
  if (prompt.volume !== undefined) item.volume = prompt.volume
  return item
}

function reply(response: ServerResponse, status: number, body: unknown): void {
  raw(response, status, 'application/json', JSON.stringify(body))
}

function raw(response: ServerResponse, status: number, type: string, body: string | Buffer): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) })
  response.end(body)
}

export type { Faults }
