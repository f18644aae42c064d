import { messageOf } from '../core/errors.ts'
import type { CreationKind } from '../ledger/creations.ts'
import { lockRun } from '../ledger/run-lock.ts'
import { closeRun } from '../ledger/runs.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import { CreationJournal } from './creation-journal.ts'
import { type CreationRequest, isRepeated } from './creation-request.ts'

export interface CreationResult {
  line: number
  kind: CreationKind
  name: string
  status: 'created' | 'existing' | 'failed' | 'not_sent'
  id: string | null
  /** The service's warning, or why it failed. */
  message: string | null
}

export interface CreationPlan {
  existing: number
  toCreate: number
  topicsToCreate: string[]
}

export interface CreateRequest {
  project: SyncedProject
  wishes: CreationRequest[]
  signal: AbortSignal
  /** Asked once it is known what would be sent; false ends without sending anything. */
  confirm(plan: CreationPlan): Promise<boolean>
  progress?(result: CreationResult, done: number, all: number): void
}

export async function createAll(services: Services, request: CreateRequest): Promise<CreationResult[] | undefined> {
  const { warehouse } = services
  const { project, wishes } = request
  const kinds = [...new Set(wishes.map(({ kind }) => kind))]
  // Two commands at once could both find that something is missing.
  const start = { command: `create ${kinds.join(' and ')}`, version: services.version, source: services.source }
  const projectStream = { projectId: project.id, stream: 'creations' }
  const lock = await lockRun(warehouse, [projectStream], start, {
    log: services.log,
    signal: request.signal,
    activity: ({ projectId }) => `something is being created in ${projectId}`,
  })
  const signal = AbortSignal.any([request.signal, lock.lost])
  let results: CreationResult[] | undefined
  try {
    const book = new CreationJournal(services, project, lock.runId, signal)
    await book.open(kinds.includes('prompt') ? [...kinds, 'topic'] : kinds)
    const topics = book.missingTopics(wishes)
    const toCreate = wishes.filter((wish, index) => !book.isThere(wish) && !isRepeated(wishes, index)).length
    const plan = { existing: wishes.length - toCreate, toCreate, topicsToCreate: topics }
    if (await request.confirm(plan)) {
      results = await createEach(book, { ...request, signal }, topics)
      await book.close(results)
    }
    const failed = (results ?? []).filter(({ status }) => status === 'failed' || status === 'not_sent').length
    const outcome = request.signal.aborted ? 'interrupted' : failed === 0 ? 'complete' : 'partial'
    await closeRun(warehouse, lock.runId, { outcome, summary: [], error: null }).catch(() => {})
    return results
  } catch (error) {
    const outcome = request.signal.aborted ? 'interrupted' : 'failed'
    await closeRun(warehouse, lock.runId, { outcome, summary: [], error: messageOf(error) }).catch(() => {})
    throw error
  } finally {
    await lock.release()
  }
}

async function createEach(book: CreationJournal, request: CreateRequest, topics: string[]): Promise<CreationResult[]> {
  const results: CreationResult[] = []
  let stop: string | undefined
  const failedTopics = new Map<string, string>()
  for (const name of topics) {
    if (request.signal.aborted) stop ??= 'not sent: the command was stopped'
    if (stop !== undefined) break
    const made = await book.create({ line: 0, kind: 'topic', name })
    if (made.status === 'failed') failedTopics.set(name, made.message ?? 'failed')
    if (made.stop) stop = made.message ?? 'stopped'
  }
  for (const [index, wish] of request.wishes.entries()) {
    if (request.signal.aborted) stop ??= 'not sent: the command was stopped'
    const problem = wish.topic === undefined || book.isThere(wish) ? undefined : failedTopics.get(wish.topic)
    const base = { line: wish.line, kind: wish.kind, name: wish.text ?? wish.name ?? '' }
    let result: CreationResult
    if (stop !== undefined) result = { ...base, status: 'not_sent', id: null, message: stop }
    else if (problem !== undefined) {
      const message = `its topic "${wish.topic}" could not be created: ${problem}`
      result = { ...base, status: 'failed', id: null, message }
    } else {
      const made = await book.create(wish)
      result = { ...base, status: made.status, id: made.id, message: made.message }
      if (made.stop) stop = `not sent: ${made.message}`
    }
    results.push(result)
    request.progress?.(result, index + 1, request.wishes.length)
  }
  return results
}
