import { addDays, countDays, type Day, isDay, type Range } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import { clip, count, listSome } from '../core/text.ts'

/* The parameters of pages. Anything else is refused with a sentence, before the database is queried. */

export const FIRST_DAY = '2000-01-01'
const DAYS_AHEAD = 366
const MOST_DAYS = 1100

/** The parameters that a page knows, each given once at most. A form sends those that nobody filled in as empty texts. */
export function readQuery<K extends string>(query: unknown, known: readonly K[]): Partial<Record<K, string>> {
  const found: Partial<Record<K, string>> = {}
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    if (!(known as readonly string[]).includes(name))
      throw new UsageError(`${clip(name, 40)}: unknown; this page knows ${known.join(', ')}`)
    if (typeof value !== 'string') throw new UsageError(`${name}: given more than once`)
    // Postgres cannot store it, so nothing has it.
    if (value.includes('\0')) throw new UsageError(`${name}: has a NUL character; allowed: any other`)
    if (value !== '') found[name as K] = value
  }
  return found
}

/** The project that was asked for, or the first. */
export function projectOf(projects: readonly { id: string }[], asked: string | undefined): string {
  if (asked === undefined) return projects[0]?.id ?? ''
  if (projects.some(({ id }) => id === asked)) return asked
  const ids = projects.map(({ id }) => id)
  throw new UsageError(`project: got "${clip(asked, 60)}"; configured are: ${listSome(ids)}`)
}

export function dayIn(name: string, asked: string | undefined, today: Day): Day | undefined {
  if (asked === undefined) return undefined
  const last = addDays(today, DAYS_AHEAD)
  if (isDay(asked) && asked >= FIRST_DAY && asked <= last) return asked
  throw new UsageError(`${name}: got "${clip(asked, 40)}"; allowed: a calendar date from ${FIRST_DAY} to ${last}`)
}

/** A range that was asked for, by default the last 90 days up to a day. */
export function rangeOf(query: { from?: string; to?: string }, last: Day, today: Day): Range {
  const to = dayIn('to', query.to, today) ?? last
  const from = dayIn('from', query.from, today) ?? addDays(to, -89)
  if (from > to) throw new UsageError(`from: got ${from}, which is after to, ${to}`)
  const days = countDays({ from, to })
  if (days > MOST_DAYS)
    throw new UsageError(`from, to: got ${count(days, 'day')}; allowed: at most ${count(MOST_DAYS, 'day')}`)
  return { from, to }
}

export function oneOf<T extends string>(name: string, asked: string | undefined, allowed: readonly T[]): T | undefined {
  if (asked === undefined) return undefined
  const found = allowed.find((value) => value === asked)
  if (found === undefined) throw new UsageError(`${name}: got "${clip(asked, 40)}"; allowed: ${allowed.join(', ')}`)
  return found
}
