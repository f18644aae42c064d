import { parseOptionalRange } from '../../app/backfill-request.ts'
import { chooseProjects, hasDatabase, openWarehouse, sourceName } from '../../app/open-services.ts'
import { chooseDatabase } from '../../core/config/choose-source.ts'
import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { type Day, dayOf, type Range, showRange } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import { hasLedger } from '../../ledger/days.ts'
import { readNotOffered } from '../../ledger/service-notes.ts'
import { type DayStream, isCompared, type Stream } from '../../streams/stream.ts'
import { Density, firstDaysOf } from '../../sync/plan/density.ts'
import { makePlanner } from '../../sync/plan/planner.ts'
import { planWindows } from '../../sync/plan/window-feed.ts'
import { CONTENTS, dueChats, usedRequests } from '../../sync/run/read-chat-contents.ts'
import type { SyncedProject } from '../../sync/run/run.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { namesIn, type ProjectNames } from '../project-names.ts'
import type { Part, Selection, Session } from '../session.ts'
import { renderTable, wrap } from '../table.ts'

interface PlanRow {
  project_id: string
  stream: string
  due_days: number
  requests: number
  guessed: boolean
  windows: string[]
}

const WHOLE_LIST = 'the whole list'

type Planned = Omit<PlanRow, 'project_id' | 'stream'>

export async function plan(session: Session, options: Selection): Promise<number> {
  const { document, names } = await makePlan(session, options)
  session.print(document, render(document, names, session.width))
  return 0
}

export interface Plan {
  source: string
  page_limit: number
  requests: number
  streams: PlanRow[]
}

export async function makePlan(session: Session, options: Selection): Promise<{ document: Plan; names: ProjectNames }> {
  const { config, log, clock } = session
  const today = dayOf(clock())
  const range = parseOptionalRange(options, config, today)
  const streams = session.streams.named(options.stream)
  const projects = chooseProjects(config, clock, options.project)
  const source = sourceName(config)
  chooseDatabase(config)
  const database = hasDatabase(config) ? await openWarehouse(config, log) : undefined
  try {
    const warehouse = database !== undefined && (await hasLedger(database.warehouse)) ? database.warehouse : undefined
    const planDays = await dayPlanner(session, warehouse, { range, projects, streams })
    // Streams that the service does not offer are not read, unless only extra streams were named.
    const ids = projects.map(({ id }) => id)
    const onlyExtras = streams.every(({ isExtra }) => isExtra)
    const left = warehouse === undefined || onlyExtras ? [] : await readNotOffered(warehouse, ids, clock())
    const rows: PlanRow[] = []
    for (const id of ids) {
      for (const stream of streams) {
        const base = { project_id: id, stream: stream.name }
        if (stream.isExtra && left.some((row) => row.project_id === id && row.stream === stream.name)) continue
        if (stream.by === 'day') rows.push({ ...base, ...(await planDays(id, stream)) })
        else if (range !== undefined) continue
        else if (stream.perChat) rows.push({ ...base, ...(await plannedContents(warehouse, config, id, today)) })
        else rows.push({ ...base, due_days: 0, requests: 1, guessed: false, windows: [WHOLE_LIST] })
      }
    }
    const requests = rows.reduce((sum, row) => sum + row.requests, 0)
    const names = await namesIn(database?.warehouse, projects, session.fullIds)
    return { document: { source, page_limit: config.source.page_limit, requests, streams: rows }, names }
  } finally {
    await database?.close()
  }
}

async function dayPlanner(
  { config, clock }: Session,
  warehouse: Warehouse | undefined,
  request: { range: Range | undefined; projects: SyncedProject[]; streams: Stream[] },
): Promise<(projectId: string, stream: DayStream) => Promise<Planned>> {
  const today = dayOf(clock())
  const planner = await makePlanner({ config, warehouse, today }, request)
  const cut = warehouse === undefined ? [] : await projectsWithShortPages(warehouse)
  // Streams without coverage have the same windows, and there may be thousands of them.
  const unread = new Map<string, Planned>()
  return async (projectId, stream) => {
    const { known: days, due } = await planner(projectId, stream.name)
    const firstDays = firstDaysOf(stream)
    const isUnread = days.length === 0
    // A first answer that control totals cannot prove is proven by another request.
    const isProven = isCompared(stream) && stream.control !== 'brand limits'
    const dueDays = new Set(due)
    const isNew = !days.some(({ date }) => dueDays.has(date))
    const requestsPerWindow = isNew && !isProven ? 2 : 1
    const isCut = cut.includes(projectId)
    const kind = `${firstDays} ${requestsPerWindow} ${isCut}`
    const known = isUnread ? unread.get(kind) : undefined
    if (known !== undefined) return known
    const density = new Density(days, today, firstDays)
    const guessed = (!density.isKnown || isCut) && due.length > 0
    const windows = planWindows(due, density, config.source, request.range === undefined).map(showRange)
    const planned = { due_days: due.length, requests: windows.length * requestsPerWindow, guessed, windows }
    if (isUnread) unread.set(kind, planned)
    return planned
  }
}

/** Projects whose answers were cut: windows of them may take more requests than their rows need. */
async function projectsWithShortPages({ db }: Warehouse): Promise<string[]> {
  const rows = await db
    .selectFrom('ops.drift')
    .select('project_id')
    .distinct()
    .where('kind', '=', 'short_page')
    .execute()
  return rows.map(({ project_id }) => project_id)
}

/** One request for each chat that is left, as far as the budget of the day goes. */
async function plannedContents(
  warehouse: Warehouse | undefined,
  config: Config,
  projectId: string,
  today: Day,
): Promise<Planned> {
  const settings = config.chat_contents!
  const range = daysOfInterest(config, today)
  const known = warehouse && {
    used: await usedRequests(warehouse, projectId, today),
    due: (await dueChats(warehouse, settings, { projectId, range, limit: 1 })).count,
  }
  const left = Math.max(0, settings.requests_per_day - (known?.used ?? 0))
  const words = known === undefined ? 'chats of this run' : count(known.due, 'chat')
  return {
    due_days: 0,
    requests: known === undefined ? left : Math.min(left, known.due),
    guessed: known === undefined,
    windows: [`${words}, ${left} of ${count(settings.requests_per_day, 'request')} left today`],
  }
}

const isGuessed = ({ streams }: Plan) => streams.some(({ guessed }) => guessed)

/** "About 20 requests, and more for control totals and proofs". */
export function aboutRequests(plan: Plan): string {
  return `${isGuessed(plan) ? 'At least' : 'About'} ${count(plan.requests, 'request')}, and more for control totals and proofs`
}

function render(plan: Plan, names: ProjectNames, width: number): Part[] {
  const { streams: rows, source } = plan
  const table = renderTable({ rows, width, group: (row) => names.heading(row.project_id) }, [
    { title: 'stream', value: (row) => row.stream },
    {
      title: 'days due',
      align: 'right',
      value: (row) => (row.windows[0] === WHOLE_LIST || row.stream === CONTENTS ? '–' : row.due_days),
    },
    { title: 'requests', align: 'right', value: (row) => `${row.guessed ? 'at least ' : ''}${row.requests}` },
    { title: 'windows, newest first', value: (row) => shortList(row.windows) },
  ])
  const about = `${aboutRequests(plan)}; nothing was read or changed.`
  const note =
    'Nothing is known yet of some streams, or the service truncated answers. The first window of each shows how many days fit a page: the more rows a day has, the more requests.'
  return [wrap(source, width, 'Source: '), '', table, '', wrap(about, width), isGuessed(plan) && wrap(note, width)]
}

function shortList([first = '–', ...others]: string[]): string {
  return others.length === 0 ? first : `${first}, … ${others.length} more`
}
