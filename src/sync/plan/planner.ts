import { type Config, daysOfInterest } from '../../core/config/load.ts'
import { type Day, daysIn, type Range } from '../../core/day.ts'
import { type CoveredDay, readCoverage } from '../../ledger/coverage.ts'
import type { Stream } from '../../streams/stream.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { dueDays, NO_COVERAGE, readableRange, readCoverageSummaries } from './due-days.ts'

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
  /** Only days of the range that are not sound. */
  missingOnly?: boolean
  /** The days of each project and stream, if they are known already. */
  only?: (projectId: string, stream: string) => Day[]
}

/** Gives the coverage of a stream of a project, and the days to read. */
export type Planner = (projectId: string, stream: string) => Promise<{ coverage: CoveredDay[]; due: Day[] }>

export async function makePlanner(
  { config, warehouse, today }: Known,
  { projects, streams, range, missingOnly, only }: Planned,
): Promise<Planner> {
  if (range !== undefined)
    return async (projectId, stream) => {
      const found = warehouse === undefined ? [] : await readCoverage(warehouse, { projectId, stream }, range)
      const coverage = found.length === 0 ? NO_COVERAGE.coverage : found
      const sound = new Set(coverage.flatMap(({ date, state }) => (state === 'read' ? [date] : [])))
      return { coverage, due: daysIn(readableRange(range, today)).filter((day) => !missingOnly || !sound.has(day)) }
    }
  const interest = daysOfInterest(config, today)
  const settings = { today, lookbackDays: config.lookback_days }
  const dated = streams.filter(({ by }) => by === 'day')
  const pairs = projects.flatMap(({ id }) => dated.map(({ name }) => ({ projectId: id, stream: name })))
  const summaryOf =
    warehouse === undefined
      ? () => NO_COVERAGE
      : await readCoverageSummaries(warehouse, pairs, { from: interest.from, ...settings })
  const dueOf = dueDays({ interest, ...settings })
  return async (projectId, stream) => {
    const known = summaryOf({ projectId, stream })
    return { coverage: known.coverage, due: only?.(projectId, stream) ?? dueOf(known) }
  }
}
