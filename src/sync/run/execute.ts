import { countDays, type Range, showRange } from '../../core/day.ts'
import {
  DownError,
  InterruptedError,
  KeyError,
  messageOf,
  ProjectError,
  RefusedError,
  TransientError,
} from '../../core/errors.ts'
import { failureCodeOf } from '../../core/failure-code.ts'
import { failSpan, inSpan } from '../../core/trace.ts'
import { monotonic } from '../../core/waiting.ts'
import type { CallContext } from '../../source/client.ts'
import type { Stream } from '../../streams/stream.ts'
import { applyResult } from './apply-result.ts'
import { noteNotOffered, saysNotOffered } from './not-offered.ts'
import type { FailedItem, ItemResult, Run, SyncedProject } from './run.ts'
import { syncList } from './sync-list.ts'
import { syncWindow } from './sync-window.ts'
import { countRequest, nextItem, type Task, type WorkItem } from './task.ts'

/** A window of a project's stream, or its list, which has no range. */
interface Item {
  project: SyncedProject
  stream: Stream
  range: Range | undefined
}

/** Reads and loads one window or list. A failure is a result, too: the caller decides what it ends. */
export function performItem(run: Run, item: Item, call: CallContext): Promise<ItemResult> {
  const { project, stream, range } = item
  const about = {
    'visibility_sync.run_id': run.runId,
    'visibility_sync.project': project.id,
    'visibility_sync.stream': stream.name,
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

async function perform(run: Run, { project, stream, range }: Item, call: CallContext): Promise<ItemResult> {
  const context = { ...call, isDivisible: range !== undefined && countDays(range) > 1 }
  try {
    if (stream.by === 'list') return await syncList(run, project, stream, context)
    return await syncWindow(run, { project, stream, range: range! }, context)
  } catch (error) {
    if (run.signal.aborted || error instanceof InterruptedError) return stopped
    if (saysNotOffered(run.config, stream, error))
      return noteNotOffered(run, project, stream, error, call).catch(failedItem)
    if (context.isDivisible && isTooMuch(error)) return { kind: 'shorten' }
    return failedItem(error)
  }
}

const stopped: ItemResult = { kind: 'failed', reason: 'not read: the run was stopped', code: 'interrupted' }

export function failedItem(error: unknown): FailedItem {
  return { kind: 'failed', reason: messageOf(error), code: failureCodeOf(error) }
}

/** Has all work items of the tasks done, and applies their results. */
export type Executor = (run: Run, tasks: readonly Task[]) => Promise<void>

/** Does everything in this process, so many windows and lists at once. */
export const executeHere: Executor = async (run, tasks) => {
  const suppliers = tasks.map((task) => ({
    next() {
      const item = nextItem(task)
      return item && (() => performHere(item).then(({ result, seconds }) => applyResult(item, result, seconds)))
    },
  }))
  await runConcurrently(suppliers, run.config.source.concurrency, () => tasks[0]?.shared.gate.pending)
}

/** Does one window or list in this process. */
export async function performHere({ task, range }: WorkItem): Promise<{ result: ItemResult; seconds: number }> {
  const startedAt = monotonic()
  const { run, project, stream } = task
  const onAttempt = (status: number | undefined) => countRequest(task, status)
  const result = await performItem(run, { project, stream, range }, { signal: run.signal, onAttempt })
  return { result, seconds: (monotonic() - startedAt) / 1000 }
}

/** Hands out work, one piece after the other. */
export interface WorkSupplier {
  /** The next piece, or undefined if there is none now; finishing another may make one. */
  next(): (() => Promise<unknown>) | undefined
}

/**
 * Runs the work of all suppliers side by side, at most so many at once, taking turns between suppliers. Work does not throw.
 * While `pending` gives a promise, suppliers may have work once it settles.
 */
export async function runConcurrently(
  suppliers: readonly WorkSupplier[],
  concurrency: number,
  pending: () => Promise<void> | undefined = () => undefined,
): Promise<void> {
  const running = new Set<Promise<unknown>>()
  let turn = 0
  for (;;) {
    while (running.size < concurrency) {
      const work = nextWork()
      if (work === undefined) break
      const promise: Promise<unknown> = work().finally(() => running.delete(promise))
      running.add(promise)
    }
    const waitedFor = [...running, pending()].filter((promise) => promise !== undefined)
    if (waitedFor.length === 0) return
    await Promise.race(waitedFor)
  }

  function nextWork(): (() => Promise<unknown>) | undefined {
    for (let step = 0; step < suppliers.length; step++) {
      const index = (turn + step) % suppliers.length
      const work = suppliers[index]!.next()
      if (work === undefined) continue
      turn = index + 1
      return work
    }
    return undefined
  }
}

/** Errors by which a service says, or shows, that a window is too long for it. */
export function isTooMuch(error: unknown): boolean {
  if (error instanceof KeyError || error instanceof ProjectError || error instanceof DownError) return false
  if (error instanceof RefusedError) return [undefined, 400, 413, 422].includes(error.status)
  return error instanceof TransientError && (error.timedOut || [408, 504].includes(error.status ?? 0))
}
