import type { z } from 'zod'
import { countDays, type Range } from '../core/day.ts'
import { clip } from '../core/text.ts'
import { type Filter, PAGE_LIMIT_DEFAULT } from '../core/vocabulary.ts'
import * as requests from '../source/requests.ts'
import { applyHaving, brandReport, chatList, type WiderReportRequest, widerReportRequest } from './aggregate.ts'
import { type Faults, mangle } from './change.ts'
import { extraItems, isExtra, projectList } from './extras.ts'
import { hashText } from './names.ts'
import { chatContent, domainReport, urlReport } from './sources.ts'
import { COMPANY_KEY, type Project, type Prompt, type World } from './world.ts'

const DEFAULT_DAY = '2026-01-01'

export class Refusal extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

export interface Call {
  method: string
  path: string
  query: Record<string, string>
  body: Record<string, unknown>
  key: string | undefined
}

interface Behaviour {
  faults(): Faults
  random(): number
  offers(operation: string): boolean
}

const REPORT = 'POST /reports/brands'

const REQUESTS = {
  [REPORT]: widerReportRequest,
  'POST /reports/domains': widerReportRequest,
  'POST /reports/urls': widerReportRequest,
  'GET /project-profile': requests.profileRequest,
  'GET /prompts': requests.promptsRequest,
  'GET /prompts/suggestions': requests.suggestionsRequest,
  'GET /classifications/domains': requests.classificationsRequest,
  'GET /chats': requests.chatsRequest,
  'POST /prompts': requests.createPromptRequest,
  'POST /topics': requests.createTopicRequest,
  'POST /classifications/domains': requests.createClassificationRequest,
  'POST /classifications/urls': requests.createClassificationRequest,
}
type Requests = typeof REQUESTS

export const OPERATIONS = Object.keys(REQUESTS)

/** The schema of a request. A service that knows more operations also knows more of its reports. */
export function requestOf(operation: string, offers: Behaviour['offers']): z.ZodObject {
  const isWider = offers('POST /reports/domains') || offers('POST /reports/urls')
  if (operation === REPORT && !isWider) return requests.reportRequest.omit({ having: true })
  return REQUESTS[operation as keyof Requests] ?? requests.classificationsRequest
}

/** Gives the body of the answer to a call. */
export function createRoutes(
  world: World,
  behaviour: Behaviour,
): (call: Call, project: Project | undefined) => unknown {
  let turn = 0

  const promptList = (prompts: Prompt[], query: z.infer<typeof requests.promptsRequest>) =>
    prompts.filter(
      (prompt) =>
        (query.topic_id === undefined || prompt.topicId === query.topic_id) &&
        (query.tag_id === undefined || prompt.tagIds.includes(query.tag_id)),
    )

  const createClassification = (
    { name, color = 'orange' }: z.infer<typeof requests.createClassificationRequest>,
    list: { name: string; color: string }[],
  ) => {
    if (list.some((known) => known.name === name)) throw new Refusal(409, 'a classification of this name exists')
    list.push({ name, color })
    return { name, color }
  }

  const operations: { [Name in keyof Requests]: (query: z.infer<Requests[Name]>, project: Project) => unknown } = {
    [REPORT]: (query, project) => listed(reportItems(query, project, brandReport)),
    'POST /reports/domains': (query, project) => listed(reportItems(query, project, domainReport)),
    'POST /reports/urls': (query, project) => listed(reportItems(query, project, urlReport)),
    'GET /project-profile': (_, { profile }) => ({ profile }),
    'GET /prompts': (query, project) => {
      const found = promptList(project.prompts, query)
      return listed(paged(found.map(promptItem), query), found.length)
    },
    'GET /prompts/suggestions': (query, project) =>
      listed(paged(promptList(project.suggestions, query).map(promptItem), query)),
    'GET /classifications/domains': (query, { classifications }) =>
      listed(paged(classifications, query), classifications.length),
    'GET /chats': (query, project) => {
      if (query.model_id !== undefined && !world.models.includes(query.model_id))
        throw new Refusal(400, 'model_id: unknown model')
      const found = chatList(world, project, rangeOf(query), (chat) => {
        if (query.prompt_id !== undefined && chat.prompt.id !== query.prompt_id) return false
        if (query.model_id !== undefined && chat.modelId !== query.model_id) return false
        return query.brand_id === undefined || chat.mentions.some(({ brand }) => brand.id === query.brand_id)
      })
      return listed(paged(found, query))
    },
    'POST /prompts': createPrompt,
    'POST /topics': ({ name }, project) => {
      if (project.topics.some((known) => known.name === name)) throw new Refusal(409, 'a topic of this name exists')
      const id = world.newId('to', project.id, name)
      project.topics.push({ id, name })
      return { id }
    },
    'POST /classifications/domains': (request, project) => createClassification(request, project.classifications),
    'POST /classifications/urls': (request, project) => createClassification(request, project.urlClassifications),
  }

  function route(call: Call, project: Project | undefined): unknown {
    const name = `${call.method} ${call.path.slice('/v1'.length)}`.replace(/(\/chats\/)[^/]+(\/content)$/, '$1{id}$2')
    if (isExtra(name) && !behaviour.offers(name)) throw new Refusal(404, `no such operation: ${name}`)
    const plainQuery = () => valid(requests.classificationsRequest, numbers(call.query))
    if (name === 'GET /projects' && project === undefined) {
      if (call.key !== COMPANY_KEY) throw new Refusal(403, 'this key covers one project')
      return listed(paged(projectList(world), plainQuery()))
    }
    if (project === undefined) throw new Refusal(403, 'no project')
    const extra = extraItems(name, project, world)
    if (extra !== undefined) return listed(paged(extra, plainQuery()), extra.length)
    if (name === 'GET /chats/{id}/content') {
      const chat = world.chat(project, decodeURIComponent(call.path.split('/').at(-2)!))
      if (chat === undefined) throw new Refusal(404, 'no such chat')
      return chatContent(project, chat)
    }
    if (!OPERATIONS.includes(name)) throw new Refusal(404, `no such operation: ${clip(name, 80)}`)
    const asked = call.method === 'POST' ? call.body : numbers(call.query)
    const query = valid(requestOf(name, behaviour.offers), asked)
    return operations[name as keyof Requests](query as never, project)
  }

  function reportItems(query: WiderReportRequest, project: Project, report: typeof brandReport): unknown[] {
    const isSources = report !== brandReport
    const filters = (query.filters ?? []) as Filter[]
    refuseFilters(filters, isSources)
    const { ignore_filters, report_cap, silent_cap } = behaviour.faults()
    const rows = report(world, project, {
      range: rangeOf(query),
      dimensions: query.dimensions ?? [],
      filters: ignore_filters ? [] : filters,
    })
    const order = query.order_by ?? []
    const [odd] = isSources ? order.filter(({ field }) => rows.length > 0 && typeof rows[0]![field] !== 'number') : []
    if (odd !== undefined) throw new Refusal(400, `order_by: ${clip(odd.field, 40)} is no metric`)
    const kept = applyHaving(rows, query.having)
    sortRows(kept, order)
    // Without an order, the same rows come in another one each time.
    const start = isSources && order.length === 0 ? (++turn * 7) % Math.max(1, kept.length) : 0
    const ordered = [...kept.slice(start), ...kept.slice(0, start)]
    return paged(ordered, query, report_cap ?? silent_cap)
  }

  function refuseFilters(filters: readonly Filter[], isSources: boolean): void {
    const { max_values, refuse_filters } = behaviour.faults()
    if (!isSources && filters.some(({ field }) => field === 'classification'))
      throw new Refusal(400, 'filters: classification is a field of reports of domains and URLs')
    if (isSources && filters.some(({ field }) => field === 'brand_id'))
      throw new Refusal(400, 'filters: brand_id is a field of reports of brands')
    if (refuse_filters && filters.length > 0) throw new Refusal(400, 'filters: this plan has no filters')
    if (max_values !== null && filters.some(({ values }) => values.length > max_values)) {
      throw new Refusal(400, `filters: the limit of ${max_values} values is exceeded`)
    }
  }

  function createPrompt(request: requests.CreatePromptRequest, project: Project): unknown {
    const same = (prompt: Prompt) => prompt.text === request.text && prompt.country === request.country_code
    if (project.prompts.some(same)) throw new Refusal(409, 'this prompt exists already')
    if (project.credits <= 0) throw new Refusal(402, 'the credits are used up')
    project.credits--
    const id = world.newId('pr', project.id, request.text, request.country_code)
    world.addPrompt(project, {
      id,
      text: request.text,
      topicId: request.topic_id ?? null,
      tagIds: request.tag_ids ?? [],
      country: request.country_code,
      volume: undefined,
    })
    return request.text.length < 15 ? { id, warning: 'short prompts seldom name brands' } : { id }
  }

  function rangeOf(query: { start_date?: string | undefined; end_date?: string | undefined }): Range {
    const range = { from: query.start_date ?? DEFAULT_DAY, to: query.end_date ?? DEFAULT_DAY }
    if (countDays(range) > (behaviour.faults().max_days ?? Number.MAX_SAFE_INTEGER)) {
      throw new Refusal(400, `the date range exceeds the limit of ${behaviour.faults().max_days} days`)
    }
    return range
  }

  /** A page of a list: order, cap and emptiness as the faults say. */
  function paged<T>(
    items: T[],
    { limit = PAGE_LIMIT_DEFAULT, offset = 0 }: { limit?: number | undefined; offset?: number | undefined },
    cap = behaviour.faults().silent_cap,
  ): T[] {
    const { limit_max, empty, unstable_order } = behaviour.faults()
    if (limit > (limit_max ?? limit)) throw new Refusal(400, `limit must not exceed ${limit_max}`)
    if (empty) return []
    const ordered = unstable_order ? shuffled(items) : items
    return ordered.slice(offset, offset + Math.min(limit, cap ?? limit))
  }

  function shuffled<T>(items: T[]): T[] {
    const copy = [...items]
    for (let index = copy.length - 1; index > 0; index--) {
      const other = Math.floor(behaviour.random() * (index + 1))
      ;[copy[index], copy[other]] = [copy[other]!, copy[index]!]
    }
    return copy
  }

  function listed(items: unknown[], total?: number): unknown {
    const { totals } = behaviour.faults()
    const data = mangle(items, behaviour.faults())
    if (total === undefined || totals === 'none') return { data }
    const name = totals === 'snake' ? 'total_count' : 'totalCount'
    return { data, [name]: totals === 'wrong' ? total + 3 : total }
  }

  return route
}

function valid<S extends z.ZodType>(schema: S, value: unknown): z.infer<S> {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  throw new Refusal(400, result.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; '))
}

/** Query parameters are texts; the paging ones are numbers. */
function numbers(query: Record<string, string>): Record<string, unknown> {
  const parsed: Record<string, unknown> = { ...query }
  for (const name of ['limit', 'offset']) if (query[name] !== undefined) parsed[name] = Number(query[name])
  return parsed
}

function sortRows(rows: Record<string, unknown>[], order: { field: string; direction: string }[]): void {
  const shortName = (field: string) => field.replace(/_id$/, '')
  const value = (row: Record<string, unknown>, field: string) =>
    row[field] ?? (row[shortName(field)] as { id?: unknown } | null | undefined)?.id ?? null
  const unknown = order.find(
    ({ field }) => rows.length > 0 && !rows.some((row) => field in row || shortName(field) in row),
  )
  if (unknown !== undefined) throw new Refusal(400, `order_by: unknown field ${clip(unknown.field, 40)}`)
  rows.sort((a, b) => {
    for (const { field, direction } of order) {
      const [left, right] = [value(a, field), value(b, field)]
      if (left === right) continue
      if (left === null) return 1
      if (right === null) return -1
      return (left < right ? -1 : 1) * (direction === 'asc' ? 1 : -1)
    }
    return 0
  })
}

function promptItem(prompt: Prompt): Record<string, unknown> {
  const shape = hashText(prompt.id) % 3
  const item: Record<string, unknown> = {
    id: prompt.id,
    messages: [{ content: prompt.text }],
    tags: prompt.tagIds.map((id) => ({ id })),
    topic: prompt.topicId === null ? null : { id: prompt.topicId },
  }
  // The live service gives an object, an empty object, null or nothing.
  if (prompt.country !== null) item.user_location = { country: prompt.country }
  else if (shape < 2) item.user_location = shape === 0 ? {} : null
  if (prompt.volume !== undefined) item.volume = prompt.volume
  return item
}
