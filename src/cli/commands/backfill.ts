import { type Config, parseDay, parseFirstDay } from '../../core/config/load.ts'
import { type Day, dayOf, type Range } from '../../core/day.ts'
import { UsageError } from '../../core/errors.ts'
import { streamsOf } from '../../streams/registry.ts'
import type { Stream } from '../../streams/stream.ts'
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
  const range = parseRange(options, session.config, dayOf(session.clock()))
  const streams = streamsToBackfill(session.config, options.stream, options.acceptDeletes)
  return runAndPrint(session, options.project, streams, (open) => ({
    command: 'backfill',
    projects: open.projects,
    streams,
    range,
    missingOnly: options.missing ?? false,
    acceptDeletes: options.acceptDeletes ?? false,
    signal: session.signal,
  }))
}

/** Lists have no days. They are read where they were named, or where deletions are to be let through. */
export function streamsToBackfill(config: Config, named: readonly string[] = [], acceptDeletes = false): Stream[] {
  const withLists = named.length > 0 || acceptDeletes
  return streamsOf(config, named).filter(({ by }) => by === 'day' || withLists)
}

export function parseRange(options: Range, config: Config, today: Day): Range {
  const from = parseFirstDay(options.from, '--from', config)
  const to = parseDay(options.to, '--to')
  if (to < from) throw new UsageError(`--to: got "${to}"; allowed: --from (${from}) or later`)
  if (from > today) throw new UsageError(`--from: got "${from}"; allowed: today (${today}, UTC) or earlier`)
  return { from, to }
}
