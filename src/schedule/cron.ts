import { createTask, parse } from 'node-cron'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** When a cron expression fires in a time zone. Pure: it is asked about moments, and has no clock of its own. */
export interface Cron {
  next(after: Date): Date | undefined
  /** The last time before a time, within a week. */
  previous(before: Date): Date | undefined
}

/**
 * Daylight saving: an expression that names hours fires once for each of them on every day. If the clock skips the hour,
 * it fires as the clock jumps; if an hour comes twice, only the first counts. An expression for every hour follows real
 * time: as many runs as there are hours.
 */
export function createCron(text: string, timezone: string): Cron {
  // A time as the clock on the wall shows it is matched as if it were UTC.
  const task = createTask(text, () => {}, { timezone: 'UTC' })
  const matches = (wall: number) => task.match(new Date(wall))
  const { hour, minute, second } = parse(text)
  const wallOf = wallClock(timezone)
  const offsetAt = (at: number) => wallOf(at) - at

  const isTime = (at: number) => {
    const wall = wallOf(at)
    if (hour.length === 24) return matches(wall)
    // An hour that comes twice counts the first time.
    if (matches(wall)) return wall - at >= offsetAt(at - HOUR)
    // If the clock jumped forward within this minute, the times that it skipped count as now.
    const skippedMs = wall - at - offsetAt(at - MINUTE)
    for (let skipped = wall - skippedMs; skipped < wall; skipped += MINUTE) if (matches(skipped)) return true
    return false
  }

  const firstOfDay = hour[0]! * HOUR + minute[0]! * MINUTE + second[0]! * 1000
  /** False if no day that begins or ends within a day of this time matches, in any time zone. */
  const isNearDay = (at: number) => {
    const midnight = at - (at % DAY)
    return [-2, -1, 0, 1, 2].some((days) => matches(midnight + days * DAY + firstOfDay))
  }

  const search = (from: number, direction: 1 | -1, farthestMs: number) => {
    // Minute by minute, since the seconds matter only within a minute that matches. Days that do not match are skipped.
    const seconds = direction === 1 ? second : [...second].reverse()
    let at = from - (from % MINUTE)
    while (Math.abs(at - from) <= farthestMs) {
      const isFarFromDay = at % HOUR === 0 && !isNearDay(at)
      const times = isFarFromDay ? [] : seconds.map((one) => at + one * 1000)
      const found = times.find((time) => (time - from) * direction > 0)
      if (found !== undefined && isTime(found)) return new Date(found)
      at += direction * (isFarFromDay ? DAY : MINUTE)
    }
    return undefined
  }
  return {
    // A leap day may be eight years ahead.
    next: (after) => search(after.getTime(), 1, 9 * 366 * DAY),
    previous: (before) => search(before.getTime(), -1, 7 * DAY),
  }
}

/** Gives the time that the clock on the wall shows in a time zone, as if that were UTC. Offsets are whole minutes. */
function wallClock(timezone: string): (at: number) => number {
  const numeric = { year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric' } as const
  const format = new Intl.DateTimeFormat('en-US', { timeZone: timezone, hourCycle: 'h23', ...numeric })
  return (at) => {
    const parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]))
    const { year = 0, month = 0, day = 0, hour = 0, minute = 0 } = parts
    return Date.UTC(year, month - 1, day, hour, minute) + (at % MINUTE)
  }
}
