import { UsageError } from '../core/errors.ts'
import { streamKey } from '../core/stream-key.ts'
import {
  dismissEntries,
  listQuarantine,
  markDaysDue,
  type QuarantineEntry,
  type QuarantineFilter,
} from '../ledger/quarantine.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { inTransaction } from '../warehouse/transaction.ts'

/** Dismisses open entries, so that they no longer make runs partial. Their days are read again by the next run. */
export async function dismissQuarantine(
  warehouse: Warehouse,
  filter: QuarantineFilter,
  because: string,
): Promise<QuarantineEntry[]> {
  return inTransaction(warehouse, async (tx) => {
    const entries = await listQuarantine(tx, { ...filter, state: 'open' })
    const found = new Set(entries.map(({ quarantine_id }) => quarantine_id))
    const missing = (filter.ids ?? []).filter((id) => !found.has(id))
    if (missing.length > 0)
      throw new UsageError(`quarantine dismiss: got ${missing.join(', ')}; there is no such open entry`)
    await dismissEntries(tx, [...found], because)
    const pairs = new Map(
      entries.map(({ project_id, stream }) => [streamKey(project_id, stream), { projectId: project_id, stream }]),
    )
    for (const projectStream of pairs.values()) await markDaysDue(tx, projectStream)
    return entries
  })
}
