import type { Config } from '../core/config/load.ts'
import { UsageError } from '../core/errors.ts'
import { didYouMean } from '../core/similar.ts'
import { listSome } from '../core/text.ts'

/** Refuses a project that is not configured, before anything is opened, and says which one was probably meant. */
export function refuseUnknownProjects(config: Config, named: readonly string[] = []): void {
  const ids = config.projects.flatMap(({ id }) => id ?? [])
  // Without ids the service, or the reference service, decides which projects there are.
  if (ids.length === 0) return
  for (const id of named) {
    if (!ids.includes(id))
      throw new UsageError(`--project: got "${id}"; configured are: ${listSome(ids, 20)}${didYouMean(id, ids)}`)
  }
}
