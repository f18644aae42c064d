import type { Range } from '../../core/day.ts'
import { count, grouped } from '../../core/text.ts'
import type { RestatementReport } from '../../ledger/restatement-report.ts'
import type { Status } from '../../ledger/status.ts'
import { type Html, html } from '../html.ts'
import type { ListFilters, PageData } from '../status-data.ts'
import { changeWords } from './day-panel.ts'
import { dateField, filterForm, projectField, streamField } from './forms.ts'
import { heading, href, layout, lookbackWords, rangeText, table, tile, time } from './layout.ts'

interface RestatementsPage extends PageData, ListFilters {
  range: Range
  /** Undefined if nothing was ever synced. */
  report: RestatementReport | undefined
  lookback: Status['lookback'] | undefined
}

export function restatementsPage(page: RestatementsPage): string {
  const { report, lookback, range } = page
  const filters = html`${projectField(page.projects, page.project, 'all')}${streamField(page.streams, page.stream, 'all')}${dateField('Seen from', 'from', range.from)}${dateField('to', 'to', range.to)}`
  const body = html`${heading({ title: 'Restatements', notice: page.notice })}
<p>What the service changed in days that had been read when they were over: two days after they began. The lookback reads the last ${lookback === undefined ? 'days' : count(lookback.configured_days, 'day')} again on each run; the audit finds what changed further back.</p>
${lookback?.too_short === true && html`<div class="banner warn" role="status"><p>${lookbackWords(lookback)} Until it is raised, the audit alone finds such changes.</p></div>`}
${filterForm('/restatements', filters)}
${
  report === undefined || report.total.groups === 0
    ? html`<div class="card empty"><p>Nothing changed in days that were read before, as far as runs from ${range.from} to ${range.to} saw.</p></div>`
    : html`<dl class="tiles">${tiles(report)}</dl>
${bars(report)}
${list(page, report)}`
}`
  return layout({ title: 'Restatements', path: '/restatements', version: page.version, viewer: page.viewer }, body)
}

function tiles({ total, median_age, oldest_usual_age }: RestatementReport): Html {
  const days = (age: number | null) => (age === null ? '–' : count(age, 'day'))
  return html`${tile('New rows', grouped(total.rows_inserted), 'in days read before')}
${tile('Changed rows', grouped(total.rows_updated), 'with other numbers')}
${tile('Deleted rows', grouped(total.rows_deleted), 'that the service no longer has')}
${tile('Days touched', grouped(total.days), 'of streams and projects')}
${tile('Age when changed', days(median_age), `half of them younger; 95 of 100 at most ${days(oldest_usual_age)} old`)}`
}

/** Rows changed by the day on which it was seen. The table beside it has the numbers. */
function bars({ by_day: days }: RestatementReport): Html {
  const totalOf = (day: (typeof days)[number]) => day.rows_inserted + day.rows_updated + day.rows_deleted
  const most = Math.max(1, ...days.map(totalOf))
  const cells = (day: (typeof days)[number]) => {
    const total = totalOf(day)
    const width = Math.max(0.5, (total / most) * 100).toFixed(1)
    return html`<th scope="row">${day.seen_on}</th><td class="bar"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="${width}" height="8" rx="1"/></svg></td><td class="n">${grouped(total)}</td><td class="n">${grouped(day.days)}</td><td>${changeWords(day)}</td>`
  }
  return html`<section class="card" aria-labelledby="by-day"><h2 id="by-day">By the day it was seen</h2>
${table('Changes by the day they were seen', ['seen on', 'rows changed', '#rows', '#days', 'of which'], [...days].reverse(), cells)}</section>`
}

function list({ projects, ledgerNow }: RestatementsPage, { groups, total }: RestatementReport): Html {
  const names = new Map(projects.map(({ id, name }) => [id, name]))
  const titles = ['seen', 'run', 'project', 'stream', 'days', 'rows']
  const cells = (row: (typeof groups)[number]) =>
    html`<td>${time(row.seen_at, ledgerNow)}</td><td><a href="/runs/${row.run_id}">${row.run_id}</a></td><td>${names.get(row.project_id) ?? row.project_id}</td><th scope="row">${row.stream}</th><td><a href="${href('/', { project: row.project_id, to: row.to, day: row.to }, '#day')}">${rangeText(row)}</a>${row.days > 1 ? html` <span class="quiet">(${grouped(row.days)})</span>` : ''}</td><td>${changeWords(row)}${row.cause === null ? '' : html` <span class="quiet">after ${row.cause}</span>`}</td>`
  return html`<section class="card" aria-labelledby="by-run"><h2 id="by-run">By run and stream</h2>
${table('Changes by run and stream', titles, groups, cells)}
${total.groups > groups.length ? html`<p class="quiet small">The last ${grouped(groups.length)} of ${grouped(total.groups)}; choose a shorter range for the others.</p>` : ''}</section>`
}
