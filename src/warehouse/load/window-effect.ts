import type { Day, Range } from '../../core/day.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import type { DayStream } from '../../streams/stream.ts'

/* A load of a window, and its effect. */

export interface Change {
  inserted: number
  updated: number
  deleted: number
}

export interface Effect extends Change {
  unchanged: number
  /** Set if so much would have vanished that the answer was held for review on these days. */
  held: { present: number; vanishing: number; days: Set<Day> } | undefined
  /** The changes of each day. */
  byDay: Map<Day, Change>
  /** How many rows the table has on each day of the window afterwards. */
  rowsByDay: ReadonlyMap<Day, number>
  /** Rows that had days outside the window before. */
  movedFrom: ReadonlyMap<Day, number>
}

export interface Window {
  projectId: string
  stream: DayStream
  range: Range
}

export interface WindowLoad extends Window {
  rows: PackedRows
  rowsByDay: ReadonlyMap<Day, number>
  /** False keeps rows that vanished: the answer had rejects, so one of them may be the missing row. */
  mayDelete: boolean
  /** True applies deletions however much would vanish. */
  acceptDeletes: boolean
  /** Days that were held before: they stay held until their rows are back, whatever else the window holds. */
  heldBefore: ReadonlySet<Day>
  /** Days whose new rows are proven to lose nothing: they are not held. */
  proven: ReadonlySet<Day>
  /** The number of this read; rows that a newer read put on other days are left alone. */
  fencingToken: number
}

/** The effect of a load that changed these days and held nothing. */
export function effectOf({ rows, rowsByDay }: WindowLoad, byDay: Map<Day, Change>): Effect {
  const total = { inserted: 0, updated: 0, deleted: 0 }
  for (const change of byDay.values()) {
    total.inserted += change.inserted
    total.updated += change.updated
    total.deleted += change.deleted
  }
  const unchanged = rows.length - total.inserted - total.updated
  return { ...total, unchanged, held: undefined, byDay, rowsByDay, movedFrom: new Map() }
}
