import { createHash } from 'node:crypto'
import type { Day } from '../core/day.ts'
import type { DayStream, Row } from '../streams/stream.ts'

export type BrandTotals = [mentions: number, visible: number, answers: number]
export type DayTotals = Map<string, BrandTotals>
export type TotalsByDay = Map<Day, DayTotals>
/** The totals of days that were read. A day is not whole if a row was rejected: the totals of a brand may be missing. */
export type ControlTotals = ReadonlyMap<Day, ControlDay>
export interface ControlDay {
  brands: DayTotals
  isWhole: boolean
  /** If it is known already. */
  digest?: TotalsDigest
}

/** The columns of brand reports that add up over groups which are disjoint, in the order of `BrandTotals`. */
export const TOTALLED = ['mention_count', 'visibility_count', 'visibility_total'] as const

/** Adds up the rows of a brand report by day and brand, while they are sifted. Of rows that overlap, it keeps the largest values. */
export class TotalsCounter {
  readonly byDay: TotalsByDay = new Map()
  private readonly dateAt: number
  private readonly brandAt: number
  private readonly totalsAt: number[]
  private readonly overlaps: boolean
  // Most rows have the day of the row before them.
  private lastDay: Day | undefined
  private lastTotals: DayTotals = new Map()

  constructor({ columns, control }: Pick<DayStream, 'columns' | 'control'>) {
    const at = (column: string) => columns.findIndex(({ name }) => name === column)
    this.dateAt = at('date')
    this.brandAt = at('brand_id')
    this.totalsAt = TOTALLED.map(at)
    this.overlaps = control === 'brand limits'
  }

  /** @param sign -1 removes a row again */
  add(row: Row, sign: 1 | -1): void {
    const day = row[this.dateAt] as Day
    if (day !== this.lastDay) {
      this.lastTotals = this.byDay.get(day) ?? new Map()
      this.byDay.set(day, this.lastTotals)
      this.lastDay = day
    }
    const brand = row[this.brandAt] as string
    // The largest values without this row are not known.
    if (this.overlaps && sign === -1) return void this.lastTotals.delete(brand)
    const totals: BrandTotals = this.lastTotals.get(brand) ?? [0, 0, 0]
    this.lastTotals.set(brand, totals)
    for (let index = 0; index < totals.length; index++) {
      const value = row[this.totalsAt[index]!] as number
      totals[index] = this.overlaps ? Math.max(totals[index]!, value) : totals[index]! + sign * value
    }
  }
}

/** Digests of a day's totals. Equal totals have equal digests, in whatever order rows were added. */
export interface TotalsDigest {
  counts: bigint
  answers: bigint
}

export function digestOf(totals: DayTotals): TotalsDigest {
  const brands = [...totals].sort(([a], [b]) => (a < b ? -1 : 1))
  // A service may leave out brands that no answer names.
  const counts = brands.filter(([, [mentions, visible]]) => mentions !== 0 || visible !== 0)
  return {
    counts: digestText(counts.map(([brand, [mentions, visible]]) => [brand, rounded(mentions), rounded(visible)])),
    answers: digestText(brands.map(([brand, [, , answers]]) => [brand, rounded(answers)])),
  }
}

/** 64 bits of a hash of any JSON value. */
export function digestText(value: unknown): bigint {
  return createHash('sha256').update(JSON.stringify(value)).digest().readBigInt64BE()
}

/** Sums of fractions depend on their order in the last digits. */
function rounded(value: number): number {
  return Math.round(value * 1e6) / 1e6
}

/** The number of answers of a day: it is repeated on the row of every brand. */
export function answersOf(totals: DayTotals): number {
  return Math.max(0, ...[...totals.values()].map(([, , answers]) => answers))
}
