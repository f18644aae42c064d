import { withExisting } from '../../app/open-services.ts'
import { shownText } from '../../core/config/secrets.ts'
import { showRange } from '../../core/day.ts'
import { UsageError } from '../../core/errors.ts'
import { clip, count, grouped } from '../../core/text.ts'
import { hasLedger } from '../../ledger/days.ts'
import {
  groupQuarantine,
  listQuarantine,
  type QuarantineEntry,
  type QuarantineFilter,
  type QuarantineGroup,
  rowsIn,
} from '../../ledger/quarantine.ts'
import { safeJson } from '../../rows/raw-text.ts'
import {
  dismissQuarantine,
  listStillOpen,
  type RetryResult,
  readingOf,
  reopenForRetry,
  retryResult,
} from '../../sync/quarantine.ts'
import { runSync } from '../../sync/run/run-sync.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import { refuseUnread } from '../project-names.ts'
import { runAndReport } from '../run-and-report.ts'
import type { Part, Selection, Session } from '../session.ts'
import { renderTable } from '../table.ts'

interface QuarantineOptions extends Selection {
  reason?: string
  all?: boolean
  each?: boolean
  dismissed?: boolean
  because?: string
}

/** Works with a warehouse that has a ledger; without one, there is nothing to do: 0. */
async function withLedger<T>(
  session: Session,
  { stream = [], project = [] }: QuarantineOptions,
  work: (warehouse: Warehouse) => Promise<T>,
): Promise<T | 0> {
  const { config, signal } = session
  return withExisting(session, async (warehouse, shown) => {
    const isReady = await withRetries(warehouse, signal, async () => {
      if (!(await hasLedger(warehouse))) return false
      await migrate(warehouse, config)
      await refuseUnread(warehouse, config, project)
      // A stream that is no longer configured may have rows in quarantine.
      const kept = await warehouse.db.selectFrom('ops.quarantine').select('stream').distinct().execute()
      session.streams.named(stream.filter((name) => !kept.some((row) => row.stream === name)))
      return true
    })
    if (isReady) return await work(warehouse)
    session.print({ groups: [], entries: [] }, `No rows in quarantine: nothing was synced into ${shown} yet.`)
    return 0
  })
}

function filterOf({ stream = [], project = [], reason, dismissed }: QuarantineOptions): QuarantineFilter {
  return { streams: stream, projects: project, reason, ...(dismissed ? { state: 'dismissed' } : {}) }
}

const LISTED = 200
const NEXT = 'Next: npx visibility-sync quarantine show ID           one row as it came, and why it failed'

export function quarantineList(session: Session, options: QuarantineOptions): Promise<number> {
  return withLedger(session, options, async (warehouse) => {
    const filter: QuarantineFilter = { ...filterOf(options), ...(options.all ? { state: 'all' } : {}) }
    const groups = await groupQuarantine(warehouse, filter)
    const limit = session.json ? {} : { limit: LISTED + 1 }
    const entries = session.json || options.each ? await listQuarantine(warehouse, { ...filter, ...limit }) : []
    const kind = options.all ? '' : options.dismissed ? 'dismissed ' : 'open '
    const text = () =>
      options.each ? renderEntries(entries, session.width) : renderGroups(groups, session.width, options.all)
    session.print({ groups, entries }, groups.length === 0 ? `No ${kind}rows in quarantine.` : text())
    return 0
  })
}

function renderGroups(groups: QuarantineGroup[], width: number, isAll = false): Part[] {
  const table = renderTable({ rows: groups, width }, [
    { title: 'rows', value: (row) => row.rows },
    ...(isAll ? [{ title: 'open', value: (row: QuarantineGroup) => row.open }] : []),
    { title: 'stream', value: (row) => row.stream },
    { title: 'projects', value: (row) => row.projects.length },
    { title: 'days', value: (row) => daysOf(row) },
    { title: 'e.g.', align: 'right', value: (row) => String(row.example_id) },
    { title: 'reason', value: (row) => clip(row.reason, 80) },
  ])
  return [table, '', NEXT, '      npx visibility-sync quarantine dismiss --help    rows that will never load']
}

function renderEntries(entries: QuarantineEntry[], width: number): Part[] {
  const table = renderTable({ rows: entries.slice(0, LISTED), width }, [
    { title: 'id', align: 'right', value: (row) => String(row.quarantine_id) },
    { title: 'rows', value: (row) => row.occurrences },
    { title: 'project', value: (row) => row.project_id },
    { title: 'stream', value: (row) => row.stream },
    { title: 'day', value: (row) => daysOf(row) },
    { title: 'seen', value: (row) => row.times_seen },
    { title: 'last seen (UTC)', value: (row) => row.last_seen_at.toISOString().slice(0, 16).replace('T', ' ') },
    { title: 'state', value: (row) => row.resolution ?? 'open' },
    { title: 'reason', value: (row) => clip(row.reason, 80) },
  ])
  return [table, entries.length > LISTED && `… more than ${LISTED}; --json shows all`, '', NEXT]
}

export function quarantineDismiss(session: Session, options: QuarantineOptions, ids: string[]): Promise<number> {
  const numbers = ids.map(parseId)
  const because = options.because?.trim() ?? ''
  if (because === '') throw new UsageError('quarantine dismiss: say why with --because "…"; it is kept with the rows')
  if (numbers.length === 0 && options.stream === undefined && options.reason === undefined)
    throw new UsageError('quarantine dismiss: name what to dismiss: ids, --reason "…" or --stream NAME')
  return withLedger(session, options, async (warehouse) => {
    const dismissed = await dismissQuarantine(warehouse, { ...filterOf(options), ids: numbers }, because)
    const text = [
      `${count(rowsIn(dismissed), 'row')} dismissed. Runs are no longer partial because of this; a row that changes comes back.`,
      'Next: npx visibility-sync sync   reads their days again without them',
      'Undo: npx visibility-sync quarantine retry --dismissed',
    ]
    session.print(
      { dismissed: dismissed.map(({ quarantine_id }) => quarantine_id), because },
      dismissed.length === 0 ? 'Nothing to dismiss: no open row in quarantine matches.' : text,
    )
    return 0
  })
}

function daysOf({ from_date, to_date }: Pick<QuarantineEntry, 'from_date' | 'to_date'>): string {
  return from_date === null || to_date === null ? 'whole list' : showRange({ from: from_date, to: to_date })
}

export function quarantineShow(session: Session, _options: object, id: string): Promise<number> {
  const number = parseId(id)
  return withLedger(session, {}, async (warehouse) => {
    const [entry] = await listQuarantine(warehouse, { ids: [number], state: 'all' })
    if (entry === undefined)
      throw new UsageError(
        `quarantine show: got ${number}; there is no such entry ("npx visibility-sync quarantine list --all" lists them)`,
      )
    const { first_seen_at, last_seen_at, resolved_at, dismissed_because } = entry
    session.print(entry, [
      `Entry ${entry.quarantine_id}: ${entry.stream} of ${entry.project_id}, ${daysOf(entry)}`,
      `Reason:     ${entry.reason}`,
      `Seen:       ${count(entry.times_seen, 'time')}, first ${first_seen_at.toISOString()}, last ${last_seen_at.toISOString()} (run ${entry.run_id})`,
      dismissed_because !== null && `Dismissed:  ${dismissed_because}`,
      `State:      ${resolved_at === null ? 'open' : `${entry.resolution}, ${resolved_at.toISOString()}`}`,
      '',
      JSON.stringify(JSON.parse(safeJson(entry.raw)), null, 2),
    ])
    return 0
  })
}

const MOST_REASONS = 20

export async function quarantineRetry(session: Session, options: QuarantineOptions, ids: string[]): Promise<number> {
  const filter = { ...filterOf(options), ids: ids.map(parseId) }
  const { signal } = session
  const reopen = (warehouse: Warehouse) => withRetries(warehouse, signal, () => reopenForRetry(warehouse, filter))
  const entries = await withLedger(session, options, reopen)
  if (entries === 0) return 0
  const reading = readingOf(entries, session.streams.named())
  if (reading.streams.length === 0) {
    printRetry(session, retryResult(entries, entries, []))
    return entries.length === 0 ? 0 : 1
  }
  const command = 'quarantine retry'
  const covered = { streams: reading.streams, projects: options.project, coversEverything: false }
  return runAndReport(session, { command, ...covered }, async (open, reporter) => {
    const projects = open.projects.filter(({ id }) => entries.some(({ project_id }) => project_id === id))
    const request = { command, projects, ...reading, signal }
    const report = await runSync(open, request, reporter.observer, open.execute)
    const result = retryResult(entries, await listStillOpen(open.warehouse, entries), reading.streams, report.run_id)
    printRetry(session, result)
    await reporter.ended(report)
    return result.still_bad.length === 0 && report.outcome === 'complete' ? 0 : 1
  })
}

function printRetry(session: Session, result: RetryResult): void {
  const { tried, loaded, still_bad } = result
  const left = still_bad.length - MOST_REASONS
  session.print(result, [
    tried === 0
      ? 'No open rows in quarantine.'
      : `${count(tried, 'row')} read again, ${grouped(loaded)} loaded or gone, ${grouped(tried - loaded)} still bad.`,
    ...still_bad.slice(0, MOST_REASONS).map(({ quarantine_id, reason }) => `  ${quarantine_id}: ${reason}`),
    left > 0 && `  and ${left} more`,
  ])
}

function parseId(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text)
  throw new UsageError(`quarantine: got ${shownText(text, 40)}; allowed: the number of an entry`)
}
