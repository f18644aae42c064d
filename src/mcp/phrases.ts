import { countDays, type Range } from '../core/day.ts'
import { count } from '../core/text.ts'
import { ENOUGH, interval, measured, points, pointsInterval, whole } from '../web/insights/format.ts'
import type { Metric } from '../web/insights/measure-statements.ts'
import type { DaysRead } from '../web/insights/read-page.ts'
import { CHART_KINDS } from '../web/insights/series.ts'

/* How answers are phrased: each number with its interval, its sample and a verdict, and what its days leave open. */

const NAME_LENGTH = 80
export const TEXT_LENGTH = 160
const DATA_LENGTH = 300
export const MOST_IN_LIST = 12

/** A text of the service or of a caller as data: one line, with nothing that is invisible, ends a quotation or is rendered as markup. */
export function inert(text: string, most = NAME_LENGTH): string {
  const plain = text
    .toWellFormed()
    .replaceAll(/[\p{Cc}\p{Z}\s]+/gu, ' ')
    .replaceAll(/[\p{Cf}\p{Co}\p{Cn}]/gu, '')
    .replaceAll('<', '‹')
    .replaceAll('>', '›')
    .replaceAll(/[«»"`]/g, "'")
    .replaceAll('](', '] (')
    .trim()
  const letters = [...plain]
  return letters.length <= most ? plain : `${letters.slice(0, most).join('')}…`
}

/** The mark of a text that is data. */
export const quoted = (text: string, most?: number) => `«${inert(text, most)}»`

/** "«a», «b» and 3 more". */
export function quotedList(texts: readonly string[], most = MOST_IN_LIST): string {
  const rest = texts.length - most
  const list = texts.slice(0, most).map((text) => quoted(text))
  return `${list.join(', ') || 'none'}${rest > 0 ? ` and ${rest} more` : ''}`
}

/** These columns of a row, with inert texts. */
export function asData(row: object, names: readonly string[]): Record<string, unknown> {
  const clean = (value: unknown): unknown => {
    if (typeof value === 'string') return inert(value, DATA_LENGTH)
    if (value instanceof Date) return value.toISOString()
    if (!Array.isArray(value)) return value ?? null
    const rest = value.length - MOST_IN_LIST
    return [...value.slice(0, MOST_IN_LIST).map(clean), ...(rest > 0 ? [`… and ${rest} more`] : [])]
  }
  return Object.fromEntries(names.map((name) => [name, clean(row[name as keyof typeof row])]))
}

/** A number as the statements of the insights pages give it, with the interval and the count only of a share. */
export type MeasuredRow = Record<'value' | 'sample', number | null> & Partial<typeof UNKNOWN>
const UNKNOWN = {
  ...{ low: null as number | null, high: null as number | null, count: null as number | null },
  ...{ previous_value: null as number | null, previous_sample: null as number | null, verdict: null as string | null },
  ...{ change: null as number | null, change_low: null as number | null, change_high: null as number | null },
}

/** A change that is not clear is not given, only the interval in which it lies. */
export function withoutNoise<R extends MeasuredRow>(row: R): R {
  const { verdict, previous_value, change } = { ...UNKNOWN, ...row }
  const words = verdict ?? (previous_value === null ? 'not_compared' : 'no_interval')
  return { ...row, change: verdict === 'up' || verdict === 'down' ? change : null, verdict: words }
}

export const kindOf = (metric: Metric) => CHART_KINDS[metric === 'share_of_voice' ? 'share-of-voice' : metric]

/** "34.2 % (412 of 1,204 answers; 95 % interval 31.6 % to 36.9 %)". */
export function numberOf(metric: Metric, row: MeasuredRow): string {
  const { unit, sampleName } = kindOf(metric)
  const { value, low, high, count: k, sample } = { ...UNKNOWN, ...row }
  const of = `${unit === 'share' && value !== null ? `${whole(k)} of ` : ''}${whole(sample ?? 0)} ${sampleName}`
  const few = metric === 'visibility' && (sample ?? 0) < ENOUGH ? '; too few answers for a conclusion' : ''
  const ends = low === null ? '' : `; 95 % interval ${interval(low, high)}`
  return `${value === null ? 'no value' : measured(value, unit)} (${of}${ends}${few})`
}

/** What became of a number since the period before; nothing if it was not compared. */
export function changeOf(metric: Metric, row: MeasuredRow): string {
  const { unit, sampleName } = kindOf(metric)
  const { sample, previous_value, previous_sample, change, change_low, change_high, verdict } = { ...UNKNOWN, ...row }
  const before = `${measured(previous_value, unit)} of ${whole(previous_sample)} ${sampleName}`
  const ends = `${pointsInterval(change_low, change_high)} points`
  const clear = (word: string) =>
    ` Clear ${word} of ${points(Math.abs(change!)).slice(1)} from ${before} (95 % interval ${ends}).`
  if (verdict === 'up') return clear('rise')
  if (verdict === 'down') return clear('fall')
  if (verdict === 'no_clear_change') return ` No clear change from ${before}: the difference may be ${ends}.`
  if (verdict === 'new') return ' Nothing was measured in the period before.'
  if (verdict === 'no_interval') return ` Before: ${before}; without an interval there is no verdict.`
  const few = `Too few answers to compare: ${whole(sample)} now, ${whole(previous_sample)} before`
  return verdict === 'too_few' ? ` ${few}; each period needs ${ENOUGH}.` : ''
}

/** What the days of a period leave open. */
export function noteOnDays(read: DaysRead, range: Range): string {
  const all = countDays(range)
  const reasons = [
    [all - read.days, 'never read'],
    [read.held_days, 'held for review'],
    [read.unreconciled_days, "unreconciled with the service's totals"],
    [read.quarantined_days, 'with rows in quarantine'],
    [read.provisional_days, 'provisional, whose numbers may still change'],
  ].flatMap(([days, words]) => (days === 0 ? [] : [`${count(days as number, 'day')} ${words}`]))
  const open = reasons.length === 0 ? ' and final' : `; ${reasons.join('; ')}`
  if (all === 1) return `The day is ${read.whole_days === 1 ? `complete${open}` : `incomplete${open}`}.`
  return `${read.whole_days === all ? 'All' : `Incomplete: only ${read.whole_days} of`} ${all} days of the period are complete${open}.`
}

/** "2026-03-02 to 2026-03-29". */
export const showPeriod = ({ from, to }: Range) => (from === to ? from : `${from} to ${to}`)

/** "34.2 % (31.6 % to 36.9 %)". */
export const shareWith = (value: number | null, low: number | null, high: number | null) =>
  `${measured(value, 'share')}${low === null ? '' : ` (${interval(low, high)})`}`
