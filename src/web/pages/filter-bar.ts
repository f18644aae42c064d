import { countDays } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { COMPARISONS, type Comparison, type Filters, PERIODS, type Period } from '../insights/filters.ts'
import type { Insights } from '../insights/read-insights.ts'
import { hiddenFields, option } from './layout.ts'

export interface FilterBar {
  projects: { id: string; name: string }[]
  filters: Filters
  insights: Pick<Insights, 'brands' | 'own' | 'days' | 'extent' | 'incomparable'>
}

/** One form for all filters. A script sends it at each change and hides its button. */
export function filterBar({ projects, filters, insights }: FilterBar): Html {
  const { path, subject, project, period, range, grain, comparison } = filters
  const owns = insights.brands.filter(({ isOwn }) => isOwn)
  const isFirstPage = path === '/insights'
  const periodNames = (Object.keys(PERIODS) as Period[]).map((name) => option(name, PERIODS[name].name, period))
  const comparisons = (Object.keys(COMPARISONS) as Comparison[]).map((name) =>
    option(name, COMPARISONS[name], comparison),
  )
  const dates = html`<label>From <input type="date" name="from" value="${range.from}" required></label><label>To <input type="date" name="to" value="${range.to}" required></label>`
  return html`<form method="get" action="${path}" class="filters" aria-label="Filters">${hiddenFields(subject as Record<string, string>)}
${isFirstPage && projects.length > 1 ? html`<label class="wide">Project <select name="project">${projects.map(({ id, name }) => option(id, name, project))}</select></label>` : hiddenFields({ project })}
${owns.length < 2 ? '' : html`<label>Brand <select name="brand">${owns.map(({ id, name }) => option(id, name, insights.own?.id))}</select></label>`}
<label>Period <select name="period">${periodNames}${option('dates', 'From and to …', period ?? 'dates')}</select></label>
${period === undefined ? dates : ''}
<label>Steps <select name="grain">${option('week', 'Weeks', grain)}${option('day', 'Days', grain)}</select></label>
<label>Compared with <select name="compare">${comparisons}</select></label>
<button class="button tiny">Apply</button></form>`
}

/** The days that are shown, those that they are compared with, and how much of both was read. */
export function rangeWords({ range, before }: Filters, { days, extent, incomparable }: FilterBar['insights']): string {
  const all = countDays(range)
  const open = days.days - days.whole_days
  const isPart = days.whole_days_before < countDays(before)
  const isCompared = incomparable === undefined
  const sentences = [
    `${range.from} to ${range.to}${isCompared ? `, compared with ${before.from} to ${before.to}` : ''}.`,
    days.days < all && `${days.days} of ${count(all, 'day')} ${days.days === 1 ? 'was' : 'were'} read.`,
    days.days >= all && (all === 1 ? 'The day was read.' : `All ${count(all, 'day')} were read.`),
    open > 0 && `${count(open, 'of them is', 'of them are')} incomplete.`,
    days.provisional_days > 0 && `${days.provisional_days} may still change.`,
    isCompared
      ? isPart &&
        `Of the ${count(countDays(before), 'day')} before, ${count(days.whole_days_before, 'is', 'are')} complete.`
      : incomparable,
    isPart && extent !== undefined && extent.first > before.from && `The first day that was read is ${extent.first}.`,
  ]
  return sentences.filter(Boolean).join(' ')
}
