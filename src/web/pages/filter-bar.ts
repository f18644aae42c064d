import { countDays } from '../../core/day.ts'
import { count, listSome } from '../../core/text.ts'
import { OMITS_ROWS } from '../../ledger/days.ts'
import { type Html, html } from '../html.ts'
import { COMPARISONS, type Filters, PERIODS } from '../insights/filters.ts'
import type { Found } from '../insights/read-page.ts'
import { type Choice, field, select } from './forms.ts'
import { hiddenFields } from './layout.ts'

const STEPS: Choice[] = [
  ['week', 'Weeks'],
  ['day', 'Days'],
]

/** One form for all filters. A script sends it at each change and hides its button. */
export function filterBar(projects: { id: string; name: string }[], filters: Filters, { brands, own }: Found): Html {
  const { path, subject, project, period, range, grain, comparison } = filters
  const owns = brands.flatMap(({ id, name, isOwn }): Choice[] => (isOwn ? [[id, name]] : []))
  const periods = Object.entries(PERIODS).map(([value, { name }]): Choice => [value, name])
  const date = (label: string, name: 'from' | 'to') =>
    field(label, html`<input type="date" name="${name}" value="${range[name]}" required>`)
  const isChosenHere = path === '/insights' && projects.length > 1
  const names = projects.map(({ id, name }): Choice => [id, name])
  return html`<form method="get" action="${path}" class="row filters" aria-label="Filters">${hiddenFields(subject as Record<string, string>)}
${isChosenHere ? select('Project', 'project', names, project) : hiddenFields({ project })}
${owns.length > 1 && select('Brand', 'brand', owns, own?.id)}
${select('Period', 'period', [...periods, ['dates', 'From and to …']], period ?? 'dates')}
${period === undefined && [date('From', 'from'), date('To', 'to')]}
${select('Steps', 'grain', STEPS, grain)}
${select('Compared with', 'compare', Object.entries(COMPARISONS), comparison)}
<button class="button tiny">Apply</button></form>`
}

export function rangeWords({ range, before }: Filters, { days, extent, incomparable, omitting }: Found): string {
  const all = countDays(range)
  const open = days.days - days.whole_days
  const isPart = days.whole_days_before < countDays(before)
  const wasRead = all === 1 ? 'The day was read.' : `All ${count(all, 'day')} were read.`
  const part = `Of the ${count(countDays(before), 'day')} before, ${count(days.whole_days_before, 'is', 'are')} complete.`
  const sentences = [
    `${range.from} to ${range.to}${incomparable === undefined ? `, compared with ${before.from} to ${before.to}` : ''}.`,
    days.days < all ? `${days.days} of ${count(all, 'day')} ${days.days === 1 ? 'was' : 'were'} read.` : wasRead,
    open > 0 && `${count(open, 'of them is', 'of them are')} incomplete.`,
    days.provisional_days > 0 && `${days.provisional_days} may still change.`,
    incomparable ?? (isPart && part),
    isPart && extent !== undefined && extent.first > before.from && `The first day that was read is ${extent.first}.`,
    omitting.length > 0 && `Of ${listSome(omitting)}, ${OMITS_ROWS}.`,
  ]
  return sentences.filter(Boolean).join(' ')
}
