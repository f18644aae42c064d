import { clip, duration } from '../../core/text.ts'
import type { Status } from '../../ledger/status.ts'
import type { LiveRun } from '../../schedule/live.ts'
import { type Html, html } from '../html.ts'
import { sumOf } from '../run-summaries.ts'
import { number, table, time } from './layout.ts'

// Before that, a rate says nothing.
const FIRST_RATE_SECONDS = 3
const FIRST_SHARE = 0.02

/** A run of this process: how far it is, how fast, and how long it will take at this pace. */
export function running(run: LiveRun, now: Date): Html {
  const { share, rows, requests, left } = paceOf(run, now)
  const percent = Math.floor(share * 100)
  return html`<section class="card running" aria-labelledby="run-${run.runId}"><header><h2 id="run-${run.runId}">Running now</h2><a href="/runs/${run.runId}">Run ${run.runId}</a></header>
<p><strong>${run.command}</strong>${run.stream === '' ? '' : html`, at ${run.stream}`}, began ${time(run.startedAt, now)}</p>
<progress max="1" value="${share.toFixed(3)}" aria-label="Progress of run ${run.runId}">${percent} %</progress>
<dl class="pace"><div><dt>Done</dt><dd>${run.total === 0 ? 'planning' : `${percent} %`}</dd></div>
<div><dt>Rows</dt><dd>${number(run.rows)}${rows === undefined ? '' : html` <span class="quiet">${number(rows)} a second</span>`}</dd></div>
<div><dt>Requests</dt><dd>${number(run.requests)}${requests === undefined ? '' : html` <span class="quiet">${number(requests)} a minute</span>`}</dd></div>
<div><dt>Time left</dt><dd>${left === undefined ? 'not known yet' : html`about ${duration(left)} <span class="quiet">at this pace</span>`}</dd></div></dl></section>`
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

/** A run of another process: only that process knows how far it is. */
export function runningElsewhere(
  run: { run_id: number; command: string; started_at: Date; host: string; pid: number },
  now: Date,
): Html {
  return html`<section class="card running" aria-labelledby="run-${run.run_id}"><header><h2 id="run-${run.run_id}">Running elsewhere</h2><a href="/runs/${run.run_id}">Run ${run.run_id}</a></header>
<p><strong>${run.command}</strong>, began ${time(run.started_at, now)}, by process ${run.pid} on ${run.host}. How far it is, only that process knows.</p></section>`
}

export function outcomeBadge(outcome: string | null): Html {
  const look = outcome === null ? 'info' : outcome === 'complete' ? 'good' : outcome === 'failed' ? 'bad' : 'warn'
  return html`<span class="badge ${look}">${outcome ?? 'running'}</span>`
}

const COUNTS = ['rows_read', 'inserted', 'updated', 'deleted', 'requests'] as const

/** The last runs, the newest first. */
export function runsTable({ runs }: Status, now: Date): Html {
  const titles = [
    'run',
    'outcome',
    'started',
    '#took',
    '#rows read',
    '#new',
    '#changed',
    '#deleted',
    '#requests',
    'why',
  ]
  const cells = (run: Status['runs'][number]) => {
    const took = run.ended_at === null ? '–' : duration((run.ended_at.getTime() - run.started_at.getTime()) / 1000)
    // An audit stores other figures.
    const hasCounts = run.command !== 'audit'
    const counts = COUNTS.map(
      (field) => html`<td class="n">${hasCounts ? number(sumOf(run.summary, field)) : '–'}</td>`,
    )
    return html`<th scope="row"><a href="/runs/${run.run_id}">${run.command} ${run.run_id}</a></th><td>${outcomeBadge(run.outcome)}</td><td>${time(run.started_at, now)}</td><td class="n">${took}</td>${counts}<td class="why wrap">${clip(run.reason ?? '', 160)}</td>`
  }
  return html`<section class="card" data-part="runs"><h2 id="runs">Last runs</h2>
${runs.length === 0 ? html`<p class="empty">No run yet.</p>` : table('Last runs', titles, runs.slice(0, 10), cells)}</section>`
}
