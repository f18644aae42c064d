import { messageOf } from '../../core/errors.ts'
import { applyOwnBrands, ownBrandNotes, readOwnBrands, unknownLabels } from '../../warehouse/load/own-brands.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { sumOpenPeriods } from '../../warehouse/schema/prompt-sums.ts'
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
 * Weeks and months whose rows changed are summed. Until then views sum them on the fly, which is slower, not wrong: a run
 * that read everything is complete without this.
 */
export async function sumForViews({ warehouse, config, signal, log }: Run): Promise<void> {
  try {
    const periods = await withRetries(warehouse, signal, () => sumOpenPeriods(warehouse, config, signal))
    if (periods > 0) log.debug({ periods }, 'periods summed for views')
  } catch (cause) {
    if (!signal.aborted) log.warn({ reason: messageOf(cause) }, 'periods could not be summed for views')
  }
}
