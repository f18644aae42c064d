import { type Html, html } from '../html.ts'
import { changed, measured, points, whole } from '../insights/format.ts'
import { sparkline } from '../insights/line-chart.ts'
import type { ChartSection, SummaryRow } from '../insights/read-insights.ts'
import { CHART_KINDS, type ChartData } from '../insights/series.ts'
import { summaryVerdict } from '../insights/verdicts.ts'
import { interval, verdictOf } from './insights-parts.ts'

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
