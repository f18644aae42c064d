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

/** Values of a dimension, and how many rows each has; none if nothing is known. */
export type ValueSizes = ReadonlyMap<string, number>

export interface KnownWindow {
  /** How many rows the window had before, and each of its days that was read. */
  rows: number
  rowsByDay: ReadonlyMap<Day, number>
  /** Days from this one on may still be written by the service. */
  provisionalFrom: Day
  /** True if nothing shows yet that the answer has all rows: then the service is asked for one row after the last. */
  needsProof: (found: FoundDays) => boolean
  /** Values of a dimension that are known from elsewhere. */
  valuesOf: (dimension: Dimension) => Promise<string[]>
  /** How many rows each value of a dimension has on a day that has at least so many: this one, or the nearest that was read. */
  sizesOf: (dimension: Dimension, atLeast: number) => Promise<ValueSizes>
}

/** A window of which nothing is known: its answer is always proven. */
export const UNKNOWN_WINDOW: KnownWindow = {
  rows: 0,
  rowsByDay: new Map(),
  provisionalFrom: '9999-12-31',
  needsProof: () => true,
  valuesOf: async () => [],
  sizesOf: async () => new Map(),
}
