import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { daysOfInterest } from '../core/config/load.ts'
import { addDays, type Day, dayOf } from '../core/day.ts'
import { TransientError, UsageError } from '../core/errors.ts'
import { readCalendar, readDay, readYear } from '../ledger/calendar.ts'
import { groupQuarantine, listQuarantine } from '../ledger/quarantine.ts'
import { changesOfRun, readRestatements } from '../ledger/restatement-report.ts'
import { findRun, neighboursOf } from '../ledger/runs.ts'
import { streamKinds } from '../streams/registry.ts'
import { type Body, bodyOf, sendBody } from './cache.ts'
import { projectsByHealth } from './health.ts'
import { mondayOf } from './insights/filters.ts'
import { href } from './pages/layout.ts'
import { quarantinePage } from './pages/quarantine-page.ts'
import { restatementsPage } from './pages/restatements-page.ts'
import { runPage } from './pages/run-page.ts'
import { statusPage } from './pages/status-page.ts'
import { dayIn, oneOf, projectOf, rangeOf, readQuery } from './query.ts'
import type { ServerOptions } from './server-options.ts'
import type { Session } from './sign-in.ts'
import {
  type CalendarData,
  type Notice,
  type PageData,
  statusData,
  statusDocument,
  type Viewer,
} from './status-data.ts'
import type { LedgerState, View } from './view.ts'

interface PageRoutesOptions extends ServerOptions {
  /** Undefined if nobody can sign in, null if this one did not. */
  sessionOf: (request: FastifyRequest) => Session | null | undefined
}

const TTL_MS = 1000
// Seven weeks and the present one.
const CALENDAR_DAYS = 50
const LONGEST_SEARCH = 100
const MOST_REASONS = 40
const MOST_CHANGES = 60
const MOST_RESTATEMENTS = 150
const RESTATEMENT_DAYS = 30
const HTML = 'text/html; charset=utf-8'

export function pageRoutes(app: FastifyInstance, options: PageRoutesOptions): void {
  const { view, version, maxStalenessMs } = options
  const { config } = view.services
  const streams = streamKinds(config)
  const allStreams = streams.map(({ name }) => name)
  const dayStreams = streams.flatMap(({ by, name }) => (by === 'day' ? [name] : []))
  const redacted = (page: string) => bodyOf(config.redactor.text(page))
  const frameOf = (viewer: Viewer, notice?: Notice) => ({ version, viewer, notice, ledgerNow: view.ledgerNow() })

  /** Everyone who only reads gets the same page; people who signed in get one with forms of their session. */
  const bodyFor = async (request: FastifyRequest, write: (frame: PageData) => Promise<string>): Promise<Body> => {
    const session = options.sessionOf(request)
    if (session == null) {
      const viewer = session === null ? { csrf: undefined } : undefined
      return view.cache.get(request.url, TTL_MS, async () => redacted(await write(frameOf(viewer))))
    }
    const { notice, csrf } = session
    session.notice = undefined
    return redacted(await write(frameOf({ csrf }, notice)))
  }
  const sendPage = async (
    request: FastifyRequest,
    reply: FastifyReply,
    write: (frame: PageData, state: LedgerState) => Promise<string>,
  ) => {
    if (!view.database.up) throw new TransientError('the database does not answer')
    return sendBody(request, reply, HTML, await bodyFor(request, async (frame) => write(frame, await view.state())))
  }
  const projectIn = (asked: string | undefined) => (asked === undefined ? undefined : projectOf(view.projects, asked))

  const worst = (state: LedgerState | undefined) => {
    const projects = view.names(state)
    const sorted = projectsByHealth({ status: state?.status, projects, ledgerNow: view.ledgerNow(), maxStalenessMs })
    return (sorted[0]?.rank === 0 ? projects[0] : sorted[0])?.id ?? ''
  }

  app.get('/', async (request, reply) => {
    const query = readQuery(request.query, ['project', 'to', 'day', 'q'])
    if ((query.q?.length ?? 0) > LONGEST_SEARCH)
      throw new UsageError(`q: got ${query.q!.length} characters; allowed: at most ${LONGEST_SEARCH}`)
    const asked = projectIn(query.project)
    const today = dayOf(view.now())
    const interest = daysOfInterest(config, today)
    const latest = earlierOf(interest.to, today)
    const to = dayIn('to', query.to, today) ?? latest
    const day = dayIn('day', query.day, today)
    const range = { from: mondayOf(addDays(to, 1 - CALENDAR_DAYS)), to }
    const later = to < latest ? earlierOf(addDays(to, CALENDAR_DAYS), latest) : undefined
    const yearRange = { from: addDays(to, -364), to }
    const dates = { streams: dayStreams, range, first: interest.from, later, yearRange, day }
    const readDays = (project: string) =>
      view.read(async (warehouse) => ({
        days: await readCalendar(warehouse, project, dayStreams, range),
        year: await readYear(warehouse, project, dayStreams, yearRange),
        detail: day === undefined ? undefined : await readDay(warehouse, project, dayStreams, day),
      }))
    const write = (frame: PageData, state: LedgerState | undefined, known: CalendarData['known']) => {
      const calendar = { ...dates, project: asked ?? worst(state), known }
      const self = href('/', { project: calendar.project, to: query.to, day, q: query.q })
      return statusPage(statusData(options, state, { ...frame, self, search: query.q, calendar }))
    }
    const body = await orLastKnown(
      view,
      reply,
      (state) => redacted(write(frameOf(undefined), state, undefined)),
      () =>
        bodyFor(request, async (frame) => {
          const state = await view.state()
          const nothing = { days: [], year: [], detail: undefined }
          return write(frame, state, state.status === undefined ? nothing : await readDays(asked ?? worst(state)))
        }),
    )
    return sendBody(request, reply, HTML, body)
  })

  app.get('/api/status', async (request, reply) => {
    const project = projectIn(readQuery(request.query, ['project']).project)
    const write = (state: LedgerState | undefined) =>
      bodyOf(config.redactor.json(JSON.stringify(statusDocument(options, state, project))))
    const body = await orLastKnown(view, reply, write, () =>
      view.cache.get(request.url, TTL_MS, async () => write(await view.state())),
    )
    return sendBody(request, reply, 'application/json; charset=utf-8', body)
  })

  app.get('/runs/:id', async (request, reply) => {
    readQuery(request.query, [])
    const { id } = request.params as { id: string }
    if (!/^\d{1,15}$/.test(id)) throw noSuchRun()
    return sendPage(request, reply, async (frame, { status, names }) => {
      if (status === undefined) throw noSuchRun()
      const found = await view.read(async (warehouse) => {
        const run = await findRun(warehouse, Number(id))
        if (run === undefined) throw noSuchRun()
        const changes = await changesOfRun(warehouse, run, MOST_CHANGES)
        return { run, changes, neighbours: await neighboursOf(warehouse, run.run_id) }
      })
      const live = options.live.runs.find(({ runId }) => runId === found.run.run_id)
      return runPage({ ...frame, now: view.now(), ...found, live, names })
    })
  })

  app.get('/quarantine', async (request, reply) => {
    const query = readQuery(request.query, ['project', 'stream', 'state'])
    const project = projectIn(query.project)
    const stream = streamIn(allStreams, query.stream)
    const state = oneOf('state', query.state, ['open', 'dismissed']) ?? 'open'
    return sendPage(request, reply, async (frame, known) => {
      const listOf = (one: string | undefined) => (one === undefined ? [] : [one])
      const filter = { projects: listOf(project), streams: listOf(stream), state, limit: MOST_REASONS + 1 }
      const found = await view.read(async (warehouse) => {
        const groups = known.status === undefined ? [] : await groupQuarantine(warehouse, filter)
        const ids = groups.map(({ example_id }) => example_id)
        return { groups, examples: ids.length === 0 ? [] : await listQuarantine(warehouse, { ids, state: 'all' }) }
      })
      const [groups, isCut] = [found.groups.slice(0, MOST_REASONS), found.groups.length > MOST_REASONS]
      const filters = { state, project, stream, projects: view.names(known), streams: allStreams }
      return quarantinePage({ ...frame, ...filters, groups, examples: found.examples, isCut })
    })
  })

  app.get('/restatements', async (request, reply) => {
    const query = readQuery(request.query, ['project', 'stream', 'from', 'to'])
    const project = projectIn(query.project)
    const stream = streamIn(dayStreams, query.stream)
    // Restatements are dated by the database's clock.
    const today = dayOf(view.ledgerNow())
    const to = dayIn('to', query.to, today) ?? today
    const range = rangeOf({ from: query.from ?? addDays(to, 1 - RESTATEMENT_DAYS), to }, today, today)
    return sendPage(request, reply, async (frame, known) => {
      const filter = { ...range, project, stream, most: MOST_RESTATEMENTS }
      const report = known.status && (await view.read((warehouse) => readRestatements(warehouse, filter)))
      const filters = { range, project, stream, projects: view.names(known), streams: dayStreams }
      return restatementsPage({ ...frame, ...filters, report, lookback: known.status?.lookback })
    })
  })
}

/** The present state; while the database is away, a 503 with the last state. */
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

function streamIn(streams: readonly string[], asked: string | undefined): string | undefined {
  if (asked === undefined || streams.includes(asked)) return asked
  throw new UsageError(`stream: got "${asked.slice(0, 60)}"; configured are: ${streams.join(', ')}`)
}

const noSuchRun = () => Object.assign(new Error('there is no such run'), { statusCode: 404 })
const earlierOf = (a: Day, b: Day) => (a < b ? a : b)
