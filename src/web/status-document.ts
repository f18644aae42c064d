import { clip } from '../core/text.ts'
import type { OpenAlert } from '../ledger/alert-policy.ts'
import type { RunRow } from '../ledger/runs.ts'
import type { StreamReport } from '../sync/run/report.ts'
import type { LedgerState, View } from './view.ts'

/* What /api/status gives. Its lists have a limit, and their full lengths stand beside them. */

const MOST_STREAMS = 500
const MOST_TROUBLES = 100
const MOST_FAILURES = 10

export interface StatusDocument {
  warehouse: string
  /** One project's lists alone. */
  project: string | undefined
  running: unknown
  next: { sync: Date | undefined; audit: Date | undefined }
  alerts: OpenAlert[]
  /** A run that failed before the ledger knew of it. */
  failedToStart: unknown
}

export function statusDocument(view: View, state: LedgerState | undefined, options: StatusDocument): object {
  const { database } = view
  return {
    warehouse: options.warehouse,
    database: { up: database.up, for_seconds: Math.round(database.forMs / 1000), reason: database.reason ?? null },
    as_of: state === undefined ? null : new Date(view.ledgerNow().getTime() - view.ageMs(state)),
    synced: state?.status !== undefined,
    ...lists(state, options.project),
    running: options.running,
    failed_to_start: options.failedToStart,
    next_sync: options.next.sync ?? null,
    next_audit: options.next.audit ?? null,
    alerts: options.alerts,
    queue:
      state?.queue === undefined
        ? null
        : { ...state.queue, dead: state.queue.dead.slice(0, MOST_TROUBLES), dead_total: state.queue.dead.length },
  }
}

function lists(state: LedgerState | undefined, project: string | undefined): object {
  const status = state?.status
  if (status === undefined) return {}
  const mine = <T extends { project_id: string }>(list: readonly T[]) =>
    project === undefined ? list : list.filter(({ project_id }) => project_id === project)
  const [streams, held, quarantine, drift] = [
    mine(status.streams),
    mine(status.held),
    mine(status.quarantine),
    mine(status.drift),
  ]
  return {
    streams: streams.slice(0, MOST_STREAMS),
    held: held.slice(0, MOST_TROUBLES),
    quarantine: quarantine.slice(0, MOST_TROUBLES).map((row) => ({ ...row, example: clip(row.example) })),
    drift: drift.slice(0, MOST_TROUBLES),
    totals:
      project === undefined
        ? status.totals
        : {
            streams: streams.length,
            held: isWhole(status.held, status.totals.held) ? held.length : null,
            quarantine: quarantine.length,
            drift: isWhole(status.drift, status.totals.drift) ? drift.length : null,
          },
    lookback: status.lookback,
    runs: status.runs.map(shortRun),
  }
}

/** Of a list that was cut before, nobody knows how many are one project's. */
function isWhole(list: readonly unknown[], total: number): boolean {
  return list.length === total
}

/** A run whose summary is short enough; `status --json` shows all of it. */
function shortRun(run: RunRow): object {
  if (!Array.isArray(run.summary)) return run
  const entries = run.summary as (Partial<StreamReport> & { differing?: unknown[] })[]
  const short = <T>(list: readonly T[] | undefined) => list?.slice(0, MOST_FAILURES)
  return {
    ...run,
    summary: entries.map((entry) => ({
      ...entry,
      ...(entry.failed === undefined ? {} : { failed: short(entry.failed), failed_total: entry.failed.length }),
      ...(entry.held === undefined ? {} : { held: short(entry.held), held_total: entry.held.length }),
      ...(entry.differing === undefined
        ? {}
        : { differing: short(entry.differing), differing_total: entry.differing.length }),
    })),
  }
}
