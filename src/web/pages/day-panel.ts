import { count, grouped } from '../../core/text.ts'
import { whyHeld } from '../../ledger/run-reason.ts'
import { type Html, html } from '../html.ts'
import type { CalendarData } from '../status-data.ts'
import { type CellState, STATES, stateOf, weekdayName } from './calendar.ts'
import { href, table, time } from './layout.ts'
import { runLink } from './runs.ts'

export function dayPanel({ project, streams, day, known, range }: CalendarData, now: Date): Html {
  const detail = known?.detail
  if (day === undefined || detail === undefined) {
    return html`<section id="day" class="day-panel quiet small" data-part="day"><p>Choose a day to see its rows, when it was read, why it is held and what changed.</p></section>`
  }
  const cells = (stream: string) => {
    const row = detail.streams.find((read) => read.stream === stream)
    const changes = detail.changes.filter((change) => change.stream === stream)
    const state = stateOf(row && { state: row.state, restated: changes.length })
    const rejected = detail.quarantine.find((entry) => entry.stream === stream)
    const why = row?.held_because == null ? 'most of its rows would have vanished' : whyHeld(row.held_because)
    const notes = [
      row?.state === 'held' && html`Held ${time(row.reviewedSince, now)} with its window: ${why}.`,
      row?.difference != null && `${row.difference}.`,
      rejected &&
        html`<a href="${href('/quarantine', { project, stream })}">${quarantinedWords(rejected)}</a>: ${rejected.reason.slice(0, 160)}`,
      ...changes.slice(0, 5).map((change) => {
        const run = runLink(change.run_id, `run ${change.run_id}`)
        return html`Changed ${time(change.seen_at, now)}: ${changeWords(change)} (${run}).`
      }),
      changes.length > 5 && `and ${count(changes.length - 5, 'earlier change')}.`,
    ]
    const read =
      row === undefined
        ? ['–', '–', '–']
        : [grouped(row.rows), time(row.read_at, now), runLink(row.run_id, String(row.run_id))]
    return html`<th scope="row">${stream}</th><td><span class="badge ${BADGES[state]}">${STATES[state][0]}</span></td><td class="n">${read[0]}</td><td>${read[1]}</td><td>${read[2]}</td><td class="wrap">${notes.map((note) => note && html`<p>${note}</p>`)}</td>`
  }
  const close = href('/', { project, to: range.to }, '#project')
  return html`<section id="day" class="day-panel" data-part="day" aria-labelledby="day-title"><header class="title"><h3 id="day-title" tabindex="-1">${weekdayName(day).slice(0, 3)} ${day}</h3><a class="small" href="${close}">Close</a></header>
${table(`Streams on ${day}`, ['stream', 'state', '#rows', 'read', 'run', 'what is known'], streams, cells)}</section>`
}

/** Rows without a readable day came in the answer for the window of this day. */
function quarantinedWords({ rows, undated }: { rows: number; undated: number }): string {
  const parts = [
    rows > 0 && count(rows, 'row'),
    undated > 0 && `${count(undated, 'row')} of its window without a readable day`,
  ]
  return `${parts.filter(Boolean).join(' and ')} in quarantine`
}

const BADGES: Record<CellState, string> = {
  read: 'good',
  restated: 'info',
  quarantined: 'warn',
  held: 'bad',
  unreconciled: 'bad',
  stale: 'warn',
  missing: '',
}

/** "3 new, 2 changed, 1 gone" */
export function changeWords(change: { rows_inserted: number; rows_updated: number; rows_deleted: number }): string {
  const { rows_inserted, rows_updated, rows_deleted } = change
  const parts = [
    rows_inserted > 0 && `${grouped(rows_inserted)} new`,
    rows_updated > 0 && `${grouped(rows_updated)} changed`,
    rows_deleted > 0 && `${grouped(rows_deleted)} gone`,
  ]
  return parts.filter(Boolean).join(', ') || 'nothing'
}
