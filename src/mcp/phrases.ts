import { countDays, type Range } from '../core/day.ts'
import { count } from '../core/text.ts'
import { ENOUGH, interval, measured, points, pointsInterval, whole } from '../web/insights/format.ts'
import type { DaysRead } from '../web/insights/read-page.ts'
import { CHART_KINDS } from '../web/insights/series.ts'

/* How answers are phrased: each number with its interval, its sample and a verdict, and what its days leave open. */

export const METRICS = ['visibility', 'share_of_voice', 'position', 'sentiment'] as const
export type Metric = (typeof METRICS)[number]
export const kindOf = (metric: Metric) => CHART_KINDS[metric === 'share_of_voice' ? 'share-of-voice' : metric]

const NAME_LENGTH = 80
export const TEXT_LENGTH = 160

/**
 * A text of the service or of a caller as data: one line, without characters that are invisible, that end a quotation, or
 * that a client renders as markup.
 */
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

/** A number as the statements of the insights pages give it. */
export interface MeasuredRow {
  value: number | null
  low?: number | null
  high?: number | null
  /** The answers or mentions that count, if it is a share, of how many. */
  count?: number | null
  sample: number | null
  previous_value?: number | null
  previous_sample?: number | null
  change?: number | null
  change_low?: number | null
  change_high?: number | null
  verdict?: string | null
}

const isClear = (verdict: string | null | undefined) => verdict === 'up' || verdict === 'down'

const NOTHING = {
  ...{ low: null, high: null, count: null, previous_value: null, previous_sample: null },
  ...{ change: null, change_low: null, change_high: null, verdict: null },
}

/** The same as data. A change that is not clear is not given, only the interval that it lies in. */
export function factOf(metric: Metric, row: MeasuredRow) {
  const {
    value,
    low,
    high,
    count: k,
    sample,
    verdict,
    change,
    change_low,
    change_high,
    ...before
  } = { ...NOTHING, ...row }
  const { previous_value, previous_sample } = before
  return {
    ...{ metric, value, low, high, count: kindOf(metric).unit === 'share' ? k : null },
    ...{ sample: sample ?? 0, sample_of: kindOf(metric).sampleName, previous_value },
    previous_sample: previous_value === null ? null : previous_sample,
    change: isClear(verdict) ? change : null,
    ...{ change_low, change_high },
    verdict: verdict ?? (previous_value === null ? 'not_compared' : 'no_interval'),
  }
}

/** "34.2 % (412 of 1,204 answers; 95 % interval 31.6 % to 36.9 %)". */
export function numberOf(metric: Metric, { value, low = null, high = null, count: k, sample }: MeasuredRow): string {
  const { unit, sampleName } = kindOf(metric)
  if (value === null) return `no value (${whole(sample ?? 0)} ${sampleName})`
  const of =
    unit === 'share' ? `${whole(k ?? null)} of ${whole(sample)} ${sampleName}` : `${whole(sample)} ${sampleName}`
  const few = metric === 'visibility' && (sample ?? 0) < ENOUGH ? '; too few answers for a conclusion' : ''
  return `${measured(value, unit)} (${of}${low === null ? '' : `; 95 % interval ${interval(low, high)}`}${few})`
}

/** What became of a number since the period before; nothing if it was not compared. */
export function changeOf(metric: Metric, row: MeasuredRow): string {
  const { unit, sampleName } = kindOf(metric)
  const { sample, previous_value = null, previous_sample = null, change = null } = row
  const [low = null, high = null] = [row.change_low, row.change_high]
  const before =
    previous_value === null ? '' : `${measured(previous_value, unit)} of ${whole(previous_sample)} ${sampleName}`
  switch (row.verdict) {
    case 'up':
    case 'down': {
      const words = row.verdict === 'up' ? 'Clear rise' : 'Clear fall'
      return `${words} of ${points(Math.abs(change!)).slice(1)} from ${before} (interval of the change ${pointsInterval(low, high)} points).`
    }
    case 'no_clear_change':
      return `No clear change from ${before}: the difference may be ${pointsInterval(low, high)} points.`
    case 'too_few':
      return `Too few answers to compare: ${whole(sample)} now, ${whole(previous_sample)} before; each period needs ${ENOUGH}.`
    case 'new':
      return 'Nothing was measured in the period before.'
    default:
      if (previous_value === null) return ''
      return `Before: ${measured(previous_value, unit)} (${whole(previous_sample)} ${sampleName}). Without an interval, the difference is not called a change.`
  }
}

/** What the days of a period leave open. */
export function notesOnDays(read: DaysRead, range: Range): string[] {
  const all = countDays(range)
  const days = (number: number, rest: string) => (number === 0 ? [] : [`${count(number, 'day')} ${rest}`])
  const missing = all - read.days
  const notes = [
    ...days(missing, `of ${all} ${missing === 1 ? 'was' : 'were'} never read`),
    ...days(read.held_days, 'held: an answer of the service awaits review'),
    ...days(read.unreconciled_days, "unreconciled: the rows do not add up to the service's totals"),
    ...days(read.quarantined_days, 'with rows in quarantine'),
    ...days(read.provisional_days, 'provisional: the numbers may still change'),
  ]
  if (read.whole_days === all && notes.length === 0)
    return [`All ${count(all, 'day')} of the period are complete and final.`]
  const complete = read.whole_days === all ? 'All' : `Incomplete: only ${read.whole_days} of`
  return [
    `${complete} ${count(all, 'day')} of the period are complete${notes.length === 0 ? '' : `; ${notes.join('; ')}`}.`,
  ]
}

/** "2026-03-02 to 2026-03-29". */
export const showPeriod = ({ from, to }: Range) => (from === to ? from : `${from} to ${to}`)
