import { type Day, dayNumber } from '../../core/day.ts'
import type { Grain } from './filters.ts'
import type { Unit } from './format.ts'
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
  /** One for each of the chart's x; undefined if the brand has no row. */
  points: (Point | undefined)[]
  sample: number
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
  /** The own brand first, then rivals by their samples. */
  series: Series[]
  /** How many brands are not drawn. */
  left: number
}

// More lines than this are a tangle.
const MOST_RIVALS = 5

export function chartData(
  section: ChartSection,
  rows: readonly ChartRow[],
  { grain, focus, from }: { grain: Grain; focus: string | undefined; from: Day },
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
      points: x.map(() => undefined),
      sample: 0,
    }
    byBrand.set(row.brand_id, series)
    const sample = numberIn(row, kind.sample.column) ?? 0
    series.points[index] = {
      value: numberIn(row, kind.value),
      low: kind.interval === undefined ? null : numberIn(row, kind.interval.low),
      high: kind.interval === undefined ? null : numberIn(row, kind.interval.high),
      sample,
    }
    series.sample += sample
    const weight = numberIn(row, kind.unit === 'share' ? kind.value : kind.sample.column) ?? 0
    mentions.set(row.brand_id, (mentions.get(row.brand_id) ?? 0) + weight)
  }
  const rank = ({ brandId, isFocus }: Series) => (isFocus ? Infinity : mentions.get(brandId)!)
  const sorted = [...byBrand.values()].sort((a, b) => rank(b) - rank(a) || (a.name < b.name ? -1 : 1))
  const series = sorted.slice(0, MOST_RIVALS + (sorted[0]?.isFocus ? 1 : 0))
  const start = x.filter((day) => day < from).length
  return { kind, grain, x, isComplete, isProvisional, start, series, left: sorted.length - series.length }
}

function numberIn(row: ChartRow, column: string): number | null {
  const value = row[column]
  return typeof value === 'number' ? value : null
}

/** True if two neighbours of x follow each other without a gap. */
export function adjoin({ x, grain }: ChartData, index: number): boolean {
  return index > 0 && dayNumber(x[index]!) - dayNumber(x[index - 1]!) === (grain === 'week' ? 7 : 1)
}
