import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import '@fastify/cookie'
import '@fastify/rate-limit'
import type { Log } from '../core/logger.ts'
import type { Monotonic } from '../core/waiting.ts'
import { errorPage, signInPage } from './pages/layout.ts'
import { readQuery } from './query.ts'
import type { Guard } from './server-options.ts'
import type { Notice } from './status-data.ts'

export interface Session {
  /** For the log: it opens nothing. */
  number: number
  /** A field of every form of this session: no other site knows it. */
  csrf: string
  /** The result of the last action, until it was shown. */
  notice: Notice | undefined
}

const COOKIE = 'visibility_session'
const LONGEST_MS = 12 * 3_600_000
const MOST_SESSIONS = 100
/** Wrong tokens in a minute, of all addresses together: an attacker may have many. A correct one is always accepted. */
export const MOST_FAILURES = 5
const HTML = 'text/html; charset=utf-8'

/**
 * Sessions in the memory of this process: a restart signs everybody out. A session ends after twelve hours even if it is
 * used, since a page that refreshes itself would keep it forever.
 */
export class Sessions {
  private readonly sessions = new Map<string, Session & { endsAt: number }>()
  private count = 0

  constructor(private readonly monotonic: Monotonic) {}

  begin(): { id: string; session: Session } {
    const [id, csrf] = [randomBytes(32).toString('base64url'), randomBytes(32).toString('base64url')]
    this.count++
    const session = { number: this.count, csrf, notice: undefined, endsAt: this.monotonic() + LONGEST_MS }
    this.sessions.set(id, session)
    const [oldest] = this.sessions.keys()
    if (this.sessions.size > MOST_SESSIONS) this.sessions.delete(oldest!)
    return { id, session }
  }

  of({ cookies }: FastifyRequest): Session | undefined {
    const found = this.sessions.get(cookies[COOKIE] ?? '')
    return found !== undefined && found.endsAt > this.monotonic() ? found : undefined
  }

  end({ cookies }: FastifyRequest): void {
    this.sessions.delete(cookies[COOKIE] ?? '')
  }
}

/** Hooks for routes that need the token: in a header, or in a form of a session. */
export type Guards = Record<'bearer' | 'form', Guard>

/** Signing in and out with the token. The scope must have the plugins for forms, cookies and rate limits. */
export function signInRoutes(
  app: FastifyInstance,
  { token, sessions, version, log }: { token: string; sessions: Sessions; version: string; log: Log },
): Guards {
  const limit = app.createRateLimit({ keyGenerator: () => 'all' })
  /** Counts a wrong token, and gives the seconds to wait after too many. */
  const countFailure = async (request: FastifyRequest) => {
    const counted = await limit(request)
    return !counted.isAllowed && counted.isExceeded ? counted.ttlInSeconds : 0
  }
  const show = (reply: FastifyReply, status: number, error?: string) =>
    reply.code(status).type(HTML).send(signInPage({ version, error }))
  const guards: Guards = {
    async bearer(request, reply) {
      const given = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1]
      if (given !== undefined && isSame(given, token)) return
      const wait = given === undefined ? 0 : await countFailure(request)
      if (wait === 0) throw Object.assign(new Error('a bearer token is needed'), { statusCode: 401 })
      reply.header('retry-after', wait)
      throw Object.assign(new Error('too many wrong tokens; try again later'), { statusCode: 429 })
    },
    async form(request, reply) {
      const session = sessions.of(request)
      if (session === undefined) return void reply.redirect('/sign-in', 303)
      const { csrf } = (request.body ?? {}) as { csrf?: unknown }
      if (isOwnSite(request) && typeof csrf === 'string' && isSame(csrf, session.csrf)) return
      log.warn({ path: request.url.split('?')[0], address: request.ip }, 'a form of another site was refused')
      const text = 'This form did not come from a page of this session. Go back, reload the page and try again.'
      reply.code(403).type(HTML).send(errorPage(version, text))
    },
  }

  app.get('/sign-in', async (request, reply) =>
    sessions.of(request) === undefined ? show(reply, 200) : reply.redirect('/', 303),
  )
  app.post('/sign-in', async (request, reply) => {
    const address = request.ip
    if (!isSame(readQuery(request.body ?? {}, ['token']).token ?? '', token)) {
      const wait = await countFailure(request)
      log.warn({ address }, wait === 0 ? 'a sign-in was refused' : 'too many attempts to sign in')
      const error = 'That is not the token of this server.'
      return wait === 0 ? show(reply, 401, error) : show(reply.header('retry-after', wait), 429, error)
    }
    const { id, session } = sessions.begin()
    log.info({ session: session.number, address }, 'signed in')
    // No script reads the cookie, and no other site can have it sent. A proxy may speak TLS for this server.
    const secure = /^https\b/.test(String(request.headers['x-forwarded-proto']))
    const limits = { path: '/', httpOnly: true, sameSite: 'strict', secure, maxAge: LONGEST_MS / 1000 } as const
    return reply.setCookie(COOKIE, id, limits).redirect('/', 303)
  })
  app.post('/sign-out', { preHandler: guards.form }, async (request, reply) => {
    log.info({ session: sessions.of(request)!.number, address: request.ip }, 'signed out')
    sessions.end(request)
    return reply.clearCookie(COOKIE, { path: '/' }).redirect('/', 303)
  })
  return guards
}

/** False if the browser reports that a page of another site sent the form. Browsers before 2023 may not report it. */
function isOwnSite({ headers }: FastifyRequest): boolean {
  return (headers['sec-fetch-site'] ?? 'same-origin') === 'same-origin'
}

/** Takes the same time whatever is compared. */
function isSame(given: string, wanted: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(wanted))
}
