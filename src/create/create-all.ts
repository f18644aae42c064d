import type { CreationKind } from '../ledger/creations.ts'
import { withRun } from '../ledger/with-run.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import { CreationJournal, failed } from './creation-journal.ts'
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

interface CreateRequest {
  project: SyncedProject
  wishes: CreationRequest[]
  signal: AbortSignal
  /** Asked once it is known what would be sent; false ends without sending anything. */
  confirm(plan: CreationPlan): Promise<boolean>
  progress?(result: CreationResult, done: number, all: number): void
}

export async function createAll(services: Services, request: CreateRequest): Promise<CreationResult[] | undefined> {
  const { warehouse, log, version, source } = services
  const { project, wishes } = request
  const kinds = [...new Set(wishes.map(({ kind }) => kind))]
  // Two commands at once could both find that something is missing.
  const projectStreams = [{ projectId: project.id, stream: 'creations' }]
  const start = { command: `create ${kinds.join(' and ')}`, version, source, projectStreams }
  const activity = () => `something is being created in ${project.id}`
  return withRun(warehouse, start, { log, signal: request.signal, activity }, async ({ runId, signal }) => {
    const book = new CreationJournal(services, project, runId, signal)
    await book.open(kinds.includes('prompt') ? [...kinds, 'topic'] : kinds)
    const topics = book.missingTopics(wishes)
    const toCreate = wishes.filter((wish, index) => !book.isThere(wish) && !isRepeated(wishes, index)).length
    const plan = { existing: wishes.length - toCreate, toCreate, topicsToCreate: topics }
    const isConfirmed = await request.confirm(plan)
    const result = isConfirmed ? await createEach(book, { ...request, signal }, topics) : undefined
    if (result !== undefined) await book.close(result)
    const isComplete = result?.every(({ status }) => status === 'created' || status === 'existing') ?? true
    const outcome = request.signal.aborted ? 'interrupted' : isComplete ? 'complete' : 'partial'
    return { result, outcome }
  })
}

async function createEach(book: CreationJournal, request: CreateRequest, topics: string[]): Promise<CreationResult[]> {
  let stop: string | undefined
  const failedTopics = new Map<string, string>()
  const createOne = async (wish: CreationRequest): Promise<Pick<CreationResult, 'status' | 'id' | 'message'>> => {
    if (request.signal.aborted) stop ??= 'not sent: the command was stopped'
    if (stop !== undefined) return { status: 'not_sent', id: null, message: stop }
    const problem = wish.topic === undefined || book.isThere(wish) ? undefined : failedTopics.get(wish.topic)
    if (problem !== undefined) return failed(`its topic "${wish.topic}" could not be created: ${problem}`)
    const made = await book.create(wish)
    if (made.stop) stop = `not sent: ${made.message}`
    return made
  }
  for (const name of topics) {
    const { status, message } = await createOne({ line: 0, kind: 'topic', name })
    if (status === 'failed') failedTopics.set(name, message ?? 'failed')
  }
  const results: CreationResult[] = []
  for (const wish of request.wishes) {
    const { line, kind, text, name } = wish
    const { status, id, message } = await createOne(wish)
    const result = { line, kind, name: text ?? name ?? '', status, id, message }
    results.push(result)
    request.progress?.(result, results.length, request.wishes.length)
  }
  return results
}
