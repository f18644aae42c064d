import { UsageError } from '../../core/errors.ts'
import type { Client } from '../../source/client.ts'
import type { SyncedProject } from './run-types.ts'

/** A key that needs a project, but has none, is found out by one request, before anything is locked or written. */
export async function requireProject(
  client: Client,
  projects: readonly SyncedProject[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const nameless = projects.find(({ caller }) => caller.projectId === undefined)
  if (nameless === undefined) return
  await client.ping(nameless.caller, { signal }).catch((error: unknown) => {
    // Whatever else is wrong, the run itself meets it and says so.
    if (error instanceof UsageError) throw error
  })
}
