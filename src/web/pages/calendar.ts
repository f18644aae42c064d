import { addDays, type Day, dayNumber, daysIn } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import type { CalendarDay, YearDay } from '../../ledger/calendar.ts'
import { type Html, html } from '../html.ts'
import type { CalendarData } from '../status-data.ts'
import { href, MONTHS, shortDay } from './layout.ts'

/** The meaning of each state of a day, and its mark: colour is not the only sign. */
export const STATES = {
  read: ['read', ''],
  restated: ['changed by the service after it was over, and read again', '~'],
  quarantined: ['some rows wait in quarantine', '!'],
  held: ['held for review', '‖'],
  unreconciled: ['does not add up to the totals of the service', '≠'],
  stale: ['to be read again', '↻'],
  missing: ['never read', '·'],
} as const

export type CellState = keyof typeof STATES

const WEEKDAYS = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday']

export function stateOf(day: Pick<CalendarDay, 'state' | 'restated'> | undefined): CellState {
  if (day === undefined) return 'missing'
  if (day.state !== 'read') return day.state
  return day.restated > 0 ? 'restated' : 'read'
}

/** Of a day over all streams, the gravest of its states. */
function stateOfYearDay(day: YearDay | undefined, streams: number): CellState {
  if (day === undefined) return 'missing'
  if (day.held > 0) return 'held'
  if (day.unreconciled > 0) return 'unreconciled'
  if (day.quarantined > 0) return 'quarantined'
  if (day.streams < streams) return 'missing'
  if (day.stale > 0) return 'stale'
  return day.restated > 0 ? 'restated' : 'read'
}

/** 0 is Monday. */
function weekdayOf(day: Day): number {
  return (dayNumber(day) + 3) % 7
}

export const weekdayName = (day: Day) => WEEKDAYS[weekdayOf(day)]!

/** The last weeks, which begin on a Monday: a row for each stream and a cell for each day, newest last. */
export function weeks({ project, streams, range, first, known, day: chosen }: CalendarData): Html {
  const all = daysIn(range)
  const found = new Map(known?.days.map((day) => [`${day.stream}\0${day.date}`, day]))
  const week = (monday: Day, length: number) =>
    length > 2
      ? html`<th scope="colgroup" colspan="${length}" class="week">${shortDay(monday)}</th>`
      : html`<td colspan="${length}"></td>`
  const head = (day: Day) =>
    html`<th scope="col"${weekdayOf(day) === 0 && html` class="mon"`}><a href="${href('/', { project, to: range.to, day }, '#day')}" aria-label="${day}"${day === chosen && html` aria-current="date"`}>${day.slice(8)}</a></th>`
  const row = (stream: string) => (day: Day) => {
    const read = found.get(`${stream}\0${day}`)
    if (read === undefined && day < first) return html`<td></td>`
    return cell(day, stateOf(read), `${stream}, `, read && `, ${count(read.rows, 'row')}`)
  }
  return html`<div class="days scroll" id="weeks"><table class="calendar" data-grid="weeks" aria-label="Coverage by stream, ${range.from} to ${range.to}">
<thead><tr><td></td>${all.map((day, at) => at % 7 === 0 && week(day, Math.min(7, all.length - at)))}</tr>
<tr><th scope="col" class="stream">stream</th>${all.map(head)}</tr></thead>
<tbody>${streams.map((stream) => html`<tr><th scope="row" class="stream">${stream}</th>${all.map(row(stream))}</tr>\n`)}</tbody></table></div>`
}

/** A year at a glance: a column for each week, a row for each weekday, the gravest state of all streams. */
export function year(calendar: CalendarData): Html {
  const { streams, yearRange } = calendar
  const states = yearStates(calendar)
  const found = new Map(calendar.known?.year.map((day) => [day.date, day]))
  const start = addDays(yearRange.from, -weekdayOf(yearRange.from))
  const mondays = daysIn({ from: start, to: yearRange.to }).filter((day) => weekdayOf(day) === 0)
  const dayCell = (day: Day) => {
    const [state, read] = [states.get(day), found.get(day)]
    const numbers = read && `, ${read.streams} of ${streams.length} streams read, ${count(read.rows, 'row')}`
    return state === undefined ? html`<td></td>` : cell(day, state, '', numbers)
  }
  const row = (name: string, weekday: number) =>
    html`<tr><th scope="row">${weekday % 2 === 0 ? name.slice(0, 3) : html`<span class="hidden">${name}</span>`}</th>${mondays.map((monday) => dayCell(addDays(monday, weekday)))}</tr>\n`
  return html`<div class="days scroll" id="year"><table class="calendar year" data-grid="year" aria-label="Coverage of all streams, ${yearRange.from} to ${yearRange.to}">
<thead><tr><td></td>${mondays.map((monday, at) => html`<td>${at < mondays.length - 1 && monthAt(monday)}</td>`)}</tr></thead>
<tbody>${WEEKDAYS.map(row)}</tbody></table></div>`
}

function yearStates({ streams, yearRange, first, known }: CalendarData): Map<Day, CellState> {
  const found = new Map(known?.year.map((day) => [day.date, day]))
  const all = daysIn(yearRange).filter((day) => day >= first || found.has(day))
  return new Map(all.map((day) => [day, stateOfYearDay(found.get(day), streams.length)]))
}

/** How many days of the year are in each state, and whether all were read by every stream and need no attention. */
export function yearSummary(calendar: CalendarData): { words: string; isComplete: boolean } {
  const states = [...yearStates(calendar).values()]
  const of = (...wanted: CellState[]) => states.filter((state) => wanted.includes(state)).length
  const others = Object.entries(YEAR_WORDS).map(([state, words]) => [of(state as CellState), words] as const)
  const parts = others.flatMap(([days, words]) => (days > 0 ? [`${days} ${words}`] : []))
  const words = [`${of('read', 'restated')} of ${count(states.length, 'day')} in order`, ...parts].join(', ')
  return { words, isComplete: parts.length === 0 }
}

const YEAR_WORDS = {
  held: 'with something held',
  unreconciled: 'not reconciled',
  quarantined: 'with rows in quarantine',
  stale: 'to be read again',
  missing: 'not read by every stream',
}

export function legend(): Html {
  return html`<ul class="legend">${Object.entries(STATES).map(
    ([state, [meaning, mark]]) =>
      html`<li><span class="cell ${state}" aria-hidden="true">${mark}</span> ${meaning}</li>`,
  )}</ul>`
}

function cell(day: Day, state: CellState, of: string, numbers = ''): Html {
  const [meaning, mark] = STATES[state]
  const label = `${of}${weekdayName(day)} ${day}: ${meaning}${numbers}`
  return html`<td class="cell ${state}${of !== '' && weekdayOf(day) === 0 ? ' mon' : ''}" data-day="${day}" aria-label="${label}">${mark}</td>`
}

/** The month's name over its first whole week. */
function monthAt(monday: Day): string | false {
  const month = MONTHS[Number(monday.slice(5, 7)) - 1]!
  return Number(monday.slice(8)) <= 7 && (month === 'Jan' ? `${month} ${monday.slice(0, 4)}` : month)
}
