import { chooseSource } from '../core/config/choose-source.ts'
import type { Config } from '../core/config/load.ts'
import { ClockError, KeyError, messageOf, RefusedError, TransientError, UsageError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { count, listSome } from '../core/text.ts'
import { type Client, createClient } from '../source/client.ts'
import { clientOptions } from './open-services.ts'

/* VISIBILITY_PROJECTS=all: the projects that the service lists for the key. */

// A limit that the service had for long, and more projects than most companies have.
const PAGE = 1000
const MOST_PAGES = 20
const GOT_ALL = 'VISIBILITY_PROJECTS: got "all", but'
const ID = /^[\w.:-]{1,255}$/

/** The service still lists them, but measures nothing for them any more. */
export const isOver = (status: unknown): boolean => typeof status === 'string' && /^DELETED$|_ENDED$/i.test(status)

const SOON = { timeout_seconds: 10, max_attempts: 1, patience_seconds: 1 }

/** For a command: where the projects are only useful, it goes on without them if the service does not answer soon. */
export async function resolveProjects(
  { config, log, signal }: { config: Config; log: Log; signal: AbortSignal },
  isNeeded: boolean,
): Promise<void> {
  try {
    const skipped = await resolveAllProjects(config, signal, isNeeded ? config.source : { ...config.source, ...SOON })
    if (skipped.length > 0 && isNeeded) log.warn({ projects: skipped }, 'deleted and ended projects are skipped')
  } catch (error) {
    if (isNeeded) throw error
    log.warn({ reason: messageOf(error) }, 'the projects are not known')
  }
}

/**
 * Asks the service which projects there are, and sets them in the configuration. Without "all" nothing is asked. Returns the
 * projects that are skipped because they are deleted or ended, as `id (status)`.
 */
export async function resolveAllProjects(
  config: Config,
  signal?: AbortSignal,
  source = config.source,
): Promise<string[]> {
  const skipped: string[] = []
  if (!config.all_projects) return skipped
  const chosen = chooseSource(config)
  // The reference service in this process has as many projects as it makes.
  if (chosen.kind === 'service') {
    const client = createClient({ ...clientOptions(source), baseUrl: chosen.baseUrl })
    try {
      const listed = [...(await listProjects(client, config.source.api_key ?? '', signal))]
      for (const [id, status] of listed) if (isOver(status)) skipped.push(`${id} (${String(status)})`)
      const ids = listed.filter(([, status]) => !isOver(status)).map(([id]) => id)
      if (ids.length === 0)
        throw new UsageError(`${GOT_ALL} every project is deleted or ended: ${listSome(skipped, 20)}`)
      const known = new Map(config.projects.map((project) => [project.id, project]))
      config.projects = ids.map((id) => known.get(id) ?? { id })
    } catch (error) {
      throw explained(error)
    } finally {
      client.close()
    }
  }
  config.all_projects = false
  return skipped
}

/** The status of every project by its id. The list ends at the service's own total, or where nothing more comes. */
async function listProjects(
  client: Client,
  key: string,
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<string, unknown>> {
  const ids = new Map<string, unknown>()
  for (let page = 0; page < MOST_PAGES; page++) {
    const before = ids.size
    const asked = { limit: PAGE, offset: before }
    const { items, total } = await client.projects({ key, projectId: undefined }, asked, { signal })
    for (const item of items) ids.set(...projectIn(item))
    // Rows move between pages, so an id that comes twice may have taken the turn of another. A service without pages repeats all.
    const fresh = ids.size - before
    const isSameAgain = fresh === 0 && items.length === before && total === undefined
    if (fresh < items.length && !isSameAgain)
      throw new TransientError(`${GOT_ALL} the pages of the list repeat a project; try again`)
    if (items.length > 0 && !isSameAgain && (total === undefined || ids.size < total)) continue
    if (total !== undefined && ids.size < total)
      throw new TransientError(`${GOT_ALL} only ${ids.size} of ${count(total, 'project')} are on the list; try again`)
    if (ids.size === 0) throw new UsageError(refusal('it lists none for this key'))
    return ids
  }
  throw new UsageError(refusal(`it has more than ${MOST_PAGES} pages`))
}

function projectIn(item: unknown): [id: string, status: unknown] {
  const { id, status } = (item ?? {}) as { id?: unknown; status?: unknown }
  if (typeof id === 'string' && ID.test(id)) return [id, status]
  throw new UsageError(refusal('an item of the list has no usable id'))
}

/** A list that is not offered is the fault of the variable, not of the service. */
function explained(error: unknown): unknown {
  if (error instanceof ClockError) return error
  if (error instanceof RefusedError && !(error instanceof KeyError)) return new UsageError(refusal(error.message))
  if (error instanceof TransientError && !error.message.startsWith(GOT_ALL))
    return new TransientError(`${GOT_ALL} the projects cannot be listed: ${messageOf(error)}`, { cause: error })
  return error
}

function refusal(reason: string): string {
  return `${GOT_ALL} the service does not list projects: ${reason}; set it to their ids, separated by commas`
}
