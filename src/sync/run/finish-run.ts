import { messageOf } from '../../core/errors.ts'
import { applyOwnBrands, ownBrandNotes, readOwnBrands, unknownLabels } from '../../warehouse/load/own-brands.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { refreshSummaries } from '../../warehouse/schema/summaries.ts'
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

/** Computes what views read beside the rows. A run that read everything is complete without this: views are only slower. */
export async function prepareViews({ warehouse, config, signal, log }: Run): Promise<void> {
  try {
    const count = await withRetries(warehouse, signal, () => refreshSummaries(warehouse, config, signal))
    if (count > 0) log.debug({ count }, 'summaries for views renewed')
  } catch (cause) {
    if (!signal.aborted) log.warn({ reason: messageOf(cause) }, 'summaries for views could not be renewed')
  }
}
