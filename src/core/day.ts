/** A calendar day in UTC, written YYYY-MM-DD. Days compare correctly as strings. */
export type Day = string

/** A range of days, both ends included. */
export interface Range {
  from: Day
  to: Day
}

/** The current time, passed in so that tests can set it. */
export type Clock = () => Date

export const DAY_MS = 86_400_000
/** The service writes a day until about 48 hours after it began. */
export const OPEN_DAYS = 2
const SHAPE = /^\d{4}-\d{2}-\d{2}$/

/** True for a real calendar date: 2024-02-29 is one, 2026-02-29 is not. */
export function isDay(text: string): boolean {
  if (!SHAPE.test(text)) return false
  const ms = Date.parse(`${text}T00:00:00Z`)
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text)
}

export function dayNumber(day: Day): number {
  return Date.parse(day) / DAY_MS
}

export function dayFromNumber(number: number): Day {
  return new Date(number * DAY_MS).toISOString().slice(0, 10)
}

export function addDays(day: Day, days: number): Day {
  return dayFromNumber(dayNumber(day) + days)
}

export function dayOf(date: Date): Day {
  return date.toISOString().slice(0, 10)
}

export function countDays({ from, to }: Range): number {
  return Math.max(0, dayNumber(to) - dayNumber(from) + 1)
}

export function daysIn(range: Range): Day[] {
  const first = dayNumber(range.from)
  return Array.from({ length: countDays(range) }, (_, index) => dayFromNumber(first + index))
}

export function showRange({ from, to }: Range): string {
  return from === to ? from : `${from}..${to}`
}
