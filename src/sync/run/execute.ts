import type { Config } from '../../core/config/load.ts'
import { countDays, type Range, showRange } from '../../core/day.ts'
import { InterruptedError, KeyError, messageOf, RefusedError, TransientError } from '../../core/errors.ts'
import { failureCodeOf, failureRule } from '../../core/failure-code.ts'
import { failSpan, inSpan } from '../../core/logger.ts'
import { EXTRA_STREAMS } from '../../core/vocabulary.ts'
import { addSeconds, monotonic } from '../../core/waiting.ts'
import { saveNotOffered } from '../../ledger/service-notes.ts'
import type { CallContext } from '../../source/client.ts'
import type { Stream } from '../../streams/stream.ts'
import type { WindowFeed } from '../plan/window-feed.ts'
import { isTooMuch } from '../read/read-window.ts'
import { refusalOfProject } from './refused-project.ts'
import type { FailedItem, ItemResult, Loaded, Run, SyncedProject } from './run.ts'
import { syncList } from './sync-list.ts'
import { syncWindow } from './sync-window.ts'
import { countLoad, countRequest, failItem, logFields, type Task, TaskRotation, type WorkItem } from './task.ts'

/** A window of a project's stream, or its list, which has no range. */
type Item = Pick<Task, 'project' | 'stream'> & { range: Range | undefined }

/** Reads and loads one window or list. A failure is a result, too: the caller decides what it ends. */
export function performItem(run: Run, item: Item, call: CallContext): Promise<ItemResult> {
  const { project, stream, range } = item
  const about = {
    ...{
      'visibility_sync.run_id': run.runId,
      'visibility_sync.project': project.id,
      'visibility_sync.stream': stream.name,
    },
    ...(range === undefined ? {} : { 'visibility_sync.window': showRange(range) }),
  }
  return inSpan('window', about, async (span) => {
    const result = await perform(run, item, call)
    span.setAttribute('visibility_sync.result', result.kind)
    if (result.kind === 'loaded') span.setAttribute('visibility_sync.rows', result.summary.rowsRead)
    if (result.kind === 'failed') failSpan(span, result.code)
    return result
  })
}

const STOPPED: FailedItem = { kind: 'failed', reason: 'not read: the run was stopped', code: 'interrupted' }

async function perform(run: Run, { project, stream, range }: Item, call: CallContext): Promise<ItemResult> {
  const context = { ...call, isDivisible: range !== undefined && countDays(range) > 1 }
  try {
    const loaded =
      stream.by === 'list'
        ? await syncList(run, project, stream, context)
        : await syncWindow(run, { project, stream, range: range! }, context)
    run.refusalOf.set(project.id, Promise.resolve(undefined))
    return loaded
  } catch (error) {
    if (run.signal.aborted || error instanceof InterruptedError) return STOPPED
    const refusal = await refusalOfProject(run, { project, stream: stream.name }, error, call).catch(() => undefined)
    if (run.signal.aborted) return STOPPED
    if (refusal !== undefined) return failedItem(refusal)
    if (context.isDivisible && isTooMuch(error)) return { kind: 'shorten' }
    if (saysNotOffered(run.config, stream, error))
      return noteNotOffered(run, { project, stream }, error.status, call).catch(failedItem)
    return failedItem(error)
  }
}

function failedItem(error: unknown): FailedItem {
  return { kind: 'failed', reason: messageOf(error), code: failureCodeOf(error) }
}

/** Has all work items of the tasks done, and applies their results. */
export type Executor = (run: Run, tasks: readonly Task[]) => Promise<void>

export const executeHere: Executor = async (run, tasks) => {
  const rotation = new TaskRotation(tasks)
  const running = new Set<Promise<void>>()
  for (;;) {
    while (running.size < run.config.source.concurrency) {
      const item = rotation.next()
      if (item === undefined) break
      const work = performHere(item).then(({ result, seconds }) => applyResult(item, result, seconds))
      const promise: Promise<void> = work.finally(() => running.delete(promise))
      running.add(promise)
    }
    if (running.size === 0) return
    await Promise.race(running)
  }
}

export async function performHere({ task, range }: WorkItem): Promise<{ result: ItemResult; seconds: number }> {
  const startedAt = monotonic()
  const { run, project, stream, report, shared } = task
  const onAttempt = (status: number | undefined) => countRequest({ report, observer: shared.observer }, status)
  const result = await performItem(run, { project, stream, range }, { signal: run.signal, onAttempt })
  return { result, seconds: Math.round(monotonic() - startedAt) / 1000 }
}

/** Counts a result, and lets it decide what is done next. A failure ends no more than it must. */
export function applyResult({ task, range }: WorkItem, result: ItemResult, seconds: number): void {
  const { report, remaining, run } = task
  report.seconds = addSeconds(report.seconds, seconds)
  // Another process may have found that the service truncates answers.
  if (result.kind === 'loaded' || result.kind === 'split') run.limit.lowerTo(result.pageLimit)
  if (result.kind === 'loaded') finish(task, result, seconds)
  if (result.kind === 'failed') failItem({ task, range }, result)
  if (result.kind === 'not-offered') report.not_offered = result.status
  if (remaining.kind === 'list') remaining.state = 'done'
  else if (range !== undefined) moveFeed(remaining.feed, range, result)
}

function moveFeed(feed: WindowFeed, range: Range, result: ItemResult): void {
  switch (result.kind) {
    case 'loaded':
      feed.density.learn(range, new Map(result.rowsByDay))
      return feed.markLoaded()
    case 'disagreed':
      return feed.isolate(range, result.days)
    case 'split':
      return feed.split(range)
    case 'not-offered':
      return feed.drop()
    case 'shorten':
      return feed.shorten(range)
    case 'failed':
      return feed.fail(range, failureRule(result.code).isRefusal ?? false)
  }
}

function finish(task: Task, { summary }: Loaded, seconds: number): void {
  const { run, report, shared } = task
  countLoad({ report, observer: shared.observer }, summary, seconds)
  const { inserted, updated, deleted, unchanged, held } = summary.effect
  const effect = { inserted, updated, deleted, unchanged }
  const fields = { ...logFields(task, summary.range), rows: summary.rowsRead, ...effect, seconds }
  run.log.info(fields, summary.range === undefined ? 'list loaded' : 'window loaded')
  if (summary.rejects > 0) run.log.warn({ ...fields, quarantined: summary.rejects }, 'rows quarantined')
  if (summary.difference !== undefined)
    run.log.warn({ ...fields, difference: summary.difference }, 'day does not add up to the control totals')
  if (held !== undefined)
    run.log.warn(
      { ...fields, ...held, ...(held.range && { range: showRange(held.range) }) },
      'held: most of these days would have vanished, so they are left as they were',
    )
}

/** True for answers by which a service says that it has no such operation, or not for this key. */
export function isUsualRefusal(status: number): boolean {
  return [403, 404, 405].includes(status)
}

/** True if somebody asked for the stream by its name, and not for whatever there is by `extras: auto`. */
export function isNamed({ extras, streams, reports }: Config, stream: string): boolean {
  if (reports.some(({ name, isTwin }) => name === stream && isTwin)) return false
  return extras !== 'auto' || !EXTRA_STREAMS.some((name) => name === stream) || streams.some((name) => name === stream)
}

/** True if the error says that an extra stream is not offered. Of a stream that nobody named, every refusal says so. */
export function saysNotOffered(
  config: Config,
  { name, isExtra }: Stream,
  error: unknown,
): error is RefusedError & { status: number } {
  if (!isExtra || !(error instanceof RefusedError) || error.status === undefined) return false
  if (!isNamed(config, name)) return true
  return isUsualRefusal(error.status) && !(error instanceof KeyError)
}

/**
 * Remembers that a stream is not offered. The same answers also mean a wrong key, a project that may not be read or a wrong
 * address, so an operation that every service has is asked first: if that is refused too, it throws.
 */
export async function noteNotOffered(
  run: Run,
  { project, stream }: { project: SyncedProject; stream: Stream },
  status: number,
  call: CallContext,
): Promise<ItemResult> {
  let isProven = true
  await run.client.ping(project.caller, call).catch((error: unknown) => {
    if (error instanceof RefusedError) throw error
    if (!isUsualRefusal(status))
      throw new TransientError(`${stream.name}: HTTP ${status}, and the key cannot be checked`, { cause: error })
    // No usable answer: the next run asks again.
    isProven = false
  })
  const projectStream = { projectId: project.id, stream: stream.name }
  if (isProven) await run.retry(() => saveNotOffered(run.warehouse, projectStream, status, run.clock()))
  return { kind: 'not-offered', status }
}
