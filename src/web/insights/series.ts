import { type Day, dayNumber } from '../../core/day.ts'
import type { Grain } from './filters.ts'
import { ENOUGH, type Unit } from './format.ts'
import type { ChartSection } from './read-page.ts'
import type { ChartRow } from './rows.ts'

export interface ChartKind {
  title: string
  /** The column that is drawn; those of its interval, if it has one, are named after it. */
  value: string
  hasInterval?: true
  /** The column of its sample, and its name. */
  sample: string
  sampleName: string
  unit: Unit
  about: string
}

export const CHART_KINDS: Record<ChartSection, ChartKind> = {
  visibility: {
    title: 'Visibility',
    value: 'visibility',
    hasInterval: true,
    sample: 'answers',
    sampleName: 'answers',
    unit: 'share',
    about: 'Share of answers that name the brand.',
  },
  'share-of-voice': {
    title: 'Share of voice',
    value: 'share_of_voice',
    sample: 'all_mentions',
    sampleName: 'mentions of all brands',
    unit: 'share',
    about: 'Mentions of the brand over those of all tracked brands.',
  },
  position: {
    title: 'Position',
    value: 'position',
    sample: 'position_count',
    sampleName: 'answers with a position',
    unit: 'position',
    about: 'Mean position among the brands of an answer. 1 is first, so higher up is better.',
  },
  sentiment: {
    title: 'Sentiment',
    value: 'sentiment',
    sample: 'sentiment_count',
    sampleName: 'mentions with a sentiment',
    unit: 'score',
    about: "Mean sentiment on the service's own scale, so the axis need not begin at zero.",
  },
}

type Point = Record<'value' | 'low' | 'high', number | null> & { sample: number }

export type ChartData = ReturnType<typeof chartData>
export type Series = ChartData['series'][number]

const MEAN_DAYS = 7
// More lines than this are a tangle.
const MOST_RIVALS = 5

interface ChartRequest {
  grain: Grain
  /** The own brand. */
  focus: string | undefined
  from: Day
  /** If there are few, each has the same colour in every chart. */
  brands: readonly { id: string }[]
}

const numberIn = (row: object, column: string) => {
  const value: unknown = row[column as keyof typeof row]
  return typeof value === 'number' ? value : null
}

export function chartData(
  section: ChartSection,
  all: readonly ChartRow[],
  { grain, focus, from, brands }: ChartRequest,
) {
  const kind = CHART_KINDS[section]
  const at = (row: ChartRow) => row[grain === 'week' ? 'week' : 'date']!
  const sampleOf = (row: ChartRow) => numberIn(row, kind.sample) ?? 0
  // A period that has just begun has few answers, and would look like a fall.
  const last = all.length === 0 ? '' : at(all.at(-1)!)
  const rows = all.filter(
    (row) => at(row) !== last || row.is_complete === true || (numberIn(row, 'answers') ?? 0) >= ENOUGH,
  )
  const periods = new Map<Day, { isComplete: boolean; isProvisional: boolean }>()
  const byBrand = new Map<string, Map<Day, ChartRow>>()
  for (const row of rows) {
    const period = periods.get(at(row)) ?? { isComplete: true, isProvisional: false }
    period.isComplete &&= row.is_complete === true
    period.isProvisional ||= row.is_provisional !== false
    periods.set(at(row), period)
    const own = byBrand.get(row.brand_id) ?? new Map<Day, ChartRow>()
    byBrand.set(row.brand_id, own.set(at(row), row))
  }
  const x = [...periods.keys()].sort()
  const isComplete = x.map((day) => periods.get(day)!.isComplete)
  const isProvisional = x.map((day) => periods.get(day)!.isProvisional)
  // If so, lines are means of the seven days that end with each x.
  const hasMeans = grain === 'day' && x.length >= 2 * MEAN_DAYS

  const found = [...byBrand].map(([brandId, own]) => {
    const weights = [...own.values()].map((row) => (kind.unit === 'share' ? numberIn(row, kind.value) : sampleOf(row)))
    const isFocus = brandId === focus
    const rank = isFocus ? Infinity : weights.reduce<number>((sum, weight) => sum + (weight ?? 0), 0)
    return { brandId, name: [...own.values()][0]!.brand, isFocus, rank, own }
  })
  const sorted = found.sort((a, b) => b.rank - a.rank || (a.name < b.name ? -1 : 1))
  const drawn = sorted.slice(0, MOST_RIVALS + (sorted[0]?.isFocus ? 1 : 0))
  const rivals = brands.filter(({ id }) => id !== focus)
  const named = rivals.length > MOST_RIVALS ? [] : rivals.map(({ id }) => id)
  const colours = [...new Set([...named, ...drawn.flatMap(({ brandId, isFocus }) => (isFocus ? [] : [brandId]))])]
  const series = drawn.map(({ brandId, name, isFocus, own }) => {
    // Undefined where the brand has no row.
    const points = x.map((day): Point | undefined => {
      const row = own.get(day)
      if (row === undefined) return undefined
      const [value, low, high] = ['', '_low', '_high'].map((end) => numberIn(row, `${kind.value}${end}`))
      return { value: value!, low: low!, high: high!, sample: sampleOf(row) }
    })
    const line = hasMeans ? meansOf(x, isComplete, points) : points.map((point) => point?.value ?? null)
    // The own brand has the first colour.
    return { brandId, name, isFocus, colour: isFocus ? 0 : 1 + colours.indexOf(brandId), points, line }
  })
  // Those before it are of the period that the range is compared with.
  const start = x.filter((day) => day < from).length
  return { kind, grain, x, hasMeans, isComplete, isProvisional, start, series, left: sorted.length - series.length }
}

/** Weighted by the samples, so that the mean of shares is the share of all answers; null if one of the days is missing. */
function meansOf(x: readonly Day[], isComplete: readonly boolean[], points: readonly (Point | undefined)[]) {
  return points.map((_, index) => {
    const first = index + 1 - MEAN_DAYS
    if (first < 0 || dayNumber(x[index]!) - dayNumber(x[first]!) !== MEAN_DAYS - 1) return null
    let [sum, weight] = [0, 0]
    for (let at = first; at <= index; at++) {
      const point = points[at]
      if (point === undefined || point.value === null || !isComplete[at]) return null
      sum += point.value * point.sample
      weight += point.sample
    }
    return weight === 0 ? null : sum / weight
  })
}

export function isDrawable({ series }: ChartData): boolean {
  return series.some(({ points }) => points.some((point) => point !== undefined && point.value !== null))
}

export function adjoin({ x, grain }: ChartData, index: number): boolean {
  return index > 0 && dayNumber(x[index]!) - dayNumber(x[index - 1]!) === (grain === 'week' ? 7 : 1)
}
