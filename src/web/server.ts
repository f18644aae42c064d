import { readFileSync } from 'node:fs'
import { type FastifyBaseLogger, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import { messageOf, OverloadedError, TimeLimitError, TransientError, UsageError } from '../core/errors.ts'
import type { Monotonic } from '../core/monotonic.ts'
import { packageFile } from '../core/package-files.ts'
import { clip } from '../core/text.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Live } from '../schedule/live.ts'
import { actionRoutes } from './action-routes.ts'
import { Attempts } from './attempts.ts'
import { type BackfillRequest, backfillRoutes } from './backfill-routes.ts'
import { type Body, bodyOf, sendBody } from './body.ts'
import { Cached } from './cached.ts'
import { acceptForms } from './form.ts'
import { ownNames } from './hosts.ts'
import { insightsRoutes } from './insights-routes.ts'
import { Pace } from './pace.ts'
import { pageRoutes } from './page-routes.ts'
import { errorPage } from './pages/error-page.ts'
import { projectOf, readQuery } from './query.ts'
import { readiness } from './readiness.ts'
import { Sessions } from './sessions.ts'
import { admit, signInRoutes } from './sign-in-routes.ts'
import type { FailedStart } from './status-data.ts'
import { statusDocument } from './status-document.ts'
import type { LedgerState, View } from './view.ts'

export interface ServerOptions {
  view: View
  live: Live
  metrics: Metrics
  monotonic: Monotonic
  version: string
  /** For people: where the rows go, without a password. */
  warehouse: string
  maxStalenessMs: number
  /** The names that requests may carry besides localhost and addresses. */
  hosts: readonly string[]
  next: () => { sync: Date | undefined; audit: Date | undefined }
  /** A run that failed before the ledger knew of it, until one of the same kind begins. */
  failedToStart: () => FailedStart | undefined
  /** Opens the routes that start work; without one they do not exist. */
  token: string | undefined
  /** Starts a sync, or says why not, or after what. */
  sync: () => { begun: true } | { after: string } | { busy: string }
  /** Starts a backfill and gives its run, or why it cannot start now. */
  backfill: (request: BackfillRequest) => Promise<{ runId: number } | { busy: string }>
}

const BODY_BYTES = 16_384
// Long enough that many who look cost no more than one, and short enough that nobody notices.
const FRESH_MS = 1000
const MOST_PAGES = 64
// While a run is at work. Each takes a tenth of a millisecond of its thread.
const MOST_REQUESTS_A_SECOND = 400
// On a machine that is too busy to read anew, a page that is a little older is better than none.
const STALE = {
  ms: 60_000,
  on: (error: unknown) => error instanceof OverloadedError || error instanceof TimeLimitError,
}
const SECURITY = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  // Not "no-referrer": browsers would then not say which page a form comes from.
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}
const PAGES = ['/', '/insights', '/quarantine', '/restatements'] as const
const HTML = 'text/html; charset=utf-8'
const JSON_TYPE = 'application/json; charset=utf-8'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** True if an answer needs no cleaning: it holds nothing from outside. */
    isClean?: boolean
    /** True for probes, whose answer decides whether this process is restarted. */
    isProbe?: boolean
  }
}
const CLEAN = { config: { isClean: true } }
const PROBE = { config: { isProbe: true } }

/** The HTTP side of `serve`. It shows nothing secret, and starts work only for who has the token. */
export function createServer(options: ServerOptions): FastifyInstance {
  const { view, metrics, monotonic } = options
  const app = fastify({
    loggerInstance: view.services.log.child({}, { level: 'warn' }) as FastifyBaseLogger,
    bodyLimit: BODY_BYTES,
    requestTimeout: 30_000,
    // A page that someone keeps open must not hold up the end of the program.
    forceCloseConnections: true,
  })
  const isOurs = ownNames(options.hosts)
  app.addHook('onRequest', async (request, reply) => {
    reply.headers(SECURITY)
    const { host } = request.raw.headers
    if (isOurs(host)) return
    const error = `this server does not answer to the name "${clip(host ?? '', 80)}"; serve.hosts may name it`
    await reply.code(421).send({ error })
  })
  const pace = new Pace({ gapMs: 1000 / MOST_REQUESTS_A_SECOND, burst: MOST_REQUESTS_A_SECOND / 4, monotonic })
  app.addHook('onRequest', async (request) => {
    if (options.live.runs.length > 0 && request.routeOptions.config.isProbe !== true) await pace.turn()
  })
  const { redactor } = view.services.config
  app.addHook('onSend', async (request, reply, payload) => {
    if (typeof payload !== 'string' || request.routeOptions.config.isClean === true) return payload
    const isJson = String(reply.getHeader('content-type')).startsWith('application/json')
    return isJson ? redactor.json(payload) : redactor.text(payload)
  })
  app.setErrorHandler((error: Error & { statusCode?: number }, request, reply) =>
    answerError(options, error, request, reply),
  )
  app.setNotFoundHandler((request, reply) => {
    const { version } = options
    if (!String(request.headers.accept).includes('text/html'))
      return reply.code(404).send({ error: 'there is no such page' })
    return reply
      .code(404)
      .type(HTML)
      .send(errorPage({ version, path: undefined, text: 'There is no such page.' }))
  })

  app.get('/healthz', PROBE, async () => ({ alive: true }))
  app.get('/readyz', PROBE, async (_request, reply) => {
    const state = readiness(view, options.maxStalenessMs)
    return reply.code(state.ready ? 200 : 503).send(state)
  })
  // However long a page is kept because it is costly: a run that begins or ends, and a database that goes away or comes
  // back, is seen at once, and the progress of a run after a second. What is costly in a page is to read the ledger,
  // which is kept apart.
  const moment = () => {
    const ids = options.live.runs.map(({ runId }) => runId).join()
    const progress = ids === '' ? '' : Math.floor(monotonic() / FRESH_MS)
    return `${view.generation} ${view.database.up} ${ids} ${progress}`
  }
  const bodies = new Cached<Body>({ monotonic, freshMs: FRESH_MS, most: MOST_PAGES, stale: STALE })
  app.get('/metrics', async (request, reply) => {
    const { latest, database } = view
    const write = async () =>
      bodyOf(
        redactor.text(
          await metrics.text({
            database,
            ledger: latest,
            ledgerAgeMs: latest === undefined ? 0 : view.ageMs(latest),
            budgets: view.budgets(latest),
            now: view.ledgerNow(),
          }),
        ),
      )
    const body = await bodies.get('metrics', write, moment())
    return sendBody(request, reply, metrics.contentType, body)
  })
  app.get('/api/status', async (request, reply) => {
    const query = readQuery(request.query, ['project'])
    const project = query.project === undefined ? undefined : projectOf(view.projects, query.project)
    const write = (state: LedgerState | undefined) =>
      bodyOf(
        redactor.json(
          JSON.stringify(
            statusDocument(view, state, {
              warehouse: options.warehouse,
              project,
              running: options.live.runs[0] ?? null,
              next: options.next(),
              failedToStart: options.failedToStart() ?? null,
            }),
          ),
        ),
      )
    const body = await orLastKnown(view, reply, write, () =>
      bodies.get(`status ${project ?? ''}`, async () => write(await view.state()), moment()),
    )
    return sendBody(request, reply, JSON_TYPE, body)
  })
  const sessions = new Sessions(monotonic)
  const cache = { freshMs: FRESH_MS, most: MOST_PAGES, stale: STALE }
  const isClosed = options.token === undefined
  const sessionOf = ({ headers }: FastifyRequest) => (isClosed ? undefined : (sessions.find(headers.cookie) ?? null))
  pageRoutes(app, { ...options, cache, moment, sessionOf, orLastKnown })
  insightsRoutes(app, options)
  if (options.token !== undefined) tokenRoutes(app, options, options.token, sessions)
  for (const [name, { type, text }] of assets()) {
    app.get(`/assets/${name}`, CLEAN, async (_request, reply) =>
      reply.type(type).header('cache-control', 'public, max-age=3600').send(text),
    )
  }
  return app
}

/** Without a token these routes do not exist. */
function tokenRoutes(app: FastifyInstance, options: ServerOptions, token: string, sessions: Sessions): void {
  const { view, hosts, version, monotonic } = options
  const attempts = new Attempts(monotonic)
  backfillRoutes(app, { ...options, token, attempts })
  const signIn = { token, sessions, attempts, hosts, version, log: view.services.log }
  // Only these take forms.
  void app.register(async (scope) => {
    acceptForms(scope)
    signInRoutes(scope, signIn)
    actionRoutes(scope, { ...options, admit: (request, reply) => admit(request, reply, signIn) })
  })
}

/** What can be read now; or, while the database is away, what was read last, said to be so and as a failure. */
async function orLastKnown(
  view: View,
  reply: FastifyReply,
  lastKnown: (state: LedgerState | undefined) => Promise<Body>,
  read: () => Promise<Body>,
): Promise<Body> {
  if (view.database.up) {
    try {
      return await read()
    } catch (error) {
      if (!(error instanceof TransientError) || (await view.lookAgain()).up) throw error
    }
  }
  reply.code(503).header('retry-after', '5')
  return lastKnown(view.latest)
}

function answerError(
  { version }: ServerOptions,
  error: Error & { statusCode?: number },
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const [status, text, retryAfter] = explain(error)
  if (status === 500) request.log.error({ path: request.url, reason: messageOf(error) }, 'a page failed')
  reply.code(status)
  if (retryAfter !== undefined) reply.header('retry-after', String(retryAfter))
  const path = request.url.split('?')[0]!
  const page = PAGES.find((name) =>
    name === '/' ? path === '/' || /^\/(runs|actions|sign-)/.test(path) : path.startsWith(name),
  )
  if (page !== undefined) return reply.type(HTML).send(errorPage({ version, path: page, text }))
  return reply.type(JSON_TYPE).send({ error: text })
}

/** The status, a sentence, and after how many seconds to try again. */
function explain(error: Error & { statusCode?: number }): [number, string, number?] {
  if (error instanceof UsageError) return [400, clip(messageOf(error))]
  if (error instanceof OverloadedError) return [503, 'too many are looking at once; try again in a moment', 2]
  if (error instanceof TimeLimitError) return [503, `${messageOf(error)}; try a shorter range, or a little later`, 30]
  if (error instanceof TransientError) return [503, 'the database cannot be reached; the log says why', 5]
  const status = error.statusCode ?? 500
  // What went wrong inside is for the log; outside it is enough to know that it did.
  return status >= 500 ? [500, 'something went wrong; the log says what'] : [status, clip(messageOf(error))]
}

function assets(): Map<string, { type: string; text: string }> {
  const own = (name: string) => readFileSync(packageFile(`dist/web/assets/${name}`), 'utf8')
  return new Map([
    ['style.css', { type: 'text/css; charset=utf-8', text: own('style.css') }],
    ['status.js', { type: 'text/javascript; charset=utf-8', text: own('status.js') }],
    ['icon.svg', { type: 'image/svg+xml', text: own('icon.svg') }],
  ])
}
