import { shownText } from '../../core/config/describe-issue.ts'
import { UsageError } from '../../core/errors.ts'
import { clip, count } from '../../core/text.ts'
import { listQuarantine, type QuarantineEntry } from '../../ledger/quarantine.ts'
import { streamsOf } from '../../streams/registry.ts'
import { safeJson } from '../../streams/sift.ts'
import { retryQuarantine } from '../../sync/retry-quarantine.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { type Open, withServices } from '../open.ts'
import type { Session } from '../session.ts'
import { renderTable } from '../table.ts'

export interface QuarantineOptions {
  stream?: string[]
  project?: string[]
  all?: boolean
}

function withLedger(session: Session, work: (open: Open) => Promise<number>): Promise<number> {
  const { config, log, clock, version } = session
  return withServices({ config, log, clock, version }, async (open) => {
    await migrate(open.warehouse, config)
    return work(open)
  })
}

const LISTED = 200

/** `quarantine list`: the rows that failed validation. */
export function quarantineList(session: Session, options: QuarantineOptions): Promise<number> {
  return withLedger(session, async ({ warehouse }) => {
    const filter = { streams: options.stream ?? [], projects: options.project ?? [], all: options.all ?? false }
    const entries = await listQuarantine(warehouse, { ...filter, ...(session.json ? {} : { limit: LISTED + 1 }) })
    const shown = entries.slice(0, LISTED)
    const table = renderTable<QuarantineEntry>(
      [
        { title: 'id', align: 'right', value: (row) => String(row.quarantine_id) },
        { title: 'project', value: (row) => row.project_id },
        { title: 'stream', value: (row) => row.stream },
        { title: 'day', value: placeOf },
        { title: 'seen', align: 'right', value: (row) => row.times_seen },
        { title: 'last seen (UTC)', value: (row) => row.last_seen_at.toISOString().slice(0, 16).replace('T', ' ') },
        { title: 'state', value: (row) => row.resolution ?? 'open' },
        { title: 'reason', value: (row) => clip(row.reason, 80) },
      ],
      shown,
    )
    const rest = entries.length > LISTED ? [`… more than ${LISTED}; --json shows all`] : []
    const text =
      entries.length === 0
        ? `No ${options.all ? '' : 'open '}rows in quarantine.`
        : [table, ...rest, '', 'Next: visibility-sync quarantine show ID'].join('\n')
    session.print({ entries }, text)
    return 0
  })
}

function placeOf({ from_date, to_date }: QuarantineEntry): string {
  if (from_date === null || to_date === null) return 'whole list'
  return from_date === to_date ? from_date : `${from_date}..${to_date}`
}

/** `quarantine show`: one row as it came, and why it failed. */
export function quarantineShow(session: Session, id: string): Promise<number> {
  const number = parseId(id)
  return withLedger(session, async ({ warehouse }) => {
    const [entry] = await listQuarantine(warehouse, { ids: [number], all: true })
    if (entry === undefined)
      throw new UsageError(
        `quarantine show: got ${number}; there is no such entry ("visibility-sync quarantine list --all" lists them)`,
      )
    const text = [
      `Entry ${entry.quarantine_id}: ${entry.stream} of ${entry.project_id}, ${placeOf(entry)}`,
      `Reason:     ${entry.reason}`,
      `Seen:       ${count(entry.times_seen, 'time')}, first ${entry.first_seen_at.toISOString()}, last ${entry.last_seen_at.toISOString()} (run ${entry.run_id})`,
      `State:      ${entry.resolved_at === null ? 'open' : `${entry.resolution}, ${entry.resolved_at.toISOString()}`}`,
      '',
      JSON.stringify(JSON.parse(safeJson(entry.raw)), null, 2),
    ].join('\n')
    session.print(entry, text)
    return 0
  })
}

/** `quarantine retry`: validates again and loads what passes now. */
export function quarantineRetry(session: Session, ids: string[], options: QuarantineOptions): Promise<number> {
  const numbers = ids.map(parseId)
  return withLedger(session, async (open) => {
    const filter = { ids: numbers, streams: options.stream ?? [], projects: options.project ?? [] }
    const result = await retryQuarantine(open, streamsOf(open.config), filter)
    const lines = result.still_bad.slice(0, 20).map(({ quarantine_id, reason }) => `  ${quarantine_id}: ${reason}`)
    session.print(
      result,
      [
        result.tried === 0
          ? 'No open rows in quarantine.'
          : `${count(result.tried, 'row')} tried again, ${result.loaded} loaded, ${result.still_bad.length} still bad.`,
        ...lines,
      ].join('\n'),
    )
    return result.still_bad.length === 0 ? 0 : 1
  })
}

function parseId(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text)
  throw new UsageError(`quarantine: got ${shownText(text, 40)}; allowed: the number of an entry`)
}
