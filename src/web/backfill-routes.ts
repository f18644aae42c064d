import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import * as z from 'zod'
import { isDay } from '../core/day.ts'
import { LockedError, messageOf } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import type { Live } from '../schedule/live.ts'
import type { Attempts } from './attempts.ts'
import { FIRST_DAY } from './query.ts'
import { sameToken } from './same-token.ts'
import type { View } from './view.ts'

export interface BackfillRequest {
  from: string
  to: string
  streams: string[]
  projects: string[]
  missing: boolean
  /** Lets deletions through that were held for review. */
  acceptDeletes?: boolean
}

const LAST_DAY = '2999-12-31'
const day = z.string().refine((text) => isDay(text) && text >= FIRST_DAY && text <= LAST_DAY, {
  error: `a calendar date, YYYY-MM-DD, from ${FIRST_DAY} to ${LAST_DAY}`,
})
const backfillBody = z.strictObject({
  from: day,
  to: day,
  streams: z.array(z.string()).max(100).default([]),
  projects: z.array(z.string()).max(1000).default([]),
  missing: z.boolean().default(false),
})

/** The routes that start work or report on it, for who has the token. */
export function backfillRoutes(
  app: FastifyInstance,
  options: {
    view: View
    live: Live
    token: string
    attempts: Attempts
    backfill: (request: BackfillRequest) => Promise<{ runId: number } | { busy: string }>
  },
): void {
  const onRequest = async (request: FastifyRequest, reply: FastifyReply) => {
    const given = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1]
    // Who guesses here must not get more guesses than on the page.
    const wait = given === undefined ? 0 : options.attempts.waitSeconds(request.ip)
    if (wait > 0) {
      reply.header('retry-after', String(wait))
      throw Object.assign(new Error('too many wrong tokens; try again later'), { statusCode: 429 })
    }
    if (given !== undefined && sameToken(given, options.token)) return
    if (given !== undefined) options.attempts.failed(request.ip)
    throw Object.assign(new Error('a bearer token is needed'), { statusCode: 401 })
  }
  app.post('/api/backfills', { onRequest }, async (request, reply) => {
    const parsed = backfillBody.safeParse(request.body)
    if (!parsed.success) {
      const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'body'}: ${message}`)
      return reply.code(400).send({ error: clip(problems.join('; ')) })
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
    const run = /^\d{1,15}$/.test(id) ? await options.view.run(Number(id)) : undefined
    if (run === undefined) return reply.code(404).send({ error: 'there is no such run' })
    const progress = options.live.runs.find(({ runId }) => runId === run.run_id) ?? null
    return { ...run, progress }
  })
}
