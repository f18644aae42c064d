import { type Html, html } from '../html.ts'
import { address, type Filters } from '../insights/filters.ts'
import { percent } from '../insights/format.ts'
import type { Read } from '../insights/read-insights.ts'
import type { Section } from '../insights/statements.ts'
import type { Verdict } from '../insights/verdicts.ts'

export interface Panel {
  id: Section
  title: string
  about: Html | string
  read: Pick<Read<unknown>, 'sql' | 'missing'>
  /** Links to other views of the section; they stay if there is nothing to show. */
  links?: Html | ''
  body: Html | ''
  wide?: boolean
}

/** The frame of a section: its title, a link to it, its rows as a file, and its SQL. On paper only the numbers are left. */
export function panel(filters: Filters, { id, title, about, read, links = '', body, wide = true }: Panel): Html {
  return html`<section class="card${wide ? ' wide' : ''}" id="${id}" aria-labelledby="${id}-title">
<header><h2 id="${id}-title">${title}</h2>${filters.print || read.missing !== undefined ? '' : actions(filters, id, title)}</header>
<p class="about">${about}</p>
${links}${read.missing === undefined ? body : html`<p class="empty">${read.missing}</p>`}
${filters.print || read.missing !== undefined ? '' : sqlOf(title, read.sql)}</section>`
}

function actions(filters: Filters, id: Section, title: string): Html {
  return html`<p class="actions"><a href="${address(filters, '/insights', id)}" aria-label="Link to ${title}, with these filters">Link</a><a href="${address(filters, `/insights/${id}.csv`)}" aria-label="${title} as CSV" download>CSV</a></p>`
}

export function sqlOf(title: string, sql: string, summary = 'SQL'): Html {
  return html`<details class="sql"><summary>${summary}</summary><pre tabindex="0" role="region" aria-label="SQL of ${title}"><code>${sql}</code></pre></details>`
}

export function verdictOf({ mark, words, tone }: Verdict, change = ''): Html {
  return html`<span class="judged ${tone}">${mark === '=' ? '' : html`<span aria-hidden="true">${mark}</span> `}${change === '' ? '' : html`<span class="change">${change}</span> `}<span class="words">${words}</span></span>`
}

export const interval = (low: number | null, high: number | null) =>
  low === null || high === null ? '' : `${percent(low)} to ${percent(high)}`
