import { addDays } from '../../core/day.ts'
import { clip, count, duration, grouped } from '../../core/text.ts'
import type { QueueStatus } from '../../queue/dead-windows.ts'
import { freshWords, type Problem, type ProjectHealth, problemsOf, projectsByHealth } from '../health.ts'
import { type Html, html } from '../html.ts'
import type { StatusData } from '../status-data.ts'
import { legend, weeks, year, yearSummary } from './calendar.ts'
import { dayPanel } from './day-panel.ts'
import { dateField, field, filterForm, projectField, streamField } from './forms.ts'
import { factList, heading, hiddenFields, href, layout, lookbackWords, places, shortDay, tile, time } from './layout.ts'
import { needs, syncForm } from './needs.ts'
import { projectList, streamTables } from './projects.ts'
import { outcomeBadge, runCard, running, runsTable } from './runs.ts'

/**
 * The state of everything. The script asks for the page again and changes what differs, except in a part (`data-part`)
 * that somebody is using. Without it the page is the same, but does not refresh.
 */
export function statusPage(page: StatusData): string {
  const { status, now, ledgerNow, viewer } = page
  const projects = projectsByHealth(page)
  const problems = problemsOf(page, projects)
  const shown = projects.find(({ id }) => id === page.calendar.project)
  const refresh = { url: page.self, isRunning: page.live.length > 0, now }
  const beside = viewer?.csrf === undefined ? undefined : syncForm(viewer.csrf, 'primary')
  const body = html`${heading({ title: 'Status', refresh, beside, notice: page.notice })}
<div data-part="banner">${away(page)}
${verdict(page, problems, projects)}</div>
<div data-part="running">${page.live.map((run) => running(run, now))}${elsewhere(page)}</div>
<div data-part="needs">${needs(page, problems, projects)}</div>
<dl class="tiles" data-part="tiles">${tiles(page, projects)}</dl>
${projectList(page, projects)}
${projectSection(page, shown)}
${status === undefined ? '' : runsTable(status, ledgerNow)}
<div data-part="rest">${page.queue === undefined ? '' : queueSection(page.queue, ledgerNow)}${notices(page)}</div>
${viewer?.csrf === undefined ? '' : backfillForm(page, viewer.csrf)}
${factList({ Source: page.source, Warehouse: page.warehouse })}`
  const title = problems.length > 0 || !page.database.up ? `(${problems.length || '!'}) Status` : 'Status'
  return layout({ title, path: '/', version: page.version, viewer, scripts: ['status.js'] }, body)
}

function away({ database, ledgerAgeMs }: StatusData): Html | '' {
  if (database.up) return ''
  const since = `The database has not answered for ${duration(database.forMs / 1000)}: ${clip(database.reason ?? 'no reason is known')}.`
  const rest =
    ledgerAgeMs === undefined
      ? 'Nothing is known of the ledger yet.'
      : `What follows was read ${duration(ledgerAgeMs / 1000)} ago.`
  return html`<p class="verdict banner bad" role="status">${since} ${rest}</p>`
}

function verdict(page: StatusData, problems: readonly Problem[], projects: readonly ProjectHealth[]): Html | '' {
  const { status, live } = page
  // While the database is away, nobody knows whether this is still so.
  if (page.ledgerAgeMs === undefined || !page.database.up) return ''
  const say = (grade: string, words: Html | string, more = '') =>
    html`<div class="banner ${grade}" role="status"><div><p class="verdict">${words}</p>${more && html`<p class="small">${more}</p>`}</div></div>`
  if (status === undefined)
    return say('', 'Nothing was synced yet.', 'The first sync begins by itself; it fills this page as it goes.')
  if (problems.length === 0) {
    const all = `${count(status.totals.streams, 'stream')} of ${count(projects.length, 'project')}.`
    return say('good', 'Everything is fresh and complete.', all)
  }
  const links = problems.map(
    ({ kind, text }, index) => html`${index === 0 ? '' : ', '}<a href="#needs-${kind}">${text}</a>`,
  )
  // A first sync is no incident.
  const isCatchingUp = live.length > 0 && problems.every(({ kind }) => ['missing', 'changed', 'stale'].includes(kind))
  return isCatchingUp ? say('warn', html`Catching up: ${links}.`) : say('bad', html`Needs attention: ${links}.`)
}

/** Runs of other processes that go on: how far they are, only those processes know. */
function elsewhere({ status, live, ledgerNow }: StatusData): Html[] {
  const own = new Set(live.map(({ runId }) => runId))
  const others = (status?.runs ?? []).filter(({ outcome, run_id }) => outcome === null && !own.has(run_id))
  return others
    .slice(0, 5)
    .map(({ run_id, command, started_at, pid, host }) =>
      runCard(
        run_id,
        'Running elsewhere',
        html`<p><strong>${command}</strong>, began ${time(started_at, ledgerNow)}, by process ${pid} on ${host}. How far it is, only that process knows.</p>`,
      ),
    )
}

function tiles(page: StatusData, projects: readonly ProjectHealth[]): Html {
  const { status, next, now, ledgerNow, budgets } = page
  const last = status?.runs.find(({ command, outcome }) => command === 'sync' && outcome !== null)
  const well = projects.filter(({ rank }) => rank === 0).length
  const rows = (status?.streams ?? []).reduce((sum, row) => sum + row.rows, 0)
  const asked = [...budgets.values()].filter((view) => view.remaining !== undefined)
  const tightest = asked.sort((a, b) => a.remaining! / a.limit - b.remaining! / b.limit)[0]
  const planned = (at: Date | undefined) => (at === undefined ? 'none' : time(at, now))
  return html`${last === undefined ? tile('Last sync', 'none yet') : tile('Last sync', time(last.ended_at, ledgerNow), outcomeBadge(last.outcome))}
${tile('Next sync', planned(next.sync), html`audit ${planned(next.audit)}`)}
${tile('Projects', status === undefined ? '–' : `${grouped(well)} of ${grouped(projects.length)}`, freshWords(page))}
${tile('Rows', status === undefined ? '–' : grouped(rows), `in ${count(status?.totals.streams ?? 0, 'stream')}`)}
${
  tightest === undefined
    ? tile('Request budget', '–', 'not asked this minute')
    : tile(
        'Request budget',
        `${grouped(tightest.remaining!)} of ${grouped(tightest.limit)}`,
        `left this minute${budgets.size > 1 ? ', in the project with the fewest' : ''}`,
      )
}`
}

function projectSection(page: StatusData, project: ProjectHealth | undefined): Html | '' {
  const { calendar } = page
  if (page.ledgerAgeMs !== undefined && page.status === undefined) return ''
  const { project: id, range, known, later, day } = calendar
  // Somebody who chose other weeks or a day wants to see them.
  const { words, isComplete } = yearSummary(calendar)
  const isFolded = later === undefined && day === undefined && isComplete
  const days = known && daysByStream(page)
  return html`<section class="card" id="project" aria-labelledby="project-title">
<header><h2 id="project-title">Coverage of ${project?.name ?? id}</h2>${filterForm('/#project', html`${projectField(page.projects, id)}${dateField('Up to', 'to', range.to)}`)}</header>
<div data-part="streams">${streamTables(page, project)}</div>
${
  known === undefined
    ? html`<p class="empty">Not known while the database is away.</p>`
    : html`<div data-part="year"><p class="small">A year at a glance: ${words}.</p>${year(calendar)}</div>
${isFolded ? html`<details class="fold" id="days-by-stream"><summary>Days by stream</summary>${days}</details>` : days}`
}</section>`
}

function daysByStream({ calendar, ledgerNow }: StatusData): Html {
  const { range } = calendar
  const at = (to: string) => href('/', { project: calendar.project, to }, '#project')
  return html`<nav class="title small" aria-label="Weeks"><a href="${at(addDays(range.from, -1))}">← earlier</a><span class="quiet small">${shortDay(range.from)} to ${shortDay(range.to)} ${range.to.slice(0, 4)}</span><span>${calendar.later && html`<a href="${at(calendar.later)}">later →</a>`}</span></nav>
<div data-part="weeks">${weeks(calendar)}</div>
${legend()}
${dayPanel(calendar, ledgerNow)}`
}

function queueSection({ workers, waiting, active, oldest }: QueueStatus, now: Date): Html {
  return html`<section class="card"><h2>Queue</h2>
<p>${count(waiting, 'window')} waiting${oldest === null ? '' : html`, the oldest put in ${time(oldest, now)}`}; ${grouped(active)} being worked at; ${count(workers.length, 'worker')}.</p>
${workers.length === 0 ? '' : html`<ul>${workers.slice(0, 50).map((worker) => html`<li>process ${worker.pid} on ${worker.host}: ${worker.busy} of ${worker.concurrency} busy, ${grouped(worker.done)} done, since ${time(worker.started_at, now)}</li>`)}</ul>`}</section>`
}

function notices({ status, alerts, ledgerNow }: StatusData): Html | '' {
  const { lookback, drift = [] } = status ?? {}
  const items = [
    ...alerts.map((alert) => html`Alert sent ${time(alert.raised_at, ledgerNow)}: ${alert.text}`),
    ...(lookback?.too_short ? [html`${lookbackWords(lookback)} <a href="/restatements">What it changed</a>`] : []),
    ...drift.map(
      (row) =>
        html`Drift: ${row.stream} of <code>${row.project_id}</code> has ${row.kind} <code>${row.name}</code>, which the API does not document`,
    ),
  ]
  if (items.length === 0) return ''
  return html`<section class="card" aria-labelledby="notices"><h2 id="notices">Worth knowing</h2>${places(items, { most: 20, noun: 'notice' }, (item) => item)}</section>`
}

function backfillForm({ calendar, projects }: StatusData, csrf: string): Html {
  const name = projects.find(({ id }) => id === calendar.project)?.name ?? calendar.project
  return html`<section class="card" id="backfill" aria-labelledby="backfill-title"><h2 id="backfill-title">Backfill</h2>
<p class="quiet small">Reads a range of days again, whatever is known of it. Only rows that differ are written.</p>
<form method="post" action="/actions/backfill" class="row">${hiddenFields({ csrf })}
${dateField('From', 'from')}${dateField('To', 'to')}
${field('Project', html`<select name="project"><option value="${calendar.project}">${name}</option><option value="">all projects</option></select>`)}${streamField(calendar.streams, undefined, 'all streams')}
<label class="check"><input type="checkbox" name="missing" value="yes"> only days that are missing or not sound</label>
<button class="button primary">Backfill</button></form></section>`
}
