import { resolveAllProjects } from '../app/all-projects.ts'
import type { Config } from '../core/config/load.ts'
import { messageOf, UsageError } from '../core/errors.ts'
import { didYouMean, listSome } from '../core/text.ts'
import type { CreationKind } from '../ledger/creations.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { readProjectIds } from './project-names.ts'
import type { Session } from './session.ts'

/* VISIBILITY_PROJECTS=all: the service is asked once which projects there are. */

/** Commands that work on projects. `check` asks by itself, to say what it finds. */
const CREATIONS: CreationKind[] = ['prompt', 'topic', 'domain-classification', 'url-classification']
const NEED = new Set<string>(['sync', 'backfill', 'serve', 'worker', 'plan', 'audit', ...CREATIONS])
/** Commands that are for times when the service does not answer, too. */
const USE = new Set(['status', 'support-bundle', 'migrate'])
const SOON = { timeout_seconds: 10, max_attempts: 1, patience_seconds: 1 }

export async function resolveProjects({ config, log, signal }: Session, command: string): Promise<void> {
  if (NEED.has(command)) {
    const skipped = await resolveAllProjects(config, signal)
    if (skipped.length > 0) log.warn({ projects: skipped }, 'deleted and ended projects are skipped')
    return
  }
  if (!USE.has(command)) return
  const impatient = { ...config, source: { ...config.source, ...SOON } }
  try {
    await resolveAllProjects(impatient, signal)
    config.projects = impatient.projects
    config.all_projects = false
  } catch (error) {
    log.warn({ reason: messageOf(error) }, 'the projects are not known')
  }
}

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

/** Refuses a project that is neither configured nor in the warehouse. */
export async function refuseUnread(warehouse: Warehouse, config: Config, named: readonly string[]): Promise<void> {
  if (named.length === 0) return
  const known = [...new Set([...(await readProjectIds(warehouse)), ...config.projects.flatMap(({ id }) => id ?? [])])]
  for (const id of named) {
    if (!known.includes(id))
      throw new UsageError(`--project: got "${id}"; known are: ${listSome(known, 20)}${didYouMean(id, known)}`)
  }
}
