import { clip } from '../../core/text.ts'
import type { Status } from '../../ledger/status.ts'
import type { StreamReport } from '../../sync/run/report.ts'
import { type Html, html } from '../html.ts'
import { number, span, time } from './layout.ts'

type Counted = 'rows_read' | 'inserted' | 'updated' | 'deleted' | 'requests' | 'retries' | 'windows'

/** The sum of a field over a stored summary. Older versions stored less, and an audit stores something else. */
export function sumOf(summary: unknown, field: Counted): number {
  const list = Array.isArray(summary) ? (summary as Partial<StreamReport>[]) : []
  return list.reduce((total, row) => total + Number(row?.[field] ?? 0), 0)
}

export function outcomeBadge(outcome: string | null): Html {
  const look = outcome === null ? 'info' : outcome === 'complete' ? 'good' : outcome === 'failed' ? 'bad' : 'warn'
  return html`<span class="badge ${look}">${outcome ?? 'running'}</span>`
}

/** The last runs, the newest first. */
export function runsTable({ runs }: Status, now: Date): Html {
  return html`<section class="card" data-part="runs"><h2 id="runs">Last runs</h2>
${
  runs.length === 0
    ? html`<p class="empty">No run yet.</p>`
    : html`<div class="scroll" role="region" aria-label="Last runs" tabindex="0"><table class="table">
<thead><tr><th scope="col">run</th><th scope="col">outcome</th><th scope="col">started</th><th scope="col" class="n">took</th><th scope="col" class="n">rows read</th><th scope="col" class="n">new</th><th scope="col" class="n">changed</th><th scope="col" class="n">deleted</th><th scope="col" class="n">requests</th><th scope="col">why</th></tr></thead>
<tbody>${runs.slice(0, 10).map(
        (
          run,
        ) => html`<tr><th scope="row"><a href="/runs/${run.run_id}">${run.command} ${run.run_id}</a></th><td>${outcomeBadge(run.outcome)}</td><td>${time(run.started_at, now)}</td><td class="n">${run.ended_at === null ? '–' : span((run.ended_at.getTime() - run.started_at.getTime()) / 1000)}</td>${(['rows_read', 'inserted', 'updated', 'deleted', 'requests'] as const).map((field) => html`<td class="n">${number(sumOf(run.summary, field))}</td>`)}<td class="why wrap">${clip(run.reason ?? '', 160)}</td></tr>
`,
      )}</tbody></table></div>`
}</section>`
}
