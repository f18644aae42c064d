import { grouped } from '../../core/text.ts'
import type { Row } from './rows.ts'

/* Numbers as people read them: no digit that says nothing. */

export type Unit = 'share' | 'position' | 'score'

const NONE = '–'

/** "1,204". */
export const whole = (value: number | null) => (value === null ? NONE : grouped(Math.round(value)))

/** "34 %", "34.2 %"; a share that is not zero is never shown as zero. */
export function percent(share: number | null): string {
  if (share === null) return NONE
  if (share > 0 && share < 0.0005) return '< 0.1 %'
  return `${trimmed(share * 100, 1)} %`
}

/** "+2.3 points": the change of a share. */
export const points = (change: number | null) => (change === null ? '' : `${signed(change * 100, 1)} points`)

/** "−2.3 to +4.1", in points. */
export function pointsInterval(low: number | null, high: number | null): string {
  // An end that is near zero keeps its sign: on it depends whether a change is clear.
  const end = (value: number) => signed(value * 100, Math.abs(value) < 0.0005 ? 3 : 1)
  return low === null || high === null ? '' : `${end(low)} to ${end(high)}`
}

/** "+2.3", "−0.4", "0". */
function signed(value: number, digits: number): string {
  const text = trimmed(Math.abs(value), digits)
  return text === '0' ? '0' : `${value > 0 ? '+' : '−'}${text}`
}

export function measured(value: number | null, unit: Unit): string {
  if (value === null) return NONE
  return unit === 'share' ? percent(value) : trimmed(value, digitsOf(value))
}

/** "31.2 % to 35 %"; nothing if there is no interval. */
export function interval(low: number | null, high: number | null, unit: Unit = 'share'): string {
  return low === null ? '' : `${measured(low, unit)} to ${measured(high, unit)}`
}

export function changed(change: number, unit: Unit): string {
  return unit === 'share' ? points(change) : signed(change, 2)
}

// Scales of the service may end at 1 or at 100.
const digitsOf = (value: number) => (Math.abs(value) < 10 ? 2 : 1)

function trimmed(value: number, digits: number): string {
  return String(Number(value.toFixed(digits))).replace('-', '−')
}

/* Changes in words. Only a change that is clear of chance has a colour. */

export interface Verdict {
  mark: '▲' | '▼' | '='
  words: string
  tone: 'better' | 'worse' | 'plain'
}

/** From so many answers on, a share is worth a statement. */
export const ENOUGH = 30
export const plain = (words: string): Verdict => ({ mark: '=', words, tone: 'plain' })
const better = (words: string): Verdict => ({ mark: '▲', words, tone: 'better' })
const worse = (words: string): Verdict => ({ mark: '▼', words, tone: 'worse' })
const VERDICTS: Record<string, Verdict> = {
  up: better('Clear rise'),
  down: worse('Clear fall'),
  new: plain('Not compared with an earlier period'),
  ahead: better('Clearly ahead'),
  behind: worse('Clearly behind'),
  no_clear_lead: plain('No clear lead'),
  too_few: plain('Too few answers to tell'),
}

export function verdictFor(verdict: string | null): Verdict {
  return VERDICTS[verdict ?? 'new'] ?? plain('No clear change')
}

// Of the changes that are called clear, at most this share is chance.
const FALSE_DISCOVERY_RATE = 0.1

/** Of a row with a change: clear by itself, it may be chance among many. A rival's rise is no good news, so it has no colour. */
export function verdictOfChange(row: Row<'verdict'> & Partial<Row<'q_value is_own'>>): Verdict {
  const isOneOfMany = row.q_value !== undefined && ['up', 'down'].includes(row.verdict ?? '')
  if (isOneOfMany && !((row.q_value ?? 1) <= FALSE_DISCOVERY_RATE)) return plain('May be chance')
  const verdict = verdictFor(row.verdict)
  return row.is_own === false ? { ...verdict, tone: 'plain' } : verdict
}
