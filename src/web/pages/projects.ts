import { count, grouped, listSome } from '../../core/text.ts'
import { freshWords, type ProjectHealth } from '../health.ts'
import { type Html, html } from '../html.ts'
import type { StatusData } from '../status-data.ts'
import { hiddenFields, href, table, time } from './layout.ts'

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
    list.length > 0 && html`<ul class="places projects">${list.map((project) => line(page, project))}</ul>`
  const more = troubled.length - MOST_TROUBLED
  return html`<section class="card" aria-labelledby="projects" data-part="projects"><header><h2 id="projects">Projects</h2>${searchForm(page, projects.length)}</header>
${found.length === 0 && html`<p class="empty">No project has “${search}” in its name or id. <a href="/#projects">Show all</a></p>`}
${lines(troubled.slice(0, MOST_TROUBLED))}
${more > 0 && html`<p class="quiet small">and ${count(more, 'project')} more that need attention; search by name</p>`}
${isFolded ? html`<details id="well" class="fold"><summary><span class="badge good">${grouped(well.length)}</span> ${count(well.length, 'project')} ${freshWords(page)}</summary>${lines(well)}</details>` : lines(well)}
<p class="quiet small none" hidden>No project is called like that.</p></section>`
}

function searchForm({ search, calendar }: StatusData, total: number): Html | '' {
  if (total <= MANY) return ''
  return html`<form class="row" method="get" action="/#projects" role="search">${hiddenFields({ project: calendar.project })}<label class="hidden" for="search">Search projects by name or id</label><input id="search" type="search" name="q" value="${search}" placeholder="Search ${grouped(total)} projects" autocomplete="off"><button class="button">Search</button></form>`
}

/** "Acme: 2 streams chats: 2 days held; prompts: stale", the worst stream first. */
function line({ ledgerNow, calendar }: StatusData, { id, name, streams, troubled, readAt }: ProjectHealth): Html {
  const words = troubled.map(({ row, words: texts }) => `${row.stream}: ${texts.join(', ')}`)
  const state =
    troubled.length === 0
      ? html`<b class="good">fresh</b> <span class="quiet">${count(streams.length, 'stream')}, ${time(readAt, ledgerNow)}</span>`
      : html`${badge(troubled[0]!.rank)} <span class="quiet">${count(troubled.length, 'stream')}: ${listSome(words, 3)}</span>`
  return html`<li><a href="${href('/', { project: id }, '#project')}"${id === calendar.project && html` aria-current="true"`}>${name}</a> ${state}</li>
`
}

function badge(rank: number, text = rank === 0 ? 'fresh' : 'needs attention'): Html {
  const grade = rank >= 3 ? 'bad' : 'warn'
  return html`<span class="badge ${rank === 0 ? 'good' : grade}">${text}</span>`
}

/** The streams of one project: those that need attention, and the others folded to their names. */
export function streamTables(page: StatusData, project: ProjectHealth | undefined): Html | '' {
  if (project === undefined || project.streams.length === 0) return ''
  const well = project.streams.filter(({ rank }) => rank === 0)
  const names = well.map(({ row }) => row.stream).join(', ')
  return html`${project.troubled.length > 0 && streamTable(page, project.troubled, 'Streams that need attention')}
${well.length > 0 && html`<details id="streams" class="fold"><summary>${badge(0, String(well.length))} ${count(well.length, 'stream')} fresh: <span class="quiet">${names}</span></summary>${streamTable(page, well, 'Fresh streams')}</details>`}`
}

function streamTable({ ledgerNow }: StatusData, streams: ProjectHealth['streams'], label: string): Html {
  const cells = ({ row, words, rank }: (typeof streams)[number]) =>
    html`<th scope="row">${row.stream}</th><td>${badge(rank)} <span class="quiet">${words.join(', ')}</span></td><td>${time(row.last_read_at, ledgerNow)}</td><td>${row.first_day === null ? '–' : `${row.first_day} to ${row.last_day}`}</td><td class="n">${row.days_missing ?? '–'}</td><td class="n">${grouped(row.rows)}</td>`
  return table(label, ['stream', 'state', 'last read', 'days', '#missing', '#rows'], streams, cells)
}
