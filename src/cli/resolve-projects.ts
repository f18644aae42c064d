import { resolveAllProjects } from '../app/all-projects.ts'
import { messageOf } from '../core/errors.ts'
import type { CreationKind } from '../ledger/creations.ts'
import type { Session } from './session.ts'

/* VISIBILITY_PROJECTS=all: the service is asked once which projects there are. */

/** Commands that work on projects. `check` asks by itself, to say what it finds. */
const CREATIONS: CreationKind[] = ['prompt', 'topic', 'domain-classification', 'url-classification']
const NEED = new Set<string>(['sync', 'backfill', 'serve', 'worker', 'plan', 'audit', ...CREATIONS])
/** Commands that are for times when the service does not answer, too. */
const USE = new Set(['status', 'support-bundle', 'migrate'])
const SOON = { timeout_seconds: 10, max_attempts: 1, patience_seconds: 1 }

export async function resolveProjects({ config, log, signal }: Session, command: string): Promise<void> {
  if (NEED.has(command)) return resolveAllProjects(config, signal)
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
