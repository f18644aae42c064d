import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { RunOutcome } from '../warehouse/database.ts'

/** How a command ended last, and when it was last complete. */
export interface LastEnd {
  command: string
  ended_at: Date
  outcome: RunOutcome
  completed_at: Date | null
}

export async function readLastEnds({ pool, opsSchema }: Warehouse, commands: readonly string[]): Promise<LastEnd[]> {
  const { rows } = await pool.query<LastEnd>(
    `select command, max(ended_at) as ended_at, max(ended_at) filter (where outcome = 'complete') as completed_at,
       (array_agg(outcome order by run_id desc))[1] as outcome
     from ${quote(opsSchema, 'runs')} where command = any($1) and ended_at is not null group by command`,
    [commands],
  )
  return rows
}
