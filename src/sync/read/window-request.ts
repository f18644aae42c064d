import type { Day, Range } from '../../core/day.ts'
import type { Dimension } from '../../core/vocabulary.ts'
import type { FoundDays } from '../../rows/sift.ts'
import type { Caller } from '../../source/client.ts'
import type { DayStream } from '../../streams/stream.ts'

export interface RangeRequest {
  caller: Caller
  stream: DayStream
  range: Range
}

/** What is asked for: one window of one stream. */
export interface WindowRequest extends RangeRequest {
  known: KnownWindow
}

export interface KnownWindow {
  /** How many rows each day of the window had that was read before. */
  rowsByDay: ReadonlyMap<Day, number>
  /** Days from this one on may still be written by the service. */
  provisionalFrom: Day
  /** Throws if the answer is not what was asked for. */
  validate: (found: FoundDays) => Promise<void>
  /** True if nothing shows yet that the answer has all rows: then the service is asked for one row after the last. */
  needsProof: (found: FoundDays) => boolean
  /** Values of a dimension that are known from elsewhere. */
  valuesOf: (dimension: Dimension) => Promise<string[]>
}

/** A window of which nothing is known: its answer is always proven. */
export const UNKNOWN_WINDOW: KnownWindow = {
  rowsByDay: new Map(),
  provisionalFrom: '9999-12-31',
  validate: async () => {},
  needsProof: () => true,
  valuesOf: async () => [],
}
