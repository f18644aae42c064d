import type { Day } from '../core/day.ts'
import type { Metric } from '../core/vocabulary.ts'
import type { DayStream, Row } from '../streams/stream.ts'

export type BrandSums = Partial<Record<Metric, number>>
/** Sums by day and brand. */
export type DaySums = Map<Day, Map<string, BrandSums>>

type Dated = { date: Day; brand_id: string } & Record<string, unknown>

/** The rows of a report as objects. */
export function* fromRows(stream: DayStream, rows: readonly Row[]): Generator<Dated> {
  for (const row of rows) yield Object.fromEntries(stream.columns.map(({ name }, index) => [name, row[index]])) as Dated
}

export function addUp(sums: DaySums, rows: Iterable<Dated>, columns: readonly Metric[]): void {
  for (const row of rows) {
    const brands = sums.get(row.date) ?? new Map<string, BrandSums>()
    sums.set(row.date, brands)
    const brand = brands.get(row.brand_id) ?? {}
    brands.set(row.brand_id, brand)
    for (const column of columns) {
      const value = row[column]
      if (typeof value === 'number') brand[column] = (brand[column] ?? 0) + value
    }
  }
}

// Sums of floating point numbers depend on their order in the last digits.
const RELATIVE = 1e-9
const ABSOLUTE = 1e-6

/** The days on which any brand's sum differs. A brand that is missing counts as zero. */
export function differingDays(a: DaySums, b: DaySums, columns: readonly Metric[], days: ReadonlySet<Day>): Day[] {
  const none: ReadonlyMap<string, BrandSums> = new Map()
  return [...days]
    .filter((day) => {
      const [left, right] = [a.get(day) ?? none, b.get(day) ?? none]
      const brands = new Set([...left.keys(), ...right.keys()])
      for (const brand of brands) {
        for (const column of columns)
          if (!close(left.get(brand)?.[column] ?? 0, right.get(brand)?.[column] ?? 0)) return true
      }
      return false
    })
    .sort()
}

function close(a: number, b: number): boolean {
  return Math.abs(a - b) <= ABSOLUTE + RELATIVE * Math.max(Math.abs(a), Math.abs(b))
}
