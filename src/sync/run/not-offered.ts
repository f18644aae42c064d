import { KeyError, RefusedError } from '../../core/errors.ts'
import { saveNotOffered } from '../../ledger/not-offered.ts'
import type { CallContext } from '../../source/client.ts'
import type { Stream } from '../../streams/stream.ts'
import { withRetries } from '../../warehouse/retry.ts'
import type { ItemResult, Run, SyncedProject } from './context.ts'

/** Answers by which a service says that it has no such operation, or not for this key. */
const STATUSES = [403, 404, 405]

/** True if the error says that a stream beyond the contract is not offered. */
export function saysNotOffered(stream: Stream, error: unknown): error is RefusedError & { status: number } {
  return (
    stream.isExtra === true &&
    error instanceof RefusedError &&
    !(error instanceof KeyError) &&
    STATUSES.includes(error.status ?? 0)
  )
}

/**
 * Remembers that a stream is not offered. The same answers also mean a project that may not be read or a wrong address, so
 * an operation of the contract is asked first: if that is refused too, it throws.
 */
export async function noteNotOffered(
  run: Run,
  project: SyncedProject,
  stream: Stream,
  { status }: { status: number },
  call: CallContext,
): Promise<ItemResult> {
  let isProven = true
  await run.client.ping(project.caller, call).catch((error: unknown) => {
    if (error instanceof RefusedError) throw error
    // No usable answer: the next run asks again.
    isProven = false
  })
  const pair = { projectId: project.id, stream: stream.name }
  if (isProven)
    await withRetries(run.warehouse, run.signal, () => saveNotOffered(run.warehouse, pair, status, run.clock()))
  return { kind: 'not-offered', status }
}
