import { sql } from 'kysely'
import type { Redactor } from '../core/redactor.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { DriftNote } from '../rows/drift-notes.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/** Notes once what the API does not document. */
export async function saveDrift(
  { ops, redactor }: Transaction,
  projectStream: ProjectStream,
  notes: readonly DriftNote[],
  runId: number,
): Promise<void> {
  if (notes.length === 0) return
  const cleaned = notes.map((note) => clean(note, redactor))
  const column = (name: keyof DriftNote) => cleaned.map((note) => note[name])
  await ops
    .insertInto('drift')
    .columns(['project_id', 'stream', 'run_id', 'kind', 'name', 'example'])
    .expression(
      sql`select ${projectStream.projectId}::text, ${projectStream.stream}::text, ${runId}::bigint, note.*
          from unnest(${column('kind')}::text[], ${column('name')}::text[], ${column('example')}::text[]) note` as never,
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}

/** Names and examples come from the service and may hold what Postgres cannot store, or repeat a secret. */
function clean({ kind, name, example }: DriftNote, redactor: Redactor): DriftNote {
  const storable = (text: string) => redactor.text(text.replaceAll('\0', '\uFFFD').toWellFormed())
  return { kind, name: storable(name), example: storable(example) }
}
