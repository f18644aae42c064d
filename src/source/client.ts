import * as z from 'zod'
import { InterruptedError, RefusedError, UsageError } from '../core/errors.ts'
import { clip, listSome } from '../core/text.ts'
import { PAGE_LIMIT_DEFAULT } from '../core/vocabulary.ts'
import { createBudget } from './budget.ts'
import type { Caller } from './gate.ts'
import {
  type CallContext,
  createHttp,
  type HttpAnswer,
  type HttpOptions,
  type HttpRequest,
  smallRequest,
} from './http.ts'
import {
  contentEnvelope,
  createdClassification,
  createdPrompt,
  createdTopic,
  listEnvelope,
  profileEnvelope,
} from './items.ts'
import * as requests from './requests.ts'

export type { Caller, Outage } from './gate.ts'
export type { CallContext } from './http.ts'

/** One response of a list or report: items not validated yet. */
export interface Page {
  items: unknown[]
  /** How many there are in all, if the service says so. */
  total: number | undefined
  needsTextCheck: boolean
  unknownFields: string[]
}

const DEFAULTS = {
  timeoutMs: 60_000,
  maxAttempts: 6,
  maxResponseBytes: 64 * 1_048_576,
  compress: true,
  patienceMs: 60_000,
  clock: () => new Date(),
}

/** By default, budgets are kept in this process. */
export type ClientOptions = Partial<HttpOptions> & Pick<HttpOptions, 'baseUrl'> & { requestsPerMinute?: number }

/** An operation by its path. Its request has the fields of a report's, as far as they make sense. */
export interface Operation {
  method: 'GET' | 'POST'
  path: string
}

export type Client = ReturnType<typeof createClient>

/** The ten operations of the service. Requests are checked strictly before they are sent, responses read tolerantly. */
export function createClient(options: ClientOptions) {
  const budgetFor = () => createBudget(options.requestsPerMinute ?? 200)
  const http = createHttp({ ...DEFAULTS, budgetFor, ...options })
  /** The lists of projects that keys were given, until something new begins. */
  const projectPages = new Map<string, Promise<Page>>()

  async function send<T>(caller: Caller, request: HttpRequest<T>, context?: CallContext): Promise<HttpAnswer<T>> {
    try {
      return await http.send(caller, request, context)
    } catch (error) {
      // The list of projects itself needs none.
      if (caller.projectId === undefined && request.path !== 'projects')
        await refuseMissingProject(error, () => projectsOf(caller, context))
      throw error
    }
  }

  async function projectsOf(caller: Caller, { signal }: CallContext = {}): Promise<string[]> {
    const of = { path: 'projects', timeoutMs: 15_000, schema: projectList }
    const request = { ...of, method: 'GET', repeatable: false } as const
    try {
      const { body } = await http.send(caller, request, { signal })
      return body.data.map(({ id, name }) => (name ? `${id} (${clip(name, 60)})` : id))
    } catch (error) {
      if (error instanceof InterruptedError) throw error
      return []
    }
  }

  async function page(
    caller: Caller,
    { method, path }: Operation,
    params: { limit?: number | undefined },
    context?: CallContext,
  ): Promise<Page> {
    const { limit = PAGE_LIMIT_DEFAULT } = params
    const sent = method === 'GET' ? { query: params as HttpRequest['query'] & object } : { json: params }
    const asked = { method, path, ...sent, repeatable: true, limit, schema: listEnvelope }
    const { items, body, needsTextCheck, unknownFields } = await send(caller, asked, context)
    return { items, total: wholeNumber(body.totalCount ?? body.total_count), needsTextCheck, unknownFields }
  }

  function listOf<S extends z.ZodType<{ limit?: number | undefined }>>(path: string, schema: S) {
    return (caller: Caller, request: z.infer<S>, context?: CallContext): Promise<Page> => {
      const params = checked(schema, { ...request, project_id: caller.projectId })
      return page(caller, { method: 'GET', path }, params, context)
    }
  }

  function creatorOf<S extends z.ZodType<object>, T>(path: string, schema: S, answer: z.ZodType<T>) {
    return async (caller: Caller, request: z.infer<S>, context?: CallContext): Promise<T> => {
      // Prompts and topics list no project_id in their body, but a company key needs one somewhere: the query.
      const project = { project_id: caller.projectId }
      const [query, body] = path.startsWith('classifications/') ? [{}, { ...request, ...project }] : [project, request]
      const json = checked(schema, body)
      const sent = { method: 'POST', path, query, json, repeatable: false, schema: answer } as const
      return (await send(caller, sent, context)).body
    }
  }

  /** A list or report by its path: what a service may offer beyond the ten operations. */
  function open(caller: Caller, operation: Operation, request: requests.ReportRequest, context?: CallContext) {
    const params = checked(requests.reportRequest, { ...request, project_id: caller.projectId })
    return page(caller, operation, params, context)
  }

  const classificationCreator = (kind: 'domains' | 'urls') =>
    creatorOf(`classifications/${kind}`, requests.createClassificationRequest, createdClassification)

  return {
    open,

    brandsReport(caller: Caller, request: requests.ReportRequest, context?: CallContext): Promise<Page> {
      return open(caller, { method: 'POST', path: 'reports/brands' }, request, context)
    },

    /** The projects that a key covers. It is the same list for each of them, so it is asked for once until `resetOutages`. */
    projects(caller: Caller, request: { limit: number; offset: number }, context?: CallContext): Promise<Page> {
      const name = JSON.stringify([caller.key, request.limit, request.offset])
      const known = projectPages.get(name)
      if (known !== undefined) return known
      const asked = page(caller, { method: 'GET', path: 'projects' }, request, context)
      projectPages.set(name, asked)
      // A refusal is the same for each project; anything else may pass.
      asked.catch((error: unknown) => {
        if (!(error instanceof RefusedError)) projectPages.delete(name)
      })
      return asked
    },

    /** The profile as the service gave it; null if it has none. */
    async projectProfile(caller: Caller, context?: CallContext) {
      const query = checked(requests.profileRequest, { project_id: caller.projectId })
      const of = { path: 'project-profile', query, schema: profileEnvelope }
      const request = { ...of, method: 'GET', repeatable: true } as const
      const { body, needsTextCheck } = await send(caller, request, context)
      return { profile: body.profile, needsTextCheck }
    },

    prompts: listOf('prompts', requests.promptsRequest),
    promptSuggestions: listOf('prompts/suggestions', requests.suggestionsRequest),
    domainClassifications: listOf('classifications/domains', requests.classificationsRequest),
    chats: listOf('chats', requests.chatsRequest),

    /** The content of a chat. Sent once: the caller has its own budget, and decides about retries. */
    async chatContent(caller: Caller, id: string, context?: CallContext) {
      const template = 'chats/{id}/content'
      const path = `chats/${encodeURIComponent(id)}/content`
      const query = { project_id: caller.projectId }
      const request = { method: 'GET', path, template, query, repeatable: false, schema: contentEnvelope } as const
      const { body, needsTextCheck } = await send(caller, request, context)
      return { content: body, needsTextCheck }
    },

    createPrompt: creatorOf('prompts', requests.createPromptRequest, createdPrompt),
    createTopic: creatorOf('topics', requests.createTopicRequest, createdTopic),
    createDomainClassification: classificationCreator('domains'),
    createUrlClassification: classificationCreator('urls'),

    /** The projects that a key can read, as `id (name)`; none if the service does not list them. */
    listProjects: projectsOf,

    /** Asks for something small, once. Throws a UsageError if the key needs a project and none was given. */
    async ping(caller: Caller, context?: CallContext): Promise<void> {
      await send(caller, smallRequest(caller.projectId), context)
    },

    /** Call this at the start of a run with its callers. Requests that the gate had given up are allowed again. */
    resetOutages(callers: readonly Caller[]): void {
      projectPages.clear()
      http.resetOutages(callers)
    },

    budgetView: http.budgetView,
    close: http.close,
  }
}

/** A total that is not a number is ignored. */
function wholeNumber(value: unknown): number | undefined {
  const number = typeof value === 'string' && value !== '' ? Number(value) : value
  return typeof number === 'number' && Number.isInteger(number) && number >= 0 ? number : undefined
}

const projectList = z.object({
  data: z.array(z.object({ id: z.string().min(1).max(255), name: z.string().nullish() })),
})

const NAMES_PROJECT =
  /project[ _-]?id|\bprojects?\b.*\b(?:required|missing|needed|must)|(?:missing|no|which) project\b/i

/**
 * A company key without a project gets an error in the words of the setting. A 403 may mean anything; if the key can list
 * projects, it means this.
 */
async function refuseMissingProject(error: unknown, list: () => Promise<string[]>): Promise<void> {
  if (!(error instanceof RefusedError) || ![400, 403, 422].includes(error.status ?? 0)) return
  const isNamed = NAMES_PROJECT.test(error.message)
  if (!isNamed && error.status !== 403) return
  const projects = await list()
  if (!isNamed && projects.length === 0) return
  const which = projects.length === 0 ? '' : `: ${listSome(projects, 20)}`
  throw new UsageError(
    `VISIBILITY_PROJECTS: got nothing; this key covers several projects, so set it to the ids of those to read${which} (${error.message})`,
  )
}

function checked<S extends z.ZodType>(schema: S, request: unknown): z.infer<S> & Record<string, never> {
  const result = schema.safeParse(request, { reportInput: true })
  if (result.success) return result.data as z.infer<S> & Record<string, never>
  const problems = result.error.issues.map(
    (issue) =>
      `${issue.path.join('.') || 'request'}: got ${clip(JSON.stringify(issue.input) ?? 'nothing', 80)}; allowed: ${issue.message}`,
  )
  throw new UsageError(problems.join('\n'))
}
