import { countDays, type Range } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import { count, didYouMean, listSome } from '../core/text.ts'
import { ENOUGH, interval, measured, points, pointsInterval, whole } from '../web/insights/format.ts'
import type { Metric } from '../web/insights/measure-statements.ts'
import type { DaysRead } from '../web/insights/read-page.ts'
import { CHART_KINDS } from '../web/insights/series.ts'

/* How answers are phrased: names and texts as data, each number with its interval, its sample and a verdict, and what days leave open. */

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
export const quotedList = (texts: readonly string[], most = MOST_IN_LIST) =>
  listSome(
    texts.map((text) => quoted(text)),
    most,
  ) || 'none'

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

export interface Named {
  id: string
  name: string
}

export const listed = (kind: string, all: readonly Named[]) =>
  `${kind}s are: ${quotedList(all.map(({ name }) => name))}`

/** The one that has this id or this name. Nothing is guessed: what is near is only suggested. */
export function find<T extends Named>(kind: string, asked: string, all: readonly T[]): T {
  const plain = (name: string) => inert(name.replaceAll(/^«|»$/g, ''), 255).toLowerCase()
  const byId = all.filter(({ id }) => id === asked)
  const found = byId.length > 0 ? byId : all.filter(({ name }) => plain(name) === plain(asked))
  if (found.length === 1) return found[0]!
  if (found.length > 1) {
    const ids = listSome(found.map(({ id }) => inert(id)))
    throw new UsageError(`several ${kind}s are named ${quoted(asked)}; ask by id: ${ids}`)
  }
  const near = all.map(({ name }) => inert(name))
  throw new UsageError(`unknown ${kind} "${inert(asked)}"${didYouMean(inert(asked), near) || ';'} ${listed(kind, all)}`)
}

/** A number as the statements of the insights pages give it, with the interval and the count only of a share. */
export interface MeasuredRow
  extends Record<'value' | 'sample', number | null>,
    Partial<Record<'low' | 'high' | 'count' | 'previous_value' | 'previous_sample', number | null>>,
    Partial<Record<'change' | 'change_low' | 'change_high', number | null>> {
  verdict?: string | null
}

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
  const before = `${measured(row.previous_value ?? null, unit)} of ${whole(row.previous_sample ?? null)} ${sampleName}`
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

/** What the days of a period leave open. */
export function noteOnDays(read: DaysRead, range: Range): string {
  const all = countDays(range)
  const reasons = [
    [all - read.days, 'never read'],
    [read.held_days, 'held for review'],
    [read.unreconciled_days, "unreconciled with the service's totals"],
    [read.quarantined_days, 'with rows in quarantine'],
    [read.provisional_days, 'provisional, whose numbers may still change'],
  ].flatMap(([days, words]) => (days === 0 ? [] : [`; ${count(days as number, 'day')} ${words}`]))
  const open = reasons.join('') || ' and final'
  if (all === 1) return `The day is ${read.whole_days === 1 ? 'complete' : 'incomplete'}${open}.`
  return `${read.whole_days === all ? 'All' : `Incomplete: only ${read.whole_days} of`} ${all} days of the period are complete${open}.`
}

/** "2026-03-02 to 2026-03-29". */
export const showPeriod = ({ from, to }: Range) => (from === to ? from : `${from} to ${to}`)
