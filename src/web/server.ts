import { timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type FastifyBaseLogger, type FastifyInstance, type FastifyRequest, fastify } from 'fastify'
import { z } from 'zod'
import { daysOfInterest } from '../core/config/load.ts'
import { addDays, dayOf, isDay, type Range } from '../core/day.ts'
import { LockedError, messageOf, UsageError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { readCalendar } from '../ledger/calendar.ts'
import { findRun } from '../ledger/runs.ts'
import type { Live } from '../schedule/live.ts'
import type { BudgetView } from '../source/budget.ts'
import { streamsOf } from '../streams/registry.ts'
import { readInsights } from './insights.ts'
import type { Metrics } from './metrics.ts'
import { insightsPage } from './pages/insights-page.ts'
import { statusPage } from './pages/status-page.ts'
import { remembered, type View } from './view.ts'

export interface BackfillRequest {
  from: string
  to: string
  streams: string[]
  projects: string[]
  missing: boolean
}

export interface ServerOptions {
  view: View
  live: Live
  metrics: Metrics
  version: string
  /** For people: where the rows go, without a password. */
  warehouse: string
  maxStalenessMs: number
  next: () => { sync: Date | undefined; audit: Date | undefined }
  /** Opens the routes that start work; without one they do not exist. */
  token: string | undefined
  /** Starts a backfill and gives its run, or why it cannot start now. */
  backfill: (request: BackfillRequest) => Promise<{ runId: number } | { busy: string }>
}

const CALENDAR_DAYS = 56
const BODY_BYTES = 16_384
const SECURITY = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** True where an answer needs no cleaning: it is clean already, or holds nothing from outside. */
    isClean?: boolean
  }
}
const CLEAN = { config: { isClean: true } }

const day = z.string().refine(isDay, { error: 'a calendar date, YYYY-MM-DD' })
const backfillBody = z.strictObject({
  from: day,
  to: day,
  streams: z.array(z.string()).max(100).default([]),
  projects: z.array(z.string()).max(1000).default([]),
  missing: z.boolean().default(false),
})

/** The HTTP side of `serve`. It shows nothing secret, and starts work only for who has the token. */
export function createServer(options: ServerOptions): FastifyInstance {
  const { view, live, metrics } = options
  const { services, projects } = view
  const app = fastify({
    loggerInstance: services.log.child({}, { level: 'warn' }) as FastifyBaseLogger,
    bodyLimit: BODY_BYTES,
    requestTimeout: 30_000,
    // A page that someone keeps open must not hold up the end of the program.
    forceCloseConnections: true,
  })
  const { redactor } = services.config
  app.addHook('onRequest', async (_request, reply) => {
    reply.headers(SECURITY)
  })
  app.addHook('onSend', async (request, reply, payload) => {
    if (typeof payload !== 'string' || request.routeOptions.config.isClean === true) return payload
    const isJson = String(reply.getHeader('content-type')).startsWith('application/json')
    return isJson ? redactor.json(payload) : redactor.text(payload)
  })
  app.setErrorHandler((error: Error & { statusCode?: number }, request, reply) => {
    const status = error instanceof UsageError ? 400 : (error.statusCode ?? 500)
    if (status >= 500) request.log.error({ path: request.url, reason: messageOf(error) }, 'a page failed')
    // What went wrong inside is for the log; outside it is enough to know that it did.
    return reply
      .code(status)
      .send({ error: status >= 500 ? 'something went wrong; the log says what' : clip(messageOf(error)) })
  })
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: 'there is no such page' }))

  app.get('/healthz', async () => ({ alive: true }))
  app.get('/readyz', async (_request, reply) => {
    const { ready, reason } = await readiness(options)
    return reply.code(ready ? 200 : 503).send({ ready, ...(reason === undefined ? {} : { reason }) })
  })
  app.get('/metrics', async (_request, reply) => {
    const [status, budgets, queue] = await Promise.all([
      view.status().catch(() => undefined),
      view.budgets().catch(() => new Map<string, BudgetView>()),
      view.queue().catch(() => undefined),
    ])
    return reply.type(metrics.contentType).send(await metrics.text({ status, budgets, queue, now: view.now() }))
  })
  // Written once in a second, however many look: 200 requests a second must not slow a sync.
  const statusText = remembered(view.now, async () => {
    const [status, alerts, queue] = await Promise.all([view.status(), view.alerts(), view.queue()])
    const next = options.next()
    const text = JSON.stringify({
      warehouse: options.warehouse,
      synced: status !== undefined,
      ...status,
      running: live.runs[0] ?? null,
      next_sync: next.sync ?? null,
      next_audit: next.audit ?? null,
      alerts,
      queue: queue ?? null,
    })
    return redactor.json(text)
  })
  app.get('/api/status', CLEAN, async (_request, reply) =>
    reply.type('application/json; charset=utf-8').send(await statusText()),
  )

  if (options.token !== undefined) startRoutes(app, options, options.token)

  app.get('/', async (request, reply) => {
    const query = request.query as Record<string, unknown>
    const { config } = services
    const project = oneOf(projects, query.project)
    const today = dayOf(view.now())
    const interest = daysOfInterest(config, today)
    const last = interest.to < today ? interest.to : today
    const to = typeof query.to === 'string' && isDay(query.to) ? query.to : last
    const range = { from: addDays(to, 1 - CALENDAR_DAYS), to }
    const dayStreams = streamsOf(config).flatMap(({ by, name }) => (by === 'day' ? [name] : []))
    const [status, alerts, queue, budgets, days, named] = await Promise.all([
      view.status(),
      view.alerts(),
      view.queue(),
      view.budgets(),
      readCalendar(services.warehouse, project, range),
      projectNames(options),
    ])
    return reply.type('text/html; charset=utf-8').send(
      statusPage({
        version: options.version,
        now: view.now(),
        source: services.source,
        warehouse: options.warehouse,
        status,
        live: live.runs,
        next: options.next(),
        budgets,
        queue,
        alerts,
        maxStalenessMs: options.maxStalenessMs,
        projects: named,
        project,
        days,
        range,
        dayStreams,
      }),
    )
  })
  app.get('/insights', async (request, reply) => {
    const query = request.query as Record<string, unknown>
    const project = oneOf(projects, query.project)
    const range = rangeOf(query, services.config.end_date ?? dayOf(view.now()))
    const insights = await readInsights(services.warehouse, project, range)
    const page = insightsPage({
      version: options.version,
      projects: await projectNames(options),
      project,
      range,
      insights,
    })
    return reply.type('text/html; charset=utf-8').send(page)
  })
  for (const [name, { type, text }] of assets()) {
    app.get(`/assets/${name}`, CLEAN, async (_request, reply) =>
      reply.type(type).header('cache-control', 'public, max-age=3600').send(text),
    )
  }
  return app
}

async function readiness({ view, maxStalenessMs }: ServerOptions): Promise<{ ready: boolean; reason?: string }> {
  try {
    const status = await view.status()
    const now = view.now().getTime()
    const done = status?.runs.find(({ outcome, command }) => outcome === 'complete' && command === 'sync')?.ended_at
    // Before the first run there is nothing to be late with: it starts with the program.
    if (done == null)
      return status === undefined || status.runs.length === 0
        ? { ready: true }
        : lastReads(status.streams, now, maxStalenessMs)
    if (now - done.getTime() > maxStalenessMs) return { ready: false, reason: 'the last success is too long ago' }
    return { ready: true }
  } catch {
    return { ready: false, reason: 'the database cannot be reached' }
  }
}

/** Without a complete run among the last ones, the reads themselves tell. */
function lastReads(
  streams: { last_read_at: Date | null }[],
  now: number,
  maxStalenessMs: number,
): { ready: boolean; reason?: string } {
  const fresh = streams.every(
    ({ last_read_at }) => last_read_at !== null && now - last_read_at.getTime() <= maxStalenessMs,
  )
  return fresh ? { ready: true } : { ready: false, reason: 'no run succeeded yet' }
}

/** The routes that start work or tell of it. */
function startRoutes(app: FastifyInstance, options: ServerOptions, token: string): void {
  const onRequest = async (request: FastifyRequest) => {
    const given = Buffer.from(/^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '')
    const wanted = Buffer.from(token)
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) {
      throw Object.assign(new Error('a bearer token is needed'), { statusCode: 401 })
    }
  }
  app.post('/api/backfills', { onRequest }, async (request, reply) => {
    const parsed = backfillBody.safeParse(request.body)
    if (!parsed.success) {
      const told = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'body'}: ${message}`)
      return reply.code(400).send({ error: clip(told.join('; ')) })
    }
    if (parsed.data.to < parsed.data.from) return reply.code(400).send({ error: 'to: must be from or later' })
    try {
      const started = await options.backfill(parsed.data)
      if ('busy' in started) return reply.code(409).send({ error: started.busy })
      return reply.code(202).header('location', `/api/runs/${started.runId}`).send({ run_id: started.runId })
    } catch (error) {
      if (error instanceof LockedError) return reply.code(409).send({ error: messageOf(error) })
      throw error
    }
  })
  app.get('/api/runs/:id', { onRequest }, async (request, reply) => {
    const { id } = request.params as { id: string }
    const run = /^\d{1,15}$/.test(id) ? await findRun(options.view.services.warehouse, Number(id)) : undefined
    if (run === undefined) return reply.code(404).send({ error: 'there is no such run' })
    const progress = options.live.runs.find(({ runId }) => runId === run.run_id) ?? null
    return { ...run, progress }
  })
}

function oneOf(projects: readonly { id: string }[], asked: unknown): string {
  return (projects.find(({ id }) => id === asked) ?? projects[0])?.id ?? ''
}

function rangeOf(query: Record<string, unknown>, today: string): Range {
  const asked = (value: unknown, otherwise: string) => (typeof value === 'string' && isDay(value) ? value : otherwise)
  const to = asked(query.to, today)
  const from = asked(query.from, addDays(to, -89))
  return from <= to ? { from, to } : { from: to, to: from }
}

async function projectNames({ view }: ServerOptions): Promise<{ id: string; name: string }[]> {
  const rows = await view.services.warehouse.tables.selectFrom('projects').select(['project_id', 'name']).execute()
  const names = new Map(rows.map(({ project_id, name }) => [project_id, name]))
  return view.projects.map(({ id }) => ({ id, name: names.get(id) ?? id }))
}

function assets(): Map<string, { type: string; text: string }> {
  const own = (name: string) => readFileSync(new URL(`./assets/${name}`, import.meta.url), 'utf8')
  const uplot = (name: string) => readFileSync(createRequire(import.meta.url).resolve(`uplot/dist/${name}`), 'utf8')
  return new Map([
    ['style.css', { type: 'text/css; charset=utf-8', text: own('style.css') }],
    ['insights.js', { type: 'text/javascript; charset=utf-8', text: own('insights.js') }],
    ['icon.svg', { type: 'image/svg+xml', text: own('icon.svg') }],
    ['uplot.js', { type: 'text/javascript; charset=utf-8', text: uplot('uPlot.iife.min.js') }],
    ['uplot.css', { type: 'text/css; charset=utf-8', text: uplot('uPlot.min.css') }],
  ])
}
