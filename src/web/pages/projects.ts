import { count } from '../../core/text.ts'
import { freshWords, type ProjectHealth } from '../health.ts'
import { type Html, html } from '../html.ts'
import type { StatusData } from '../status-data.ts'
import { href, number, table, time } from './layout.ts'

/* All projects, worst first, a line each. Those that are well are folded if there are many. */

const MANY = 12
const MOST_TROUBLED = 150

export function projectList(page: StatusData, projects: readonly ProjectHealth[]): Html | '' {
  if (page.status === undefined || projects.length === 0) return ''
  const { search } = page
  const wanted = (search ?? '').toLowerCase()
  const found = projects.filter(({ id, name }) => `${name}\0${id}`.toLowerCase().includes(wanted))
  const troubled = found.filter(({ rank }) => rank > 0)
  const well = found.filter(({ rank }) => rank === 0)
  const isFolded = well.length > MANY && search === undefined
  const lines = (list: readonly ProjectHealth[]) =>
    html`<ul class="projects">${list.map((project) => line(page, project))}</ul>`
  const wellWords = `${count(well.length, 'project')} ${freshWords(page)}`
  return html`<section class="card" aria-labelledby="projects" data-part="projects"><header><h2 id="projects">Projects</h2>${searchForm(page, projects.length)}</header>
${found.length === 0 ? html`<p class="empty">No project has “${search}” in its name or id. <a href="/#projects">Show all</a></p>` : ''}
${troubled.length === 0 ? '' : lines(troubled.slice(0, MOST_TROUBLED))}
${troubled.length > MOST_TROUBLED ? html`<p class="quiet small">and ${count(troubled.length - MOST_TROUBLED, 'project')} more that need a look; search by name</p>` : ''}
${
  well.length === 0
    ? ''
    : isFolded
      ? html`<details id="well" class="fold"><summary><span class="badge good">${number(well.length)}</span> ${wellWords}</summary>${lines(well)}</details>`
      : lines(well)
}
<p class="quiet small none" hidden>No project is called like that.</p></section>`
}

function searchForm({ search, calendar }: StatusData, total: number): Html | '' {
  if (total <= MANY) return ''
  return html`<form class="row" method="get" action="/#projects" role="search"><input type="hidden" name="project" value="${calendar.project}"><label class="hidden" for="search">Search projects by name or id</label><input id="search" type="search" name="q" value="${search ?? ''}" placeholder="Search ${number(total)} projects" autocomplete="off"><button class="button">Search</button></form>`
}

function line({ ledgerNow, calendar }: StatusData, { id, name, streams, troubled, readAt }: ProjectHealth): Html {
  const here = id === calendar.project ? html` aria-current="true"` : ''
  const about =
    troubled.length === 0
      ? html`<span class="quiet">${count(streams.length, 'stream')}, ${time(readAt, ledgerNow)}</span>`
      : html`<span class="quiet">${words(troubled)}</span>`
  return html`<li><a href="${href('/', { project: id }, '#project')}"${here}>${name}</a> ${troubled.length === 0 ? html`<b class="good">fresh</b>` : badge(troubled)} ${about}</li>
`
}

function badge(troubled: ProjectHealth['troubled']): Html {
  const rank = troubled[0]!.rank
  return html`<span class="badge ${rank >= 3 ? 'bad' : 'warn'}">${count(troubled.length, 'stream')}</span>`
}

/** "chats: 2 days held; prompts: stale": the worst first. */
function words(troubled: ProjectHealth['troubled']): string {
  const shown = troubled.slice(0, 3).map((stream) => `${stream.row.stream}: ${stream.words.join(', ')}`)
  return shown.join('; ') + (troubled.length > 3 ? ` and ${troubled.length - 3} more` : '')
}

/** The streams of one project: those that need a look, and the others folded to their names. */
export function streamTables(page: StatusData, project: ProjectHealth | undefined): Html | '' {
  if (project === undefined || project.streams.length === 0) return ''
  const well = project.streams.filter(({ rank }) => rank === 0)
  const names = well.map(({ row }) => row.stream).join(', ')
  return html`${project.troubled.length === 0 ? '' : streamTable(page, project.troubled, 'Streams that need a look')}
${well.length === 0 ? '' : html`<details id="streams" class="fold"><summary><span class="badge good">${well.length}</span> ${count(well.length, 'stream')} fresh: <span class="quiet">${names}</span></summary>${streamTable(page, well, 'Fresh streams')}</details>`}`
}

function streamTable({ ledgerNow }: StatusData, streams: ProjectHealth['streams'], label: string): Html {
  const cells = ({ row, words: texts, rank }: (typeof streams)[number]) =>
    html`<th scope="row">${row.stream}</th><td><span class="badge ${rank >= 3 ? 'bad' : rank > 0 ? 'warn' : 'good'}">${rank === 0 ? 'fresh' : texts.join(', ')}</span></td><td>${time(row.last_read_at, ledgerNow)}</td><td>${row.first_day === null ? '–' : `${row.first_day} to ${row.last_day}`}</td><td class="n">${row.days_missing ?? '–'}</td><td class="n">${number(row.rows)}</td>`
  return table(label, ['stream', 'state', 'last read', 'days', '#missing', '#rows'], streams, cells)
}
