import type { FastifyInstance } from 'fastify'
import * as z from 'zod'
import { isDay } from '../core/day.ts'
import { LockedError, messageOf } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { findRun } from '../ledger/runs.ts'
import { FIRST_DAY } from './query.ts'
import type { ServerOptions } from './server-options.ts'
import type { Guards } from './sign-in.ts'

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

type BackfillOptions = Pick<ServerOptions, 'view' | 'live' | 'backfill'> & { onRequest: Guards['bearer'] }

/** The routes that start work or report on it. `onRequest` lets only those pass who have the token. */
export function backfillRoutes(app: FastifyInstance, options: BackfillOptions): void {
  const { view, live, backfill, onRequest } = options
  app.post('/api/backfills', { onRequest }, async (request, reply) => {
    const parsed = backfillBody.safeParse(request.body)
    if (!parsed.success) {
      const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'body'}: ${message}`)
      return reply.code(400).send({ error: clip(problems.join('; ')) })
    }
    if (parsed.data.to < parsed.data.from) return reply.code(400).send({ error: 'to: must be from or later' })
    try {
      const started = await backfill(parsed.data)
      if ('busy' in started) return reply.code(409).send({ error: started.busy })
      return reply.code(202).header('location', `/api/runs/${started.runId}`).send({ run_id: started.runId })
    } catch (error) {
      if (error instanceof LockedError) return reply.code(409).send({ error: messageOf(error) })
      throw error
    }
  })
  app.get('/api/runs/:id', { onRequest }, async (request, reply) => {
    const { id } = request.params as { id: string }
    const run = /^\d{1,15}$/.test(id) ? await view.read((warehouse) => findRun(warehouse, Number(id))) : undefined
    if (run === undefined) return reply.code(404).send({ error: 'there is no such run' })
    const progress = live.runs.find(({ runId }) => runId === run.run_id) ?? null
    return { ...run, progress }
  })
}
