import { type Selectable, sql } from 'kysely'
import { LockedError } from '../core/errors.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'
import { inTransaction } from '../warehouse/transaction.ts'

export type CreationKind = OpsTables['creations']['kind']
type CreationState = OpsTables['creations']['state']

export type Creation = Pick<Selectable<OpsTables['creations']>, 'identity' | 'state' | 'id' | 'sent_at'>

interface CreationKey {
  projectId: string
  kind: CreationKind
  identity: string
}

/** Every attempt of a kind in a project, by what makes it the same thing. */
export async function readCreations(
  { db }: Warehouse,
  projectId: string,
  kind: CreationKind,
): Promise<Map<string, Creation>> {
  const rows = await db
    .selectFrom('ops.creations')
    .select(['identity', 'state', 'id', 'sent_at'])
    .where((eb) => eb.and({ project_id: projectId, kind }))
    .execute()
  return new Map(rows.map((row) => [row.identity, row]))
}

/**
 * Commits the attempt before the request is sent. Fails if another run took over after this process was frozen for too long,
 * because that run may have sent the same request.
 */
export async function beginCreation(
  warehouse: Warehouse,
  key: CreationKey,
  { request, runId }: { request: unknown; runId: number },
): Promise<void> {
  const text = JSON.stringify(request)
  await inTransaction(warehouse, async ({ db }) => {
    const run = db.selectFrom('ops.runs').select('run_id').where('run_id', '=', runId).where('outcome', 'is', null)
    if ((await run.forShare().executeTakeFirst()) === undefined)
      throw new LockedError('another command took over, because this one was silent for too long; nothing was sent')
    await db
      .insertInto('ops.creations')
      .values({ project_id: key.projectId, kind: key.kind, identity: key.identity, request: text, state: 'sent' })
      .onConflict((conflict) =>
        conflict.columns(['project_id', 'kind', 'identity']).doUpdateSet((eb) => ({
          state: 'sent',
          request: text,
          error: null,
          settled_at: null,
          sent_at: sql<Date>`clock_timestamp()`,
          attempts: eb('ops.creations.attempts', '+', 1),
        })),
      )
      .execute()
  })
}

export async function finishCreation(
  { db, redactor }: Warehouse,
  key: CreationKey,
  end: { state: CreationState; id?: string | null; warning?: string | null; error?: string | null },
): Promise<void> {
  const { state, id = null, warning = null, error = null } = redactor.value(end)
  await db
    .updateTable('ops.creations')
    .set({ state, id, warning, error, settled_at: state === 'sent' ? null : new Date() })
    .where((eb) => eb.and({ project_id: key.projectId, kind: key.kind, identity: key.identity }))
    .execute()
}
