import type { FastifyInstance } from 'fastify'
import * as z from 'zod'
import { dayOf, isDay } from '../core/day.ts'
import { LockedError, messageOf, TransientError, UsageError } from '../core/errors.ts'
import { clip, count } from '../core/text.ts'
import { isInReview } from '../ledger/days.ts'
import { listQuarantine, rowsIn } from '../ledger/quarantine.ts'
import { findRun } from '../ledger/runs.ts'
import { dismissQuarantine, reopenForRetry } from '../sync/quarantine.ts'
import { href } from './pages/layout.ts'
import { FIRST_DAY, projectOf, readQuery } from './query.ts'
import type { BackfillRequest, ServerOptions } from './server-options.ts'
import type { Guards, Sessions } from './sign-in.ts'
import type { Notice } from './status-data.ts'
import type { View } from './view.ts'

/* Actions of the pages, for people who signed in. Each runs the code of the command of the same name. */

interface ActionOptions extends Pick<ServerOptions, 'view' | 'sync' | 'backfill'> {
  sessions: Sessions
  preHandler: Guards['form']
}

interface Done {
  notice: Notice
  /** The page that is shown next, if it is another one. */
  to?: string
}

type Fields = Partial<Record<string, string>>

export function actionRoutes(app: FastifyInstance, options: ActionOptions): void {
  const { view } = options
  const { log } = view.services
  const action = (name: string, fields: readonly string[], work: (form: Fields) => Promise<Done>) =>
    app.post(`/actions/${name}`, { preHandler: options.preHandler }, async (request, reply) => {
      const session = options.sessions.of(request)!
      const { csrf: _csrf, ...form } = readQuery(request.body, ['csrf', ...fields])
      const about = { action: name, ...form, session: session.number, address: request.ip }
      log.info(about, 'asked for on the page')
      const done = await work(form).catch((error: unknown): Done => {
        if (!(error instanceof UsageError || error instanceof LockedError)) throw error
        return { notice: bad(clip(messageOf(error))) }
      })
      if (done.notice.kind === 'bad') log.warn({ ...about, reason: done.notice.text }, 'not done')
      session.notice = done.notice
      view.cache.clear()
      const isQuarantine = name === 'retry' || name === 'dismiss'
      return reply.redirect(done.to ?? (isQuarantine ? quarantineOf(form) : '/'), 303)
    })

  action('sync', [], async () => {
    const started = options.sync()
    if ('busy' in started) return { notice: bad(started.busy) }
    return {
      notice: good('begun' in started ? 'A sync has begun.' : `A sync begins when the ${started.after} has ended.`),
    }
  })

  action('backfill', ['from', 'to', 'project', 'stream', 'missing'], async ({ from = '', to = '', ...form }) => {
    const projects = form.project === undefined ? [] : [projectOf(view.projects, form.project)]
    const streams = form.stream === undefined ? [] : [form.stream]
    return startBackfill(options, backfillIn({ from, to, streams, projects, missing: form.missing !== undefined }))
  })

  action('accept', ['project', 'stream', 'from', 'to'], async ({ from = '', to = '', stream = '', ...form }) => {
    const project = projectOf(view.projects, form.project ?? '')
    const accepted = backfillIn({ from, to, streams: [stream], projects: [project] })
    // Deletions are let through only for what somebody looked at: the days must still be held.
    if (!(await view.read((warehouse) => isInReview(warehouse, { projectId: project, stream }, { from, to }))))
      throw new UsageError(`${stream}, ${from} to ${to}, is not held any more; nothing was done`)
    return startBackfill(options, { ...accepted, acceptDeletes: true })
  })

  action('retry', ['id', 'project', 'state'], async (form) => {
    const { warehouse, clock } = view.services
    const state = form.state === 'dismissed' ? { state: 'dismissed' as const } : {}
    const entries = await reopenForRetry(warehouse, { ...(await reasonOf(view, form)), ...state })
    if (entries.length === 0) throw new UsageError('no such row is in quarantine any more')
    const days = entries.flatMap(({ from_date, to_date }) => [from_date, to_date]).filter((date) => date !== null)
    // Lists have no days.
    const sorted = days.length === 0 ? [dayOf(clock())] : days.sort()
    const projects = [...new Set(entries.map(({ project_id }) => project_id))]
    const streams = [...new Set(entries.map(({ stream }) => stream))]
    return startBackfill(options, backfillIn({ from: sorted[0]!, to: sorted.at(-1)!, streams, projects }))
  })

  action('dismiss', ['id', 'project', 'state', 'because'], async (form) => {
    const because = (form.because ?? '').trim()
    if (because === '') throw new UsageError('say why; it is kept with the rows')
    const entries = await dismissQuarantine(view.services.warehouse, await reasonOf(view, form), clip(because, 500))
    const rows = rowsIn(entries)
    const text = `${count(rows, 'row')} dismissed. The next sync reads ${rows === 1 ? 'its day' : 'their days'} again without ${rows === 1 ? 'it' : 'them'}.`
    return { notice: good(text) }
  })
}

const good = (text: string): Notice => ({ kind: 'good', text })
const bad = (text: string): Notice => ({ kind: 'bad', text: sentence(text) })

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, '')}.`
}

async function startBackfill({ backfill }: ActionOptions, request: BackfillRequest): Promise<Done> {
  const started = await backfill(request)
  if ('busy' in started) return { notice: bad(started.busy) }
  return { notice: good('The backfill has begun.'), to: `/runs/${started.runId}` }
}

function quarantineOf({ state, project }: Fields): string {
  return href('/quarantine', { project, state: state === 'dismissed' ? state : undefined })
}

/** All rows that failed in the same way as the entry that was shown. */
async function reasonOf(view: View, { id, project }: Fields) {
  const ids = /^\d{1,15}$/.test(id ?? '') ? [Number(id)] : []
  const [entry] =
    ids.length === 0 ? [] : await view.read((warehouse) => listQuarantine(warehouse, { ids, state: 'all' }))
  if (entry === undefined) throw new UsageError(`there is no entry ${clip(id ?? '', 20)} in quarantine`)
  const projects = project === undefined ? [] : [projectOf(view.projects, project)]
  return { streams: [entry.stream], reason: entry.reason, projects }
}

const LAST_DAY = '2999-12-31'
const day = z.string().refine((text) => isDay(text) && text >= FIRST_DAY && text <= LAST_DAY, {
  error: ({ input }) => `got "${clip(String(input), 40)}"; allowed: a calendar date from ${FIRST_DAY} to ${LAST_DAY}`,
})
const backfillBody = z.strictObject({
  from: day,
  to: day,
  streams: z.array(z.string()).max(100).default([]),
  projects: z.array(z.string()).max(1000).default([]),
  missing: z.boolean().default(false),
})

function backfillIn(body: unknown): BackfillRequest {
  const parsed = backfillBody.safeParse(body)
  if (parsed.success) return parsed.data
  const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'body'}: ${message}`)
  throw new UsageError(problems.join('; '))
}

type BackfillOptions = Pick<ServerOptions, 'view' | 'live' | 'backfill'> & { onRequest: Guards['bearer'] }

/** The routes that start work or report on it. `onRequest` lets only those pass who have the token. */
export function backfillRoutes(app: FastifyInstance, options: BackfillOptions): void {
  const { view, live, backfill, onRequest } = options
  app.post('/api/backfills', { onRequest }, async (request, reply) => {
    if (!request.headers['content-type']?.startsWith('application/json'))
      return reply.code(415).send({ error: 'send the body as JSON, with the header Content-Type: application/json' })
    if (!view.database.up) throw new TransientError('the database does not answer')
    const started = await backfill(backfillIn(request.body))
    if ('busy' in started) return reply.code(409).send({ error: started.busy })
    return reply.code(202).header('location', `/api/runs/${started.runId}`).send({ run_id: started.runId })
  })
  app.get('/api/runs/:id', { onRequest }, async (request, reply) => {
    const { id } = request.params as { id: string }
    const run = /^\d{1,15}$/.test(id) ? await view.read((warehouse) => findRun(warehouse, Number(id))) : undefined
    if (run === undefined) return reply.code(404).send({ error: 'there is no such run' })
    const progress = live.runs.find(({ runId }) => runId === run.run_id) ?? null
    return { ...run, progress }
  })
}
