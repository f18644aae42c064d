import { expect, test } from '@jest/globals'
import { addDays } from '../src/core/day.ts'
import { lineChart } from '../src/web/insights/line-chart.ts'
import type { ChartRow } from '../src/web/insights/read-insights.ts'
import { chartData } from '../src/web/insights/series.ts'

const BRANDS = ['own', 'r1', 'r2', 'r3', 'r4', 'r5'].map((id) => ({ id }))
const row = (
  at: { week: string } | { date: string },
  brand: string,
  [k, n]: [number, number],
  isComplete = true,
): ChartRow => ({
  ...at,
  brand_id: brand,
  brand: brand.toUpperCase(),
  is_own: brand === 'own',
  visibility: k / n,
  visibility_low: 0,
  visibility_high: 1,
  answers: n,
  is_complete: isComplete,
  is_provisional: !isComplete,
})
const weekly = (rows: ChartRow[]) =>
  chartData('visibility', rows, { grain: 'week', focus: 'own', from: '2026-03-02', brands: BRANDS })

test('a week that has just begun is left out below 30 answers, and dashed above', () => {
  const whole = [row({ week: '2026-03-02' }, 'own', [50, 100]), row({ week: '2026-03-09' }, 'own', [60, 100])]
  const few = weekly([...whole, row({ week: '2026-03-16' }, 'own', [1, 12], false)])
  expect(few.x).toEqual(['2026-03-02', '2026-03-09'])
  const enough = weekly([...whole, row({ week: '2026-03-16' }, 'own', [10, 40], false)])
  expect(enough.x.at(-1)).toBe('2026-03-16')
  const drawn = lineChart(enough).text
  expect(drawn).toContain('<path class="open"')
  // The label at the end belongs to the last week that is complete.
  expect(drawn).toContain('Week of 9 Mar')
  expect(drawn).toContain('60 %')
})

test('a brand has the same colour in every chart', () => {
  const brands = BRANDS.map(({ id }) => id)
  const shares = (order: readonly string[]) =>
    order.map((brand, index) => row({ week: '2026-03-02' }, brand, [90 - 10 * index, 100]))
  const colours = (data: ReturnType<typeof weekly>) =>
    Object.fromEntries(data.series.map(({ brandId, colour }) => [brandId, colour]))
  const first = colours(weekly(shares(brands)))
  expect(colours(weekly(shares([...brands].reverse())))).toEqual(first)
  expect(new Set(Object.values(first)).size).toBe(6)
})

test('the line by day is the share of all answers of seven days, where all seven were read', () => {
  const days = Array.from({ length: 16 }, (_, index) => addDays('2026-03-01', index))
  const rows = days.map((date, index) => row({ date }, 'own', [index, 10 + index], date !== '2026-03-16'))
  const { series } = chartData('visibility', rows, { grain: 'day', focus: 'own', from: '2026-03-01', brands: BRANDS })
  const { means } = series[0]!
  expect(means!.slice(0, 6)).toEqual([null, null, null, null, null, null])
  const sum = (of: (index: number) => number) => [1, 2, 3, 4, 5, 6, 7].reduce((total, index) => total + of(index), 0)
  expect(means![7]).toBeCloseTo(sum((index) => index) / sum((index) => 10 + index), 12)
  // The last day is incomplete and has too few answers.
  expect(means!.length).toBe(15)
})
