import { type Day, daysIn, type Range } from '../../core/day.ts'
import type { CalendarDay } from '../../ledger/calendar.ts'
import { type Html, html } from '../html.ts'
import { number } from './layout.ts'

export type CellState = 'read' | 'missing' | 'held' | 'quarantined' | 'stale' | 'restated'

const MEANING: Record<CellState, string> = {
  read: 'read',
  restated: 'read, and changed by the service later',
  quarantined: 'some rows wait in quarantine',
  held: 'held for review',
  stale: 'to be read again',
  missing: 'never read',
}
/** Colour is not the only sign: each state has its own mark. */
const MARK: Record<CellState, string> = {
  read: '',
  restated: '~',
  quarantined: '!',
  held: '‖',
  stale: '↻',
  missing: '·',
}

export function stateOf(day: CalendarDay | undefined): CellState {
  if (day === undefined) return 'missing'
  if (day.state !== 'read') return day.state
  return day.restated > 0 ? 'restated' : 'read'
}

/** A row for each stream, a cell for each day, newest last; hover or focus tells rows and time. */
export function calendar(streams: readonly string[], range: Range, days: readonly CalendarDay[]): Html {
  const all = daysIn(range)
  const known = new Map(days.map((day) => [`${day.stream}\0${day.date}`, day]))
  return html`<div class="scroll" role="region" aria-label="Coverage calendar" tabindex="0"><table class="calendar">
<caption class="hidden">For each stream, whether each day from ${range.from} to ${range.to} was read</caption>
<thead><tr><th scope="col">stream</th>${all.map((day) => html`<th scope="col"><span>${monthMark(day, range)}</span></th>`)}</tr></thead>
<tbody>${streams.map(
    (stream) =>
      html`<tr><th scope="row">${stream}</th>${all.map((day) => cell(stream, day, known.get(`${stream}\0${day}`)))}</tr>
`,
  )}</tbody></table></div>
<ul class="legend">${Object.entries(MEANING).map(
    ([state, meaning]) =>
      html`<li><span class="cell ${state}" aria-hidden="true">${MARK[state as CellState]}</span> ${meaning}</li>`,
  )}</ul>`
}

function cell(stream: string, day: Day, known: CalendarDay | undefined): Html {
  const state = stateOf(known)
  const told = [
    `${day} ${stream}: ${MEANING[state]}`,
    ...(known === undefined
      ? []
      : [`${number(known.rows)} rows, read ${known.read_at.toISOString().slice(0, 16).replace('T', ' ')}Z`]),
    ...((known?.restated ?? 0) > 0 ? [`${number(known!.restated)} rows changed later`] : []),
  ].join('; ')
  return html`<td><button type="button" class="cell ${state}" data-day="${day}" data-tip="${told}" title="${told}" aria-label="${told}">${MARK[state]}</button></td>`
}

/** The first day shown and the first of each month have their names above. */
function monthMark(day: Day, { from }: Range): string {
  if (day !== from && !day.endsWith('-01')) return ''
  return day.slice(0, 7)
}
