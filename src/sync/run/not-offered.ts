import type { Config } from '../../core/config/load.ts'
import { KeyError, RefusedError, TransientError } from '../../core/errors.ts'
import { EXTRA_STREAMS } from '../../core/vocabulary.ts'
import { saveNotOffered } from '../../ledger/not-offered.ts'
import type { CallContext } from '../../source/client.ts'
import type { Stream } from '../../streams/stream.ts'
import { withRetries } from '../../warehouse/retry.ts'
import type { ItemResult, Run, SyncedProject } from './run.ts'

/** True for answers by which a service says that it has no such operation, or not for this key. */
export function isUsualRefusal(status: number): boolean {
  return [403, 404, 405].includes(status)
}

/** True if somebody asked for the stream by its name, and not for whatever there is by `extras: auto`. */
export function isNamed({ extras, streams }: Config, stream: string): boolean {
  return extras !== 'auto' || !EXTRA_STREAMS.some((name) => name === stream) || streams.some((name) => name === stream)
}

/**
 * True if the error says that an extra stream is not offered. Of a list that nobody named, every refusal says
 * so: a service may answer what it does not know with 400, or with the words of a wrong key.
 */
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
  project: SyncedProject,
  stream: Stream,
  { status }: { status: number },
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
  if (isProven)
    await withRetries(run.warehouse, run.signal, () =>
      saveNotOffered(run.warehouse, projectStream, status, run.clock()),
    )
  return { kind: 'not-offered', status }
}
