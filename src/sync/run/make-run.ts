import type { Run, Services } from './context.ts'

/** What a run needs beside its services, whichever process does a part of it. */
export function makeRun(
  services: Services,
  own: Pick<Run, 'runId' | 'command' | 'limit' | 'mentions' | 'acceptDeletes' | 'lookbackFrom' | 'recentFrom'>,
  signal: AbortSignal,
): Run {
  const log = services.log.child({ run: own.runId })
  return { ...services, ...own, log, signal, dayStreams: services.streams.dayNames }
}
