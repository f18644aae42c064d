import { type Html, html } from '../html.ts'
import type { Filters } from '../insights/filters.ts'
import { measured, whole } from '../insights/format.ts'
import { lineChart } from '../insights/line-chart.ts'
import type { ChartRow, ChartSection, Read } from '../insights/read-insights.ts'
import { CHART_KINDS, type ChartData } from '../insights/series.ts'
import { panel, scrolling } from './insights-parts.ts'

// A longer table is better read as a file.
const MOST_ROWS = 60

export function chartPanel(
  filters: Filters,
  section: ChartSection,
  read: Read<ChartRow>,
  data: ChartData | undefined,
): Html {
  const { title, about } = CHART_KINDS[section]
  return panel(filters, {
    id: section,
    title,
    about,
    read,
    wide: false,
    body:
      data === undefined
        ? html`<p class="empty">No ${filters.grain} of this range has a value.</p>`
        : html`${lineChart(data, filters.print)}${filters.print ? '' : html`${key(data)}${numbers(title, data)}`}`,
  })
}

/** What the signs in a chart mean, those that occur in it. */
function key({ kind, grain, isComplete, isProvisional, left, series }: ChartData): Html | '' {
  const signs = [
    ...(kind.interval !== undefined && series.some(({ isFocus }) => isFocus) ? ['Band: 95 % interval.'] : []),
    ...(isComplete.includes(false) ? [`Dashed and hollow: the ${grain} is incomplete.`] : []),
    ...(isProvisional.includes(true) ? ['Shaded: may still change.'] : []),
    ...(left > 0 ? [`${left} more ${left === 1 ? 'brand is' : 'brands are'} in the CSV.`] : []),
  ]
  return signs.length === 0 ? '' : html`<p class="note">${signs.join(' ')}</p>`
}

function numbers(title: string, { kind, grain, x, isComplete, isProvisional, series }: ChartData): Html {
  const shown = x.map((_, index) => index).slice(-MOST_ROWS)
  const table = html`<table class="table"><thead><tr><th scope="col">${grain}</th>${series.map(({ name, isFocus }) => html`<th scope="col" class="n">${name}</th>${isFocus && kind.interval !== undefined ? html`<th scope="col" class="n">95 % interval</th>` : ''}${isFocus ? html`<th scope="col" class="n">${kind.sample.name}</th>` : ''}`)}<th scope="col">state</th></tr></thead>
<tbody>${shown.map(
    (at) =>
      html`<tr><th scope="row">${x[at]}</th>${series.map(({ points, isFocus }) => {
        const point = points[at]
        return html`<td class="n">${measured(point?.value ?? null, kind.unit)}</td>${isFocus && kind.interval !== undefined ? html`<td class="n">${point?.low == null ? '–' : `${measured(point.low, kind.unit)} to ${measured(point.high, kind.unit)}`}</td>` : ''}${isFocus ? html`<td class="n">${whole(point?.sample ?? 0)}</td>` : ''}`
      })}<td>${isComplete[at] ? (isProvisional[at] ? 'may still change' : 'final') : 'incomplete'}</td></tr>
`,
  )}</tbody></table>`
  const cut = x.length - shown.length
  return html`<details><summary>Numbers</summary>${scrolling(`Numbers of ${title}`, table)}${cut > 0 ? html`<p class="note">The last ${MOST_ROWS}; the CSV has all ${x.length}.</p>` : ''}</details>`
}
