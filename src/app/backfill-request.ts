import { type Config, parseDay, parseFirstDay } from '../core/config/load.ts'
import { shownText } from '../core/config/secrets.ts'
import { addDays, type Day, type Range } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import type { StreamSet } from '../streams/registry.ts'
import type { Stream } from '../streams/stream.ts'

/** Lists have no days. They are read if they were named, or where deletions are to be let through. */
export function streamsToBackfill(streams: StreamSet, named: readonly string[] = [], acceptDeletes = false): Stream[] {
  const withLists = named.length > 0 || acceptDeletes
  return streams.named(named).filter(({ by }) => by === 'day' || withLists)
}

/** What was asked for; `last` is a number of days such as "30d". */
export interface AskedRange {
  from?: string | undefined
  to?: string | undefined
  last?: string | undefined
}

/** The last day is yesterday by default. */
export function parseRange({ from: first, to: end, last }: AskedRange, config: Config, today: Day): Range {
  if ((first === undefined) === (last === undefined)) throw new UsageError('--from or --last: give one of both')
  const yesterday = addDays(today, -1)
  const newest = first !== undefined && first > yesterday ? today : yesterday
  const to = end === undefined ? newest : parseDay(end, '--to')
  const from = parseFirstDay(
    first ?? addDays(to, 1 - parseLast(last!)),
    first === undefined ? '--last' : '--from',
    config,
  )
  if (to < from) throw new UsageError(`--to: got "${to}"; allowed: --from (${from}) or later`)
  if (from > today) throw new UsageError(`--from: got "${from}"; allowed: today (${today}, UTC) or earlier`)
  return { from, to }
}

function parseLast(text: string): number {
  const [, days] = /^([1-9]\d{0,4})d$/.exec(text) ?? []
  if (days !== undefined) return Number(days)
  throw new UsageError(`--last: got ${shownText(text, 40)}; allowed: a number of days such as 30d`)
}

export function parseOptionalRange(asked: AskedRange, config: Config, today: Day): Range | undefined {
  const { from, to, last } = asked
  return from === undefined && to === undefined && last === undefined ? undefined : parseRange(asked, config, today)
}
