import { clip, count, grouped, listSome } from '../../core/text.ts'
import type { QuarantineEntry, QuarantineGroup } from '../../ledger/quarantine.ts'
import { safeJson } from '../../rows/raw-text.ts'
import { type Html, html } from '../html.ts'
import type { ListFilters, PageData } from '../status-data.ts'
import { type Choice, filterForm, projectField, select, streamField } from './forms.ts'
import { heading, hiddenFields, layout, rangeText, time } from './layout.ts'
import { command } from './needs.ts'

interface QuarantinePage extends PageData, ListFilters {
  groups: readonly QuarantineGroup[]
  examples: readonly QuarantineEntry[]
  isCut: boolean
  state: 'open' | 'dismissed'
}

const LONGEST_RAW = 1500

export function quarantinePage(page: QuarantinePage): string {
  const { groups, state, project, stream } = page
  const rows = groups.reduce((sum, group) => sum + group.rows, 0)
  const states = ['open', 'dismissed'].map((name): Choice => [name, name])
  const body = html`${heading({ title: 'Quarantine', notice: page.notice })}
<p>Rows that failed validation. They are stored unchanged and not loaded; the other rows of their days are. A row that the service sends right, or no longer sends, leaves by itself.</p>
${filterForm('/quarantine', html`${projectField(page.projects, project, 'all')}${streamField(page.streams, stream, 'all')}${select('State', 'state', states, state)}`)}
${
  groups.length === 0
    ? html`<div class="card empty"><p>${state === 'open' ? 'No row is in quarantine' : 'No row is dismissed'}${stream !== undefined || project !== undefined ? html` with these filters. <a href="/quarantine">Show all</a>` : '.'}</p></div>`
    : html`<p class="small">${count(rows, `${state === 'open' ? 'open' : 'dismissed'} row`)} for ${count(groups.length, 'reason')}${page.isCut ? ' shown; there are more, narrow it down by stream or project' : ''}.</p>${groups.map((group) => groupCard(page, group))}`
}`
  return layout(
    { title: 'Quarantine', path: '/quarantine', version: page.version, viewer: page.viewer, scripts: ['status.js'] },
    body,
  )
}

function groupCard(page: QuarantinePage, group: QuarantineGroup): Html {
  const { ledgerNow, projects, state } = page
  const example = page.examples.find(({ quarantine_id }) => quarantine_id === group.example_id)
  const names = group.projects.map((id) => projects.find((project) => project.id === id)?.name ?? id)
  const { from_date: from, to_date: to } = group
  const days = from === null || to === null ? 'the whole list' : rangeText({ from, to })
  return html`<article class="card" id="entry-${group.example_id}"><h2>${clip(group.reason, 300)}</h2>
<p class="small"><span class="badge ${state === 'open' ? 'warn' : ''}">${count(group.rows, 'row')}</span> of <strong>${group.stream}</strong>, ${days}, in ${listSome(names, 4)}; last seen ${time(group.last_seen_at, ledgerNow)}${example === undefined ? '' : html` by <a href="/runs/${example.run_id}">run ${example.run_id}</a>`}</p>
${example?.dismissed_because == null ? '' : html`<p class="small">Dismissed: ${clip(example.dismissed_because, 300)}</p>`}
${example === undefined ? '' : exampleOf(example)}
${page.viewer?.csrf === undefined ? commands(page, group) : forms(page.viewer.csrf, page, group)}</article>
`
}

function exampleOf(entry: QuarantineEntry): Html {
  const raw = JSON.stringify(JSON.parse(safeJson(entry.raw)), null, 2)
  return html`<details id="raw-${entry.quarantine_id}"><summary>An example as it came: entry ${entry.quarantine_id}, seen ${grouped(entry.times_seen)} ${entry.times_seen === 1 ? 'time' : 'times'}</summary><pre tabindex="0" aria-label="Entry ${entry.quarantine_id}"><code>${clip(raw, LONGEST_RAW)}</code></pre></details>`
}

/** Commands for all rows of the group: by its id if it is one row, else by stream and reason. */
function commands({ state, project }: QuarantinePage, { example_id, rows, stream, reason }: QuarantineGroup): Html {
  const ofProject = project === undefined ? '' : ` --project ${project}`
  const which =
    rows === 1 ? String(example_id) : `--stream ${stream}${ofProject} --reason '${reason.replaceAll("'", "'\\''")}'`
  return html`<p class="help">${command(`npx visibility-sync quarantine show ${example_id}`)} ${command(`npx visibility-sync quarantine retry ${which}${state === 'open' ? '' : ' --dismissed'}`)} ${
    state === 'open' ? command(`npx visibility-sync quarantine dismiss ${which} --because "…"`) : ''
  }</p>`
}

/** The server finds reason and stream by the example: what is done is done to all rows with both, of the projects shown. */
function forms(csrf: string, page: QuarantinePage, group: QuarantineGroup): Html {
  const about = hiddenFields({ csrf, id: group.example_id, project: page.project ?? '', state: page.state })
  const all = group.rows === 1 ? 'it' : `all ${grouped(group.rows)}`
  return html`<div class="row help"><form method="post" action="/actions/retry">${about}<button class="button tiny">Try ${all} again</button></form>
${
  page.state === 'dismissed'
    ? ''
    : html`<details class="confirm" id="dismiss-${group.example_id}"><summary class="button tiny">Dismiss …</summary><form method="post" action="/actions/dismiss" class="ask">${about}<p>Dismissed rows no longer make runs partial. A row that changes comes back. Trying them again undoes it.</p><label class="field">Why, kept with the rows <input name="because" required maxlength="500"></label><button class="button danger tiny">Dismiss ${all}</button></form></details>`
}</div>`
}
