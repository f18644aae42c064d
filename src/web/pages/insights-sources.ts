import { type Html, html } from '../html.ts'
import { type Filters, weeksIn } from '../insights/filters.ts'
import { percent, whole } from '../insights/format.ts'
import type { Insights, SourceGapRow, SourceRow } from '../insights/read-insights.ts'
import { interval, panel, scrolling } from './insights-parts.ts'

/*
 * Domains that answers retrieve and cite. Few services offer the reports that they come from, so without rows there is no
 * section. The printed report fits on one sheet without them.
 */

export function sourcePanel(filters: Filters, sources: Insights['sources']): Html | '' {
  const [first] = sources.rows
  if (first === undefined || filters.print) return ''
  const weeks = weeksIn(filters.range)
  return panel(filters, {
    id: 'sources',
    title: 'Sources cited',
    about: html`Domains that answers of the weeks from ${weeks.from} to ${weeks.to} retrieve and cite, the most cited first.`,
    read: sources,
    body: html`${scrolling(
      'Table of sources',
      html`<table class="table"><thead><tr><th scope="col">domain</th><th scope="col">kind</th><th scope="col" class="n">citations</th><th scope="col" class="n">retrieved by</th><th scope="col" class="n">95 % interval</th><th scope="col" class="n">answers</th></tr></thead>
<tbody>${sources.rows.map(
        (row) =>
          html`<tr${row.is_own ? html` class="own-row"` : ''}><th scope="row">${row.domain}</th><td>${kindOf(row)}</td><td class="n">${number(row.citation_count)}</td><td class="n">${percent(row.retrieved_share)}</td><td class="n">${interval(row.retrieved_share_low, row.retrieved_share_high)}</td><td class="n">${number(row.answers)}</td></tr>
`,
      )}</tbody></table>`,
    )}${more(first.whole_count, sources.rows.length)}`,
  })
}

export function sourceGapPanel(filters: Filters, gaps: Insights['sourceGaps'], own: string): Html | '' {
  const [first] = gaps.rows
  if (first === undefined || filters.print) return ''
  return panel(filters, {
    id: 'source-gaps',
    title: 'Sources of answers without you',
    about: html`Domains that answers cite for prompts and models where rivals appear and ${own} does not in a week, the most cited first.`,
    read: gaps,
    body: html`${scrolling(
      'Table of sources of answers without you',
      html`<table class="table"><thead><tr><th scope="col">domain</th><th scope="col">kind</th><th scope="col" class="n">citations</th><th scope="col" class="n">answers that retrieve it</th><th scope="col" class="n">most prompts in a week</th><th scope="col" class="n">weeks</th><th scope="col">last</th></tr></thead>
<tbody>${gaps.rows.map(
        (row) =>
          html`<tr${row.is_own ? html` class="own-row"` : ''}><th scope="row">${row.domain}</th><td>${kindOf(row)}</td><td class="n">${number(row.citation_count)}</td><td class="n">${number(row.retrieved_chat_count)}</td><td class="n">${whole(row.most_prompts_in_a_week)}</td><td class="n">${whole(row.weeks)}</td><td class="day">${row.last_week}</td></tr>
`,
      )}</tbody></table>`,
    )}${more(first.whole_count, gaps.rows.length)}`,
  })
}

/** Own domains and those of rivals first: the service may class them otherwise. */
function kindOf({ is_own, is_rival, classification }: SourceRow | SourceGapRow): string {
  if (is_own) return 'own'
  if (is_rival) return 'rival'
  return (classification ?? '–').toLowerCase().replaceAll('_', ' ')
}

const number = (value: number | null) => (value === null ? '–' : whole(value))

function more(all: number, shown: number): Html | '' {
  return all > shown ? html`<p class="note">${shown} of ${whole(all)}; the CSV has all.</p>` : ''
}
