import { type Config, parseDay, parseFirstDay } from '../core/config/load.ts'
import type { Day, Range } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import type { StreamSet } from '../streams/registry.ts'
import type { Stream } from '../streams/stream.ts'

/** Lists have no days. They are read if they were named, or where deletions are to be let through. */
export function streamsToBackfill(streams: StreamSet, named: readonly string[] = [], acceptDeletes = false): Stream[] {
  const withLists = named.length > 0 || acceptDeletes
  return streams.named(named).filter(({ by }) => by === 'day' || withLists)
}

export function parseRange(options: Range, config: Config, today: Day): Range {
  const from = parseFirstDay(options.from, '--from', config)
  const to = parseDay(options.to, '--to')
  if (to < from) throw new UsageError(`--to: got "${to}"; allowed: --from (${from}) or later`)
  if (from > today) throw new UsageError(`--from: got "${from}"; allowed: today (${today}, UTC) or earlier`)
  return { from, to }
}

export function parseOptionalRange(
  { from, to }: { from?: string | undefined; to?: string | undefined },
  config: Config,
  today: Day,
): Range | undefined {
  if (from === undefined && to === undefined) return undefined
  if (from === undefined || to === undefined) throw new UsageError('--from and --to go together: give both or neither')
  return parseRange({ from, to }, config, today)
}
