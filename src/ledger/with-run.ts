import { messageOf } from '../core/errors.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { RunOutcome } from '../warehouse/database.ts'
import { withRetries } from '../warehouse/retry.ts'
import { type LockOptions, lockRun } from './run-lock.ts'
import { closeRun, type RunStart } from './runs.ts'

interface RunEnd<T> {
  result: T
  outcome: RunOutcome
  summary?: unknown
}

/** Runs work that is no sync as a run of its own: takes its leases, and records how it ended. */
export async function withRun<T>(
  warehouse: Warehouse,
  { projectStreams, ...start }: RunStart & { projectStreams: readonly ProjectStream[] },
  options: LockOptions,
  work: (run: { runId: number; signal: AbortSignal }) => Promise<RunEnd<T>>,
): Promise<T> {
  const { signal, log } = options
  const lock = await lockRun(warehouse, projectStreams, start, options)
  const stop = signal === undefined ? lock.lost : AbortSignal.any([signal, lock.lost])
  try {
    const { result, outcome, summary = [] } = await work({ runId: lock.runId, signal: stop })
    await withRetries(warehouse, signal, () =>
      closeRun(warehouse, lock.runId, { outcome, summary, error: null }),
    ).catch((error: unknown) => log.error({ reason: messageOf(error) }, 'the run could not be closed'))
    return result
  } catch (error) {
    const outcome = signal?.aborted ? 'interrupted' : 'failed'
    await closeRun(warehouse, lock.runId, { outcome, summary: [], error: messageOf(error) }).catch(() => {})
    throw error
  } finally {
    await lock.release()
  }
}
