import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { type Day, daysIn, type Range } from '../../core/day.ts'
import { type KnownDay, readDays } from '../../ledger/days.ts'
import type { Stream } from '../../streams/stream.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { dueDays, NO_DAYS, readableRange, readKnownDays } from './due-days.ts'

const EARLIEST = '0001-01-01'

interface Known {
  config: Config
  /** Undefined if nothing was synced yet. */
  warehouse: Warehouse | undefined
  today: Day
}

interface Planned {
  projects: readonly { id: string }[]
  streams: readonly Stream[]
  /** The days of a backfill; undefined for those that are due. */
  range?: Range | undefined
  missingOnly?: boolean
  only?: (projectId: string, stream: string) => Day[]
}

export type Planner = (projectId: string, stream: string) => Promise<{ known: KnownDay[]; due: Day[] }>

export async function makePlanner(
  { config, warehouse, today }: Known,
  { projects, streams, range, missingOnly, only }: Planned,
): Promise<Planner> {
  if (range !== undefined)
    return async (projectId, stream) => {
      const read = async (days: Range) => (warehouse ? readDays(warehouse, { projectId, stream }, days) : [])
      const known = await read(range)
      const isSound = ({ state }: KnownDay) => state === 'settled' || state === 'open'
      const sound = new Set(known.filter(isSound).map(({ date }) => date))
      const due = daysIn(readableRange(range, today)).filter((day) => !missingOnly || !sound.has(day))
      // Of a range that was never read, other days show how many rows a day has.
      const sizes = known.length > 0 ? known : await read({ from: EARLIEST, to: today })
      return { known: sizes, due }
    }
  const interest = daysOfInterest(config, today)
  const settings = { today, lookbackDays: config.lookback_days }
  const dated = streams.filter(({ by }) => by === 'day')
  const pairs = projects.flatMap(({ id }) => dated.map(({ name }) => ({ projectId: id, stream: name })))
  const knownOf =
    warehouse === undefined
      ? () => NO_DAYS
      : await readKnownDays(warehouse, pairs, { from: interest.from, ...settings })
  const dueOf = dueDays({ interest, ...settings })
  return async (projectId, stream) => {
    const known = knownOf({ projectId, stream })
    return { known: known.days, due: only?.(projectId, stream) ?? dueOf(known) }
  }
}
