import { addDays } from '../../core/day.ts'
import { clip, count, duration } from '../../core/text.ts'
import type { QueueStatus } from '../../queue/dead-windows.ts'
import { freshWords, type Problem, type ProjectHealth, problemsOf, projectsByHealth } from '../health.ts'
import { type Html, html } from '../html.ts'
import type { StatusData } from '../status-data.ts'
import { isYearComplete, legend, weeks, year, yearWords } from './calendar.ts'
import { dayPanel } from './day-panel.ts'
import {
  hiddenFields,
  href,
  layout,
  MOST_OPTIONS,
  noticeBanner,
  number,
  option,
  shortDay,
  tile,
  time,
} from './layout.ts'
import { needs, syncForm } from './needs.ts'
import { projectList, streamTables } from './projects.ts'
import { outcomeBadge, running, runningElsewhere, runsTable } from './runs.ts'

/**
 * The state of everything. Parts carry a name (`data-part`): the script asks for the page again and puts in those that
 * differ. Without it the page is the same, but does not refresh.
 */
export function statusPage(page: StatusData): string {
  const { status, now, ledgerNow, viewer } = page
  const projects = projectsByHealth(page)
  const problems = problemsOf(page, projects)
  const shown = projects.find(({ id }) => id === page.calendar.project)
  const body = html`<div class="title"><h1>Status</h1><div class="row">${freshness(page)}${viewer?.csrf === undefined ? '' : syncForm(viewer.csrf, 'primary')}</div></div>
<p id="gone" class="banner bad" role="alert" hidden></p><p id="announce" class="hidden" role="status"></p>
${noticeBanner(page.notice)}
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
<dl class="facts card"><div><dt>Source</dt><dd>${page.source}</dd></div><div><dt>Warehouse</dt><dd>${page.warehouse}</dd></div></dl>`
  const title = problems.length > 0 || !page.database.up ? `(${problems.length || '!'}) Status` : 'Status'
  return layout({ title, path: '/', version: page.version, viewer, scripts: ['status.js'] }, body)
}

/** When the page was made, and the address by which the script asks for it again. */
function freshness({ now, live, self }: StatusData): Html {
  return html`<p id="updated" class="quiet small" data-url="${self}" data-running="${live.length > 0}">Updated <time datetime="${now.toISOString()}">${now.toISOString().slice(11, 19)}</time> UTC</p>`
}

/** That the database is away, and how old what follows is. */
function away({ database, ledgerAgeMs }: StatusData): Html | '' {
  if (database.up) return ''
  const since = `The database has not answered for ${duration(database.forMs / 1000)}: ${clip(database.reason ?? 'no reason is known')}.`
  const rest =
    ledgerAgeMs === undefined
      ? 'Nothing is known of the ledger yet.'
      : `What follows was read ${duration(ledgerAgeMs / 1000)} ago.`
  return html`<p class="verdict banner bad" role="status">${since} ${rest}</p>`
}

/** Everything at a glance, in words. */
function verdict(page: StatusData, problems: readonly Problem[], projects: readonly ProjectHealth[]): Html | '' {
  const { status, live } = page
  // While the database is away, nobody knows whether this is still so.
  if (page.ledgerAgeMs === undefined || !page.database.up) return ''
  if (status === undefined)
    return html`<div class="banner" role="status"><div><p class="verdict">Nothing was synced yet.</p><p class="more">The first sync begins by itself; it fills this page as it goes.</p></div></div>`
  const streams = status.totals.streams
  if (problems.length === 0)
    return html`<div class="banner good" role="status"><div><p class="verdict">Everything is fresh and complete.</p><p class="more">${count(streams, 'stream')} of ${count(projects.length, 'project')}.</p></div></div>`
  const links = problems.map(
    ({ kind, text }, index) => html`${index === 0 ? '' : ', '}<a href="#needs-${kind}">${text}</a>`,
  )
  // A first sync is no incident.
  const isCatchingUp = live.length > 0 && problems.every(({ kind }) => ['missing', 'changed', 'stale'].includes(kind))
  return html`<div class="banner ${isCatchingUp ? 'warn' : 'bad'}" role="status"><p class="verdict">${isCatchingUp ? 'Catching up' : 'Needs a look'}: ${links}.</p></div>`
}

/** Runs of other processes that go on. */
function elsewhere({ status, live, ledgerNow }: StatusData): Html[] {
  const own = new Set(live.map(({ runId }) => runId))
  const others = (status?.runs ?? []).filter(({ outcome, run_id }) => outcome === null && !own.has(run_id))
  return others.slice(0, 5).map((run) => runningElsewhere(run, ledgerNow))
}

function tiles(page: StatusData, projects: readonly ProjectHealth[]): Html {
  const { status, next, now, ledgerNow, budgets } = page
  const last = status?.runs.find(({ command, outcome }) => command === 'sync' && outcome !== null)
  const well = projects.filter(({ rank }) => rank === 0).length
  const rows = (status?.streams ?? []).reduce((sum, row) => sum + row.rows, 0)
  const asked = [...budgets.values()].filter((view) => view.remaining !== undefined)
  const tightest = asked.sort((a, b) => a.remaining! / a.limit - b.remaining! / b.limit)[0]
  return html`${tile('Last sync', last === undefined ? 'none yet' : time(last.ended_at, ledgerNow), last === undefined ? '' : outcomeBadge(last.outcome))}
${tile('Next sync', next.sync === undefined ? 'none' : time(next.sync, now), html`audit ${next.audit === undefined ? 'none' : time(next.audit, now)}`)}
${tile('Projects', status === undefined ? '–' : `${number(well)} of ${number(projects.length)}`, freshWords(page))}
${tile('Rows', status === undefined ? '–' : number(rows), `in ${count(status?.totals.streams ?? 0, 'stream')}`)}
${tile('Request budget', tightest === undefined ? '–' : `${number(tightest.remaining!)} of ${number(tightest.limit)}`, tightest === undefined ? 'not asked this minute' : budgets.size > 1 ? 'left this minute, in the project with the fewest' : 'left this minute')}`
}

function projectSection(page: StatusData, project: ProjectHealth | undefined): Html | '' {
  const { calendar } = page
  if (page.ledgerAgeMs !== undefined && page.status === undefined) return ''
  const known = calendar.days !== undefined
  // Somebody who chose other weeks or a day wants to see them.
  const isFolded = known && calendar.later === undefined && calendar.day === undefined && isYearComplete(calendar)
  const days = known ? daysByStream(page) : ''
  return html`<section class="card" id="project" aria-labelledby="project-title">
<header><h2 id="project-title">Coverage of ${project?.name ?? calendar.project}</h2>${projectForm(page)}</header>
<div data-part="streams">${streamTables(page, project)}</div>
${
  known
    ? html`<div data-part="year"><p class="small">A year at a glance: ${yearWords(calendar)}.</p>${year(calendar)}</div>
${isFolded ? html`<details class="fold" id="days-by-stream"><summary>Days by stream</summary>${days}</details>` : days}`
    : html`<p class="empty" data-part="weeks">Not known while the database is away.</p>`
}</section>`
}

/** The days of a few weeks by stream, and what is known of one of them. */
function daysByStream({ calendar, ledgerNow }: StatusData): Html {
  const { range } = calendar
  const at = (to: string) => href('/', { project: calendar.project, to }, '#project')
  return html`<nav class="title weeks-nav" aria-label="Weeks"><a href="${at(addDays(range.from, -1))}">← earlier</a><span class="quiet small">${shortDay(range.from)} to ${shortDay(range.to)} ${range.to.slice(0, 4)}</span>${calendar.later === undefined ? html`<span></span>` : html`<a href="${at(calendar.later)}">later →</a>`}</nav>
<div data-part="weeks">${weeks(calendar)}</div>
${legend()}
${dayPanel(calendar, ledgerNow)}`
}

function projectForm({ projects, calendar }: StatusData): Html {
  const choice =
    projects.length > MOST_OPTIONS
      ? html`<input type="hidden" name="project" value="${calendar.project}"><a class="small" href="#projects">Another project</a>`
      : html`<label>Project <select name="project">${projects.map(({ id, name }) => option(id, name, calendar.project))}</select></label>`
  return html`<form method="get" action="/#project" class="choose">${choice}
<label>Up to <input type="date" name="to" value="${calendar.range.to}"></label>
<button>Show</button></form>`
}

function queueSection({ workers, waiting, active, oldest }: QueueStatus, now: Date): Html {
  return html`<section class="card"><h2>Queue</h2>
<p>${count(waiting, 'window')} waiting${oldest === null ? '' : html`, the oldest put in ${time(oldest, now)}`}; ${number(active)} being worked at; ${count(workers.length, 'worker')}.</p>
${workers.length === 0 ? '' : html`<ul>${workers.slice(0, 50).map((worker) => html`<li>process ${worker.pid} on ${worker.host}: ${worker.busy} of ${worker.concurrency} busy, ${number(worker.done)} done, since ${time(worker.started_at, now)}</li>`)}</ul>`}</section>`
}

const MOST_NOTICES = 20

/** What is no fault, but worth knowing. */
function notices({ status, alerts, ledgerNow }: StatusData): Html | '' {
  const items = [
    ...alerts.map((alert) => html`<li>Alert sent ${time(alert.raised_at, ledgerNow)}: ${alert.text}</li>`),
    ...(status?.lookback.too_short === true
      ? [
          html`<li>The service still changes days after ${status.lookback.needed_days} days, and lookback_days is ${status.lookback.configured_days}. <a href="/restatements">What it changed</a></li>`,
        ]
      : []),
    ...(status?.drift ?? []).map(
      (row) =>
        html`<li>Drift: ${row.stream} of <code>${row.project_id}</code> has ${row.kind} <code>${row.name}</code>, which the API does not document</li>`,
    ),
  ]
  if (items.length === 0) return ''
  const left = items.length - MOST_NOTICES
  return html`<section class="card" aria-labelledby="notices"><h2 id="notices">Worth knowing</h2><ul class="small">${items.slice(0, MOST_NOTICES)}${left > 0 ? html`<li>and ${left} more</li>` : ''}</ul></section>`
}

function backfillForm({ calendar, projects }: StatusData, csrf: string): Html {
  const name = projects.find(({ id }) => id === calendar.project)?.name ?? calendar.project
  return html`<section class="card" id="backfill" aria-labelledby="backfill-title"><h2 id="backfill-title">Backfill</h2>
<p class="quiet small">Reads a range of days again, whatever is known of it. Only rows that differ are written.</p>
<form method="post" action="/actions/backfill" class="row">${hiddenFields({ csrf })}
<label class="field">From <input type="date" name="from" required></label>
<label class="field">To <input type="date" name="to" required></label>
<label class="field">Project <select name="project"><option value="${calendar.project}">${name}</option><option value="">all projects</option></select></label>
<label class="field">Stream <select name="stream"><option value="">all streams</option>${calendar.streams.map((stream) => html`<option>${stream}</option>`)}</select></label>
<label class="field check"><input type="checkbox" name="missing" value="yes"> only days that were never read</label>
<button class="button primary">Backfill</button></form></section>`
}
