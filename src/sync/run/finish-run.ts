import { messageOf } from '../../core/errors.ts'
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
 * then views sum on the fly, and do not say what is usual: they are slower, not wrong, and a run that read everything is
 * complete without this.
 */
export async function prepareViews({ warehouse, config, signal, log }: Run): Promise<void> {
  try {
    const periods = await withRetries(warehouse, signal, () => sumOpenPeriods(warehouse, config, signal))
    const projects = await withRetries(warehouse, signal, () => renewUsualDays(warehouse, config, signal))
    if (periods + projects > 0) log.debug({ periods, projects }, 'sums and usual days renewed for views')
  } catch (cause) {
    if (!signal.aborted) log.warn({ reason: messageOf(cause) }, 'views could not be prepared')
  }
}
