import type { Config } from '../../core/config/load.ts'
import { messageOf } from '../../core/errors.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { applyOwnBrands, ownBrandNotes, readOwnBrands, unknownLabels } from '../../warehouse/load/own-brands.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { sumOpenPeriods } from '../../warehouse/schema/prompt-sums.ts'
import { renewUsualDays } from '../../warehouse/schema/usual-days.ts'
import type { Run, Services } from './run-types.ts'

/* What is done once all windows are loaded. */

/** Own brands by labels or by the profile, and what to say of them. */
export async function markOwnBrands({ warehouse, config }: Services, ids: readonly string[]): Promise<string[]> {
  const hasChanged = await applyOwnBrands(warehouse, ids, config.labels)
  const { derived, without } = await readOwnBrands(warehouse, ids, config.labels)
  // Said when it is decided, not again by every run.
  const own = { derived: hasChanged ? derived : [], without }
  return ownBrandNotes(own, await unknownLabels(warehouse, ids, config.labels))
}

/**
 * Weeks and months whose rows changed are summed, and what is usual on a day is worked out where many days changed. Until
 * then views sum on the fly, and do not say what is usual: a run that read everything is complete without this.
 */
export async function prepareViews(run: Run): Promise<void> {
  await prepare(run, 'sums', sumOpenPeriods)
  await prepare(run, 'usual days', renewUsualDays)
}

async function prepare(
  { warehouse, config, signal, log }: Run,
  what: string,
  work: (warehouse: Warehouse, config: Config, signal: AbortSignal) => Promise<number>,
): Promise<void> {
  try {
    const done = await withRetries(warehouse, signal, () => work(warehouse, config, signal))
    if (done > 0) log.debug({ count: done }, `${what} for views renewed`)
  } catch (cause) {
    if (!signal.aborted) log.warn({ reason: messageOf(cause) }, `${what} for views could not be renewed`)
  }
}
