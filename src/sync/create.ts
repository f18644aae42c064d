import { codeOf, InterruptedError, messageOf, RefusedError, TransientError, UsageError } from '../core/errors.ts'
import { sleep } from '../core/sleep.ts'
import { clip } from '../core/text.ts'
import { beginCreation, type Creation, type CreationKind, readCreations, settleCreation } from '../ledger/creations.ts'
import { lockRun } from '../ledger/locks.ts'
import { closeRun } from '../ledger/runs.ts'
import { domainClassifications } from '../streams/domain-classifications.ts'
import { prompts } from '../streams/prompts.ts'
import type { ListStream } from '../streams/stream.ts'
import { tableName } from '../warehouse/connect.ts'
import type { Services, SyncedProject } from './context.ts'
import { runSync } from './run.ts'

/* Creating things in the service, never twice. */

/** One thing to create: fields of its kind, and the line of the file it came from. */
export interface Wish {
  line: number
  kind: CreationKind
  text?: string
  name?: string
  country?: string | undefined
  color?: string | undefined
  tags?: string[]
  /** A topic's id, or its name. */
  topic?: string | undefined
}

export interface WishResult {
  line: number
  kind: CreationKind
  name: string
  status: 'created' | 'existing' | 'failed' | 'not_sent'
  id: string | null
  /** The service's warning, or why it failed. */
  message: string | null
}

/** What would be done, before anything is sent. */
export interface CreationPlan {
  existing: number
  toCreate: number
  topicsToCreate: string[]
}

export interface CreateRequest {
  project: SyncedProject
  wishes: Wish[]
  signal: AbortSignal
  /** Asked once it is known what would be sent; false ends without sending anything. */
  confirm(plan: CreationPlan): Promise<boolean>
  progress?(result: WishResult, done: number, all: number): void
}

const LISTED: Partial<Record<CreationKind, ListStream>> = {
  prompt: prompts,
  'domain-classification': domainClassifications,
}
const LOOKS = 3
const LOOK_AGAIN_MS = 700
const MOST_REFUSALS = 8

export function identityOf(wish: Pick<Wish, 'kind' | 'text' | 'name' | 'country'>): string {
  return wish.kind === 'prompt' ? JSON.stringify([wish.text, wish.country]) : (wish.name ?? '')
}

/** Undefined where it was not confirmed. */
export async function createAll(services: Services, request: CreateRequest): Promise<WishResult[] | undefined> {
  const { warehouse } = services
  const { project, wishes } = request
  const kinds = [...new Set(wishes.map(({ kind }) => kind))]
  // Two commands at once could both find that something is missing.
  const held = await lockRun(warehouse, [{ projectId: project.id, stream: 'creations' }], {
    command: `create ${kinds.join(' and ')}`,
    version: services.version,
    source: services.source,
  })
  let results: WishResult[] | undefined
  try {
    const book = new Book(services, project, request.signal)
    await book.open(kinds.includes('prompt') ? [...kinds, 'topic'] : kinds)
    const topics = book.missingTopics(wishes)
    const toCreate = wishes.filter((wish, index) => !book.isThere(wish) && !isRepeated(wishes, index)).length
    const plan = { existing: wishes.length - toCreate, toCreate, topicsToCreate: topics }
    if (await request.confirm(plan)) results = await createEach(book, request, topics)
    await book.close(results?.some(({ status }) => status === 'created') ?? false)
    const failed = (results ?? []).filter(({ status }) => status === 'failed' || status === 'not_sent').length
    await closeRun(warehouse, held.runId, { outcome: failed === 0 ? 'complete' : 'partial', summary: [], error: null })
    return results
  } catch (error) {
    const outcome = request.signal.aborted ? 'interrupted' : 'failed'
    await closeRun(warehouse, held.runId, { outcome, summary: [], error: messageOf(error) }).catch(() => {})
    throw error
  } finally {
    await held.release()
  }
}

async function createEach(book: Book, request: CreateRequest, topics: string[]): Promise<WishResult[]> {
  const results: WishResult[] = []
  let stop: string | undefined
  const failedTopics = new Map<string, string>()
  for (const name of topics) {
    const made = await book.create({ line: 0, kind: 'topic', name })
    if (made.status === 'failed') failedTopics.set(name, made.message ?? 'failed')
    if (made.stop) stop = made.message ?? 'stopped'
  }
  for (const [index, wish] of request.wishes.entries()) {
    if (request.signal.aborted) stop ??= 'not sent: the command was stopped'
    const problem = wish.topic === undefined ? undefined : failedTopics.get(wish.topic)
    const base = { line: wish.line, kind: wish.kind, name: wish.text ?? wish.name ?? '' }
    let result: WishResult
    if (stop !== undefined) result = { ...base, status: 'not_sent', id: null, message: stop }
    else if (problem !== undefined)
      result = {
        ...base,
        status: 'failed',
        id: null,
        message: `its topic "${wish.topic}" could not be created: ${problem}`,
      }
    else {
      const made = await book.create(wish)
      result = { ...base, status: made.status, id: made.id, message: made.message }
      if (made.stop) stop = `not sent: ${made.message}`
    }
    results.push(result)
    request.progress?.(result, index + 1, request.wishes.length)
  }
  return results
}

interface Made {
  status: 'created' | 'existing' | 'failed'
  id: string | null
  message: string | null
  /** True where nothing more must be sent. */
  stop?: boolean
}

/** What exists, by the tables, by the service's lists and by what was tried before. */
class Book {
  private readonly known = new Map<CreationKind, Map<string, string | null>>()
  private tried = new Map<CreationKind, Map<string, Creation>>()
  private readonly topicIds = new Map<string, string>()

  constructor(
    private readonly services: Services,
    private readonly project: SyncedProject,
    private readonly signal: AbortSignal,
  ) {}

  /** Lists what can be listed, so that the tables are as new as the service itself. */
  async open(kinds: CreationKind[]): Promise<void> {
    for (const kind of kinds) {
      await this.list(kind)
      this.tried.set(kind, await readCreations(this.services.warehouse, this.project.id, kind))
      await this.load(kind)
    }
  }

  /** What was created is in the tables when the command ends. */
  async close(created: boolean): Promise<void> {
    if (!created) return
    for (const kind of this.known.keys()) await this.list(kind)
  }

  isThere(wish: Pick<Wish, 'kind' | 'text' | 'name' | 'country'>): boolean {
    return this.known.get(wish.kind)?.has(identityOf(wish)) ?? false
  }

  /** Topics that are named, not given by id, and that nobody knows yet; each once. */
  missingTopics(wishes: readonly Wish[]): string[] {
    const named = wishes.flatMap(({ kind, topic }) => (kind === 'prompt' && topic && !isId(topic) ? [topic] : []))
    return [...new Set(named)].filter((name) => !this.topicIds.has(name))
  }

  async create(wish: Wish): Promise<Made> {
    const place = { projectId: this.project.id, kind: wish.kind, identity: identityOf(wish) }
    const known = this.known.get(wish.kind)!
    const there = known.get(place.identity)
    if (there !== undefined) {
      // Known from before, or settled now where an earlier attempt was left open.
      if (this.tried.get(wish.kind)?.get(place.identity)?.state === 'sent')
        await settleCreation(this.services.warehouse, place, { state: 'created', id: there })
      return { status: 'existing', id: there, message: null }
    }
    const topicId = wish.topic === undefined ? undefined : isId(wish.topic) ? wish.topic : this.topicIds.get(wish.topic)
    if (wish.topic !== undefined && topicId === undefined) {
      const message = `the topic "${wish.topic}" exists, but the service tells no ids of topics: give its id (to_…) instead`
      return { status: 'failed', id: null, message }
    }
    const request = requestOf(wish, topicId)
    await beginCreation(this.services.warehouse, place, request)
    const made = await this.send(wish, request)
    if (made.status !== 'failed') {
      known.set(place.identity, made.id)
      await this.keep(wish, made.id)
      await settleCreation(this.services.warehouse, place, { state: made.status, id: made.id, warning: made.message })
    } else if (!made.open) {
      await settleCreation(this.services.warehouse, place, { state: 'failed', error: made.message })
    }
    return made
  }

  /** Sends once. Where the answer was lost, the service's own list tells what became of it. */
  private async send(wish: Wish, request: Record<string, unknown>): Promise<Made & { open?: boolean }> {
    for (let refusals = 0; ; refusals++) {
      try {
        const answer = await this.call(wish.kind, request)
        return { status: 'created', id: answer.id, message: answer.warning }
      } catch (error) {
        const message = clip(messageOf(error), 300)
        const status = error instanceof RefusedError ? error.status : undefined
        if (status === 409) return this.existing(wish)
        if (status === 402)
          return { status: 'failed', id: null, message: `the credits are used up: ${message}`, stop: true }
        if (error instanceof InterruptedError || this.signal.aborted) {
          return { status: 'failed', id: null, message: 'stopped before its answer came', stop: true, open: true }
        }
        if (status !== undefined && status < 500) {
          const hopeless = codeOf(error) === 'key' || status === 401 || status === 403
          return { status: 'failed', id: null, message, stop: hopeless }
        }
        if (error instanceof UsageError) return { status: 'failed', id: null, message }
        // A 429 was not acted upon; anything else may have been.
        if (message.includes('HTTP 429') && refusals < MOST_REFUSALS) {
          const asked = error instanceof TransientError ? error.retryAfterMs : undefined
          await sleep(asked ?? 1000 * (refusals + 1), this.signal)
          continue
        }
        if (/ECONNREFUSED|ENOTFOUND|EAI_AGAIN/.test(message)) return { status: 'failed', id: null, message, stop: true }
        return this.resolve(wish, message)
      }
    }
  }

  private async existing(wish: Wish): Promise<Made> {
    if (LISTED[wish.kind] === undefined) return { status: 'existing', id: null, message: null }
    await this.look(wish.kind)
    return { status: 'existing', id: this.known.get(wish.kind)!.get(identityOf(wish)) ?? null, message: null }
  }

  /** Looks whether it was created though no answer came. Where that cannot be told, it is left open for the next time. */
  private async resolve(wish: Wish, reason: string): Promise<Made & { open?: boolean }> {
    if (LISTED[wish.kind] === undefined) {
      // It cannot be listed, but asking once more is safe: what exists is refused as existing.
      const again = await this.call(wish.kind, requestOf(wish, undefined)).then(
        (answer): Made => ({ status: 'created', id: answer.id, message: answer.warning }),
        (error: unknown): Made & { open?: boolean } =>
          error instanceof RefusedError && error.status === 409
            ? { status: 'created', id: null, message: 'the answer was lost, so its id is not known' }
            : { status: 'failed', id: null, message: `no answer came: ${reason}; run the command again`, open: true },
      )
      return again
    }
    for (let look = 0; look < LOOKS; look++) {
      await sleep(LOOK_AGAIN_MS * look, this.signal)
      await this.look(wish.kind, wish)
      const found = this.known.get(wish.kind)!.get(identityOf(wish))
      if (found !== undefined) return { status: 'created', id: found, message: null }
    }
    const message = `no answer came (${reason}), and it is not in the service's list; run the command again to go on`
    return { status: 'failed', id: null, message, open: true }
  }

  private async look(kind: CreationKind, lost?: Wish): Promise<void> {
    await this.list(kind)
    await this.load(kind, lost)
  }

  private async list(kind: CreationKind): Promise<void> {
    const stream = LISTED[kind]
    if (stream === undefined) return
    const { project, signal } = this
    const report = await runSync(this.services, {
      command: 'create: list',
      projects: [project],
      streams: [stream],
      signal,
    })
    const problem = report.error ?? report.streams[0]?.failed[0]?.error
    if (problem !== undefined)
      throw new TransientError(`${stream.name} could not be listed, so nothing more is sent: ${problem}`)
  }

  private async load(kind: CreationKind, lost?: Wish): Promise<void> {
    const { warehouse } = this.services
    const read = async <T extends object>(sql: string) => (await warehouse.pool.query<T>(sql, [this.project.id])).rows
    const known = this.known.get(kind) ?? new Map<string, string | null>()
    this.known.set(kind, known)
    const tried = this.tried.get(kind) ?? new Map<string, Creation>()
    if (kind === 'prompt') {
      const rows = await read<{ prompt_id: string; text: string; country_code: string | null }>(
        `select prompt_id, text, country_code from ${tableName(warehouse, 'prompts')} where project_id = $1 and removed_at is null`,
      )
      for (const { prompt_id, text, country_code } of rows) {
        if (country_code !== null) known.set(identityOf({ kind, text, country: country_code }), prompt_id)
        // A service that does not tell the country: the text alone has to do for what was sent and left open.
        else
          for (const [identity, { state }] of tried)
            if (state === 'sent' && (JSON.parse(identity) as string[])[0] === text) known.set(identity, prompt_id)
        if (country_code === null && lost?.text === text) known.set(identityOf(lost), prompt_id)
      }
      return
    }
    if (kind === 'topic') {
      const rows = await read<{ topic_id: string; name: string }>(
        `select topic_id, name from ${tableName(warehouse, 'topics')} where project_id = $1 and name is not null`,
      )
      for (const { topic_id, name } of rows) {
        known.set(name, topic_id)
        this.topicIds.set(name, topic_id)
      }
      for (const [identity, { state, id }] of tried)
        if (state === 'created' || state === 'existing') known.set(identity, known.get(identity) ?? id)
      return
    }
    const table = kind === 'domain-classification' ? 'domain_classifications' : 'url_classifications'
    const alive = kind === 'domain-classification' ? ' and removed_at is null' : ''
    const rows = await read<{ name: string }>(
      `select name from ${tableName(warehouse, table)} where project_id = $1${alive}`,
    )
    for (const { name } of rows) known.set(name, name)
  }

  /** What the interface cannot list is kept from its creation. */
  private async keep(wish: Wish, id: string | null): Promise<void> {
    const { tables } = this.services.warehouse
    if (wish.kind === 'topic' && id !== null) {
      this.topicIds.set(wish.name!, id)
      await tables
        .insertInto('topics')
        .values({ project_id: this.project.id, topic_id: id, name: wish.name! })
        .onConflict((conflict) => conflict.columns(['project_id', 'topic_id']).doUpdateSet({ name: wish.name! }))
        .execute()
    }
    if (wish.kind === 'url-classification') {
      await tables
        .insertInto('url_classifications')
        .values({ project_id: this.project.id, name: wish.name!, color: wish.color ?? null })
        .onConflict((conflict) => conflict.doNothing())
        .execute()
    }
  }

  private async call(
    kind: CreationKind,
    request: Record<string, unknown>,
  ): Promise<{ id: string; warning: string | null }> {
    const { client } = this.services
    const { caller } = this.project
    const context = { signal: this.signal }
    if (kind === 'prompt') {
      const { id, warning } = await client.createPrompt(caller, request as never, context)
      return { id, warning: warning ?? null }
    }
    if (kind === 'topic') return { id: (await client.createTopic(caller, request as never, context)).id, warning: null }
    const made =
      kind === 'domain-classification'
        ? await client.createDomainClassification(caller, request as never, context)
        : await client.createUrlClassification(caller, request as never, context)
    return { id: made.name, warning: null }
  }
}

const isId = (topic: string) => /^to_[\w-]+$/.test(topic)

/** True where an earlier wish is for the same thing. */
export function isRepeated(wishes: readonly Wish[], index: number): boolean {
  const { kind } = wishes[index]!
  const identity = identityOf(wishes[index]!)
  return wishes.slice(0, index).some((other) => other.kind === kind && identityOf(other) === identity)
}

export function requestOf(wish: Wish, topicId: string | undefined): Record<string, unknown> {
  const given = (fields: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
  if (wish.kind === 'prompt') {
    const tags = wish.tags !== undefined && wish.tags.length > 0 ? wish.tags : undefined
    return given({ text: wish.text, country_code: wish.country, tag_ids: tags, topic_id: topicId })
  }
  if (wish.kind === 'topic') return given({ name: wish.name, country_code: wish.country })
  return given({ name: wish.name, color: wish.color })
}
