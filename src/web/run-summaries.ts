import { lastRunHeads, type RunRow, summaryOf } from '../ledger/runs.ts'
import { byStream, type StreamReport } from '../sync/run/report.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { Cache } from './cache.ts'

// The summary of a run has an entry for each project and stream.
const MOST_ENTRIES = 50
const KEPT_MS = 24 * 3_600_000

/** The last runs. The summary of a run that has ended does not change, so it is read once. */
export async function readLastRuns(warehouse: Warehouse, limit: number, cache: Cache): Promise<RunRow[]> {
  const runs: RunRow[] = []
  for (const head of await lastRunHeads(warehouse, limit)) {
    const read = async () => condense(await summaryOf(warehouse, head.run_id))
    const key = `summary of run ${head.run_id} ${head.outcome}`
    runs.push({ ...head, summary: head.outcome === null ? null : await cache.get(key, KEPT_MS, read) })
  }
  return runs
}

/** Shortens a long summary: entries with failures keep their project as far as there is room, others are summed by stream. */
function condense(summary: unknown): unknown {
  if (!Array.isArray(summary) || summary.length <= MOST_ENTRIES) return summary
  if (!isReports(summary)) return summary.filter((entry) => entry?.differing?.length > 0).slice(0, MOST_ENTRIES)
  const troubled = summary
    .filter(
      ({ failed, held, unreconciled, quarantined }) =>
        failed.length + held.length + (unreconciled ?? []).length + quarantined > 0,
    )
    .slice(0, MOST_ENTRIES)
  const shown = new Set(troubled)
  return [...troubled, ...byStream(summary.filter((entry) => !shown.has(entry)))]
}

/** False for the summary of an audit, which has other entries. */
export function isReports(summary: unknown[]): summary is StreamReport[] {
  return summary.every((entry) => typeof (entry as StreamReport | null)?.rows_read === 'number')
}

type Counted = 'rows_read' | 'inserted' | 'updated' | 'deleted' | 'requests' | 'retries' | 'windows'

/** The sum of a field over a stored summary. Older versions stored fewer fields, and an audit stores other ones. */
export function sumOf(summary: unknown, field: Counted): number {
  const list = Array.isArray(summary) ? (summary as Partial<StreamReport>[]) : []
  return list.reduce((total, row) => total + Number(row?.[field] ?? 0), 0)
}
