import { REFERENCE } from '../core/config/choose-source.ts'
import type { Config } from '../core/config/load.ts'
import { UsageError } from '../core/errors.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { withRetries } from '../warehouse/retry.ts'
import { type MigrationResult, migrate } from '../warehouse/schema/migrate.ts'

/* A warehouse is filled from one service. Its first run writes down which, and another one is refused. */

/** The source of the warehouse, or undefined if nothing was synced into it yet. */
export async function readSource({ db }: Warehouse): Promise<string | undefined> {
  const row = await db.selectFrom('ops.source').select('address').executeTakeFirst()
  return row?.address
}

/** Migrates and claims the source, and waits for a database that goes away meanwhile. Every run does so first. */
export function prepareWarehouse(
  { warehouse, config, sourceAddress }: { warehouse: Warehouse; config: Config; sourceAddress: string },
  signal?: AbortSignal,
): Promise<MigrationResult> {
  return withRetries(warehouse, signal, async () => {
    const result = await migrate(warehouse, config)
    await claimSource(warehouse, sourceAddress)
    return result
  })
}

export async function claimSource(warehouse: Warehouse, address: string): Promise<void> {
  const known = await readSource(warehouse)
  if (known === address) return
  if (known === undefined) {
    await warehouse.db
      .insertInto('ops.source')
      .values({ address, moved_from: null })
      .onConflict((conflict) => conflict.doNothing())
      .execute()
    // Of two first runs with different sources only one has written.
    return claimSource(warehouse, address)
  }
  throw new UsageError(refusal(known, address))
}

/** The error if the sources differ. Synthetic rows cannot be distinguished from real ones later, so these never mix. */
export function refusal(known: string, address: string): string {
  const facts = `this warehouse is filled from ${shown(known)}, but this command would read ${shown(address)}`
  if (known === REFERENCE) return `${facts}: use another database, so that synthetic and real rows never mix`
  if (address === REFERENCE) return `${facts}: unset DATABASE_URL, or use another database for trying things out`
  return (
    `${facts}. Correct VISIBILITY_API_URL, or use another database. If it is the same service under a new address, ` +
    'record that once with "npx visibility-sync migrate --move-source"'
  )
}

function shown(address: string): string {
  return address === REFERENCE ? 'the reference service (synthetic data)' : address
}

/** Records a new address of the same service. Gives the address before, or undefined if there was nothing to move. */
export async function moveSource(warehouse: Warehouse, address: string): Promise<string | undefined> {
  const known = await readSource(warehouse)
  if (known === undefined || known === address) return undefined
  if (known === REFERENCE || address === REFERENCE) throw new UsageError(refusal(known, address))
  await warehouse.db.updateTable('ops.source').set({ address, moved_from: known, recorded_at: new Date() }).execute()
  return known
}
