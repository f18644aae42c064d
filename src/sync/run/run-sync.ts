import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { dayOf } from '../../core/day.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { failureCodeOf, reportedCode } from '../../core/failure-code.ts'
import { failSpan, inSpan } from '../../core/logger.ts'
import { count, listSome } from '../../core/text.ts'
import { monotonic, untilStopped, waitAtMost } from '../../core/waiting.ts'
import { forgetHistoryChecks } from '../../ledger/control-totals.ts'
import { countChanged, markContradicted, markShared, readOpenDays } from '../../ledger/days.ts'
import { lockRun, type RunLock } from '../../ledger/run-lock.ts'
import { runReason } from '../../ledger/run-reason.ts'
import { closeRun } from '../../ledger/runs.ts'
import { readNotOffered } from '../../ledger/service-notes.ts'
import { prepareWarehouse } from '../../ledger/source.ts'
import type { Client } from '../../source/client.ts'
import { type DayStream, isCompared, isControl } from '../../streams/stream.ts'
import { forgetUnnamed, forgetUnread, listProjects, readEntities } from '../../warehouse/load/entities.ts'
import {
  applyLabels,
  applyOwnBrands,
  labelNotes,
  ownBrandNotes,
  projectsWithoutOwn,
} from '../../warehouse/load/own-brands.ts'
import { isTransient, withRetries } from '../../warehouse/retry.ts'
import { saveStreamSettings } from '../../warehouse/schema/stream-settings.ts'
import { analyzeChanged, refreshSummaries } from '../../warehouse/schema/summaries.ts'
import { lookbackStart, readableRange } from '../plan/due-days.ts'
import { type Executor, executeHere, isNamed, isUsualRefusal } from './execute.ts'
import { makeTasks, performTasks } from './make-tasks.ts'
import { readChatContents } from './read-chat-contents.ts'
import { type Failure, outcomeOf, type RunReport, type StreamReport } from './report.ts'
import { makeRun, newRunMemory, type Run, type RunRequest, type Services, type SyncedProject } from './run.ts'
import { type Observer, RunFailures, type Task } from './task.ts'

const CLOSING_MS = 6000

/** One run: locks, plans, reads and loads everything that was asked for, and closes with an honest outcome. */
export function runSync(
  services: Services,
  request: RunRequest,
  observer: Observer = {},
  execute: Executor = executeHere,
): Promise<RunReport> {
  return inSpan('run', { 'visibility_sync.command': request.command }, async (span) => {
    const ended = new AbortController()
    void untilStopped(request.signal, ended.signal).then(() => services.warehouse.hurry())
    const report = await performRun(services, request, observer, execute).finally(() => ended.abort())
    const { run_id, outcome, code } = report
    span.setAttributes({ 'visibility_sync.run_id': run_id, 'visibility_sync.outcome': outcome })
    if (outcome !== 'complete') failSpan(span, code ?? outcome)
    return report
  })
}

async function performRun(
  services: Services,
  request: RunRequest,
  observer: Observer,
  execute: Executor,
): Promise<RunReport> {
  const { warehouse, config } = services
  const startedAt = monotonic()
  services.client.resetOutages(request.projects.map(({ caller }) => caller))
  await requireProject(services.client, request.projects, request.signal)
  const { repaired } = await prepareWarehouse(services, request.signal)
  const lock = await lockStreams(services, request)
  observer.started?.({ runId: lock.runId, command: request.command })
  const ids = request.projects.map(({ id }) => id)
  const failures = new RunFailures(ids, { lostLease: lock.lost, request: request.signal })
  const run = beginRun(services, request, lock.runId, failures.signal)
  const deadline = stopAtDeadline(config, (failure) => failures.stopRun(failure))
  const result: RunResult = { streams: [], notes: [...repaired] }
  await loadAll(run, request, { failures, observer, execute }, result).catch((cause: unknown) => {
    const code = isTransient(cause) ? 'transient' : reportedCode(failureCodeOf(cause))
    if (!run.signal.aborted) failures.note({ reason: messageOf(cause), code })
  })
  clearTimeout(deadline)
  const report: RunReport = {
    run_id: run.runId,
    command: request.command,
    ...endOf(result.streams, failures.first, request.signal?.aborted ?? false),
    source: run.source,
    seconds: Math.round(monotonic() - startedAt) / 1000,
    ...result,
  }
  // A text that was broken into lines or cells no longer shows what it holds.
  return closeWith(run, request, lock, warehouse.redactor.value(report))
}

/** What a run has done so far. It is valid at any time, for a run may fail at any statement. */
type RunResult = Pick<RunReport, 'streams' | 'notes'>

async function loadAll(
  run: Run,
  request: RunRequest,
  { failures, observer, execute }: { failures: RunFailures; observer: Observer; execute: Executor },
  result: RunResult,
): Promise<void> {
  const { warehouse } = run
  const { projects } = request
  const ids = projects.map(({ id }) => id)
  await describeStreams(run, request)
  const reported = request.isWatched ? [] : await run.retry(() => projectsWithoutOwn(warehouse, ids))
  const tasks = await makeTasks(run, request, { failures, observer })
  result.streams = tasks.map(({ report }) => report)
  run.log.info({ command: request.command, source: run.source, streams: tasks.length }, 'run started')
  await performTasks(run, request, tasks, execute)
  await reportContradictions(run, tasks)
  const refused = ids.filter((id) => failures.projects.get(id)?.code === 'project')
  if (refused.length > 0) await run.retry(() => forgetUnread(warehouse, refused))
  const contents = request.streams.find(({ perChat }) => perChat)
  if (contents?.by === 'list') result.streams.push(...(await readChatContents(run, projects, contents, observer)))
  if (!request.signal?.aborted) result.notes.push(...(await run.retry(() => markOwnBrands(run, ids, reported))))
  result.notes.push(...(await closingNotes(run, request, tasks, result.streams)))
  const projectsOf = (reports: readonly StreamReport[]) => [...new Set(reports.map(({ project_id }) => project_id))]
  const shrunk = projectsOf(result.streams.filter(({ deleted }) => deleted > 0))
  await run.retry(() => forgetUnnamed(warehouse, shrunk))
  const differing = result.streams.filter(({ unreconciled, held }) => unreconciled.length + held.length > 0)
  await run.retry(() => forgetHistoryChecks(warehouse, projectsOf(differing)))
  // People read them in the result.
  for (const note of result.notes) run.log.info(note)
  await prepareViews(run, result.streams)
}

function endOf(streams: readonly StreamReport[], failure: Failure | undefined, isInterrupted: boolean) {
  if (failure === undefined) return { outcome: outcomeOf(streams, isInterrupted) }
  const hasFailed = !isInterrupted && streams.every(({ windows }) => windows === 0)
  const outcome = hasFailed ? 'failed' : outcomeOf(streams, isInterrupted)
  return {
    outcome: outcome === 'complete' ? ('partial' as const) : outcome,
    error: failure.reason,
    code: failure.code,
  } as const
}

function lockStreams(services: Services, { projects, streams, command, signal }: RunRequest): Promise<RunLock> {
  const { warehouse, version, source, log, config } = services
  const projectStreams = projects.flatMap(({ id }) => streams.map(({ name }) => ({ projectId: id, stream: name })))
  // Runs that share the queue may work beside each other: each window is safe by itself.
  const shared = config.queue.mode === 'pg-boss'
  return lockRun(warehouse, projectStreams, { command, version, source }, { log, signal, shared })
}

function beginRun(services: Services, request: RunRequest, runId: number, signal: AbortSignal): Run {
  const { config, clock } = services
  const today = dayOf(clock())
  const range = readableRange(daysOfInterest(config, today), today)
  const own = {
    runId,
    command: request.command,
    ...newRunMemory(config.source.page_limit),
    acceptDeletes: request.acceptDeletes ?? false,
    lookbackFrom: lookbackStart(range, config.lookback_days),
  }
  return makeRun(services, own, signal)
}

/** Has the run stopped once its time is up; the timer is to be cleared. */
export function stopAtDeadline({ source }: Config, stop: (failure: Failure) => void): NodeJS.Timeout {
  const reason = `source.run_minutes passed: the run was stopped after ${source.run_minutes} min; what is loaded stays, and the next run continues from there`
  return setTimeout(() => stop({ reason, code: 'transient' }), source.run_minutes * 60_000)
}

/** Stores for the views which projects and streams there are, before any of their rows is loaded. */
async function describeStreams(
  { warehouse, config, clock, entities, retry }: Run,
  { projects }: RunRequest,
): Promise<void> {
  const ids = projects.map(({ id }) => id)
  await retry(async () => {
    await listProjects(warehouse, ids)
    await applyLabels(warehouse, ids, config.labels)
    const interest = daysOfInterest(config, dayOf(clock()))
    await saveStreamSettings(warehouse, config, { interest, projectIds: ids })
    await readEntities(warehouse, ids, entities)
  })
}

/**
 * Reports days that only the streams together show to be wrong: two projects have the same control totals, so the service answered one
 * of them with the rows of the other; or no finer report adds up to the report by date.
 */
async function reportContradictions({ warehouse, runId, retry }: Run, tasks: readonly Task[]): Promise<void> {
  const dated = tasks.map(({ stream }) => stream).filter((stream) => stream.by === 'day')
  const namesOf = (isWanted: (stream: DayStream) => boolean) => [
    ...new Set(dated.filter(isWanted).map(({ name }) => name)),
  ]
  const streams = namesOf(({ control }) => control !== undefined)
  const finer = namesOf((stream) => isCompared(stream) && stream.control === 'brand totals' && !stream.filters?.length)
  const [control] = namesOf((stream) => isControl(stream) && !stream.filters?.length)
  const found = await retry(() => markShared(warehouse, { streams, runId }))
  const differs = tasks.some(({ report }) => report.unreconciled.length > 0)
  if (differs && control !== undefined)
    found.push(...(await retry(() => markContradicted(warehouse, { control, finer, runId }))))
  for (const { projectId, stream, ...day } of found)
    tasks.find((task) => task.project.id === projectId && task.stream.name === stream)?.report.unreconciled.push(day)
}

async function closeWith(run: Run, { signal }: RunRequest, lock: RunLock, report: RunReport): Promise<RunReport> {
  const { warehouse, log } = run
  const { error = null, outcome, streams, seconds } = report
  const end = { outcome, summary: streams, error }
  const close = async () => {
    await withRetries(warehouse, undefined, () => closeRun(warehouse, lock.runId, end)).catch((cause: unknown) => {
      log.error({ reason: messageOf(cause) }, 'the run could not be closed')
    })
    await lock.release()
  }
  // After a stop it does not wait for a database that is away: the lease expires by itself.
  const closing = close()
  const closed = new AbortController()
  const stopped = untilStopped(signal, closed.signal).then(() => waitAtMost(CLOSING_MS, closing))
  await Promise.race([closing, stopped]).finally(() => closed.abort())
  const sum = (field: 'rows_read' | 'requests') => streams.reduce((total, stream) => total + stream[field], 0)
  const totals = { rows: sum('rows_read'), requests: sum('requests'), seconds }
  log[outcome === 'complete' ? 'info' : 'warn']({ outcome, ...totals, reason: runReason(end) }, 'run ended')
  return report
}

async function closingNotes(
  run: Run,
  { projects, streams, range, only }: RunRequest,
  tasks: readonly Task[],
  reports: readonly StreamReport[],
): Promise<string[]> {
  const { warehouse, config, clock, retry, runId } = run
  const ids = projects.map(({ id }) => id)
  const missing = await retry(() => readNotOffered(warehouse, ids, clock()))
  const find = (id: string, name: string) => missing.find((row) => row.project_id === id && row.stream === name)
  const notes = reports.flatMap(({ project_id, stream, not_offered }) => {
    if (not_offered === undefined) return []
    const about = `${stream} of ${project_id}: not offered by the service`
    if (find(project_id, stream)?.was_read)
      return [`${about} any more (HTTP ${not_offered}); its rows stay, and it is asked for again in a day`]
    const isWorthSaying = isNamed(config, stream) || !isUsualRefusal(not_offered)
    return isWorthSaying ? [`${about} (HTTP ${not_offered}); it is asked again in a week`] : []
  })
  const loaded = { projectIds: ids, streams: streams.map(({ name }) => name), runId }
  const differing = await retry(() => readOpenDays(warehouse, loaded))
  if (differing.length > 0) {
    const where = listSome(differing.map(({ stream, date }) => `${stream} ${date}`))
    notes.push(`days that do not add up yet, and that the next sync reads again: ${where}; ${differing[0]!.difference}`)
  }
  if (range !== undefined || only !== undefined) return notes
  // Days that were marked to be read again after the run was planned.
  const offered = tasks.filter(({ project, stream }) => find(project.id, stream.name) === undefined)
  const interest = daysOfInterest(config, dayOf(clock()))
  const names = [...new Set(offered.map(({ stream }) => stream.name))]
  const stale = await retry(() => countChanged(warehouse, ids, { streams: names, range: interest }))
  if (stale.length === 0) return notes
  const most = count(Math.max(...stale.map(({ days }) => days)), 'day')
  const where = listSome(stale.map(({ stream }) => stream))
  return [
    ...notes,
    `up to ${most} of ${where} may have changed, as the rows of other streams have; the next sync reads them again`,
  ]
}

/** Own brands by labels or by the profile, and notes on them. `reported`: projects of which is known that none is own. */
async function markOwnBrands(
  { warehouse, config }: Services,
  ids: readonly string[],
  reported: readonly string[],
): Promise<string[]> {
  const hasChanged = await applyOwnBrands(warehouse, ids, config.labels)
  const without = await projectsWithoutOwn(warehouse, ids)
  const fresh = without.filter((id) => !reported.includes(id))
  return [...(await labelNotes(warehouse, ids, config.labels, hasChanged)), ...(await ownBrandNotes(warehouse, fresh))]
}

/** Computes what views read beside the rows. A run that read everything is complete without this: views are only slower. */
async function prepareViews(run: Run, reports: readonly StreamReport[]): Promise<void> {
  const { warehouse, config, signal, log, streams } = run
  try {
    await analyzeChanged(warehouse, reports, (stream) => streams.get(stream)?.table)
    const count = await run.retry(() => refreshSummaries(warehouse, config, signal))
    if (count > 0) log.debug({ count }, 'summaries for views renewed')
  } catch (cause) {
    if (!signal.aborted) log.warn({ reason: messageOf(cause) }, 'summaries for views could not be renewed')
  }
}

/** A key that needs a project, but has none, is found out by one request, before anything is locked or written. */
async function requireProject(
  client: Client,
  projects: readonly SyncedProject[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const nameless = projects.find(({ caller }) => caller.projectId === undefined)
  if (nameless === undefined) return
  await client.ping(nameless.caller, { signal }).catch((error: unknown) => {
    // The run reports other errors itself.
    if (error instanceof UsageError) throw error
  })
}
