import { readdirSync, readFileSync } from 'node:fs'
import { type Server, STATUS_CODES } from 'node:http'
import { isIP, type Socket } from 'node:net'
import { extname } from 'node:path'
import cookie from '@fastify/cookie'
import formBody from '@fastify/formbody'
import rateLimit from '@fastify/rate-limit'
import { type FastifyBaseLogger, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import { LockedError, messageOf, OverloadedError, TimeLimitError, TransientError, UsageError } from '../core/errors.ts'
import { packageFile } from '../core/package-files.ts'
import { clip } from '../core/text.ts'
import { actionRoutes, backfillRoutes } from './action-routes.ts'
import { bodyOf, sendBody } from './cache.ts'
import { readiness } from './health.ts'
import { insightsRoutes } from './insights-routes.ts'
import { pageRoutes } from './page-routes.ts'
import { errorPage } from './pages/layout.ts'
import type { ServerOptions } from './server-options.ts'
import { MOST_FAILURES, Sessions, signInRoutes } from './sign-in.ts'

const BODY_BYTES = 16_384
// Below the 1,024 open files that a process may usually have.
export const MOST_CONNECTIONS = 500
const METRICS_TTL_MS = 1000
const SECURITY = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
}
const PAGES = ['/insights', '/quarantine', '/restatements'] as const
const HTML = 'text/html; charset=utf-8'
const TYPES: Record<string, string> = { '.css': 'text/css', '.js': 'text/javascript', '.svg': 'image/svg+xml' }

declare module 'fastify' {
  interface FastifyContextConfig {
    /** True if an answer needs no redaction: it contains nothing from outside. */
    isClean?: boolean
  }
}

/** The HTTP side of `serve`. It shows nothing secret, and starts work only for those who have the token. */
export function createServer(options: ServerOptions): FastifyInstance {
  const { view, metrics, version, token } = options
  const { redactor } = view.services.config
  const app = fastify({
    loggerInstance: view.services.log.child({}, { level: 'warn' }) as FastifyBaseLogger,
    bodyLimit: BODY_BYTES,
    requestTimeout: 30_000,
    // A page that someone keeps open must not delay the end of the program.
    forceCloseConnections: true,
    // Node's own answer would lack the headers.
    http: { requireHostHeader: false },
    frameworkErrors: (_error, request, reply) =>
      void answerError(version, new UsageError('this address is not valid'), request, reply.headers(SECURITY)),
    clientErrorHandler: answerMalformed,
  })
  limitConnections(app.server)
  app.server.on('checkExpectation', (_request, response) => response.writeHead(417, SECURITY).end())
  const names = new Set(['localhost', ...options.hosts.map((name) => name.toLowerCase())])
  app.addHook('onRequest', async (request, reply) => {
    reply.headers(SECURITY)
    const { headersDistinct, httpVersion, url = '' } = request.raw
    const hosts = headersDistinct.host ?? []
    // Only HTTP/1.0 may leave it out, which no browser uses.
    if (hosts.length > 1 || (hosts.length === 0 && httpVersion !== '1.0'))
      return reply.code(400).send({ error: `got ${hosts.length} Host headers; allowed: one` })
    // A proxy sends the whole address instead of a path.
    const asked = [...hosts, ...(/^[^/?#]*:\/\/([^/?#]*)/.exec(url)?.slice(1) ?? [])]
    const unknown = asked.find((host) => !isOwnName(host, names))
    if (unknown === undefined) return
    const error = `this server does not answer to the name "${clip(unknown, 80)}"; serve.hosts may name it`
    return reply.code(421).send({ error })
  })
  app.addHook('onSend', async (request, reply, payload) => {
    if (typeof payload !== 'string' || request.routeOptions.config.isClean === true) return payload
    const isJson = String(reply.getHeader('content-type')).startsWith('application/json')
    return isJson ? redactor.json(payload) : redactor.text(payload)
  })
  app.setErrorHandler((error: HttpError, request, reply) => answerError(version, error, request, reply))
  app.setNotFoundHandler((request, reply) => {
    const isForPeople = String(request.headers.accept).includes('text/html')
    reply.code(404)
    if (!isForPeople) return reply.send({ error: 'there is no such page' })
    return reply.type(HTML).send(errorPage(version, 'There is no such page.'))
  })

  app.get('/healthz', async () => ({ alive: true }))
  app.get('/readyz', async (_request, reply) => {
    const state = readiness(view, options.maxStalenessMs)
    return reply.code(state.ready ? 200 : 503).send(state)
  })
  app.get('/metrics', async (request, reply) => {
    const body = await view.cache.get('/metrics', METRICS_TTL_MS, async () => {
      const { latest, database } = view
      const ledgerAgeMs = latest === undefined ? 0 : view.ageMs(latest)
      const shown = { database, ledger: latest, ledgerAgeMs, budgets: view.budgets(latest), now: view.ledgerNow() }
      return bodyOf(redactor.text(await metrics.text(shown)))
    })
    return sendBody(request, reply, metrics.contentType, body)
  })
  const sessions = new Sessions(options.monotonic)
  void app.register(cookie)
  pageRoutes(app, {
    ...options,
    sessionOf: (request) => (token === undefined ? undefined : (sessions.of(request) ?? null)),
  })
  insightsRoutes(app, options)
  for (const name of readdirSync(packageFile('dist/web/assets'))) {
    const text = readFileSync(packageFile(`dist/web/assets/${name}`), 'utf8')
    app.get(`/assets/${name}`, { config: { isClean: true } }, async (_request, reply) =>
      reply
        .type(`${TYPES[extname(name)]}; charset=utf-8`)
        .header('cache-control', 'public, max-age=3600')
        .send(text),
    )
  }
  if (token === undefined) return app
  // Only these routes accept forms.
  void app.register(async (scope) => {
    await scope.register(formBody)
    await scope.register(rateLimit, { global: false, max: MOST_FAILURES, timeWindow: 60_000 })
    const guards = signInRoutes(scope, { token, sessions, version, log: view.services.log })
    backfillRoutes(scope, { ...options, onRequest: guards.bearer })
    options.routes?.(scope, guards.bearer)
    actionRoutes(scope, { ...options, sessions, preHandler: guards.form })
  })
  return app
}

/**
 * True for a host with one of our names, or with an address. The site of an attacker may have its name point at
 * this server, to read it through a browser inside the network; it cannot do so with an address.
 */
function isOwnName(host: string, names: ReadonlySet<string>): boolean {
  if (/[\s@/?#\\]/.test(host) || !URL.canParse(`http://${host}`)) return false
  const name = new URL(`http://${host}`).hostname.replace(/\.$/, '')
  return isIP(name.replace(/^\[|\]$/g, '')) !== 0 || names.has(name)
}

/**
 * Closes the connection that was used longest ago whenever there are too many. Refusing new ones instead would let
 * whoever keeps connections open lock out health probes.
 */
function limitConnections(server: Server): void {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    const [oldest] = sockets
    if (sockets.size > MOST_CONNECTIONS) oldest!.destroy()
  })
  server.on('request', ({ socket }) => {
    if (sockets.delete(socket)) sockets.add(socket)
  })
}

/** Answers what is no request, which Node gives to no handler. */
function answerMalformed({ code = '' }: NodeJS.ErrnoException, socket: Socket): void {
  const status = { ERR_HTTP_REQUEST_TIMEOUT: 408, HPE_HEADER_OVERFLOW: 431 }[code] ?? 400
  const body = JSON.stringify({ error: STATUS_CODES[status] })
  const fields = { ...SECURITY, 'content-type': 'application/json', 'content-length': body.length, connection: 'close' }
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`)
  if (socket.writable) socket.write([`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...lines, '', body].join('\r\n'))
  socket.destroySoon()
}

type HttpError = Error & { statusCode?: number }

function answerError(version: string, error: HttpError, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const [status, text, retryAfter] = explain(error)
  if (status === 500) request.log.error({ path: request.url, reason: messageOf(error) }, 'a page failed')
  reply.code(status)
  if (retryAfter !== undefined) reply.header('retry-after', String(retryAfter))
  const path = request.url.split('?')[0]!
  // A file is read by a program.
  if (path.endsWith('.csv')) return reply.send({ error: text })
  const page = /^\/($|runs|actions|sign-)/.test(path) ? '/' : PAGES.find((name) => path.startsWith(name))
  if (page !== undefined) return reply.type(HTML).send(errorPage(version, text, page))
  return reply.type('application/json; charset=utf-8').send({ error: text })
}

/** The status, a sentence, and after how many seconds to try again. */
function explain(error: HttpError): [number, string, number?] {
  if (error instanceof UsageError) return [400, clip(messageOf(error))]
  if (error instanceof LockedError) return [409, clip(messageOf(error))]
  if (error instanceof OverloadedError) return [503, 'too many readers at once; try again in a moment', 2]
  if (error instanceof TimeLimitError) return [503, `${messageOf(error)}; try a shorter range, or a little later`, 30]
  if (error instanceof TransientError) return [503, 'the database cannot be reached; the log says why', 5]
  const status = error.statusCode ?? 500
  // The log has the details of an internal error; they are not sent.
  return status >= 500 ? [500, 'something went wrong; the log says what'] : [status, clip(messageOf(error))]
}
