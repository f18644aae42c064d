import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Log } from '../core/logger.ts'
import type { Attempts } from './attempts.ts'
import { readForm } from './form.ts'
import { errorPage } from './pages/error-page.ts'
import { signInPage } from './pages/sign-in-page.ts'
import { isOwnForm, isSecure } from './same-site.ts'
import { sameToken } from './same-token.ts'
import type { Session, Sessions } from './sessions.ts'

export interface SignInOptions {
  token: string
  sessions: Sessions
  attempts: Attempts
  hosts: readonly string[]
  version: string
  log: Log
}

const HTML = 'text/html; charset=utf-8'

/** Signing in and out with the token. */
export function signInRoutes(app: FastifyInstance, options: SignInOptions): void {
  const { token, sessions, attempts, version, log } = options
  const show = (reply: FastifyReply, status: number, error?: string) =>
    reply.code(status).type(HTML).send(signInPage({ version, error }))

  app.get('/sign-in', async (request, reply) =>
    sessions.find(request.headers.cookie) === undefined ? show(reply, 200) : reply.redirect('/', 303),
  )
  app.post('/sign-in', async (request, reply) => {
    const address = request.ip
    if (!isOwnForm(request.headers, options.hosts)) return refuse(request, reply, options)
    const wait = attempts.waitSeconds(address)
    if (wait > 0) {
      log.warn({ address }, 'too many attempts to sign in')
      return show(reply.header('retry-after', String(wait)), 429, `Too many attempts. Try again in ${wait} s.`)
    }
    if (!sameToken(readForm(request.body, ['token']).token ?? '', token)) {
      attempts.failed(address)
      log.warn({ address }, 'a sign-in was refused')
      return show(reply, 401, 'That is not the token of this server.')
    }
    const { session, cookie } = sessions.begin(isSecure(request.headers))
    log.info({ session: session.number, address }, 'signed in')
    return reply.header('set-cookie', cookie).redirect('/', 303)
  })
  app.post('/sign-out', async (request, reply) => {
    const session = await admit(request, reply, options)
    if (session === undefined) return reply
    log.info({ session: session.number, address: request.ip }, 'signed out')
    return reply
      .header('set-cookie', sessions.end(request.headers.cookie, isSecure(request.headers)))
      .redirect('/', 303)
  })
}

/** The session of a request that a page of this server sent. Anything else is answered here. */
export async function admit(
  request: FastifyRequest,
  reply: FastifyReply,
  options: SignInOptions,
): Promise<Session | undefined> {
  const { sessions, hosts } = options
  if (!isOwnForm(request.headers, hosts)) {
    await refuse(request, reply, options)
    return undefined
  }
  const session = sessions.find(request.headers.cookie)
  if (session === undefined) {
    await reply.redirect('/sign-in', 303)
    return undefined
  }
  const given = (request.body as { csrf?: unknown } | undefined)?.csrf
  if (typeof given === 'string' && sameToken(given, session.csrf)) return session
  await refuse(request, reply, options)
  return undefined
}

function refuse(request: FastifyRequest, reply: FastifyReply, { log, version }: SignInOptions): FastifyReply {
  log.warn({ path: request.url.split('?')[0], address: request.ip }, 'a form of another site was refused')
  const text = 'This form did not come from a page of this session. Go back, reload the page and try again.'
  return reply
    .code(403)
    .type(HTML)
    .send(errorPage({ version, path: undefined, text }))
}
