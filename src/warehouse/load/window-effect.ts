import type { RawBuilder } from 'kysely'
import type { Day, Range } from '../../core/day.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import type { DayStream } from '../../streams/stream.ts'

export interface Change {
  inserted: number
  updated: number
  deleted: number
}

/** What is done with the stored rows of a day: `add` inserts and updates, `replace` also deletes what the answer does not have. */
export type Action = 'replace' | 'add' | 'keep'

/** How a day would change: its stored rows, and those of them that the answer does not have. */
export interface DayLoss {
  date: Day
  present: number
  vanishing: number
}

export interface Effect extends Change {
  unchanged: number
  byDay: Map<Day, Change>
  /** Of the table, afterwards. */
  rowsByDay: ReadonlyMap<Day, number>
  /** Rows that had days outside the window before. */
  movedFrom: ReadonlyMap<Day, number>
  /** Days of the window of which rows were left under days that were read later. */
  robbed: ReadonlySet<Day>
}

export interface Window {
  projectId: string
  stream: DayStream
  range: Range
}

export interface WindowLoad extends Window {
  rows: PackedRows
  rowsByDay: ReadonlyMap<Day, number>
  /** Called for each day that has rows in the table or in the answer. */
  actionOf: (day: DayLoss) => Action
  /** The days that were read after this read began: their rows are left alone. */
  newerDays: RawBuilder<{ date: Day }>
}

/** The effect of a load that kept the rows of no day. */
export function effectOf({ rows, rowsByDay }: WindowLoad, byDay: Map<Day, Change>): Effect {
  const total = { inserted: 0, updated: 0, deleted: 0 }
  for (const change of byDay.values()) {
    total.inserted += change.inserted
    total.updated += change.updated
    total.deleted += change.deleted
  }
  const unchanged = rows.length - total.inserted - total.updated
  return { ...total, unchanged, byDay, rowsByDay, movedFrom: new Map(), robbed: new Set() }
}
