import { addDays, countDays, type Day, dayNumber, daysIn, type Range } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import type { CalendarDay, YearDay } from '../../ledger/calendar.ts'
import { type Html, html } from '../html.ts'
import type { CalendarData } from '../status-data.ts'
import { href, MONTHS, shortDay } from './layout.ts'

export type CellState = 'read' | 'missing' | 'held' | 'unreconciled' | 'quarantined' | 'stale' | 'restated'

export const MEANING: Record<CellState, string> = {
  read: 'read',
  restated: 'read, and changed by the service later',
  quarantined: 'some rows wait in quarantine',
  held: 'held for review',
  unreconciled: 'does not add up to the totals of the service',
  stale: 'to be read again',
  missing: 'never read',
}
/** Colour is not the only sign: each state has its own mark. */
const MARK: Record<CellState, string> = {
  read: '',
  restated: '~',
  quarantined: '!',
  held: '‖',
  unreconciled: '≠',
  stale: '↻',
  missing: '·',
}
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
export function weekdayOf(day: Day): number {
  return (dayNumber(day) + 3) % 7
}

export const weekdayName = (day: Day) => WEEKDAYS[weekdayOf(day)]!

/** The last weeks, a row for each stream and a cell for each day, newest last. */
export function weeks({ project, streams, range, first, days, day: chosen }: CalendarData): Html {
  const all = daysIn(range)
  const known = new Map((days ?? []).map((day) => [`${day.stream}\0${day.date}`, day]))
  const link = (day: Day) => href('/', { project, to: range.to, day }, '#day')
  return html`<div class="days scroll" id="weeks"><table class="calendar" data-grid="weeks" aria-label="Coverage by stream, ${range.from} to ${range.to}">
<thead><tr><td></td>${weekSpans(all).map(({ first, length }) => (length > 2 ? html`<th scope="colgroup" colspan="${length}" class="week">${shortDay(first)}</th>` : html`<td colspan="${length}"></td>`))}</tr>
<tr><th scope="col" class="stream">stream</th>${all.map(
    (day) =>
      html`<th scope="col"${weekdayOf(day) === 0 ? html` class="mon"` : ''}><a href="${link(day)}" aria-label="${day}"${day === chosen ? html` aria-current="date"` : ''}>${Number(day.slice(8))}</a></th>`,
  )}</tr></thead>
<tbody>${streams.map(
    (stream) =>
      html`<tr><th scope="row" class="stream">${stream}</th>${all.map((day) => {
        const found = known.get(`${stream}\0${day}`)
        if (found === undefined && day < first) return html`<td class="none"></td>`
        return cell(day, stateOf(found), `${stream}, `, found && `, ${count(found.rows, 'row')}`)
      })}</tr>
`,
  )}</tbody></table></div>`
}

/** A year at a glance: a column for each week, a row for each weekday, the gravest state of all streams. */
export function year({ streams, yearRange, first, year: days }: CalendarData): Html {
  const known = new Map((days ?? []).map((day) => [day.date, day]))
  const monday = addDays(yearRange.from, -weekdayOf(yearRange.from))
  const columns = Math.ceil(countDays({ from: monday, to: yearRange.to }) / 7)
  const months = Array.from({ length: columns }, (_, at) => monthAt(addDays(monday, at * 7), at, columns))
  return html`<div class="days scroll" id="year"><table class="calendar year" data-grid="year" aria-label="Coverage of all streams, ${yearRange.from} to ${yearRange.to}">
<thead><tr><td></td>${months.map((month) => html`<td>${month === '' ? '' : html`<span>${month}</span>`}</td>`)}</tr></thead>
<tbody>${WEEKDAYS.map(
    (name, weekday) =>
      html`<tr><th scope="row">${weekday % 2 === 0 ? name.slice(0, 3) : html`<span class="hidden">${name}</span>`}</th>${Array.from(
        { length: columns },
        (_, at) => {
          const day = addDays(monday, at * 7 + weekday)
          if (day < yearRange.from || day > yearRange.to) return html`<td class="none"></td>`
          const found = known.get(day)
          if (found === undefined && day < first) return html`<td class="none"></td>`
          const read = found && `, ${found.streams} of ${streams.length} streams read, ${count(found.rows, 'row')}`
          return cell(day, stateOfYearDay(found, streams.length), '', read)
        },
      )}</tr>
`,
  )}</tbody></table></div>`
}

/** The states of the days of the year, as far as they are to be read. */
function yearStates({ streams, yearRange, first, year: days }: CalendarData): CellState[] {
  const known = new Map((days ?? []).map((day) => [day.date, day]))
  const all = daysIn(yearRange).filter((day) => day >= first || known.has(day))
  return all.map((day) => stateOfYearDay(known.get(day), streams.length))
}

/** True if every day of the year was read by every stream, and nothing is to be looked at. */
export function isYearComplete(calendar: CalendarData): boolean {
  return yearStates(calendar).every((state) => state === 'read' || state === 'restated')
}

/** How many days of the year are in each state. */
export function yearWords(calendar: CalendarData): string {
  const states = yearStates(calendar)
  const of = (...wanted: CellState[]) => states.filter((state) => wanted.includes(state)).length
  const parts = [
    `${count(of('read', 'restated'), 'day')} of ${states.length} read`,
    ...(of('held') > 0 ? [`${of('held')} with something held`] : []),
    ...(of('unreconciled') > 0 ? [`${of('unreconciled')} not reconciled`] : []),
    ...(of('quarantined') > 0 ? [`${of('quarantined')} with rows in quarantine`] : []),
    ...(of('stale') > 0 ? [`${of('stale')} to be read again`] : []),
    ...(of('missing') > 0 ? [`${of('missing')} not read by every stream`] : []),
  ]
  return parts.join(', ')
}

export function legend(): Html {
  return html`<ul class="legend">${Object.entries(MEANING).map(
    ([state, meaning]) =>
      html`<li><span class="cell ${state}" aria-hidden="true">${MARK[state as CellState]}</span> ${meaning}</li>`,
  )}</ul>`
}

function cell(day: Day, state: CellState, of: string, numbers = ''): Html {
  const label = `${of}${weekdayName(day)} ${day}: ${MEANING[state]}${numbers}`
  return html`<td class="cell ${state}${of !== '' && weekdayOf(day) === 0 ? ' mon' : ''}" data-day="${day}" aria-label="${label}">${MARK[state]}</td>`
}

/** The weeks that a range touches, with how many of its days are in each. */
function weekSpans(days: readonly Day[]): { first: Day; length: number }[] {
  const spans: { first: Day; length: number }[] = []
  for (const day of days) {
    if (spans.length === 0 || weekdayOf(day) === 0) spans.push({ first: day, length: 0 })
    spans.at(-1)!.length++
  }
  return spans
}

/** The month's name over its first whole week, unless the table ends before there is room for it. */
function monthAt(monday: Day, at: number, columns: number): string {
  const begins = Number(monday.slice(8)) <= 7
  if (!(begins && at < columns - 1)) return ''
  const month = MONTHS[Number(monday.slice(5, 7)) - 1]!
  return month === 'Jan' ? `${month} ${monday.slice(0, 4)}` : month
}

/** A year that ends with a day. */
export function yearUpTo(to: Day): Range {
  return { from: addDays(to, -364), to }
}
