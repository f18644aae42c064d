import { type Day, dayNumber } from '../../core/day.ts'
import type { Grain } from './filters.ts'
import { ENOUGH, type Unit } from './format.ts'
import type { ChartRow, ChartSection } from './read-insights.ts'

export interface ChartKind {
  title: string
  /** The column that is drawn, those of its interval, and that of its sample with its name. */
  value: string
  interval?: { low: string; high: string }
  sample: { column: string; name: string }
  unit: Unit
  about: string
}

export const CHART_KINDS: Record<ChartSection, ChartKind> = {
  visibility: {
    title: 'Visibility',
    value: 'visibility',
    interval: { low: 'visibility_low', high: 'visibility_high' },
    sample: { column: 'answers', name: 'answers' },
    unit: 'share',
    about: 'Share of answers that name the brand.',
  },
  'share-of-voice': {
    title: 'Share of voice',
    value: 'share_of_voice',
    sample: { column: 'all_mentions', name: 'mentions of all brands' },
    unit: 'share',
    about: 'Mentions of the brand over those of all tracked brands.',
  },
  position: {
    title: 'Position',
    value: 'position',
    sample: { column: 'position_count', name: 'answers with a position' },
    unit: 'position',
    about: 'Mean position among the brands of an answer. 1 is first, so higher up is better.',
  },
  sentiment: {
    title: 'Sentiment',
    value: 'sentiment',
    sample: { column: 'sentiment_count', name: 'mentions with a sentiment' },
    unit: 'score',
    about: "Mean sentiment on the service's own scale, so the axis need not begin at zero.",
  },
}

export interface Point {
  value: number | null
  low: number | null
  high: number | null
  sample: number
}

export interface Series {
  brandId: string
  name: string
  isFocus: boolean
  /** The number of its colour; that of the own brand is 0. */
  colour: number
  /** One for each of the chart's x; undefined if the brand has no row. */
  points: (Point | undefined)[]
  /** The mean of the seven days that end with each x, null if one of them is missing. Undefined by week and for a few days. */
  means: (number | null)[] | undefined
}

export interface ChartData {
  kind: ChartKind
  grain: Grain
  x: Day[]
  /** For each x: false if days are missing; true if it may still change. */
  isComplete: boolean[]
  isProvisional: boolean[]
  /** Where the range begins among the x; those before it are of the period that it is compared with. */
  start: number
  /** The own brand first, then rivals by their mentions. */
  series: Series[]
  /** How many brands are not drawn. */
  left: number
}

const MEAN_DAYS = 7
// More lines than this are a tangle.
const MOST_RIVALS = 5

export interface ChartRequest {
  grain: Grain
  /** The own brand. */
  focus: string | undefined
  from: Day
  /** The brands of the project: if there are few, each has the same colour in every chart. */
  brands: readonly { id: string }[]
}

export function chartData(
  section: ChartSection,
  rows: readonly ChartRow[],
  { grain, focus, from, brands }: ChartRequest,
): ChartData {
  const kind = CHART_KINDS[section]
  const at = (row: ChartRow) => (grain === 'week' ? row.week : row.date)!
  const x = [...new Set(rows.map(at))].sort()
  const indexes = new Map(x.map((day, index) => [day, index]))
  const isComplete = x.map(() => true)
  const isProvisional = x.map(() => false)
  const byBrand = new Map<string, Series>()
  const mentions = new Map<string, number>()
  for (const row of rows) {
    const index = indexes.get(at(row))!
    if (row.is_complete !== true) isComplete[index] = false
    if (row.is_provisional !== false) isProvisional[index] = true
    const series = byBrand.get(row.brand_id) ?? {
      brandId: row.brand_id,
      name: row.brand,
      isFocus: row.brand_id === focus,
      colour: 0,
      means: undefined,
      points: x.map(() => undefined),
    }
    byBrand.set(row.brand_id, series)
    series.points[index] = {
      value: numberIn(row, kind.value),
      low: kind.interval === undefined ? null : numberIn(row, kind.interval.low),
      high: kind.interval === undefined ? null : numberIn(row, kind.interval.high),
      sample: numberIn(row, kind.sample.column) ?? 0,
    }
    const weight = numberIn(row, kind.unit === 'share' ? kind.value : kind.sample.column) ?? 0
    mentions.set(row.brand_id, (mentions.get(row.brand_id) ?? 0) + weight)
  }
  const rank = ({ brandId, isFocus }: Series) => (isFocus ? Infinity : mentions.get(brandId)!)
  const sorted = [...byBrand.values()].sort((a, b) => rank(b) - rank(a) || (a.name < b.name ? -1 : 1))
  const hasFocus = sorted[0]?.isFocus === true
  const series = sorted.slice(0, MOST_RIVALS + (hasFocus ? 1 : 0))
  const rivals = brands.filter(({ id }) => id !== focus)
  for (const [index, one] of series.entries()) {
    const colour = rivals.length > MOST_RIVALS ? -1 : rivals.findIndex(({ id }) => id === one.brandId)
    one.colour = one.isFocus ? 0 : 1 + (colour >= 0 ? colour : index - (hasFocus ? 1 : 0))
  }
  const start = x.filter((day) => day < from).length
  const data = { kind, grain, x, isComplete, isProvisional, start, series, left: sorted.length - series.length }
  leaveOutRunning(data)
  if (grain === 'day' && x.length >= 2 * MEAN_DAYS) for (const one of series) one.means = meansOf(data, one)
  return data
}

/** A period that has just begun has few answers, and would look like a fall. */
function leaveOutRunning({ x, isComplete, isProvisional, series }: ChartData): void {
  if (isComplete.at(-1) !== false) return
  for (const { points } of series) if ((points.at(-1)?.sample ?? 0) < ENOUGH) points[x.length - 1] = undefined
  if (x.length === 1 || series.some(({ points }) => points.at(-1) !== undefined)) return
  for (const list of [x, isComplete, isProvisional, ...series.map(({ points }) => points)]) list.pop()
}

/** Weighted by the samples, so that the mean of shares is the share of all answers of the seven days. */
function meansOf(data: ChartData, { points }: Series): (number | null)[] {
  return points.map((_, index) => {
    const first = index + 1 - MEAN_DAYS
    if (first < 0) return null
    let [sum, weight] = [0, 0]
    for (let at = first; at <= index; at++) {
      const point = points[at]
      if (point === undefined || point.value === null || !data.isComplete[at] || (at > first && !adjoin(data, at)))
        return null
      sum += point.value * point.sample
      weight += point.sample
    }
    return weight === 0 ? null : sum / weight
  })
}

/** False if no brand has a value, so that there is nothing to draw. */
export function isDrawable({ series }: ChartData): boolean {
  return series.some(({ points }) => points.some((point) => point !== undefined && point.value !== null))
}

/** What the line of a series goes through. */
export function lineValue({ points, means }: Series, index: number): number | null {
  return means === undefined ? (points[index]?.value ?? null) : means[index]!
}

function numberIn(row: ChartRow, column: string): number | null {
  const value = row[column]
  return typeof value === 'number' ? value : null
}

/** True if two neighbours of x follow each other without a gap. */
export function adjoin({ x, grain }: ChartData, index: number): boolean {
  return index > 0 && dayNumber(x[index]!) - dayNumber(x[index - 1]!) === (grain === 'week' ? 7 : 1)
}
