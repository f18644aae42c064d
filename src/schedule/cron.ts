import { createTask, parse } from 'node-cron'

const SECOND = 1000
const MINUTE = 60_000
const FARTHEST_MS = 367 * 24 * 60 * MINUTE

/** When a cron expression fires in a time zone. Pure: it is asked about moments, and has no clock of its own. */
export interface Cron {
  next(after: Date): Date | undefined
  /** The last time before a time, within a week. */
  previous(before: Date): Date | undefined
}

/**
 * Daylight saving: an expression that names hours fires once for each of them on every day. If the clock skips the hour,
 * it fires as the clock jumps; if an hour comes twice, only the first counts. A text for every hour follows real
 * time: as many runs as there are hours.
 */
export function createCron(text: string, timezone: string): Cron {
  const task = createTask(text, () => {}, { timezone })
  const fields = parse(text)
  const everyHour = fields.hour.length === 24
  const wall = wallClock(timezone)

  const matches = (time: Date) => task.match(time)
  const isRepeated = (time: Date) => wall(time).offset < wall(new Date(time.getTime() - 60 * MINUTE)).offset
  /** The clock jumped forward at this time, over a time that the text names. */
  const isSkipped = (time: Date) => {
    if (time.getTime() % MINUTE !== 0) return false
    const now = wall(time)
    const before = wall(new Date(time.getTime() - MINUTE))
    const skipped = now.offset - before.offset
    if (skipped <= 0) return false
    for (let minute = 0; minute < skipped; minute++) {
      // The same time by the wall as if the clock had not jumped; the day is that of the time itself.
      const named = now.minuteOfDay - skipped + minute
      if (named < 0) continue
      const [hour, minuteOfHour] = [Math.floor(named / 60), named % 60]
      if (fields.hour.includes(hour) && fields.minute.includes(minuteOfHour) && dayMatches(fields, now)) return true
    }
    return false
  }

  const isTime = (time: Date) => {
    if (everyHour) return matches(time)
    if (matches(time)) return !isRepeated(time)
    return isSkipped(time)
  }
  const seconds = fields.second
  const search = (from: number, direction: 1 | -1, farthestMs: number) => {
    let at = Math.floor(from / MINUTE) * MINUTE
    for (const end = from + direction * farthestMs; (end - at) * direction >= 0; at += direction * MINUTE) {
      // Minute by minute: the seconds matter only within a minute that matches.
      for (const second of direction === 1 ? seconds : [...seconds].reverse()) {
        const time = at + second * SECOND
        if ((time - from) * direction <= 0) continue
        if (!isTime(new Date(time))) break
        return new Date(time)
      }
      // Days that do not match are passed over, leaving a margin for the offset of any time zone.
      if (at % (60 * MINUTE) === 0 && !mayComeWithin(fields, at, direction)) at += direction * 23 * 60 * MINUTE
    }
    return undefined
  }
  return {
    next: (after) => search(after.getTime(), 1, FARTHEST_MS),
    previous: (before) => search(before.getTime(), -1, 7 * 24 * 60 * MINUTE),
  }
}

type Fields = ReturnType<typeof parse>

function dayMatches(fields: Fields, day: { day: number; month: number; weekday: number }): boolean {
  const months = fields.month.includes(day.month)
  const ofMonth = fields.dayOfMonth.length >= 31 || fields.dayOfMonth.includes(day.day)
  const ofWeek = fields.dayOfWeek.length >= 7 || fields.dayOfWeek.includes(day.weekday)
  return months && ofMonth && ofWeek
}

function mayComeWithin(fields: Fields, from: number, direction: 1 | -1): boolean {
  // Of days that are counted from the end of a month, only the month is known here.
  const countsFromEnd = [...fields.dayOfMonth, ...fields.dayOfWeek].some((day) => typeof day === 'string')
  for (let hours = -26; hours <= 52; hours += 12) {
    const date = new Date(from + direction * hours * 60 * MINUTE)
    const day = { day: date.getUTCDate(), month: date.getUTCMonth() + 1, weekday: date.getUTCDay() }
    if (countsFromEnd ? fields.month.includes(day.month) : dayMatches(fields, day)) return true
  }
  return false
}

/** What the clock on the wall shows in a time zone, and how many minutes it is ahead of UTC. */
function wallClock(timezone: string) {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: timezone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
  })
  return (time: Date) => {
    const parts = Object.fromEntries(format.formatToParts(time).map(({ type, value }) => [type, Number(value)]))
    const { year = 0, month = 0, day = 0, hour = 0, minute = 0 } = parts
    const shown = Date.UTC(year, month - 1, day, hour, minute)
    return {
      day,
      month,
      weekday: new Date(shown).getUTCDay(),
      minuteOfDay: hour * 60 + minute,
      offset: Math.round((shown - Math.floor(time.getTime() / MINUTE) * MINUTE) / MINUTE),
    }
  }
}
