import type { Day } from '../core/day.ts'
import type { Transaction } from '../warehouse/connect.ts'
import type { Change } from '../warehouse/load/replace-window.ts'
import type { Pair } from './run-lock.ts'

/** Keeps what a re-read changed in days that were read before, and returns those days. */
export async function saveRestatements(
  { ops }: Transaction,
  pair: Pair,
  readBefore: ReadonlyMap<Day, unknown>,
  byDay: ReadonlyMap<Day, Change>,
  runId: number,
): Promise<Day[]> {
  const changes = [...byDay].filter(([day]) => readBefore.has(day))
  if (changes.length === 0) return []
  await ops
    .insertInto('restatements')
    .values(
      changes.map(([date, { inserted, updated, deleted }]) => ({
        project_id: pair.projectId,
        stream: pair.stream,
        date,
        rows_inserted: inserted,
        rows_updated: updated,
        rows_deleted: deleted,
        run_id: runId,
      })),
    )
    .execute()
  return changes.map(([day]) => day)
}
