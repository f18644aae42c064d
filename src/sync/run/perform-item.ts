import { countDays, type Range, showRange } from '../../core/day.ts'
import { InterruptedError, messageOf } from '../../core/errors.ts'
import { failureCodeOf } from '../../core/failure-code.ts'
import { failSpan, inSpan } from '../../core/trace.ts'
import type { CallContext } from '../../source/client.ts'
import type { Stream } from '../../streams/stream.ts'
import { isTooMuch } from '../read/too-much.ts'
import { noteNotOffered, saysNotOffered } from './not-offered.ts'
import type { FailedItem, ItemResult, Run, SyncedProject } from './run-types.ts'
import { syncList } from './sync-list.ts'
import { syncWindow } from './sync-window.ts'

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
