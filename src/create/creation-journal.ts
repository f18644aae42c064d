import { sql } from 'kysely'
import {
  codeOf,
  InterruptedError,
  LockedError,
  messageOf,
  RefusedError,
  TransientError,
  UsageError,
} from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { sleep } from '../core/waiting.ts'
import { beginCreation, type Creation, type CreationKind, finishCreation, readCreations } from '../ledger/creations.ts'
import { domainClassifications } from '../streams/extra-lists.ts'
import { prompts } from '../streams/prompts.ts'
import type { ListStream } from '../streams/stream.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import { runSync } from '../sync/run/run-sync.ts'
import { dataTable } from '../warehouse/database.ts'
import { type CreationRequest, type Identified, idempotencyKey, requestOf } from './creation-request.ts'

const LISTED: Partial<Record<CreationKind, ListStream>> = {
  prompt: prompts,
  'domain-classification': domainClassifications,
}
/** Where what has a name is, and the column of its id. */
const NAMED = {
  topic: { table: 'topics', id: 'topic_id' },
  'domain-classification': { table: 'domain_classifications', id: 'name' },
  'url-classification': { table: 'url_classifications', id: 'name' },
}
const METHODS = {
  prompt: 'createPrompt',
  topic: 'createTopic',
  'domain-classification': 'createDomainClassification',
  'url-classification': 'createUrlClassification',
} as const
const LOOKS = 3
const LOOK_AGAIN_MS = 700
const MOST_REFUSALS = 8
const LOCK_ATTEMPTS = 120
const LOCK_AGAIN_MS = 1000

interface Made {
  status: 'created' | 'existing' | 'failed'
  id: string | null
  message: string | null
  /** True if nothing more must be sent. */
  stop?: boolean
  /** True if it may exist though no answer came. */
  open?: boolean
}

export function failed(message: string, end: Pick<Made, 'stop' | 'open'> = {}): Made {
  return { status: 'failed', id: null, message, ...end }
}

/** Knows which entities exist, from the tables, the service's lists and earlier attempts. */
export class CreationJournal {
  private readonly known = new Map<CreationKind, Map<string, string | null>>()
  private readonly tried = new Map<CreationKind, Map<string, Creation>>()
  /** The topics that prompts can have. A topic that was created before may be removed since. */
  private readonly topicIds = new Map<string, string>()
  private readonly inDoubt = new Set<string>()

  constructor(
    private readonly services: Services,
    private readonly project: SyncedProject,
    private readonly runId: number,
    private readonly signal: AbortSignal,
  ) {}

  /** Lists what can be listed, so that the tables are as new as the service itself. */
  async open(kinds: CreationKind[]): Promise<void> {
    for (const kind of kinds) await this.look(kind)
  }

  /** Stores created entities in the tables at the end of the command. If that fails, the next sync does it. */
  async close(results: readonly { status: string }[]): Promise<void> {
    if (this.signal.aborted || !results.some(({ status }) => status === 'created')) return
    for (const kind of this.known.keys()) {
      await this.list(kind).catch((error: unknown) =>
        this.services.log.warn({ reason: messageOf(error) }, 'not listed in the end; the next sync does it'),
      )
    }
  }

  isThere(item: Identified): boolean {
    return this.knownId(item) !== undefined
  }

  missingTopics(wanted: readonly CreationRequest[]): string[] {
    const coming = wanted.filter((item) => item.kind === 'prompt' && !this.isThere(item))
    const named = coming.flatMap(({ topic }) => (topic && this.topicId(topic) === undefined ? [topic] : []))
    return [...new Set(named)]
  }

  /** Never throws: what goes wrong belongs to the line, and what may have been sent stays open. */
  async create(item: CreationRequest): Promise<Made> {
    try {
      return await this.createOne(item)
    } catch (error) {
      this.inDoubt.add(`${item.kind} ${idempotencyKey(item)}`)
      return failed(clip(messageOf(error)), { stop: true })
    }
  }

  /** Null if it exists and its id is not known. */
  private knownId(item: Identified): string | null | undefined {
    return this.known.get(item.kind)?.get(idempotencyKey(item))
  }

  private topicId(topic: string): string | undefined {
    return /^to_[\w-]+$/.test(topic) ? topic : this.topicIds.get(topic)
  }

  private async createOne(item: CreationRequest): Promise<Made> {
    const { warehouse } = this.services
    const key = { projectId: this.project.id, kind: item.kind, identity: idempotencyKey(item) }
    const there = this.knownId(item)
    if (there !== undefined) {
      // Known from before, or finished now if an earlier attempt was left open.
      if (this.tried.get(item.kind)?.get(key.identity)?.state === 'sent')
        await finishCreation(warehouse, key, { state: 'created', id: there })
      return { status: 'existing', id: there, message: null }
    }
    const topicId = item.topic === undefined ? undefined : this.topicId(item.topic)
    if (item.topic !== undefined && topicId === undefined)
      return failed(
        `the topic "${item.topic}" exists, but the service lists no ids of topics: give its id (to_…) instead`,
      )
    if (this.inDoubt.has(`${item.kind} ${key.identity}`))
      return failed('an earlier line for the same thing is still open; run the command again')
    const request = requestOf(item, topicId)
    await beginCreation(warehouse, key, { request, runId: this.runId })
    const made = await this.send(item, request)
    if (made.status !== 'failed') {
      this.known.get(item.kind)!.set(key.identity, made.id)
      await this.saveCreated(item, made.id)
      await finishCreation(warehouse, key, { state: made.status, id: made.id, warning: made.message })
    } else if (made.open) {
      this.inDoubt.add(`${item.kind} ${key.identity}`)
    } else {
      await finishCreation(warehouse, key, { state: 'failed', error: made.message })
    }
    return made
  }

  /** Sends once. Only a 429 was not acted upon, so it is sent again. */
  private async send(item: CreationRequest, request: Record<string, unknown>): Promise<Made> {
    for (let refusals = 0; ; refusals++) {
      try {
        return await this.call(item.kind, request)
      } catch (error) {
        const isRateLimited = error instanceof TransientError && error.status === 429 && !this.signal.aborted
        if (!isRateLimited || refusals >= MOST_REFUSALS) return this.madeWithout(error, item, request)
        await sleep(error.retryAfterMs ?? 1000 * (refusals + 1), this.signal)
      }
    }
  }

  /** What came of a creation without a usable answer. If the answer was lost, the service's own list shows it. */
  private async madeWithout(error: unknown, item: CreationRequest, request: Record<string, unknown>): Promise<Made> {
    const message = clip(messageOf(error))
    const isListed = LISTED[item.kind] !== undefined
    const status = error instanceof RefusedError ? error.status : undefined
    if (status === 409) {
      if (isListed) await this.look(item.kind)
      return { status: 'existing', id: this.knownId(item) ?? null, message: null }
    }
    if (status === 402) return failed(`the credits are used up: ${message}`, { stop: true })
    if (error instanceof InterruptedError || this.signal.aborted)
      return failed('stopped before its answer came', { stop: true, open: true })
    if (status !== undefined && status < 500)
      return failed(message, { stop: codeOf(error) === 'key' || [401, 403].includes(status) })
    if (error instanceof UsageError) return failed(message)
    if (error instanceof TransientError && error.neverSent) return failed(message, { stop: true })
    return isListed ? this.resolve(item, message) : this.askAgain(item, request, message)
  }

  /** It cannot be listed, but asking once more is safe: what exists is refused as existing. */
  private askAgain(item: CreationRequest, request: Record<string, unknown>, reason: string): Promise<Made> {
    return this.call(item.kind, request).catch((error: unknown) =>
      error instanceof RefusedError && error.status === 409
        ? { status: 'created', id: null, message: 'the answer was lost, so its id is not known' }
        : failed(`no answer came: ${reason}; run the command again`, { open: true }),
    )
  }

  /** Looks whether it was created though no answer came. If that cannot be known, it is left open for the next time. */
  private async resolve(item: CreationRequest, reason: string): Promise<Made> {
    for (let look = 0; look < LOOKS; look++) {
      await sleep(LOOK_AGAIN_MS * look, this.signal)
      await this.look(item.kind)
      const id = this.knownId(item)
      if (id !== undefined) return { status: 'created', id, message: null }
    }
    const message = `no answer came (${reason}), and it is not in the service's list; run the command again to go on`
    return failed(message, { open: true })
  }

  private async call(kind: CreationKind, request: Record<string, unknown>): Promise<Made> {
    const create = this.services.client[METHODS[kind]]
    const { signal } = this
    const made: Partial<Record<'id' | 'name' | 'warning', string | null>> = await create(
      this.project.caller,
      request as never,
      { signal },
    )
    return { status: 'created', id: made.id ?? made.name!, message: made.warning ?? null }
  }

  /** Lists a kind into its table. A sync that is at it already is waited for. */
  private async list(kind: CreationKind): Promise<void> {
    const stream = LISTED[kind]
    if (stream === undefined) return
    const { project, signal } = this
    const request = { command: 'create: list', projects: [project], streams: [stream], signal }
    for (let attempt = 1; ; attempt++) {
      try {
        const { error, streams } = await runSync(this.services, request)
        const { failed: failures = [], held = [] } = streams[0] ?? {}
        const problem = error ?? failures[0]?.error ?? (held.length > 0 ? 'most of it would have vanished' : undefined)
        if (problem === undefined) return
        throw new TransientError(`${stream.name} could not be listed, so nothing more is sent: ${problem}`)
      } catch (error) {
        if (!(error instanceof LockedError) || attempt >= LOCK_ATTEMPTS) throw error
        await sleep(LOCK_AGAIN_MS, signal)
      }
    }
  }

  private async look(kind: CreationKind): Promise<void> {
    await this.list(kind)
    const { warehouse } = this.services
    const { id: projectId } = this.project
    const tried = await readCreations(warehouse, projectId, kind)
    this.tried.set(kind, tried)
    const known = this.known.get(kind) ?? new Map<string, string | null>()
    this.known.set(kind, known)
    if (kind === 'prompt') {
      const { rows } = await sql<ListedPrompt>`
        select prompt_id, text, country_code, first_seen_at from data.prompts
        where project_id = ${projectId} and removed_at is null`.execute(warehouse.db)
      for (const [identity, id] of promptsKnown(rows, tried)) known.set(identity, id)
      return
    }
    const { rows } = await sql<{ name: string; id: string }>`
      select name, ${sql.ref(NAMED[kind].id)} as id from ${dataTable(NAMED[kind].table)}
      where project_id = ${projectId} and name is not null and removed_at is null`.execute(warehouse.db)
    for (const { name, id } of rows) {
      known.set(name, id)
      if (kind === 'topic') this.topicIds.set(name, id)
    }
    if (kind !== 'topic') return
    for (const [name, { state, id }] of tried)
      if (state === 'created' || state === 'existing') known.set(name, known.get(name) ?? id)
  }

  /** Entities that the API cannot list are stored when they are created. */
  private async saveCreated({ kind, name, color }: CreationRequest, id: string | null): Promise<void> {
    const { warehouse } = this.services
    if (kind === 'topic' && id !== null) {
      this.topicIds.set(name!, id)
      await sql`
        insert into data.topics (project_id, topic_id, name) values (${this.project.id}, ${id}, ${name})
        on conflict (project_id, topic_id) do update set name = excluded.name`.execute(warehouse.db)
    }
    if (kind === 'url-classification')
      await sql`
        insert into data.url_classifications (project_id, name, color)
        values (${this.project.id}, ${name}, ${color ?? null})
        on conflict do nothing`.execute(warehouse.db)
  }
}

interface ListedPrompt {
  prompt_id: string
  text: string
  country_code: string | null
  first_seen_at: Date
}

/**
 * The prompts that exist, by text and country. Some services do not send the country: then a creation is known by the id
 * that it got, and one whose answer was lost by its text, if the prompt appeared after it was sent and is no other's.
 */
function promptsKnown(rows: readonly ListedPrompt[], tried: ReadonlyMap<string, Creation>): Map<string, string> {
  const known = new Map<string, string>()
  const listed = new Set(rows.map(({ prompt_id }) => prompt_id))
  const taken = new Set<string>()
  for (const { prompt_id, text, country_code } of rows) {
    if (country_code === null) continue
    known.set(idempotencyKey({ kind: 'prompt', text, country: country_code }), prompt_id)
    taken.add(prompt_id)
  }
  for (const [identity, { state, id }] of tried) {
    if (id === null || !listed.has(id) || (state !== 'created' && state !== 'existing')) continue
    known.set(identity, id)
    taken.add(id)
  }
  for (const [identity, { state, sent_at }] of tried) {
    if (state !== 'sent' || known.has(identity)) continue
    const [text] = JSON.parse(identity) as [string]
    const found = rows.find(
      (row) =>
        row.text === text && !taken.has(row.prompt_id) && row.country_code === null && row.first_seen_at >= sent_at,
    )
    if (found === undefined) continue
    known.set(identity, found.prompt_id)
    taken.add(found.prompt_id)
  }
  return known
}
