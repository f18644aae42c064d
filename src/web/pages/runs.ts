import { clip, duration, grouped } from '../../core/text.ts'
import type { Status } from '../../ledger/status.ts'
import type { LiveRun } from '../../schedule/live.ts'
import { type Html, html } from '../html.ts'
import { sumOf } from '../run-summaries.ts'
import { table, time } from './layout.ts'

// Before that, a rate says nothing.
const FIRST_RATE_SECONDS = 3
const FIRST_SHARE = 0.02

export function runLink(id: number, text: string): Html {
  return html`<a href="/runs/${id}">${text}</a>`
}

export function runCard(id: number, title: string, body: Html): Html {
  return html`<section class="card running" aria-labelledby="run-${id}"><header><h2 id="run-${id}">${title}</h2>${runLink(id, `Run ${id}`)}</header>
${body}</section>`
}

export function running(run: LiveRun, now: Date): Html {
  const { share, rows, requests, left } = paceOf(run, now)
  const percent = Math.floor(share * 100)
  const fact = (name: string, value: string, pace: string | false = false) =>
    html`<div><dt>${name}</dt><dd>${value}${pace && html` <span class="quiet">${pace}</span>`}</dd></div>`
  return runCard(
    run.runId,
    'Running now',
    html`<p><strong>${run.command}</strong>${run.stream && `, at ${run.stream}`}, began ${time(run.startedAt, now)}</p>
<progress max="1" value="${share.toFixed(3)}" aria-label="Progress of run ${run.runId}">${percent} %</progress>
<dl class="facts">${fact('Done', run.total === 0 ? 'planning' : `${percent} %`)}
${fact('Rows', grouped(run.rows), rows !== undefined && `${grouped(rows)} a second`)}
${fact('Requests', grouped(run.requests), requests !== undefined && `${grouped(requests)} a minute`)}
${left === undefined ? fact('Time left', 'not known yet') : fact('Time left', `about ${duration(left)}`, 'at this pace')}</dl>`,
  )
}

/** Rows a second, requests a minute and seconds left, by the mean so far; undefined while the run is too young. */
function paceOf(run: LiveRun, now: Date) {
  const share = run.total === 0 ? 0 : Math.min(1, run.done / run.total)
  const seconds = (now.getTime() - run.startedAt.getTime()) / 1000
  const known = seconds >= FIRST_RATE_SECONDS
  return {
    share,
    rows: known ? Math.round(run.rows / seconds) : undefined,
    requests: known ? Math.round((run.requests / seconds) * 60) : undefined,
    left: known && share >= FIRST_SHARE ? (seconds * (1 - share)) / share : undefined,
  }
}

export function outcomeBadge(outcome: string | null): Html {
  const look = outcome === null ? 'info' : outcome === 'complete' ? 'good' : outcome === 'failed' ? 'bad' : 'warn'
  return html`<span class="badge ${look}">${outcome ?? 'running'}</span>`
}

const COUNTS = {
  '#rows read': 'rows_read',
  '#new': 'inserted',
  '#changed': 'updated',
  '#deleted': 'deleted',
  '#requests': 'requests',
} as const

export function runsTable({ runs }: Status, now: Date): Html {
  const cells = (run: Status['runs'][number]) => {
    const took = run.ended_at === null ? '–' : duration((run.ended_at.getTime() - run.started_at.getTime()) / 1000)
    // An audit stores other figures.
    const counts = Object.values(COUNTS).map((name) =>
      run.command === 'audit' ? '–' : grouped(sumOf(run.summary, name)),
    )
    return html`<th scope="row">${runLink(run.run_id, `${run.command} ${run.run_id}`)}</th><td>${outcomeBadge(run.outcome)}</td><td>${time(run.started_at, now)}</td>${[took, ...counts].map((text) => html`<td class="n">${text}</td>`)}<td class="why wrap">${clip(run.reason ?? '', 160)}</td>`
  }
  const titles = ['run', 'outcome', 'started', '#took', ...Object.keys(COUNTS), 'why']
  return html`<section class="card" data-part="runs"><h2 id="runs">Last runs</h2>
${runs.length === 0 ? html`<p class="empty">No run yet.</p>` : table('Last runs', titles, runs.slice(0, 10), cells)}</section>`
}
