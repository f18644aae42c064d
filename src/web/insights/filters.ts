import { addDays, countDays, type Day, dayNumber, type Range } from '../../core/day.ts'
import { UsageError } from '../../core/errors.ts'
import { clip } from '../../core/text.ts'
import { href } from '../pages/layout.ts'
import { dayIn, oneOf, projectOf, rangeOf, readQuery } from '../query.ts'

/* What the insights page is asked for, in its address, so that a link shows the same to everyone. */

export const PERIODS = {
  '4w': { days: 28, name: '4 weeks' },
  '90d': { days: 90, name: '90 days' },
  '1y': { days: 365, name: 'A year' },
} as const
export type Period = keyof typeof PERIODS
export type Grain = 'week' | 'day'

export interface Filters {
  project: string
  /** Undefined if days of one's own were chosen. A period moves with the days; a range does not. */
  period: Period | undefined
  /** What is shown if none is asked for. */
  usualPeriod: Period
  range: Range
  /** The equally long range before it, which it is compared with. */
  before: Range
  grain: Grain
  /** The own brand to look at; undefined for the first. */
  brand: string | undefined
  /** The rival whose comparison is shown by model; undefined for the strongest. */
  rival: string | undefined
  /** The Monday of the week whose movers are shown; undefined for those of the range. */
  week: Day | undefined
  /** Of the absent prompts. */
  page: number
  print: boolean
}

const KNOWN = ['project', 'period', 'from', 'to', 'grain', 'brand', 'rival', 'week', 'page', 'print'] as const
/** The longest first: the default is one that there is a period before to compare with. */
const DEFAULT_PERIODS: readonly Period[] = ['90d', '4w']
// A shorter range has hardly a week to draw.
const FEWEST_DAYS_BY_WEEK = 21
const MOST_PAGES = 100_000

export function readFilters(
  query: unknown,
  { projects, interest, today }: { projects: readonly { id: string }[]; interest: Range; today: Day },
): Filters {
  const asked = readQuery(query, KNOWN)
  const { from, to } = asked
  const period = oneOf('period', asked.period, Object.keys(PERIODS) as Period[])
  if (period !== undefined && (from ?? to) !== undefined)
    throw new UsageError('period: given together with from or to; give one or the other')
  const last = interest.to < today ? interest.to : today
  const known = countDays({ from: interest.from, to: last })
  const usualPeriod = DEFAULT_PERIODS.find((name) => 2 * PERIODS[name].days <= known) ?? '4w'
  const chosen = from === undefined && to === undefined ? (period ?? usualPeriod) : undefined
  const range =
    chosen === undefined
      ? rangeOf({ ...(from && { from }), ...(to && { to }) }, last, today)
      : { from: addDays(last, 1 - PERIODS[chosen].days), to: last }
  const days = countDays(range)
  const week = dayIn('week', asked.week, today)
  if (week !== undefined && mondayOf(week) !== week)
    throw new UsageError(`week: got ${week}; allowed: a Monday, such as ${mondayOf(week)}`)
  return {
    project: projectOf(projects, asked.project),
    period: chosen,
    usualPeriod,
    range,
    before: { from: addDays(range.from, -days), to: addDays(range.from, -1) },
    grain: oneOf('grain', asked.grain, ['week', 'day']) ?? defaultGrain(range),
    brand: asked.brand,
    rival: asked.rival,
    week,
    page: pageOf(asked.page),
    print: oneOf('print', asked.print, ['1']) !== undefined,
  }
}

function defaultGrain(range: Range): Grain {
  return countDays(range) < FEWEST_DAYS_BY_WEEK ? 'day' : 'week'
}

function pageOf(asked: string | undefined): number {
  if (asked === undefined) return 1
  const page = /^\d{1,6}$/.test(asked) ? Number(asked) : 0
  if (page >= 1 && page <= MOST_PAGES) return page
  throw new UsageError(`page: got "${clip(asked, 40)}"; allowed: a whole number from 1 to ${MOST_PAGES}`)
}

/** The Monday of a day's week. */
export function mondayOf(day: Day): Day {
  // 1970-01-01 was a Thursday.
  return addDays(day, -((((dayNumber(day) + 3) % 7) + 7) % 7))
}

/** The days of the weeks that begin in a range; none if no week does. */
export function weeksIn({ from, to }: Range): Range {
  const first = mondayOf(addDays(from, 6))
  return { from: first, to: addDays(mondayOf(to), 6) }
}

// With more points than this, the period before would crowd out the one that was asked for.
const MOST_POINTS_WITH_BEFORE = 31

/** The days that charts show: the range, and the one before if both fit. */
export function chartRange({ range, before, grain }: Filters): Range {
  const points = countDays(range) / (grain === 'week' ? 7 : 1)
  return points <= MOST_POINTS_WITH_BEFORE ? { from: before.from, to: range.to } : range
}

/** The address of what these filters show. Defaults are left out. */
export function address(filters: Filters, path = '/insights', anchor = ''): string {
  const { project, period, usualPeriod, range, grain, brand, rival, week, page, print } = filters
  const days = period === undefined ? range : { period: period === usualPeriod ? undefined : period }
  const shown = {
    grain: grain === defaultGrain(range) ? undefined : grain,
    ...{ brand, rival, week },
    page: page === 1 ? undefined : String(page),
    print: print ? '1' : undefined,
  }
  return href(path, { project, ...days, ...shown }, anchor === '' ? '' : `#${anchor}`)
}
