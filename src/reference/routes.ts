import type { z } from 'zod'
import { countDays, type Range } from '../core/day.ts'
import { clip } from '../core/text.ts'
import { type Filter, PAGE_LIMIT_DEFAULT } from '../core/vocabulary.ts'
import * as requests from '../source/requests.ts'
import { applyHaving, brandReport, chatList, type WiderReportRequest, widerReportRequest } from './aggregate.ts'
import { type Faults, mangle } from './change.ts'
import { extraItems, projectList } from './extras.ts'
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

export interface Routed {
  body: unknown
  created: boolean
}

interface Mood {
  faults(): Faults
  random(): number
  /** Whether an extra operation is offered. */
  offers(operation: string): boolean
}

export function createRoutes(world: World, mood: Mood): (call: Call, project: Project | undefined) => Routed {
  let turn = 0

  function route(call: Call, project: Project | undefined): Routed {
    const name = `${call.method} ${call.path.slice('/v1'.length)}`.replace(/(\/chats\/)[^/]+(\/content)$/, '$1{id}$2')
    if (name === 'GET /projects' && project === undefined) {
      if (!mood.offers(name)) throw new Refusal(404, `no such operation: ${name}`)
      if (call.key !== COMPANY_KEY) throw new Refusal(403, 'this key covers one project')
      return listed(paged(projectList(world), valid(requests.classificationsRequest, numbers(call.query))))
    }
    if (project === undefined) throw new Refusal(403, 'no project')
    const extra = mood.offers(name) ? extraItems(name, project, world) : undefined
    if (extra !== undefined) {
      return listed(paged(extra, valid(requests.classificationsRequest, numbers(call.query))), extra.length)
    }
    switch (name) {
      case 'POST /reports/brands':
        return listed(reportItems(call, project, brandReport))
      case 'GET /project-profile':
        valid(requests.profileRequest, call.query)
        return { body: { profile: project.profile }, created: false }
      case 'GET /prompts': {
        const query = valid(requests.promptsRequest, numbers(call.query))
        const found = project.prompts.filter(
          (prompt) =>
            (query.topic_id === undefined || prompt.topicId === query.topic_id) &&
            (query.tag_id === undefined || prompt.tagIds.includes(query.tag_id)),
        )
        return listed(paged(found.map(promptItem), query), found.length)
      }
      case 'GET /prompts/suggestions': {
        const query = valid(requests.suggestionsRequest, numbers(call.query))
        const found = project.suggestions.filter(
          ({ topicId }) => query.topic_id === undefined || topicId === query.topic_id,
        )
        return listed(paged(found.map(promptItem), query))
      }
      case 'GET /classifications/domains': {
        const query = valid(requests.classificationsRequest, numbers(call.query))
        return listed(paged(project.classifications, query), project.classifications.length)
      }
      case 'GET /chats': {
        const query = valid(requests.chatsRequest, numbers(call.query))
        if (query.model_id !== undefined && !world.models.includes(query.model_id))
          throw new Refusal(400, 'model_id: unknown model')
        const found = chatList(world, project, rangeOf(query), (chat) => {
          if (query.prompt_id !== undefined && chat.prompt.id !== query.prompt_id) return false
          if (query.model_id !== undefined && chat.modelId !== query.model_id) return false
          return query.brand_id === undefined || chat.mentions.some(({ brand }) => brand.id === query.brand_id)
        })
        return listed(paged(found, query))
      }
      case 'POST /prompts':
        return { body: createPrompt(valid(requests.createPromptRequest, call.body), project), created: true }
      case 'POST /topics': {
        const { name: topic } = valid(requests.createTopicRequest, call.body)
        if (project.topics.some((known) => known.name === topic)) throw new Refusal(409, 'a topic of this name exists')
        const made = { id: world.newId('to', project.id, topic), name: topic }
        project.topics.push(made)
        return { body: { id: made.id }, created: true }
      }
      case 'POST /classifications/domains':
      case 'POST /classifications/urls': {
        const { name: title, color } = valid(requests.createClassificationRequest, call.body)
        const list = call.path.endsWith('urls') ? project.urlClassifications : project.classifications
        if (list.some((known) => known.name === title)) throw new Refusal(409, 'a classification of this name exists')
        const made = { name: title, color: color ?? 'orange' }
        list.push(made)
        return { body: made, created: true }
      }
      case 'GET /chats/{id}/content': {
        if (!mood.offers(name)) throw new Refusal(404, `no such operation: ${name}`)
        const id = decodeURIComponent(call.path.split('/').at(-2)!)
        const chat = world.chat(project, id)
        if (chat === undefined) throw new Refusal(404, 'no such chat')
        return { body: chatContent(project, chat), created: false }
      }
      case 'POST /reports/domains':
      case 'POST /reports/urls':
        if (!mood.offers(name)) throw new Refusal(404, `no such operation: ${name}`)
        return listed(reportItems(call, project, name.endsWith('urls') ? urlReport : domainReport))
      default:
        throw new Refusal(404, `no such operation: ${clip(name, 80)}`)
    }
  }

  function reportItems(call: Call, project: Project, report: typeof brandReport): unknown[] {
    const isSources = report !== brandReport
    // A service that knows more operations also knows more of its reports.
    const isWider = ['domains', 'urls'].some((subject) => mood.offers(`POST /reports/${subject}`))
    const query: WiderReportRequest = isWider
      ? valid(widerReportRequest, call.body)
      : valid(requests.reportRequest.omit({ having: true }), call.body)
    const filters = (query.filters ?? []) as Filter[]
    if (!isSources && filters.some(({ field }) => field === 'classification'))
      throw new Refusal(400, 'filters: classification is a field of reports of domains and URLs')
    if (mood.faults().refuse_filters && filters.length > 0) throw new Refusal(400, 'filters: this plan has no filters')
    const { max_values } = mood.faults()
    if (max_values !== null && filters.some(({ values }) => values.length > max_values)) {
      throw new Refusal(400, `filters: the limit of ${max_values} values is exceeded`)
    }
    const rows = report(world, project, {
      range: rangeOf(query),
      dimensions: query.dimensions ?? [],
      filters: mood.faults().ignore_filters ? [] : filters,
    })
    const order = query.order_by ?? []
    const [odd] = isSources ? order.filter(({ field }) => rows.length > 0 && typeof rows[0]![field] !== 'number') : []
    if (odd !== undefined) throw new Refusal(400, `order_by: ${clip(odd.field, 40)} is no metric`)
    const kept = applyHaving(rows, query.having)
    sortRows(kept, order)
    // Without an order, the same rows come in another one each time.
    const ordered = isSources && order.length === 0 ? turned(kept, ++turn) : kept
    return paged(ordered, query, mood.faults().report_cap ?? mood.faults().silent_cap)
  }

  function turned<T>(items: T[], by: number): T[] {
    const start = items.length === 0 ? 0 : (by * 7) % items.length
    return [...items.slice(start), ...items.slice(0, start)]
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
    if (countDays(range) > (mood.faults().max_days ?? Number.MAX_SAFE_INTEGER)) {
      throw new Refusal(400, `the date range exceeds the limit of ${mood.faults().max_days} days`)
    }
    return range
  }

  /** A page of a list: order, cap and emptiness as the faults say. */
  function paged<T>(
    items: T[],
    { limit = PAGE_LIMIT_DEFAULT, offset = 0 }: { limit?: number | undefined; offset?: number | undefined },
    cap = mood.faults().silent_cap,
  ): T[] {
    if (limit > (mood.faults().limit_max ?? limit))
      throw new Refusal(400, `limit must not exceed ${mood.faults().limit_max}`)
    if (mood.faults().empty) return []
    const ordered = mood.faults().unstable_order ? shuffled(items) : items
    return ordered.slice(offset, offset + Math.min(limit, cap ?? limit))
  }

  function shuffled<T>(items: T[]): T[] {
    const copy = [...items]
    for (let index = copy.length - 1; index > 0; index--) {
      const other = Math.floor(mood.random() * (index + 1))
      ;[copy[index], copy[other]] = [copy[other]!, copy[index]!]
    }
    return copy
  }

  function listed(items: unknown[], total?: number): Routed {
    const data = mangle(items, mood.faults())
    const body: Record<string, unknown> = { data }
    if (total !== undefined && mood.faults().totals !== 'none') {
      body[mood.faults().totals === 'snake' ? 'total_count' : 'totalCount'] =
        mood.faults().totals === 'wrong' ? total + 3 : total
    }
    return { body, created: false }
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
  if (order.length === 0) return
  const value = (row: Record<string, unknown>, field: string) => {
    const found = row[field] ?? (row[field.replace(/_id$/, '')] as { id?: unknown } | null | undefined)?.id
    return found ?? null
  }
  for (const { field } of order) {
    const known = rows.length === 0 || rows.some((row) => field in row || field.replace(/_id$/, '') in row)
    if (!known) throw new Refusal(400, `order_by: unknown field ${clip(field, 40)}`)
  }
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
