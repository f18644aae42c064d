import { type Html, html } from '../html.ts'
import type { Filters } from '../insights/filters.ts'
import { changed, measured, points, whole } from '../insights/format.ts'
import { lineChart, sparkline } from '../insights/line-chart.ts'
import type { ChartRow, ChartSection, Read, SummaryRow } from '../insights/read-insights.ts'
import { CHART_KINDS, type ChartData } from '../insights/series.ts'
import { summaryVerdict } from '../insights/verdicts.ts'
import { interval, panel, verdictOf } from './insights-parts.ts'
import { scrolling } from './layout.ts'

const SECTION: Record<SummaryRow['metric'], ChartSection> = {
  visibility: 'visibility',
  share_of_voice: 'share-of-voice',
  position: 'position',
  sentiment: 'sentiment',
}

/** The own brand's numbers of the whole range, each with its change, what that is worth, and its sample. */
export function tiles(
  rows: readonly SummaryRow[],
  charts: Record<ChartSection, ChartData | undefined>,
  /** What the period before is called: with how much of it there is, if that is not all. */
  previous: string,
): Html {
  return html`<ul class="tiles">${rows.map((row) => {
    const section = SECTION[row.metric]
    const { title, unit } = CHART_KINDS[section]
    const chart = charts[section]
    return html`<li class="tile" id="tile-${section}"><h3 class="label">${title}</h3>
<p class="value">${measured(row.value, unit)}</p>
<p>${row.value === null ? 'No answer of this range has one.' : verdictOf(summaryVerdict(row), row.change === null ? '' : changed(row.change, unit))}</p>
${chart === undefined ? '' : sparkline(chart)}
<p class="note">${sampleOf(row)}${before(row, previous)}</p></li>`
  })}</ul>`
}

function sampleOf(row: SummaryRow): string {
  const { name } = CHART_KINDS[SECTION[row.metric]].sample
  const sample = `${row.count === null ? '' : `${whole(row.count)} of `}${whole(row.sample ?? 0)} ${name}`
  const range = interval(row.low, row.high)
  return range === '' ? `${sample}.` : `${sample}: ${range} with 95 % confidence.`
}

function before({ previous_value, change_low, change_high, metric }: SummaryRow, previous: string): string {
  if (previous_value === null) return ''
  const { unit } = CHART_KINDS[SECTION[metric]]
  const span =
    change_low === null || change_high === null
      ? ''
      : `, so the change is ${points(change_low).replace(' points', '')} to ${points(change_high)}`
  return ` ${previous}: ${measured(previous_value, unit)}${span}.`
}

// A longer table is better read as a file.
const MOST_ROWS = 60

export function chartPanel(filters: Filters, section: ChartSection, read: Read<ChartRow>, data?: ChartData): Html {
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
  const hasBand = kind.interval !== undefined && series.some(({ isFocus }) => isFocus)
  const signs = [
    hasBand && 'Band: 95 % interval.',
    isComplete.includes(false) && `Dashed and hollow: the ${grain} is incomplete.`,
    isProvisional.includes(true) && 'Shaded: may still change.',
    left > 0 && `${left} more ${left === 1 ? 'brand is' : 'brands are'} in the CSV.`,
  ].filter(Boolean)
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
