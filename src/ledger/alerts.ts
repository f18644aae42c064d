import type { Warehouse } from '../warehouse/connect.ts'

export interface OpenAlert {
  condition: string
  text: string
  raised_at: Date
}

export function openAlerts({ ops }: Warehouse): Promise<OpenAlert[]> {
  return ops.selectFrom('alerts').select(['condition', 'text', 'raised_at']).orderBy('raised_at').execute()
}

/** True where nobody was told of it yet: of several processes that notice, one tells. */
export async function raiseAlert({ ops }: Warehouse, condition: string, text: string): Promise<boolean> {
  const made = await ops
    .insertInto('alerts')
    .values({ condition, text })
    .onConflict((conflict) => conflict.column('condition').doNothing())
    .returning('condition')
    .executeTakeFirst()
  return made !== undefined
}

/** What it was, where it had been told. */
export function clearAlert({ ops }: Warehouse, condition: string): Promise<OpenAlert | undefined> {
  return ops
    .deleteFrom('alerts')
    .where('condition', '=', condition)
    .returning(['condition', 'text', 'raised_at'])
    .executeTakeFirst()
}
