import { sql } from 'kysely'
import type { Day } from '../core/day.ts'
import type { ProjectStream } from '../core/stream-key.ts'
import type { Change } from '../warehouse/load/window-effect.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/** Keeps what a re-read changed in days that were read before, and returns those days. */
export async function saveRestatements(
  { ops }: Transaction,
  projectStream: ProjectStream,
  readBefore: ReadonlyMap<Day, unknown>,
  byDay: ReadonlyMap<Day, Change>,
  runId: number,
): Promise<Day[]> {
  const changes = [...byDay].filter(([day]) => readBefore.has(day))
  if (changes.length === 0) return []
  const days = changes.map(([day]) => day)
  const column = (name: keyof Change) => changes.map(([, change]) => change[name])
  await ops
    .insertInto('restatements')
    .columns(['project_id', 'stream', 'run_id', 'date', 'rows_inserted', 'rows_updated', 'rows_deleted'])
    .expression(
      sql`select ${projectStream.projectId}::text, ${projectStream.stream}::text, ${runId}::bigint, day.*
          from unnest(${days}::date[], ${column('inserted')}::int[], ${column('updated')}::int[], ${column('deleted')}::int[]) day` as never,
    )
    .execute()
  return days
}
