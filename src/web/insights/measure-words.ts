import { ENOUGH, interval, measured, points, pointsInterval, whole } from './format.ts'
import type { Metric } from './measure-statements.ts'
import type { MeasuredRow, Row } from './rows.ts'
import { CHART_KINDS } from './series.ts'

/* A number in words: with its interval, its sample and a verdict. */

export type Measured = MeasuredRow & Row<'name brand'> & Partial<Row<'is_complete is_provisional'>> & { metric: Metric }

export const kindOf = (metric: Metric) => CHART_KINDS[metric === 'share_of_voice' ? 'share-of-voice' : metric]

/** "34.2 % (412 of 1,204 answers; 95 % interval 31.6 % to 36.9 %)". */
export function numberOf(metric: Metric, { value, low = null, high = null, count: k = null, sample }: MeasuredRow) {
  const { unit, sampleName } = kindOf(metric)
  const of = `${unit === 'share' && value !== null ? `${whole(k)} of ` : ''}${whole(sample ?? 0)} ${sampleName}`
  const few = metric === 'visibility' && (sample ?? 0) < ENOUGH ? '; too few answers for a conclusion' : ''
  const ends = low === null ? '' : `; 95 % interval ${interval(low, high)}`
  return `${value === null ? 'no value' : measured(value, unit)} (${of}${ends}${few})`
}

/** What became of a number since the period before; nothing if it was not compared. */
export function changeOf(metric: Metric, row: MeasuredRow): string {
  const { unit, sampleName } = kindOf(metric)
  const sample = `${whole(row.previous_sample ?? null)} ${sampleName}`
  const value = measured(row.previous_value ?? null, unit)
  const before = unit === 'share' ? `${value} of ${sample}` : `${value} (${sample})`
  const ends = `${pointsInterval(row.change_low ?? null, row.change_high ?? null)} points`
  const size = `of ${points(Math.abs(row.change ?? 0)).slice(1)} from ${before} (95 % interval ${ends})`
  const samples = `${whole(row.sample)} now, ${whole(row.previous_sample ?? null)} before`
  const words: Record<string, string> = {
    up: ` Clear rise ${size}.`,
    down: ` Clear fall ${size}.`,
    no_clear_change: ` No clear change from ${before}: the difference may be ${ends}.`,
    new: ' Nothing was measured in the period before.',
    no_interval: ` Before: ${before}; without an interval there is no verdict.`,
    too_few: ` Too few answers to compare: ${samples}; each period needs ${ENOUGH}.`,
  }
  return words[row.verdict ?? ''] ?? ''
}
