import { sql } from 'kysely'
import type { Warehouse } from '../warehouse/connect.ts'
import type { AlertState, Decision } from './alert-policy.ts'

const COLUMNS = ['condition', 'text', 'members', 'raised_at', 'told_at', 'is_told', 'cleared_at'] as const

/** All that is remembered, what is over included. */
export function readAlerts({ ops }: Warehouse): Promise<AlertState[]> {
  return ops.selectFrom('alerts').select(COLUMNS).orderBy('raised_at').execute()
}

/**
 * Changes what is known of a condition, by a decision on its present state. Needs a transaction: of many processes that
 * notice the same at once, each decides on the state that the one before it has left, so only one of them sends it.
 */
export async function changeAlert(
  { ops, opsSchema, redactor, pool }: Warehouse,
  condition: string,
  decide: (known: AlertState | undefined) => Decision,
): Promise<Decision> {
  await pool.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`${opsSchema} alert ${condition}`])
  const known = await ops.selectFrom('alerts').select(COLUMNS).where('condition', '=', condition).executeTakeFirst()
  const decision = decide(known)
  const { state } = decision
  if (state === undefined) return decision
  const members = sql<string[]>`${state.members}::text[]`
  const values = { ...state, condition, text: redactor.text(state.text), members }
  await ops
    .insertInto('alerts')
    .values(values)
    .onConflict((conflict) => conflict.column('condition').doUpdateSet(values))
    .execute()
  return decision
}
