import { type Selectable, sql } from 'kysely'
import { quote } from '../core/identifier.ts'
import type { ProjectStream } from '../core/vocabulary.ts'
import type { DriftNote } from '../rows/drift-notes.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/*
 * Streams that the service does not offer. They are requested again after a week, because the service may begin to offer them.
 * Streams that were read before are requested again the next day, because the service may have erred.
 */

type NotOffered = Selectable<OpsTables['not_offered']> & { was_read: boolean }

/** Streams that are not offered and need not be requested now. */
export async function readNotOffered(
  { pool, opsSchema }: Warehouse,
  projectIds: readonly string[],
  now: Date,
): Promise<NotOffered[]> {
  const { rows } = await pool.query<NotOffered>(
    `select n.*, c.was_read from ${quote(opsSchema, 'not_offered')} n cross join lateral (
       select exists (select from ${quote(opsSchema, 'coverage')} c
         where c.project_id = n.project_id and c.stream = n.stream and c.rows > 0) as was_read
     ) c
     where n.project_id = any($1) and n.asked_at > $2::timestamptz - case when c.was_read then interval '1 day' else interval '7 days' end
     order by 1, 2`,
    [[...projectIds, ''], now],
  )
  return rows
}

export async function saveNotOffered(
  { ops }: Warehouse,
  { projectId, stream }: ProjectStream,
  status: number,
  now: Date,
): Promise<void> {
  const noted = { status, asked_at: now }
  const insert = ops.insertInto('not_offered').values({ project_id: projectId, stream, ...noted })
  await insert.onConflict((conflict) => conflict.columns(['project_id', 'stream']).doUpdateSet(noted)).execute()
}

/** The service offers it: rows were read. */
export async function forgetNotOffered({ ops }: Transaction, { projectId, stream }: ProjectStream): Promise<void> {
  await ops.deleteFrom('not_offered').where('project_id', '=', projectId).where('stream', '=', stream).execute()
}

/** Notes once what the API does not document. */
export async function saveDrift(
  { ops, redactor }: Transaction,
  projectStream: ProjectStream,
  notes: readonly DriftNote[],
  runId: number,
): Promise<void> {
  if (notes.length === 0) return
  // Names and examples come from the service and may hold what Postgres cannot store, or repeat a secret.
  const storable = (text: string) => redactor.text(text.replaceAll('\0', '\uFFFD').toWellFormed())
  const column = (name: keyof DriftNote) => notes.map((note) => storable(note[name]))
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
