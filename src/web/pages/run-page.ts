import { clip, count, duration, grouped, listSome } from '../../core/text.ts'
import type { RunChange } from '../../ledger/restatement-report.ts'
import { runReason, troublesOf } from '../../ledger/run-reason.ts'
import type { RunDetail } from '../../ledger/runs.ts'
import type { LiveRun } from '../../schedule/live.ts'
import { byStream } from '../../sync/run/report.ts'
import { type Html, html } from '../html.ts'
import { isReports, sumOf } from '../run-summaries.ts'
import type { PageData } from '../status-data.ts'
import { changeWords } from './day-panel.ts'
import { factList, heading, layout, places, table, tile, time } from './layout.ts'
import { outcomeBadge, runLink, running } from './runs.ts'

interface RunPage extends PageData {
  now: Date
  run: RunDetail
  /** If it goes on in this process. */
  live: LiveRun | undefined
  changes: { days: RunChange[]; total: number }
  neighbours: { previous: number | null; next: number | null }
  names: ReadonlyMap<string, string>
}

const MOST_ENTRIES = 60
const MOST_LISTED = 30

export function runPage(page: RunPage): string {
  const { run, live, now, ledgerNow } = page
  const { previous, next } = page.neighbours
  const reason = runReason(run)
  const took = run.ended_at === null ? undefined : (run.ended_at.getTime() - run.started_at.getTime()) / 1000
  // A run that goes on is asked for again and again.
  const refresh = run.outcome === null ? { url: `/runs/${run.run_id}`, isRunning: true, now } : undefined
  const beside = html`<span>${run.command} ${outcomeBadge(run.outcome)}</span>`
  const body = html`<nav class="quiet small" aria-label="Where this is"><a href="/#runs">Status</a> / Runs</nav>
${heading({ title: `Run ${run.run_id}`, refresh, beside, notice: page.notice })}
<div data-part="run">${live === undefined ? '' : running(live, now)}
${reason && html`<div class="banner ${run.outcome === 'failed' ? 'bad' : 'warn'}" role="status"><p class="verdict">${clip(reason, 600)}</p></div>`}
${run.outcome === null && live === undefined && html`<div class="banner" role="status"><p>It goes on in process ${run.pid} on ${run.host}; its numbers are written when it ends.</p></div>`}
<dl class="tiles">${tiles(page, took)}</dl>
${troubles(page)}
${streams(page)}
${changes(page)}</div>
${factList({
  Started: html`${stamp(run.started_at)} (${time(run.started_at, ledgerNow)})`,
  Ended: run.ended_at === null ? 'not yet' : stamp(run.ended_at),
  Process: `${run.pid} on ${run.host}, version ${run.version}`,
  Source: run.source,
})}
<nav class="title" aria-label="Other runs"><span>${previous && runLink(previous, `← run ${previous}`)}</span><span>${next && runLink(next, `run ${next} →`)}</span></nav>`
  return layout(
    { title: `Run ${run.run_id}`, path: '/', version: page.version, viewer: page.viewer, scripts: ['status.js'] },
    body,
  )
}

const stamp = (date: Date) => `${date.toISOString().slice(0, 19).replace('T', ' ')} UTC`

function tiles({ run }: RunPage, took: number | undefined): Html {
  const { summary } = run
  const isKnown = Array.isArray(summary) && isReports(summary)
  const sum = (field: Parameters<typeof sumOf>[1]) => (isKnown ? grouped(sumOf(summary, field)) : '–')
  const failed = troublesOf(summary).filter(({ kind }) => kind !== 'held' && kind !== 'quarantined')
  const failures = failed.reduce((total, trouble) => total + trouble.count, 0)
  // Runs of older versions did not count them.
  const countsRetries = isKnown && summary.every((row) => row.requests === undefined || row.retries !== undefined)
  const perSecond =
    took !== undefined && took >= 1 ? `${grouped(Math.round(sumOf(summary, 'rows_read') / took))} a second` : ''
  return html`${tile('Took', took === undefined ? 'not ended' : duration(took))}
${tile('Windows and lists', sum('windows'))}
${tile('Rows read', sum('rows_read'), isKnown ? perSecond : '')}
${tile('Requests', sum('requests'), countsRetries ? `${grouped(sumOf(summary, 'retries'))} of them tried again` : '')}
${tile('New, changed, deleted', isKnown ? `${sum('inserted')} / ${sum('updated')} / ${sum('deleted')}` : '–')}
${tile('Failures', isKnown ? grouped(failures) : '–')}`
}

function troubles({ run, names }: RunPage): Html | '' {
  const found = troublesOf(run.summary)
  if (found.length === 0) return ''
  const lists = found.map(({ text, occurrences }) => {
    const list = places(
      occurrences,
      { most: MOST_LISTED, noun: 'window' },
      ({ stream, range, project_id, detail }) =>
        html`${stream}${range === undefined ? '' : `, ${range}`} <span class="quiet">of ${names.get(project_id) ?? project_id}: ${clip(detail, 240)}</span>`,
    )
    return html`<h3>${text.charAt(0).toUpperCase()}${text.slice(1)}</h3>${list}`
  })
  return html`<section class="card" aria-labelledby="failures"><h2 id="failures">What went wrong</h2>${lists}</section>`
}

const COLUMNS = {
  days: '#days',
  windows: '#windows',
  requests: '#requests',
  retries: '#retries',
  rows_read: '#rows read',
  inserted: '#new',
  updated: '#changed',
  deleted: '#deleted',
  unchanged: '#same',
  quarantined: '#quarantined',
}
const FIELDS = Object.keys(COLUMNS) as (keyof typeof COLUMNS)[]

function streams({ run, names }: RunPage): Html | '' {
  if (!Array.isArray(run.summary) || run.summary.length === 0) return ''
  if (!isReports(run.summary)) return audited(run.summary as Audited[], names)
  const projects = new Set(run.summary.map(({ project_id }) => project_id))
  const isWhole = run.summary.length <= MOST_ENTRIES
  const rows = isWhole ? run.summary : byStream(run.summary)
  const withProject = isWhole && projects.size > 1
  const titles = ['stream', ...(withProject ? ['project'] : []), ...Object.values(COLUMNS)]
  const cells = (row: (typeof rows)[number]) =>
    html`<th scope="row">${row.stream}</th>${withProject && html`<td>${names.get(row.project_id) ?? row.project_id}</td>`}${FIELDS.map((field) => html`<td class="n">${row[field] === undefined ? '–' : grouped(row[field])}</td>`)}`
  return html`<section class="card" aria-labelledby="streams"><h2 id="streams">Streams</h2>
${isWhole ? '' : html`<p class="quiet small">Summed up over ${count(projects.size, 'project')}.</p>`}
${table('Streams of the run', titles, rows, cells)}</section>`
}

interface Audited {
  project_id?: string
  stream?: string
  differing?: string[]
  /** Why the stream was not compared. */
  left_out?: string
}

function audited(summary: readonly Audited[], names: ReadonlyMap<string, string>): Html {
  const differing = summary.filter((entry) => (entry.differing?.length ?? 0) > 0)
  const compared = summary.filter((entry) => entry.left_out === undefined).length
  const list = places(
    differing,
    { most: MOST_ENTRIES, noun: 'stream' },
    ({ stream, project_id = '', differing: days }) =>
      html`${stream} <span class="quiet">of ${names.get(project_id) ?? project_id}: ${listSome(days!, 12)}</span>`,
  )
  return html`<section class="card" aria-labelledby="streams"><h2 id="streams">Days that differed from the service</h2>
${differing.length === 0 ? html`<p>None, in ${count(compared, 'stream')}.</p>` : list}</section>`
}

function changes({ changes: { days, total }, run }: RunPage): Html {
  const cells = (day: RunChange) =>
    html`<th scope="row">${day.date}</th><td>${changeWords(day)}</td><td class="n">${grouped(day.projects)}</td><td>${day.streams.join(', ')}</td>`
  return html`<section class="card" aria-labelledby="changes"><h2 id="changes">What the service had changed, by day</h2>
${
  days.length === 0
    ? html`<p class="quiet">${run.outcome === null ? 'Nothing so far in' : 'Nothing in'} days that were read before.</p>`
    : html`${table('Changes by day', ['day', 'rows', '#projects', 'streams'], days, cells)}${total > days.length ? html`<p class="quiet small">and ${count(total - days.length, 'earlier day')}</p>` : ''}`
}</section>`
}
