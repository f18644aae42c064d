import { addDays, type Day } from '../../core/day.ts'
import { listSome } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, type Filters } from '../insights/filters.ts'
import { CHARTS, type Insights } from '../insights/read-insights.ts'

/* Why there is nothing to see, and the step that helps. */

/** For a range of a project that has no row at all. */
export function emptyPage(filters: Filters, { charts, extent }: Insights): Html {
  const missing = charts[CHARTS[0]!].missing
  if (missing !== undefined) return state('A view is missing', html`<p>${missing}</p>`)
  const { project, range } = filters
  if (extent === undefined)
    return state(
      'Nothing of this project was read yet',
      html`<p>The first sync fills these pages. The <a href="/">status page</a> shows whether one is running.</p><p><code>visibility-sync sync --project ${project}</code></p>`,
    )
  if (range.from > extent.last || range.to < extent.first)
    return state(
      'No day of this range was read',
      html`<p>Days from ${extent.first} to ${extent.last} were read. <a href="${address({ ...filters, period: undefined, ...lastDays(extent), page: 1 })}">Show the last of them</a>, or read the range:</p><p><code>visibility-sync backfill --project ${project} --from ${range.from} --to ${range.to}</code></p>`,
    )
  return state(
    'No answers in this range',
    html`<p>${
      filters.grain === 'week'
        ? html`No week that begins in this range has answers. <a href="${address({ ...filters, grain: 'day' })}">Look at it by day</a>, or choose a longer range.`
        : 'Its days were read, and the service had no answers for them. Choose a longer range.'
    }</p>`,
  )
}

const LAST_DAYS = 90

function lastDays({ first, last }: { first: Day; last: Day }): Pick<Filters, 'range' | 'before'> {
  const from = addDays(last, 1 - LAST_DAYS)
  const range = { from: from < first ? first : from, to: last }
  return { range, before: range }
}

/** For a project without an own brand: charts are there, and what compares with rivals is not. */
export function noOwnBrand({ brands }: Insights): Html {
  const [example] = brands
  return state(
    'No brand is marked as your own',
    html`<p>So there are no headlines, and nothing is compared with rivals. Mark one of ${listSome(brands.map(({ name }) => name)) || 'your brands'} in the configuration, and sync once more:</p>
<pre tabindex="0" role="region" aria-label="Configuration"><code>labels:
  brands:
    ${example?.id ?? 'kw_…'}: { own: true }${example === undefined ? '' : ` # ${example.name.replaceAll(/\s+/g, ' ')}`}</code></pre>`,
  )
}

function state(title: string, body: Html): Html {
  return html`<section class="card empty-state"><h2>${title}</h2>${body}</section>`
}
