import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { daysOfInterest } from '../core/config/load.ts'
import { addDays, type Day, dayOf } from '../core/day.ts'
import { TransientError, UsageError } from '../core/errors.ts'
import type { Monotonic } from '../core/monotonic.ts'
import type { Live } from '../schedule/live.ts'
import { streamKinds } from '../streams/registry.ts'
import { type Body, bodyOf, sendBody } from './body.ts'
import { Cached, type CachedOptions } from './cached.ts'
import { projectsByHealth } from './health.ts'
import { weekdayOf, yearUpTo } from './pages/calendar.ts'
import { href, type Viewer } from './pages/layout.ts'
import { quarantinePage } from './pages/quarantine-page.ts'
import { restatementsPage } from './pages/restatements-page.ts'
import { runPage } from './pages/run-page.ts'
import { statusPage } from './pages/status-page.ts'
import { dayIn, projectOf, rangeOf, readQuery } from './query.ts'
import type { Session } from './sessions.ts'
import type { CalendarData, FailedStart, Notice } from './status-data.ts'
import type { LedgerState, View } from './view.ts'

/* The pages about the sync itself. */

export interface PageRoutesOptions {
  view: View
  live: Live
  monotonic: Monotonic
  version: string
  warehouse: string
  maxStalenessMs: number
  next: () => { sync: Date | undefined; audit: Date | undefined }
  failedToStart: () => FailedStart | undefined
  cache: Omit<CachedOptions, 'monotonic'>
  /** What is kept under another moment counts no more. */
  moment: () => string
  /** Undefined if nobody can sign in, null if this one did not. */
  sessionOf: (request: FastifyRequest) => Session | null | undefined
  /** What can be read now; or, while the database is away, what was read last. */
  orLastKnown: (
    view: View,
    reply: FastifyReply,
    lastKnown: (state: LedgerState | undefined) => Promise<Body>,
    read: () => Promise<Body>,
  ) => Promise<Body>
}

// Seven weeks and the present one.
const CALENDAR_DAYS = 50
const LONGEST_SEARCH = 100
const MOST_REASONS = 40
const MOST_RESTATEMENTS = 150
const RESTATEMENT_DAYS = 30
const HTML = 'text/html; charset=utf-8'

type Write = (viewer: Viewer, notice: Notice | undefined) => Promise<string>

export function pageRoutes(app: FastifyInstance, options: PageRoutesOptions): void {
  const { view, monotonic, version } = options
  const { config } = view.services
  const streams = streamKinds(config)
  const allStreams = streams.map(({ name }) => name)
  const dayStreams = streams.flatMap(({ by, name }) => (by === 'day' ? [name] : []))
  const pages = new Cached<Body>({ monotonic, ...options.cache })

  /** The same page for all who only read; people who signed in get one with forms of their own. */
  const bodyFor = async (request: FastifyRequest, key: string, write: Write): Promise<Body> => {
    const session = options.sessionOf(request)
    const body = async (viewer: Viewer, notice?: Notice) => bodyOf(config.redactor.text(await write(viewer, notice)))
    if (session == null)
      return pages.get(key, () => body(session === null ? { csrf: undefined } : undefined), options.moment())
    const { notice } = session
    session.notice = undefined
    return body({ csrf: session.csrf }, notice)
  }
  const needsDatabase = () => {
    if (!view.database.up) throw new TransientError('the database does not answer')
  }

  app.get('/', async (request, reply) => {
    const query = readQuery(request.query, ['project', 'to', 'day', 'q'])
    if ((query.q?.length ?? 0) > LONGEST_SEARCH)
      throw new UsageError(`q: got ${query.q!.length} characters; allowed: at most ${LONGEST_SEARCH}`)
    const asked = query.project === undefined ? undefined : projectOf(view.projects, query.project)
    const today = dayOf(view.now())
    const interest = daysOfInterest(config, today)
    const latest = interest.to < today ? interest.to : today
    const to = dayIn('to', query.to, today) ?? latest
    const day = dayIn('day', query.day, today)
    const write =
      (state: LedgerState | undefined, days: Pick<CalendarData, 'days' | 'year' | 'detail'>, project: string): Write =>
      async (viewer, notice) => {
        return statusPage({
          version,
          viewer,
          notice,
          self: href('/', { project, to: query.to, day, q: query.q }),
          now: view.now(),
          ledgerNow: view.ledgerNow(),
          database: view.database,
          ledgerAgeMs: state === undefined ? undefined : view.ageMs(state),
          source: view.services.source,
          warehouse: options.warehouse,
          status: state?.status,
          live: options.live.runs,
          next: options.next(),
          failedToStart: options.failedToStart(),
          budgets: view.budgets(state),
          queue: state?.queue,
          alerts: view.alerts,
          maxStalenessMs: options.maxStalenessMs,
          projects: namesOf(view, state),
          search: query.q,
          calendar: {
            project,
            streams: dayStreams,
            range: { from: mondayBefore(addDays(to, 1 - CALENDAR_DAYS)), to },
            first: interest.from,
            later: to < latest ? earlierOf(addDays(to, CALENDAR_DAYS), latest) : undefined,
            yearRange: yearUpTo(to),
            day,
            ...days,
          },
        })
      }
    const unknown = { days: undefined, year: undefined, detail: undefined }
    const body = await options.orLastKnown(
      view,
      reply,
      async (state) =>
        bodyOf(config.redactor.text(await write(state, unknown, asked ?? worst(state))(undefined, undefined))),
      () =>
        bodyFor(request, `/ ${asked ?? ''} ${to} ${day ?? ''} ${query.q ?? ''}`, async (viewer, notice) => {
          const state = await view.state()
          const project = asked ?? worst(state)
          if (state.status === undefined)
            return write(state, { ...unknown, days: [], year: [] }, project)(viewer, notice)
          const range = { from: mondayBefore(addDays(to, 1 - CALENDAR_DAYS)), to }
          const [days, year, detail] = await Promise.all([
            view.calendar(project, dayStreams, range),
            view.year(project, dayStreams, yearUpTo(to)),
            day === undefined ? undefined : view.day(project, dayStreams, day),
          ])
          return write(state, { days, year, detail }, project)(viewer, notice)
        }),
    )
    return sendBody(request, reply, HTML, body)
  })

  /** The project that needs a look most, or the first. */
  const worst = (state: LedgerState | undefined) => {
    const { maxStalenessMs } = options
    const projects = namesOf(view, state)
    if (state?.status === undefined) return projects[0]?.id ?? ''
    const [first] = projectsByHealth({ status: state.status, projects, ledgerNow: view.ledgerNow(), maxStalenessMs })
    return first === undefined || first.rank === 0 ? (projects[0]?.id ?? '') : first.id
  }

  app.get('/runs/:id', async (request, reply) => {
    readQuery(request.query, [])
    const { id } = request.params as { id: string }
    if (!/^\d{1,15}$/.test(id)) throw noSuchRun()
    needsDatabase()
    const body = await bodyFor(request, `/runs ${Number(id)}`, async (viewer, notice) => {
      const state = await view.state()
      const found = state.status && (await view.runWithChanges(Number(id)))
      if (found === undefined) throw noSuchRun()
      return runPage({
        version,
        viewer,
        notice,
        now: view.now(),
        ledgerNow: view.ledgerNow(),
        ...found,
        live: options.live.runs.find(({ runId }) => runId === found.run.run_id),
        names: state.names,
      })
    })
    return sendBody(request, reply, HTML, body)
  })

  app.get('/quarantine', async (request, reply) => {
    const query = readQuery(request.query, ['project', 'stream', 'state'])
    const project = query.project === undefined ? undefined : projectOf(view.projects, query.project)
    const stream = query.stream === undefined ? undefined : streamIn(allStreams, query.stream)
    const state = query.state ?? 'open'
    if (state !== 'open' && state !== 'dismissed')
      throw new UsageError(`state: got "${state.slice(0, 40)}"; allowed: open, dismissed`)
    needsDatabase()
    const body = await bodyFor(
      request,
      `/quarantine ${project ?? ''} ${stream ?? ''} ${state}`,
      async (viewer, notice) => {
        const known = await view.state()
        const filter = {
          projects: project === undefined ? [] : [project],
          streams: stream === undefined ? [] : [stream],
          state: state as 'open' | 'dismissed',
          limit: MOST_REASONS + 1,
        }
        const { groups, examples } =
          known.status === undefined ? { groups: [], examples: [] } : await view.quarantine(filter)
        return quarantinePage({
          version,
          viewer,
          notice,
          ledgerNow: view.ledgerNow(),
          groups: groups.slice(0, MOST_REASONS),
          examples,
          isCut: groups.length > MOST_REASONS,
          state: filter.state,
          project,
          stream,
          projects: view.names(known),
          streams: allStreams,
        })
      },
    )
    return sendBody(request, reply, HTML, body)
  })

  app.get('/restatements', async (request, reply) => {
    const query = readQuery(request.query, ['project', 'stream', 'from', 'to'])
    const project = query.project === undefined ? undefined : projectOf(view.projects, query.project)
    const stream = query.stream === undefined ? undefined : streamIn(dayStreams, query.stream)
    // What was seen is dated by the database's clock.
    const today = dayOf(view.ledgerNow())
    const to = dayIn('to', query.to, today) ?? today
    const range = rangeOf({ from: query.from ?? addDays(to, 1 - RESTATEMENT_DAYS), to }, today, today)
    needsDatabase()
    const key = `/restatements ${project ?? ''} ${stream ?? ''} ${range.from} ${range.to}`
    const body = await bodyFor(request, key, async (viewer) => {
      const known = await view.state()
      const report = known.status && (await view.restatements({ ...range, project, stream, most: MOST_RESTATEMENTS }))
      return restatementsPage({
        version,
        viewer,
        ledgerNow: view.ledgerNow(),
        range,
        project,
        stream,
        projects: view.names(known),
        streams: dayStreams,
        report,
        lookback: known.status?.lookback,
      })
    })
    return sendBody(request, reply, HTML, body)
  })
}

function namesOf(view: View, state: LedgerState | undefined): { id: string; name: string }[] {
  return state === undefined ? view.projects.map(({ id }) => ({ id, name: id })) : view.names(state)
}

function streamIn(streams: readonly string[], asked: string): string {
  if (streams.includes(asked)) return asked
  throw new UsageError(`stream: got "${asked.slice(0, 60)}"; configured are: ${streams.join(', ')}`)
}

const noSuchRun = () => Object.assign(new Error('there is no such run'), { statusCode: 404 })
const mondayBefore = (day: Day) => addDays(day, -weekdayOf(day))
const earlierOf = (a: Day, b: Day) => (a < b ? a : b)
