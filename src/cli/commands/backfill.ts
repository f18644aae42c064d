import { parseRange, streamsToBackfill } from '../../app/backfill-request.ts'
import { dayOf } from '../../core/day.ts'
import type { Session } from '../session.ts'
import { runAndPrint, type SyncOptions } from './sync.ts'

export interface BackfillOptions extends SyncOptions {
  from: string
  to: string
  missing?: boolean
  acceptDeletes?: boolean
}

/** `backfill`: re-reads a range of days, or only its missing ones. */
export function backfill(session: Session, options: BackfillOptions): Promise<number> {
  const today = dayOf(session.clock())
  const range = parseRange(options, session.config, today)
  if (range.to > today) session.log.warn(`--to: ${range.to} is after today; this reads until today (${today}, UTC)`)
  const streams = streamsToBackfill(session.streams, options.stream, options.acceptDeletes)
  const command = { command: 'backfill', streams, coversEverything: false }
  return runAndPrint(session, options.project, command, (open) => ({
    command: 'backfill',
    projects: open.projects,
    streams,
    range,
    missingOnly: options.missing ?? false,
    acceptDeletes: options.acceptDeletes ?? false,
    signal: session.signal,
  }))
}
