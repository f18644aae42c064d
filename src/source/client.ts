import type { z } from 'zod'
import { TransientError, UsageError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { PAGE_LIMIT_DEFAULT } from '../core/vocabulary.ts'
import { type BudgetView, createBudget, type RequestBudget } from './budget.ts'
import { type CallContext, createHttp, type HttpAnswer, type HttpRequest } from './http.ts'
import { createdClassification, createdPrompt, createdTopic, listEnvelope, profileEnvelope } from './items.ts'
import * as requests from './requests.ts'

export type { CallContext } from './http.ts'

/** One response of a list or report: items not validated yet. */
export interface Page {
  /** Empty where an intake took them. */
  items: unknown[]
  /** How many items there were. */
  count: number
  /** How many there are in all, where the service says so. */
  total: number | undefined
  /** True where a text may hold what Postgres cannot store. */
  suspectText: boolean
}

export interface ClientOptions {
  baseUrl: string
  timeoutMs?: number
  maxAttempts?: number
  maxResponseBytes?: number
  compress?: boolean
  requestsPerMinute?: number
  /** Where the budget of a project and key is kept; one in this process unless told otherwise. */
  budgetFor?: (project: string, key: string) => RequestBudget
}

/** Who is asking: the key, and the project where the key spans several. */
export interface Caller {
  key: string
  projectId: string | undefined
}

export type Client = ReturnType<typeof createClient>

/** The ten operations of the service. Requests are checked strictly before they are sent, responses read tolerantly. */
export function createClient(options: ClientOptions) {
  const http = createHttp({
    baseUrl: options.baseUrl,
    timeoutMs: options.timeoutMs ?? 60_000,
    maxAttempts: options.maxAttempts ?? 6,
    maxResponseBytes: options.maxResponseBytes ?? 64 * 1_048_576,
    compress: options.compress ?? true,
  })
  const budgets = new Map<string, RequestBudget>()
  const makeBudget = options.budgetFor ?? (() => createBudget(options.requestsPerMinute ?? 200))

  function budgetOf({ key, projectId }: Caller): RequestBudget {
    const name = JSON.stringify([projectId ?? '', key])
    const known = budgets.get(name) ?? makeBudget(projectId ?? '', key)
    budgets.set(name, known)
    return known
  }

  function send(caller: Caller, request: HttpRequest, context?: CallContext): Promise<HttpAnswer> {
    return http.send(request, caller.key, budgetOf(caller), context)
  }

  /** An answer of the wrong shape is a mangled answer: it may be right the next time. */
  function shaped<S extends z.ZodType>(schema: S, answer: HttpAnswer, place: string): z.infer<S> {
    const result = schema.safeParse(answer.body)
    if (result.success) return result.data
    const [issue] = result.error.issues
    throw new ShapeError(
      `${place}: the answer lacks ${issue?.path.join('.') || 'its object'} (${clip(issue?.message ?? '', 80)})`,
    )
  }

  async function page(
    caller: Caller,
    request: Omit<HttpRequest, 'repeatable'>,
    { limit = PAGE_LIMIT_DEFAULT }: { limit?: number | undefined },
    context?: CallContext,
  ): Promise<Page> {
    const place = `${request.method} /${request.path}`
    return repeatShape(async () => {
      const answer = await send(caller, { ...request, repeatable: true, limit }, context)
      const list = shaped(listEnvelope, answer, place)
      return {
        items: answer.items,
        count: answer.count,
        total: wholeNumber(list.totalCount ?? list.total_count),
        suspectText: answer.suspectText,
      }
    })
  }

  async function create<S extends z.ZodType>(
    caller: Caller,
    path: string,
    json: unknown,
    schema: S,
    context?: CallContext,
  ) {
    // Prompts and topics list no project_id in their body, but a company key needs one somewhere: the query.
    const query = path.startsWith('classifications/') ? {} : { project_id: caller.projectId }
    const answer = await send(caller, { method: 'POST', path, query, json, repeatable: false }, context)
    return shaped(schema, answer, `POST /${path}`)
  }

  return {
    brandsReport(caller: Caller, request: requests.ReportRequest, context?: CallContext): Promise<Page> {
      const json = checked(requests.reportRequest, { ...request, project_id: caller.projectId })
      return page(caller, { method: 'POST', path: 'reports/brands', json }, request, context)
    },

    /** The profile as the service gave it; null where it has none. */
    projectProfile(caller: Caller, context?: CallContext): Promise<{ profile: unknown; suspectText: boolean }> {
      const query = checked(requests.profileRequest, { project_id: caller.projectId })
      return repeatShape(async () => {
        const request: HttpRequest = { method: 'GET', path: 'project-profile', query, repeatable: true }
        const answer = await send(caller, request, context)
        const { profile } = shaped(profileEnvelope, answer, 'GET /project-profile')
        if (profile === undefined) throw new ShapeError('GET /project-profile: the answer lacks profile')
        return { profile, suspectText: answer.suspectText }
      })
    },

    prompts(caller: Caller, request: requests.PromptsRequest, context?: CallContext): Promise<Page> {
      const query = checked(requests.promptsRequest, { ...request, project_id: caller.projectId })
      return page(caller, { method: 'GET', path: 'prompts', query }, request, context)
    },

    promptSuggestions(caller: Caller, request: requests.SuggestionsRequest, context?: CallContext): Promise<Page> {
      const query = checked(requests.suggestionsRequest, { ...request, project_id: caller.projectId })
      return page(caller, { method: 'GET', path: 'prompts/suggestions', query }, request, context)
    },

    domainClassifications(
      caller: Caller,
      request: requests.ClassificationsRequest,
      context?: CallContext,
    ): Promise<Page> {
      const query = checked(requests.classificationsRequest, { ...request, project_id: caller.projectId })
      return page(caller, { method: 'GET', path: 'classifications/domains', query }, request, context)
    },

    chats(caller: Caller, request: requests.ChatsRequest, context?: CallContext): Promise<Page> {
      const query = checked(requests.chatsRequest, { ...request, project_id: caller.projectId })
      return page(caller, { method: 'GET', path: 'chats', query }, request, context)
    },

    createPrompt(caller: Caller, request: requests.CreatePromptRequest, context?: CallContext) {
      return create(caller, 'prompts', checked(requests.createPromptRequest, request), createdPrompt, context)
    },

    createTopic(caller: Caller, request: requests.CreateTopicRequest, context?: CallContext) {
      return create(caller, 'topics', checked(requests.createTopicRequest, request), createdTopic, context)
    },

    createDomainClassification(caller: Caller, request: requests.CreateClassificationRequest, context?: CallContext) {
      const json = checked(requests.createClassificationRequest, { ...request, project_id: caller.projectId })
      return create(caller, 'classifications/domains', json, createdClassification, context)
    },

    createUrlClassification(caller: Caller, request: requests.CreateClassificationRequest, context?: CallContext) {
      const json = checked(requests.createClassificationRequest, { ...request, project_id: caller.projectId })
      return create(caller, 'classifications/urls', json, createdClassification, context)
    },

    budgetView(caller: Caller): BudgetView {
      return budgetOf(caller).view()
    },

    close(): void {
      http.close()
    },
  }
}

/** A total that is not a number tells nothing, and is no reason to refuse the rows. */
function wholeNumber(value: unknown): number | undefined {
  const number = typeof value === 'string' && value !== '' ? Number(value) : value
  return typeof number === 'number' && Number.isInteger(number) && number >= 0 ? number : undefined
}

/** Whole JSON, but not the object that was asked for. */
class ShapeError extends TransientError {}

const SHAPE_ATTEMPTS = 3

async function repeatShape<T>(read: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await read()
    } catch (error) {
      if (!(error instanceof ShapeError) || attempt >= SHAPE_ATTEMPTS) throw error
    }
  }
}

/** Checks a request against the documented limits, naming the field, the value and what is allowed. */
function checked<S extends z.ZodType>(schema: S, request: unknown): z.infer<S> & Record<string, never> {
  const result = schema.safeParse(request, { reportInput: true })
  if (result.success) return result.data as z.infer<S> & Record<string, never>
  const told = result.error.issues.map(
    (issue) =>
      `${issue.path.join('.') || 'request'}: got ${clip(JSON.stringify(issue.input) ?? 'nothing', 80)}; allowed: ${issue.message}`,
  )
  throw new UsageError(told.join('\n'))
}
