import { sql } from 'kysely'
import type { DriftNote } from '../streams/drift-notes.ts'
import type { Transaction } from '../warehouse/connect.ts'
import type { Pair } from './locks.ts'

/** Notes once what the interface does not mention. */
export async function saveDrift(
  { ops }: Transaction,
  pair: Pair,
  notes: readonly DriftNote[],
  runId: number,
): Promise<void> {
  if (notes.length === 0) return
  const column = (name: keyof DriftNote) => notes.map((note) => clean(note)[name])
  await ops
    .insertInto('drift')
    .columns(['project_id', 'stream', 'run_id', 'kind', 'name', 'example'])
    .expression(
      sql`select ${pair.projectId}::text, ${pair.stream}::text, ${runId}::bigint, note.*
          from unnest(${column('kind')}::text[], ${column('name')}::text[], ${column('example')}::text[]) note` as never,
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}

/** Names and examples come from the service and may hold what Postgres cannot store. */
function clean({ kind, name, example }: DriftNote): DriftNote {
  const storable = (text: string) => text.replaceAll('\0', '\uFFFD').toWellFormed()
  return { kind, name: storable(name), example: storable(example) }
}
