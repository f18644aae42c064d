import { lastRunHeads, type RunRow, summaryOf } from '../ledger/runs.ts'
import { byStream, type StreamReport } from '../sync/run/report.ts'
import type { Warehouse } from '../warehouse/connect.ts'

// The summary of a run has an entry for each project and stream.
const MOST_ENTRIES = 50

/** The last runs. Summaries of runs that ended do not change, so each is read once, however often somebody looks. */
export class RunMemory {
  private known = new Map<number, RunRow>()

  constructor(private readonly limit: number) {}

  async read(warehouse: Warehouse): Promise<RunRow[]> {
    const rows: RunRow[] = []
    for (const head of await lastRunHeads(warehouse, this.limit)) {
      const known = this.known.get(head.run_id)
      const isSame = known?.outcome === head.outcome && known.ended_at?.getTime() === head.ended_at?.getTime()
      const summary = isSame ? known.summary : head.outcome === null ? null : await summaryOf(warehouse, head.run_id)
      rows.push({ ...head, summary: isSame ? summary : condense(summary) })
    }
    this.known = new Map(rows.map((row) => [row.run_id, row]))
    return rows
  }
}

/** Of a long summary, what went wrong is kept by project as far as there is room; the rest is summed up by stream. */
export function condense(summary: unknown): unknown {
  if (!Array.isArray(summary) || summary.length <= MOST_ENTRIES) return summary
  if (!isReports(summary)) return differing(summary).slice(0, MOST_ENTRIES)
  const troubled = summary
    .filter(({ failed, held, quarantined }) => failed.length > 0 || held.length > 0 || quarantined > 0)
    .slice(0, MOST_ENTRIES)
  const shown = new Set(troubled)
  return [...troubled, ...byStream(summary.filter((entry) => !shown.has(entry)))]
}

/** Of an audit, what agrees is left out. */
function differing(summary: { differing?: unknown[] }[]): unknown[] {
  return summary.filter((entry) => (entry?.differing?.length ?? 0) > 0)
}

/** The summary of an audit has entries of another kind. */
export function isReports(summary: unknown[]): summary is StreamReport[] {
  return summary.every((entry) => typeof (entry as StreamReport | null)?.rows_read === 'number')
}
