import { addDays, countDays, type Day, dayNumber, type Range } from '../../core/day.ts'
import { UsageError } from '../../core/errors.ts'
import { clip } from '../../core/text.ts'
import { href } from '../pages/layout.ts'
import { dayIn, oneOf, projectOf, rangeOf, readQuery } from '../query.ts'

/* The filters of the insights pages. They are part of the address, so that a link shows the same to everyone. */

export const PERIODS = {
  week: { days: 7, name: 'Last complete week' },
  '4w': { days: 28, name: '4 weeks' },
  '90d': { days: 90, name: '90 days' },
  '1y': { days: 364, name: '52 weeks' },
} as const
type Period = keyof typeof PERIODS
export type Grain = 'week' | 'day' | 'month'

export const COMPARISONS = {
  before: 'the period before',
  year: 'the same weekdays a year ago',
  none: 'nothing',
} as const
type Comparison = keyof typeof COMPARISONS
// A multiple of 7, so that weeks are compared with weeks.
const YEAR_DAYS = 364

/** The pages: all of a project, and the reasons behind one of its numbers. */
const PAGES = {
  '/insights': [],
  '/insights/topic': ['topic', 'model', 'channel'],
  '/insights/model': ['model'],
  '/insights/channel': ['channel'],
  '/insights/prompt': ['prompt', 'model', 'channel'],
  '/insights/source': ['domain'],
} as const
export type PagePath = keyof typeof PAGES
export type Subject = Partial<Record<'topic' | 'model' | 'channel' | 'prompt' | 'domain', string>>

export interface Filters {
  path: PagePath
  /** The subject of a page other than the first. */
  subject: Subject
  project: string
  /** Undefined if days of one's own were chosen. A period moves with the days; a range does not. */
  period: Period | undefined
  usualPeriod: Period
  range: Range
  comparison: Comparison
  /** The range that it is compared with; it has no days if there is none. */
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

const OF_ALL = ['project', 'period', 'from', 'to', 'grain', 'compare', 'brand'] as const
const KNOWN = [...OF_ALL, 'rival', 'week', 'page', 'print'] as const
/** The longest first: the default is one that there is a period before to compare with. */
const DEFAULT_PERIODS: readonly Period[] = ['90d', '4w']
// A shorter range has hardly a week to draw.
const FEWEST_DAYS_BY_WEEK = 21
const MOST_PAGES = 100_000

interface Known {
  projects: readonly { id: string }[]
  interest: Range
  today: Day
}

export function readFilters(
  query: unknown,
  { projects, interest, today }: Known,
  path: PagePath = '/insights',
): Filters {
  const asked = readQuery(query, [...KNOWN, ...PAGES[path]])
  const subject: Subject = Object.fromEntries(
    PAGES[path].flatMap((name) => (asked[name] === undefined ? [] : [[name, asked[name]]])),
  )
  const [required] = PAGES[path]
  if (required !== undefined && subject[required] === undefined) throw new UsageError(`${required}: not given`)
  const { period, usualPeriod, range } = periodOf(asked, interest, today)
  const comparison = oneOf('compare', asked.compare, Object.keys(COMPARISONS) as Comparison[]) ?? 'before'
  const week = dayIn('week', asked.week, today)
  if (week !== undefined && mondayOf(week) !== week)
    throw new UsageError(`week: got ${week}; allowed: a Monday, such as ${mondayOf(week)}`)
  return {
    path,
    subject,
    project: projectOf(projects, asked.project),
    period,
    usualPeriod,
    range,
    comparison,
    before: comparedRange(range, comparison),
    grain: oneOf('grain', asked.grain, ['week', 'day']) ?? defaultGrain(range),
    brand: asked.brand,
    rival: asked.rival,
    week,
    page: pageOf(asked.page),
    print: oneOf('print', asked.print, ['1']) !== undefined,
  }
}

function periodOf(asked: Partial<Record<string, string>>, interest: Range, today: Day) {
  const { from, to } = asked
  const period = oneOf('period', asked.period, [...(Object.keys(PERIODS) as Period[]), 'dates' as const])
  const last = interest.to < today ? interest.to : today
  const known = countDays({ from: interest.from, to: last })
  const usualPeriod = DEFAULT_PERIODS.find((name) => 2 * PERIODS[name].days <= known) ?? '4w'
  // The form sends its dates together with the period, which says whether they count.
  const hasDates = from !== undefined || to !== undefined
  if (period === 'dates' || (period === undefined && hasDates))
    return { period: undefined, usualPeriod, range: rangeOf({ ...(from && { from }), ...(to && { to }) }, last, today) }
  const chosen = period ?? usualPeriod
  return { period: chosen, usualPeriod, range: rangeIn(chosen, last) }
}

function rangeIn(period: Period, last: Day): Range {
  const to = period === 'week' ? addDays(mondayOf(last), -1) : last
  return { from: addDays(to, 1 - PERIODS[period].days), to }
}

export function comparedRange({ from, to }: Range, comparison: Comparison): Range {
  if (comparison === 'none') return noDays({ from, to })
  const back =
    comparison === 'year' ? YEAR_DAYS * Math.ceil(countDays({ from, to }) / YEAR_DAYS) : countDays({ from, to })
  return { from: addDays(from, -back), to: addDays(to, -back) }
}

/** An empty range, to compare with nothing. */
export function noDays({ from }: Range): Range {
  return { from, to: addDays(from, -1) }
}

export function defaultGrain(range: Range): Grain {
  return countDays(range) < FEWEST_DAYS_BY_WEEK ? 'day' : 'week'
}

function pageOf(asked: string | undefined): number {
  if (asked === undefined) return 1
  const page = /^\d{1,6}$/.test(asked) ? Number(asked) : 0
  if (page >= 1 && page <= MOST_PAGES) return page
  throw new UsageError(`page: got "${clip(asked, 40)}"; allowed: a whole number from 1 to ${MOST_PAGES}`)
}

export function mondayOf(day: Day): Day {
  // 1970-01-01 was a Thursday.
  return addDays(day, -((((dayNumber(day) + 3) % 7) + 7) % 7))
}

/** The days of the weeks that begin in a range; none if no week does. */
export function weeksIn({ from, to }: Range): Range {
  const first = mondayOf(addDays(from, 6))
  return { from: first, to: addDays(mondayOf(to), 6) }
}

/** The days of the months that begin in a range; none if no month does. */
function monthsIn({ from, to }: Range): Range {
  const [before, next] = [addDays(from, -1), addDays(`${to.slice(0, 7)}-01`, 31)]
  const first = addDays(`${before.slice(0, 7)}-01`, 31)
  return { from: `${first.slice(0, 7)}-01`, to: addDays(`${next.slice(0, 7)}-01`, -1) }
}

export function periodsIn(range: Range, grain: Grain): Range {
  return { day: () => range, week: () => weeksIn(range), month: () => monthsIn(range) }[grain]()
}

/** The same up to a day; undefined if none begins. */
export function startedPeriods(range: Range, grain: Grain, until: Day): Range | undefined {
  const { from, to } = periodsIn(range, grain)
  return from > to ? undefined : { from, to: to > until ? until : to }
}

// With more points than this, the period before would crowd out the one that was asked for.
const MOST_POINTS_WITH_BEFORE = 31

/** The days that charts show: the range, and the one right before it if both fit. */
export function chartRange({ range, before, grain, comparison }: Filters): Range {
  const points = countDays(range) / (grain === 'week' ? 7 : 1)
  return comparison === 'before' && points <= MOST_POINTS_WITH_BEFORE ? { from: before.from, to: range.to } : range
}

export function address(filters: Filters, path: string = filters.path, anchor = ''): string {
  const { subject, project, period, usualPeriod, range, comparison, grain, brand, rival, week, page, print } = filters
  const days = period === undefined ? range : { period: period === usualPeriod ? undefined : period }
  const shown = {
    grain: grain === defaultGrain(range) ? undefined : grain,
    compare: comparison === 'before' ? undefined : comparison,
    ...{ brand, rival, week },
    page: page === 1 ? undefined : String(page),
    print: print ? '1' : undefined,
  }
  return href(path, { ...subject, project, ...days, ...shown }, anchor === '' ? '' : `#${anchor}`)
}

export function subjectAddress(filters: Filters, path: PagePath, subject: Subject = {}): string {
  return address({ ...filters, path, subject, rival: undefined, week: undefined, page: 1, print: false })
}
