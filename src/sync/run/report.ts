import { type Range, showRange } from '../../core/day.ts'
import type { ReportedCode } from '../../core/failure-code.ts'
import type { RunOutcome } from '../../warehouse/database.ts'
import type { LoadSummary } from './run.ts'

/** The part of a load that is added to a report. */
const LOADED = ['days', 'windows', 'rows_read', 'inserted', 'updated', 'deleted', 'unchanged', 'quarantined'] as const
const COUNTERS = [...LOADED, 'requests', 'retries', 'seconds'] as const
type Counter = (typeof COUNTERS)[number]

/** The result of a run for one stream of one project. `retries` are attempts that failed in a way that is tried again. */
export interface StreamReport extends Record<Counter, number> {
  project_id: string
  stream: string
  held: { range: string; rows_present: number; rows_vanishing: number }[]
  /** Days that do not add up to the service's own totals. Runs of older versions have none. */
  unreconciled: { date: string; difference: string }[]
  failed: { range: string; error: string; code: ReportedCode }[]
  /** The HTTP status by which the service said that it does not offer the stream. */
  not_offered?: number
}

export interface RunReport {
  run_id: number
  command: string
  outcome: RunOutcome
  source: string
  seconds: number
  streams: StreamReport[]
  /** Notes that are no failures, a sentence each. */
  notes: string[]
  /** The failure that ended the run as a whole, if there was one. */
  error?: string
  code?: ReportedCode
}

export interface Failure {
  reason: string
  code: ReportedCode
}

export function emptyReport(projectId: string, stream: string): StreamReport {
  const zero = Object.fromEntries(COUNTERS.map((name) => [name, 0])) as Record<Counter, number>
  return { project_id: projectId, stream, ...zero, held: [], unreconciled: [], failed: [] }
}

export function addLoad(
  report: StreamReport,
  { range, rowsRead, rejects, difference, effect }: LoadSummary,
  days: number,
): void {
  const added = { ...effect, windows: 1, days, rows_read: rowsRead, quarantined: rejects }
  for (const name of LOADED) report[name] += added[name]
  if (difference !== undefined) report.unreconciled.push({ date: rangeText(range), difference })
  if (effect.held === undefined) return
  const { present, vanishing } = effect.held
  report.held.push({ range: rangeText(effect.held.range ?? range), rows_present: present, rows_vanishing: vanishing })
}

export function addFailure(report: StreamReport, range: Range | undefined, { reason, code }: Failure): void {
  const failure = { range: rangeText(range), error: reason, code }
  // A window that is read again may fail again.
  if (!report.failed.some((known) => known.range === failure.range && known.error === reason))
    report.failed.push(failure)
}

function rangeText(range: Range | undefined): string {
  return range === undefined ? 'the whole list' : showRange(range)
}

/** A failure, a held day or a quarantined row makes a run partial. */
export function outcomeOf(streams: readonly StreamReport[], interrupted: boolean): RunOutcome {
  if (interrupted) return 'interrupted'
  const clean = streams.every(
    ({ failed, held, unreconciled, quarantined }) =>
      failed.length + held.length + unreconciled.length === 0 && quarantined === 0,
  )
  if (clean) return 'complete'
  return streams.some(({ windows }) => windows > 0) ? 'partial' : 'failed'
}

/** The same numbers by stream, over all projects. The days of projects are the same ones, so they are not added up. */
export function byStream(streams: readonly StreamReport[]): StreamReport[] {
  const totals = new Map<string, StreamReport>()
  for (const report of streams) {
    const total = totals.get(report.stream) ?? emptyReport('', report.stream)
    totals.set(report.stream, total)
    const { days } = total
    for (const name of COUNTERS) total[name] += report[name] ?? 0
    total.days = Math.max(days, report.days)
    total.held.push(...report.held)
    total.unreconciled.push(...(report.unreconciled ?? []))
    total.failed.push(...report.failed)
  }
  return [...totals.values()]
}
