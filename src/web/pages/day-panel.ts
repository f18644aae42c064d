import { count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import type { CalendarData } from '../status-data.ts'
import { MEANING, stateOf, weekdayName } from './calendar.ts'
import { href, number, table, time } from './layout.ts'

/** What is known of one day: of each stream its rows, when it was read and by which run, and what changed later. */
export function dayPanel({ project, streams, day, detail, range }: CalendarData, now: Date): Html {
  if (day === undefined || detail === undefined) {
    return html`<section id="day" class="day-panel quiet small" data-part="day"><p>Choose a day to see its rows, when it was read, why it is held and what changed.</p></section>`
  }
  const read = new Map(detail.streams.map((row) => [row.stream, row]))
  const close = href('/', { project, to: range.to }, '#project')
  return html`<section id="day" class="day-panel" data-part="day" aria-labelledby="day-title"><header class="title"><h3 id="day-title" tabindex="-1">${weekdayName(day).slice(0, 3)} ${day}</h3><a class="small" href="${close}">Close</a></header>
${table(`Streams on ${day}`, ['stream', 'state', '#rows', 'read', 'run', 'what is known'], streams, (stream) => {
  const row = read.get(stream)
  const changes = detail.changes.filter((change) => change.stream === stream)
  const rejected = detail.quarantine.find((entry) => entry.stream === stream)
  const state = stateOf(row && { state: row.state, restated: changes.length })
  const because = row?.held_because
  const lost =
    because == null
      ? 'most of its rows'
      : `${number(because.rows_vanishing)} of ${count(because.rows_present, 'row')} of its window`
  const notes = [
    row?.state === 'held' && html`Held ${time(row.held_since, now)}: ${lost} would have vanished.`,
    row?.difference != null && html`${row.difference}.`,
    rejected !== undefined &&
      html`<a href="${href('/quarantine', { project, stream })}">${quarantinedWords(rejected)}</a>: ${rejected.reason.slice(0, 160)}`,
    ...changes
      .slice(0, 5)
      .map(
        (change) =>
          html`Changed ${time(change.seen_at, now)}: ${changeWords(change)} (<a href="/runs/${change.run_id}">run ${change.run_id}</a>).`,
      ),
    changes.length > 5 && `and ${count(changes.length - 5, 'earlier change')}.`,
  ].filter((note) => note !== false)
  return html`<th scope="row">${stream}</th><td><span class="badge ${badgeOf(state)}">${MEANING[state]}</span></td><td class="n">${row === undefined ? '–' : number(row.rows)}</td><td>${row === undefined ? '–' : time(row.read_at, now)}</td><td>${row === undefined ? '–' : html`<a href="/runs/${row.run_id}">${row.run_id}</a>`}</td><td class="known wrap">${notes.map((note) => html`<p>${note}</p>`)}</td>`
})}</section>`
}

/** "3 rows in quarantine, and 2 rows of its window without a readable day" */
function quarantinedWords({ rows, undated }: { rows: number; undated: number }): string {
  const unknown = `${count(undated, 'row')} of its window without a readable day`
  if (undated === 0) return `${count(rows, 'row')} in quarantine`
  return rows === 0 ? `${unknown}, in quarantine` : `${count(rows, 'row')} in quarantine, and ${unknown}`
}

function badgeOf(state: ReturnType<typeof stateOf>): string {
  if (state === 'read') return 'good'
  if (state === 'restated') return 'info'
  return state === 'held' || state === 'unreconciled' ? 'bad' : state === 'missing' ? '' : 'warn'
}

/** "3 new, 2 changed, 1 gone" */
export function changeWords(change: { rows_inserted: number; rows_updated: number; rows_deleted: number }): string {
  const { rows_inserted, rows_updated, rows_deleted } = change
  const parts = [
    rows_inserted > 0 && `${number(rows_inserted)} new`,
    rows_updated > 0 && `${number(rows_updated)} changed`,
    rows_deleted > 0 && `${number(rows_deleted)} gone`,
  ]
  return parts.filter(Boolean).join(', ') || 'nothing'
}
