import { type Day, daysIn, type Range } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import {
  answersOf,
  type BrandTotals,
  type ControlDay,
  type ControlTotals,
  type DayTotals,
  TOTALLED,
  type TotalsByDay,
} from '../../rows/day-totals.ts'
import type { FoundDays, RejectFacts } from '../../rows/sift.ts'
import type { DayStream } from '../../streams/stream.ts'

/* How days add up to the control totals of the service. Everything here is computed from its arguments. */

/** What is compared: the mentions and visible answers of each brand, or the number of answers. */
type Measure = 'counts' | 'answers'

interface MeasureDifference {
  measure: Measure
  /** True if everything that differs is too low. Rows that a service leaves out lower the sums. */
  isTooLow: boolean
  /** True if everything that differs are brands without a row. No group that is left out does that. */
  lacksBrands: boolean
  brands: ReadonlySet<string>
  text: string
}

/** A day that does not add up to the control totals. */
export interface Difference {
  day: Day
  measures: readonly MeasureDifference[]
  /** What rejected rows must explain, by brand; undefined if something is too high. Of chats, no brand is known. */
  missing: { brands: ReadonlyMap<string, BrandTotals>; rows: number } | undefined
}

export type Found = { rowsByDay: ReadonlyMap<Day, number>; totals: TotalsByDay | undefined }

/** The days of a stream that differ from the control totals, as far as these are known. */
export function compareDays(
  { control: kind }: Pick<DayStream, 'control'>,
  days: readonly Day[],
  found: Found,
  control: ControlTotals,
): Difference[] {
  return days.flatMap((day) => {
    const expected = control.get(day)
    if (expected === undefined || kind === undefined) return []
    if (kind === 'answers') return compareChats(day, found.rowsByDay.get(day) ?? 0, expected)
    return compareTotals(day, kind, found.totals?.get(day) ?? new Map(), expected)
  })
}

export function differenceText({ measures }: Difference): string {
  return measures[0]!.text
}

function compareChats(day: Day, rows: number, { brands, isWhole }: ControlDay): Difference[] {
  const answers = answersOf(brands)
  if (isClose(rows, answers) || (!isWhole && brands.size === 0)) return []
  const text = `${count(rows, 'row')}, but the service counts ${count(answers, 'answer')}`
  const isTooLow = rows < answers
  const missing = isTooLow ? { brands: new Map(), rows: answers - rows } : undefined
  const measure = { measure: 'answers' as const, isTooLow, lacksBrands: false, brands: new Set<string>(), text }
  return [{ day, measures: [measure], missing }]
}

/** The positions in `TOTALLED` that a measure compares. */
const POSITIONS: Record<Measure, readonly (0 | 1 | 2)[]> = { counts: [0, 1], answers: [2] }

function compareTotals(
  day: Day,
  kind: 'brand totals' | 'brand limits',
  totals: DayTotals,
  { brands: control, isWhole }: ControlDay,
): Difference[] {
  // The totals of a rejected row are not known; those of other brands are.
  const found = isWhole ? totals : new Map([...totals].filter(([brand]) => control.has(brand)))
  const expected = kind === 'brand limits' ? limitedBy(control, found) : control
  const measures = (['counts', 'answers'] as const).flatMap((measure) => compareMeasure(measure, found, expected))
  if (measures.length === 0) return []
  const brands = new Map(
    measures
      .flatMap((one) => [...one.brands])
      .map((brand) => [brand, shortfall(found.get(brand), expected.get(brand))]),
  )
  const missing = measures.every(({ isTooLow }) => isTooLow) ? { brands, rows: brands.size } : undefined
  return [{ day, measures, missing }]
}

function shortfall(sums: BrandTotals = [0, 0, 0], totals: BrandTotals = [0, 0, 0]): BrandTotals {
  return [totals[0] - sums[0], totals[1] - sums[1], totals[2] - sums[2]]
}

/** Expected values of a report that may be below the totals: the found values, but no more than the totals. */
function limitedBy(totals: DayTotals, found: DayTotals): DayTotals {
  // A service may leave out brands without mentions, and so all of them.
  const answers = totals.size === 0 ? Number.POSITIVE_INFINITY : answersOf(totals)
  return new Map(
    [...found].map(([brand, [mentions, visible, of]]) => {
      const most = totals.get(brand) ?? [0, 0, answers]
      return [brand, [Math.min(mentions, most[0]), Math.min(visible, most[1]), Math.min(of, most[2])]]
    }),
  )
}

function compareMeasure(measure: Measure, found: DayTotals, expected: DayTotals): MeasureDifference[] {
  const texts: string[] = []
  const brands = new Set<string>()
  let isTooLow = true
  for (const brand of new Set([...found.keys(), ...expected.keys()])) {
    for (const at of POSITIONS[measure]) {
      const sum = found.get(brand)?.[at] ?? 0
      const total = expected.get(brand)?.[at] ?? 0
      if (isClose(sum, total)) continue
      isTooLow &&= sum < total
      brands.add(brand)
      texts.push(`the ${TOTALLED[at]} of ${brand} adds up to ${sum}, but the service's total is ${total}`)
    }
  }
  if (texts.length === 0) return []
  const more = texts.length === 1 ? '' : ` (and ${count(texts.length - 1, 'other difference')})`
  const lacksBrands = [...brands].every((brand) => !found.has(brand))
  return [{ measure, isTooLow, lacksBrands, brands, text: `${texts[0]}${more}` }]
}

/** Sums of fractions depend on their order in the last digits. */
function isClose(a: number, b: number): boolean {
  return Math.abs(a - b) < 1e-6 + 1e-9 * Math.max(Math.abs(a), Math.abs(b))
}

/** The days of an answer that differ, without differences that come from its rejected rows, some of which are dismissed. */
export function compareAnswer(
  stream: DayStream,
  range: Range,
  found: FoundDays,
  control: ControlTotals,
  dismissed: ReadonlySet<RejectFacts> = new Set(),
): Difference[] {
  return withoutRejected(compareDays(stream, daysIn(range), found, control), found.rejects, dismissed)
}

/** A rejected row is missing from the sums of its brand on its day. If its brand or day cannot be read, it may be any. */
export function withoutRejected(
  differences: readonly Difference[],
  rejects: readonly RejectFacts[],
  dismissed: ReadonlySet<RejectFacts>,
): Difference[] {
  let undated = rejects.filter(({ date }) => date === undefined)
  return differences.filter(({ day, missing }) => {
    const dated = rejects.filter(({ date }) => date === day)
    if (missing === undefined || missing.rows > dated.length + undated.length) return true
    const { brands, rows } = missing
    const needs = [...brands.keys(), ...new Array<undefined>(Math.ceil(rows) - brands.size)]
    const used = explain(needs, dated, undated)
    if (used.size < needs.length) return true
    // Rows are deleted only if all rejects of the day are dismissed: then these must account for what is missing.
    const possible = [...dated, ...undated]
    if (possible.every((reject) => dismissed.has(reject)) && !isAccountedFor(missing, possible)) return true
    undated = undated.filter((reject) => !used.has(reject))
    return false
  })
}

/** True if rejects may have the values that are missing: as far as they can be read, they are no lower. */
function isAccountedFor({ brands }: NonNullable<Difference['missing']>, rejects: readonly RejectFacts[]): boolean {
  return [...brands].every(([brand, missing]) => {
    const own = rejects.filter((reject) => reject.brand === undefined || reject.brand === brand)
    return missing.every((value, at) => {
      const known = own.reduce((sum, { totals }) => sum + (totals[at] ?? Number.POSITIVE_INFINITY), 0)
      return value < known || isClose(value, known)
    })
  })
}

/** Finds a reject for each missing row, undated ones only where no other is left. Gives those that are used. */
function explain(
  needs: readonly (string | undefined)[],
  dated: readonly RejectFacts[],
  undated: readonly RejectFacts[],
): ReadonlyMap<RejectFacts, number> {
  const used = new Map<RejectFacts, number>()
  // A reject that explains another row is taken if that row has a second explanation.
  const assign = (need: number, from: readonly RejectFacts[], tried: Set<RejectFacts>): boolean =>
    from.some((reject) => {
      const brand = needs[need]
      if (tried.has(reject) || (brand !== undefined && reject.brand !== undefined && reject.brand !== brand))
        return false
      tried.add(reject)
      const other = used.get(reject)
      if (other !== undefined && !assign(other, from, tried)) return false
      used.set(reject, need)
      return true
    })
  const left = [...needs.keys()].filter((need) => !assign(need, dated, new Set()))
  for (const need of left) if (!assign(need, [...dated, ...undated], new Set())) break
  return used
}

/** Rows that a service may leave out of a report. */
export interface Omissions {
  /** The groups without a value of a dimension, such as prompts without a topic. */
  groups: boolean
  rowsWithoutMentions: boolean
}

/** The differences that remain if the service leaves such rows out: they lower the sums of a report. */
export function withoutOmitted(
  differences: readonly Difference[],
  { groups, rowsWithoutMentions }: Omissions,
): Difference[] {
  return differences.flatMap((difference) => {
    const measures = difference.measures.filter(({ measure, isTooLow, lacksBrands }) => {
      const ofGroups = groups && !lacksBrands
      const ofRows = rowsWithoutMentions && measure === 'answers'
      return !(isTooLow && (ofGroups || ofRows))
    })
    return measures.length === 0 ? [] : [{ ...difference, measures }]
  })
}

/**
 * True if a day of a project must be reviewed before it is replaced: it has fewer than half of its answers, or lacks more than half of
 * the brands that it named.
 */
export function hasDropped(before: DayTotals, now: DayTotals): boolean {
  const named = [...before].flatMap(([brand, [mentions]]) => (mentions > 0 ? [brand] : []))
  const present = named.filter((brand) => now.has(brand))
  return answersOf(now) * 2 < answersOf(before) || present.length * 2 < named.length
}
