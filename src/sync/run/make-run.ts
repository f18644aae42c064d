import { AnswerSizes } from '../plan/answer-sizes.ts'
import { PageLimit } from '../plan/page-limit.ts'
import type { Run, RunMemory, Services } from './run-types.ts'

/** What a run needs beside its services, whichever process does a part of it. */
export function makeRun(
  services: Services,
  own: Pick<Run, 'runId' | 'command' | 'acceptDeletes' | 'lookbackFrom' | 'recentFrom' | keyof RunMemory>,
  signal: AbortSignal,
): Run {
  const log = services.log.child({ run: own.runId })
  return { ...services, ...own, log, signal, dayStreams: services.streams.dayNames }
}

export function newRunMemory(pageLimit: number): RunMemory {
  return { limit: new PageLimit(pageLimit), answers: new AnswerSizes(), entities: new Map() }
}
