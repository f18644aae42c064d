import { sql } from 'kysely'
import type { Warehouse } from '../warehouse/connect.ts'

export interface OpenAlert {
  condition: string
  text: string
  members: string[]
  raised_at: Date
}

export function openAlerts({ ops }: Warehouse): Promise<OpenAlert[]> {
  return ops.selectFrom('alerts').select(['condition', 'text', 'members', 'raised_at']).orderBy('raised_at').execute()
}

/** True where it is news: nobody was told yet, or it spread. Of several processes that notice, one tells. */
export async function raiseAlert(
  { ops, redactor }: Warehouse,
  condition: string,
  told: string,
  members: readonly string[],
  raisedAt?: Date,
): Promise<boolean> {
  const text = redactor.text(told)
  const list = sql<string[]>`${[...members]}::text[]`
  const made = await ops
    .insertInto('alerts')
    .values({ condition, text, members: list, ...(raisedAt === undefined ? {} : { raised_at: raisedAt }) })
    .onConflict((conflict) =>
      conflict
        .column('condition')
        .doUpdateSet({
          text,
          members: sql`(select array_agg(distinct m) from unnest(alerts.members || excluded.members) m)`,
        })
        .where(sql<boolean>`not excluded.members <@ alerts.members`),
    )
    .returning('condition')
    .executeTakeFirst()
  return made !== undefined
}

export async function forgetAlert({ ops }: Warehouse, condition: string): Promise<void> {
  await ops.deleteFrom('alerts').where('condition', '=', condition).execute()
}
