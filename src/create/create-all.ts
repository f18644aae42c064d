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
  wanted: CreationRequest[]
  signal: AbortSignal
  /** Asked once it is known what would be sent; false ends without sending anything. */
  confirm(plan: CreationPlan): Promise<boolean>
  progress?(result: CreationResult, done: number, all: number): void
}

export async function createAll(services: Services, request: CreateRequest): Promise<CreationResult[] | undefined> {
  const { warehouse, log, version, source } = services
  const { project, wanted } = request
  const kinds = [...new Set(wanted.map(({ kind }) => kind))]
  // Two commands at once could both find that something is missing.
  const projectStreams = [{ projectId: project.id, stream: 'creations' }]
  const start = { command: `create ${kinds.join(' and ')}`, version, source, projectStreams }
  const activity = () => `something is being created in ${project.id}`
  return withRun(warehouse, start, { log, signal: request.signal, activity }, async ({ runId, signal }) => {
    const journal = new CreationJournal(services, project, runId, signal)
    await journal.open(kinds.includes('prompt') ? [...kinds, 'topic'] : kinds)
    const topics = journal.missingTopics(wanted)
    const toCreate = wanted.filter((item, index) => !journal.isThere(item) && !isRepeated(wanted, index)).length
    const plan = { existing: wanted.length - toCreate, toCreate, topicsToCreate: topics }
    const isConfirmed = await request.confirm(plan)
    const result = isConfirmed ? await createEach(journal, { ...request, signal }, topics) : undefined
    if (result !== undefined) await journal.close(result)
    const isComplete = result?.every(({ status }) => status === 'created' || status === 'existing') ?? true
    const outcome = request.signal.aborted ? 'interrupted' : isComplete ? 'complete' : 'partial'
    return { result, outcome }
  })
}

async function createEach(
  journal: CreationJournal,
  request: CreateRequest,
  topics: string[],
): Promise<CreationResult[]> {
  let stop: string | undefined
  const failedTopics = new Map<string, string>()
  const createOne = async (item: CreationRequest): Promise<Pick<CreationResult, 'status' | 'id' | 'message'>> => {
    if (request.signal.aborted) stop ??= 'not sent: the command was stopped'
    if (stop !== undefined) return { status: 'not_sent', id: null, message: stop }
    const problem = item.topic === undefined || journal.isThere(item) ? undefined : failedTopics.get(item.topic)
    if (problem !== undefined) return failed(`its topic "${item.topic}" could not be created: ${problem}`)
    const made = await journal.create(item)
    if (made.stop) stop = `not sent: ${made.message}`
    return made
  }
  for (const name of topics) {
    const { status, message } = await createOne({ line: 0, kind: 'topic', name })
    if (status === 'failed') failedTopics.set(name, message ?? 'failed')
  }
  const results: CreationResult[] = []
  for (const item of request.wanted) {
    const { line, kind, text, name } = item
    const { status, id, message } = await createOne(item)
    const result = { line, kind, name: text ?? name ?? '', status, id, message }
    results.push(result)
    request.progress?.(result, results.length, request.wanted.length)
  }
  return results
}
