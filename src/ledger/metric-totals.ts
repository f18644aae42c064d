import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'

/**
 * Adds what one process counted to what all before it counted, and returns the sums. A command that ends has counted one
 * run: pushed as it is, its counter would stand at 1 for ever, and no rate would see the second run.
 */
export async function addMetricTotals(
  { pool, opsSchema }: Warehouse,
  samples: readonly { key: string; value: number }[],
): Promise<Map<string, number>> {
  const totals = quote(opsSchema, 'metric_totals')
  // In one order, so that two processes do not wait for each other.
  const sorted = [...samples].sort((a, b) => (a.key < b.key ? -1 : 1))
  await pool.query(
    `insert into ${totals} as t (sample, value) select * from unnest($1::text[], $2::double precision[])
     on conflict (sample) do update set value = t.value + excluded.value`,
    [sorted.map(({ key }) => key), sorted.map(({ value }) => value)],
  )
  const { rows } = await pool.query<{ sample: string; value: number }>(
    `select sample, value from ${totals} order by sample`,
  )
  return new Map(rows.map(({ sample, value }) => [sample, value]))
}
