import type { Day, Range } from '../../core/day.ts'
import { clip, count } from '../../core/text.ts'
import type { OpenAlert } from '../../ledger/alert-policy.ts'
import type { CalendarDay } from '../../ledger/calendar.ts'
import type { Status, StreamStatus } from '../../ledger/status.ts'
import type { QueueStatus } from '../../queue/status.ts'
import type { LiveRun } from '../../schedule/live.ts'
import type { BudgetView } from '../../source/budget.ts'
import type { StreamReport } from '../../sync/run/report.ts'
import type { DatabaseState } from '../../warehouse/database-state.ts'
import { type Html, html } from '../html.ts'
import { calendar } from './calendar.ts'
import { layout, number, span, time } from './layout.ts'

/** A run that failed before the ledger knew of it. */
export interface FailedStart {
  command: string
  at: Date
  reason: string
}

export interface StatusPage {
  version: string
  /** By this process, and by the database, whose times the ledger holds. */
  now: Date
  ledgerNow: Date
  database: DatabaseState
  /** How long ago the ledger was read; undefined where it never was. */
  ledgerAgeMs: number | undefined
  source: string
  warehouse: string
  status: Status | undefined
  live: readonly LiveRun[]
  next: { sync: Date | undefined; audit: Date | undefined }
  failedToStart: FailedStart | undefined
  budgets: Map<string, BudgetView>
  queue: QueueStatus | undefined
  alerts: OpenAlert[]
  maxStalenessMs: number
  projects: { id: string; name: string }[]
  /** The calendar's project, its days, where they could be read, and its range. */
  project: string
  days: CalendarDay[] | undefined
  range: Range
  dayStreams: string[]
}

export function statusPage(page: StatusPage): string {
  const { status } = page
  const body = html`<h1>Status</h1>
${away(page)}
${verdict(page)}
${page.live.map((run) => running(run, page.now))}
<dl class="facts">
<div><dt>Next sync</dt><dd>${page.next.sync === undefined ? 'none' : time(page.next.sync, page.now)}</dd></div>
<div><dt>Next audit</dt><dd>${page.next.audit === undefined ? 'none' : time(page.next.audit, page.now)}</dd></div>
<div><dt>Source</dt><dd>${page.source}</dd></div>
<div><dt>Warehouse</dt><dd>${page.warehouse}</dd></div>
</dl>
${page.alerts.length === 0 ? '' : html`<section><h2>People were told</h2><ul>${page.alerts.map((alert) => html`<li>${alert.text} (${time(alert.raised_at, page.ledgerNow)})</li>`)}</ul></section>`}
${page.queue === undefined ? '' : queueSection(page.queue, page.ledgerNow)}
<section><h2>Coverage</h2>
${projectForm(page)}
${page.days === undefined ? html`<p>Not known while the database is away.</p>` : calendar(page.dayStreams, page.range, page.days)}</section>
${status === undefined ? '' : html`${freshness(page, status)}${troubles(status, page.ledgerNow)}${runs(status, page.ledgerNow)}`}
${budgets(page.budgets)}`
  return layout({ title: 'Status', path: '/', version: page.version }, body)
}

/** That the database is away, and how old what follows is. */
function away({ database, ledgerAgeMs }: StatusPage): Html | '' {
  if (database.up) return ''
  const since = `The database has not answered for ${span(database.forMs / 1000)}: ${clip(database.reason ?? 'no reason is known')}.`
  const rest =
    ledgerAgeMs === undefined
      ? 'Nothing is known of the ledger yet.'
      : `What follows was read ${span(ledgerAgeMs / 1000)} ago.`
  return html`<p class="verdict bad" role="status">${since} ${rest}</p>`
}

/** Everything at a glance, in words. */
function verdict(page: StatusPage): Html | '' {
  const { status, queue, ledgerNow: now, maxStalenessMs, failedToStart } = page
  if (page.ledgerAgeMs === undefined) return ''
  if (status === undefined) return html`<p class="verdict waiting" role="status">Nothing was synced yet.</p>`
  const stale = status.streams.filter((row) => isStale(row, now, maxStalenessMs)).length
  const missing = status.streams.filter((row) => (row.days_missing ?? 0) > 0).length
  const open = status.quarantine.reduce((sum, row) => sum + row.open, 0)
  const last = status.runs.find(({ outcome }) => outcome !== null)
  const problems = [
    ...(stale > 0 ? [`${count(stale, 'stream')} not read for too long`] : []),
    ...(missing > 0 ? [`${count(missing, 'stream')} with days that were never read`] : []),
    ...(status.totals.held > 0 ? [`${count(status.totals.held, 'range')} held`] : []),
    ...(open > 0 ? [`${count(open, 'row')} in quarantine`] : []),
    ...((queue?.dead.length ?? 0) > 0 ? [`${count(queue!.dead.length, 'window')} set aside`] : []),
    ...(last !== undefined && last.outcome !== 'complete' ? [`the last run was ${last.outcome}`] : []),
    ...(failedToStart === undefined
      ? []
      : [`a ${failedToStart.command} failed before it began (${clip(failedToStart.reason, 200)})`]),
  ]
  return problems.length === 0
    ? html`<p class="verdict good" role="status">Everything is fresh and complete.</p>`
    : html`<p class="verdict bad" role="status">Needs a look: ${problems.join(', ')}.</p>`
}

function running(run: LiveRun, now: Date): Html {
  const share = run.total === 0 ? 0 : Math.min(1, run.done / run.total)
  return html`<section class="running"><h2>Running now</h2>
<p>Run ${run.runId}, ${run.command}, since ${time(run.startedAt, now)}: ${Math.floor(share * 100)} %, ${number(run.rows)} rows, ${number(run.requests)} requests${run.stream === '' ? '' : html`, at ${run.stream}`}.</p>
<progress max="1" value="${share.toFixed(3)}" aria-label="Progress of the run">${Math.floor(share * 100)} %</progress></section>`
}

function projectForm({ projects, project, range }: StatusPage): Html {
  return html`<form method="get" action="/" class="choose">
<label>Project <select name="project">${projects.map(({ id, name }) => html`<option value="${id}"${id === project ? html` selected` : ''}>${name}</option>`)}</select></label>
<label>Up to <input type="date" name="to" value="${range.to}"></label>
<button>Show</button></form>`
}

function isStale({ last_read_at }: StreamStatus, now: Date, maxMs: number): boolean {
  return last_read_at === null || now.getTime() - last_read_at.getTime() > maxMs
}

function freshness({ ledgerNow: now, maxStalenessMs, project }: StatusPage, status: Status): Html {
  const shown = rowsToShow(status.streams, project, (row) => stateWords(row, isStale(row, now, maxStalenessMs)))
  const left = status.streams.length - shown.length
  return html`<section><h2>Freshness</h2><div class="scroll" role="region" aria-label="Freshness" tabindex="0"><table>
<thead><tr><th scope="col">project</th><th scope="col">stream</th><th scope="col">last read</th><th scope="col">days</th><th scope="col" class="n">missing</th><th scope="col" class="n">rows</th><th scope="col">state</th></tr></thead>
<tbody>${shown.map((row) => {
    const stale = isStale(row, now, maxStalenessMs)
    const state = stateWords(row, stale)
    return html`<tr><td class="id">${row.project_id}</td><th scope="row">${row.stream}</th><td>${time(row.last_read_at, now)}</td><td>${dayRange(row.first_day, row.last_day)}</td><td class="n">${row.days_missing ?? '–'}</td><td class="n">${number(row.rows)}</td><td class="${state === 'fresh' ? 'good' : 'bad'}">${state}</td></tr>
`
  })}</tbody></table></div>${left === 0 ? '' : html`<p>${count(left, 'stream')} of other projects not shown; choose a project above.</p>`}</section>`
}

// A page of a thousand streams would take longer to read than to write.
const MOST_STREAMS = 200

/** Of many streams, those of the project and those that need a look come first. */
function rowsToShow(
  streams: readonly StreamStatus[],
  project: string,
  stateOf: (row: StreamStatus) => string,
): readonly StreamStatus[] {
  if (streams.length <= MOST_STREAMS) return streams
  const rank = (row: StreamStatus) => (row.project_id === project ? 0 : stateOf(row) === 'fresh' ? 2 : 1)
  return streams
    .map((row) => ({ row, rank: rank(row) }))
    .sort((a, b) => a.rank - b.rank)
    .slice(0, MOST_STREAMS)
    .map(({ row }) => row)
}

const dayRange = (first: Day | null, last: Day | null) => (first === null ? '–' : `${first} to ${last}`)

function stateWords(row: StreamStatus, stale: boolean): string {
  const words = [
    ...(row.last_read_at === null ? ['never read'] : stale ? ['stale'] : []),
    ...(row.days_held > 0 ? [`${count(row.days_held, 'day')} held`] : []),
    ...(row.days_quarantined > 0 ? [`${count(row.days_quarantined, 'day')} partly quarantined`] : []),
    ...((row.days_missing ?? 0) > 0 ? ['incomplete'] : []),
  ]
  return words.length === 0 ? 'fresh' : words.join(', ')
}

function troubles({ held, quarantine, drift }: Status, now: Date): Html {
  const part = (title: string, items: Html[]) =>
    items.length === 0 ? html`` : html`<section><h2>${title}</h2><ul>${items.slice(0, 50)}</ul></section>`
  return html`${part(
    'Held',
    held.map(
      (row) =>
        html`<li>${row.stream} of <span class="id">${row.project_id}</span>, ${row.from} to ${row.to}, ${time(row.since, now)}. To let it through: <code>${row.accept}</code></li>`,
    ),
  )}${part(
    'Quarantine',
    quarantine.map(
      (row) =>
        html`<li>${row.stream} of <span class="id">${row.project_id}</span>: ${count(row.open, 'row')}, the oldest ${time(row.oldest, now)}; for example ${clip(row.example, 120)}</li>`,
    ),
  )}${part(
    'Drift: what the interface does not mention',
    drift.map(
      (row) =>
        html`<li>${row.stream} of <span class="id">${row.project_id}</span>: ${row.kind} <code>${row.name}</code></li>`,
    ),
  )}`
}

function runs({ runs: list }: Status, now: Date): Html {
  const sum = (summary: unknown, field: keyof StreamReport) =>
    (Array.isArray(summary) ? (summary as StreamReport[]) : []).reduce(
      (total, row) => total + Number(row[field] ?? 0),
      0,
    )
  return html`<section><h2>Last runs</h2><div class="scroll" role="region" aria-label="Last runs" tabindex="0"><table>
<thead><tr><th scope="col" class="n">run</th><th scope="col">command</th><th scope="col">started</th><th scope="col">took</th><th scope="col">outcome</th><th scope="col" class="n">rows read</th><th scope="col" class="n">new</th><th scope="col" class="n">changed</th><th scope="col" class="n">deleted</th><th scope="col" class="n">requests</th><th scope="col">why</th></tr></thead>
<tbody>${list.map(
    (
      run,
    ) => html`<tr><th scope="row" class="n">${run.run_id}</th><td>${run.command}</td><td>${time(run.started_at, now)}</td><td>${run.ended_at === null ? '–' : span((run.ended_at.getTime() - run.started_at.getTime()) / 1000)}</td><td class="${run.outcome === 'complete' || run.outcome === null ? 'good' : 'bad'}">${run.outcome ?? 'running'}</td>${(['rows_read', 'inserted', 'updated', 'deleted', 'requests'] as const).map((field) => html`<td class="n">${number(sum(run.summary, field))}</td>`)}<td>${clip(run.reason ?? '', 240)}</td></tr>
`,
  )}</tbody></table></div></section>`
}

function queueSection({ workers, waiting, active, oldest, dead }: QueueStatus, now: Date): Html {
  return html`<section><h2>Queue</h2>
<p>${count(waiting, 'window')} waiting${oldest === null ? '' : html`, the oldest put in ${time(oldest, now)}`}; ${number(active)} being worked at; ${count(workers.length, 'worker')}.</p>
${workers.length === 0 ? '' : html`<ul>${workers.map((worker) => html`<li>process ${worker.pid} on ${worker.host}: ${worker.busy} of ${worker.concurrency} busy, ${number(worker.done)} done, since ${time(worker.started_at, now)}</li>`)}</ul>`}
${dead.length === 0 ? '' : html`<h3>Set aside</h3><ul>${dead.slice(0, 50).map((row) => html`<li class="bad">${row.stream} of <span class="id">${row.project}</span>${row.range === undefined ? '' : `, ${row.range.from} to ${row.range.to}`}, ${time(row.since, now)}: ${clip(row.reason, 160)}</li>`)}</ul>`}</section>`
}

function budgets(views: Map<string, BudgetView>): Html {
  return html`<section><h2>Request budget</h2><ul>${[...views].map(
    ([project, view]) =>
      html`<li><span class="id">${project}</span>: ${view.remaining === undefined ? 'not asked yet' : html`${number(view.remaining)} of ${number(view.limit)} left this minute`}</li>`,
  )}</ul></section>`
}
