import { type Selectable, sql } from 'kysely'
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
  { db }: Warehouse,
  projectIds: readonly string[],
  now: Date,
): Promise<NotOffered[]> {
  const { rows } = await sql<NotOffered>`
    select n.*, c.was_read from ops.not_offered n cross join lateral (
      select exists (select from ops.coverage c
        where c.project_id = n.project_id and c.stream = n.stream and c.rows > 0) as was_read
    ) c
    where n.project_id = any(${[...projectIds, '']})
      and n.asked_at > ${now}::timestamptz - case when c.was_read then interval '1 day' else interval '7 days' end
    order by 1, 2`.execute(db)
  return rows
}

export async function saveNotOffered(
  { db }: Warehouse,
  { projectId, stream }: ProjectStream,
  status: number,
  now: Date,
): Promise<void> {
  const noted = { status, asked_at: now }
  const insert = db.insertInto('ops.not_offered').values({ project_id: projectId, stream, ...noted })
  await insert.onConflict((conflict) => conflict.columns(['project_id', 'stream']).doUpdateSet(noted)).execute()
  // What was never read is not stale, but not there.
  await sql`
    delete from ops.stream_settings t where project_id = ${projectId} and stream = ${stream} and not exists (
      select from ops.coverage c where c.project_id = t.project_id and c.stream = t.stream and c.rows > 0)`.execute(db)
}

/** The service offers it: rows were read. */
export async function forgetNotOffered({ db }: Transaction, { projectId, stream }: ProjectStream): Promise<void> {
  await db.deleteFrom('ops.not_offered').where('project_id', '=', projectId).where('stream', '=', stream).execute()
}

/** Notes once what the API does not document. */
export async function saveDrift(
  { db, redactor }: Transaction,
  projectStream: ProjectStream,
  notes: readonly DriftNote[],
  runId: number,
): Promise<void> {
  if (notes.length === 0) return
  // Names and examples come from the service and may hold what Postgres cannot store, or repeat a secret.
  const storable = (text: string) => redactor.text(text.replaceAll('\0', '\uFFFD').toWellFormed())
  const column = (name: keyof DriftNote) => notes.map((note) => storable(note[name]))
  await db
    .insertInto('ops.drift')
    .columns(['project_id', 'stream', 'run_id', 'kind', 'name', 'example'])
    .expression(
      sql`select ${projectStream.projectId}::text, ${projectStream.stream}::text, ${runId}::bigint, note.*
          from unnest(${column('kind')}::text[], ${column('name')}::text[], ${column('example')}::text[]) note` as never,
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}
