import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import * as z from 'zod'
import { addDays, dayOf } from '../core/day.ts'
import { clip } from '../core/text.ts'
import { DIMENSIONS } from '../core/vocabulary.ts'
import { changeSchema, changeWorld, type FaultSettings, faultsSchema } from './change.ts'
import { describeService } from './description.ts'
import { EXTRA_OPERATIONS, type ExtraOperation, isCreation } from './extras.ts'
import { seededRandom } from './names.ts'
import { type Call, createRoutes, Refusal } from './routes.ts'
import { COMPANY_KEY, type Project, type World } from './world.ts'

/* The whole API over the synthetic world. What the API leaves open is listed in docs/reference/reference-service.md. */

interface ReferenceOptions {
  world: World
  faults?: FaultSettings
  host?: string
  port?: number
  compress?: boolean
  extras?: 'all' | readonly ExtraOperation[]
}

type ReferenceRequest = Omit<Call, 'key'> & { status: number }

export type ReferenceService = Awaited<ReturnType<typeof startReference>>

interface Answer {
  status: number
  body: unknown
}

const BODY_MAX = 4_194_304
const REQUESTS_KEPT = 20_000
const HUNG = 0
const CREATED = 201

export async function startReference(options: ReferenceOptions) {
  const { world } = options
  let faults = faultsSchema.parse(options.faults ?? {})
  let random = seededRandom(faults.seed)
  const seen: ReferenceRequest[] = []
  let extras = options.extras ?? []
  const offers = (operation: string) =>
    (extras === 'all' ? EXTRA_OPERATIONS : extras).some((name) => name === operation)
  const route = createRoutes(world, { faults: () => faults, random: () => random(), offers })
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
    const controlled = control(call)
    if (controlled !== undefined) return reply(response, controlled.status, controlled.body)
    const outcome = await outcomeOf(call, response)
    if (outcome === 'hang') return note(call, HUNG)
    if (outcome === 'reset') return void request.socket.destroy()
    const { status, body } = outcome
    note(call, status)
    if (faults.retry_after_value !== null && (status === 429 || status >= 500)) {
      response.setHeader('retry-after', String(faults.retry_after_value))
    }
    if (faults.clock_ahead_seconds !== 0) {
      response.setHeader('date', new Date(Date.now() + faults.clock_ahead_seconds * 1000).toUTCString())
    }
    if (status === CREATED && random() < faults.drop_after_create) return void request.socket.destroy()
    send(request, response, status, body)
  }

  /** What needs no key: orders to this service, and its description. */
  function control({ method, path, body }: Call): Answer | undefined {
    switch (`${method} ${path}`) {
      case 'POST /control/faults':
        setFaults(body as FaultSettings)
        return { status: 200, body: { faults } }
      case 'POST /control/world': {
        const { data, error } = changeSchema.safeParse(body)
        if (error !== undefined) return { status: 400, body: { message: z.prettifyError(error) } }
        const project = world.project(data.project_id)
        if (project === undefined) return { status: 400, body: { message: 'project_id: there is no such project' } }
        changeWorld(world, project, data)
        return { status: 200, body: { changed: data } }
      }
      case 'GET /v1/openapi.json':
        return { status: 200, body: description() }
      default:
        return undefined
    }
  }

  async function outcomeOf(call: Call, response: ServerResponse): Promise<Answer | 'hang' | 'reset'> {
    try {
      const project = authenticate(call)
      spend(project?.id ?? '', response)
      if (faults.latency_ms > 0) await delay(faults.latency_ms, undefined, { ref: false })
      if (faults.redirect_to !== null) {
        response.setHeader('location', faults.redirect_to)
        throw new Refusal(302, 'moved')
      }
      const fault = isFaulty(call, project) ? faultByChance() : undefined
      if (fault !== undefined) return fault
      return { body: route(call, project), status: isCreation(call.method, call.path) ? CREATED : 200 }
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      return { status: error.status, body: { message: error.message } }
    }
  }

  function faultByChance(): 'hang' | 'reset' | undefined {
    if (faults.hang > 0 && random() < faults.hang) return 'hang'
    if (random() < faults.server_error) throw new Refusal([500, 502, 503, 504][Math.floor(random() * 4)]!, 'try again')
    return random() < faults.reset ? 'reset' : undefined
  }

  /** Published without a key, as the live service does. */
  function description(): unknown {
    const [project] = world.projects
    const day = addDays(dayOf(world.clock()), -3)
    return describeService(offers, (operation) => {
      const [method, path] = operation.split(' ') as [string, string]
      const chat = world.chatsOf(project!, day)[0]?.id ?? ''
      const body = method === 'POST' ? { start_date: day, end_date: day, dimensions: [...DIMENSIONS] } : {}
      const query: Record<string, string> = path === '/chats' ? { start_date: day, end_date: day } : {}
      const call = { method, path: `/v1${path.replace('{id}', chat)}`, query, body, key: COMPANY_KEY }
      return route(call, path === '/projects' ? undefined : project)
    })
  }

  function note({ method, path, query, body }: Call, status: number): void {
    if (seen.length < REQUESTS_KEPT) seen.push({ method, path, query, body, status })
  }

  function isFaulty({ path }: Call, project: Project | undefined): boolean {
    const { only_project, only_path } = faults
    return (only_project ?? project?.id) === project?.id && path.endsWith(only_path ?? '')
  }

  function authenticate(call: Call): Project | undefined {
    if (!call.path.startsWith('/v1/')) throw new Refusal(404, 'no such address; the base address ends in /v1')
    if (call.key === undefined) throw new Refusal(401, 'the X-API-Key header is missing')
    if (call.body.project_id === null) throw new Refusal(400, 'project_id: null is no id; leave it out')
    const wanted = (call.query.project_id ?? call.body.project_id) as string | undefined
    const own = world.projects.find(({ key }) => key === call.key)
    // It is about the key, not about a project.
    if (call.path === '/v1/projects' && wanted === undefined && (own !== undefined || call.key === COMPANY_KEY))
      return undefined
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

  const { host = '127.0.0.1' } = options
  server.listen(options.port ?? 0, host)
  await once(server, 'listening')
  const address = server.address() as { port: number }
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${address.port}/v1`,
    world,
    /** Every request since the start, or since it was emptied. */
    requests: seen,
    setFaults,
    setExtras: (offered: typeof extras) => {
      extras = offered
    },
    close: () =>
      new Promise<void>((done) => {
        server.close(() => done())
        server.closeAllConnections()
      }),
  }
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
  const key = request.headers['x-api-key'] as string | undefined
  return {
    method: request.method ?? 'GET',
    path: url.pathname,
    query: Object.fromEntries(url.searchParams),
    body,
    key,
  }
}

function reply(response: ServerResponse, status: number, body: unknown): void {
  raw(response, status, 'application/json', JSON.stringify(body))
}

function raw(response: ServerResponse, status: number, type: string, body: string | Buffer): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) })
  response.end(body)
}
