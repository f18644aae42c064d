import { addDays, dayOf } from '../../core/day.ts'
import { PageLimit } from '../plan/page-limit.ts'
import type { Run, RunMemory, Services } from './run-types.ts'

/** What a run needs beside its services, whichever process does a part of it. */
export function makeRun(
  services: Services,
  own: Pick<Run, 'runId' | 'command' | 'acceptDeletes' | 'lookbackFrom' | 'recentFrom' | keyof RunMemory>,
  signal: AbortSignal,
): Run {
  const log = services.log.child({ run: own.runId })
  // The service writes a day until about 48 hours after it began.
  const provisionalFrom = addDays(dayOf(services.clock()), -1)
  return { ...services, ...own, log, signal, provisionalFrom, dayStreams: services.streams.dayNames }
}

export function newRunMemory(pageLimit: number): RunMemory {
  return { limit: new PageLimit(pageLimit), entities: new Map() }
}
