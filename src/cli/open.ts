import { resolve } from 'node:path'
import type { Config } from '../core/config/load.ts'
import type { Clock } from '../core/day.ts'
import { messageOf, UsageError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { DEFAULT_PROJECT } from '../core/vocabulary.ts'
import { startReference } from '../reference/server.ts'
import { COMPANY_KEY, createWorld } from '../reference/world.ts'
import type { RequestBudget } from '../source/budget.ts'
import { type Client, type ClientOptions, createClient, type Outage } from '../source/client.ts'
import type { Services, SyncedProject } from '../sync/context.ts'
import { connectWarehouse, type Warehouse } from '../warehouse/connect.ts'
import { startEmbedded } from '../warehouse/embedded/server.ts'

/* Opens what a command works with, and closes it again. Without an address the reference service runs in the process;
 * without DATABASE_URL an embedded Postgres runs under .data/. */

export const DATA_FOLDER = '.data'

export interface OpenSource {
  client: Client
  projects: SyncedProject[]
  /** Those that were named and those that were not. */
  configured: SyncedProject[]
  /** For people: the address, or that it is the reference service. */
  source: string
  close(): Promise<void>
}

export interface OpenWarehouse {
  warehouse: Warehouse
  /** For people: a connection string without its password. */
  shown: string
  embedded: boolean
  close(): Promise<void>
}

export async function openSource(
  config: Config,
  clock: Clock,
  named: readonly string[] = [],
  extra: Pick<ClientOptions, 'budgetFor' | 'onOutage'> = {},
): Promise<OpenSource> {
  const configured = config.projects.map(({ id }) => id)
  const { source } = config
  const options = {
    timeoutMs: source.timeout_seconds * 1000,
    maxAttempts: source.max_attempts,
    maxResponseBytes: source.max_response_mb * 1_048_576,
    requestsPerMinute: source.requests_per_minute,
    patienceMs: source.patience_seconds * 1000,
    ...extra,
  }
  if (source.base_url === undefined) {
    const ids = configured.filter((id) => id !== undefined)
    const world = createWorld({ clock, ...(ids.length > 0 ? { projectIds: ids } : {}) })
    const all = world.projects.map(({ id }) => ({ id, caller: { key: COMPANY_KEY, projectId: id }, ownKey: false }))
    const projects = chooseProjects(all, named)
    const reference = await startReference({ world })
    const client = createClient({ ...options, baseUrl: reference.url, compress: false })
    return {
      client,
      projects,
      configured: all,
      source: 'the reference service (synthetic data; set VISIBILITY_API_URL for a real one)',
      async close() {
        client.close()
        await reference.close()
      },
    }
  }
  const list = config.projects.length === 0 ? [{ id: undefined, api_key: undefined }] : config.projects
  const all = list.map(({ id, api_key }) => ({
    id: id ?? DEFAULT_PROJECT,
    caller: { key: (api_key ?? source.api_key)!, projectId: id },
    ownKey: api_key !== undefined || list.length === 1,
  }))
  const projects = chooseProjects(all, named)
  const client = createClient({ ...options, baseUrl: source.base_url, compress: source.compress })
  return {
    client,
    projects,
    configured: all,
    source: new URL(source.base_url).origin + new URL(source.base_url).pathname,
    close: async () => client.close(),
  }
}

/** The projects that were named, or all; a name that is not configured is refused. */
export function chooseProjects(projects: SyncedProject[], named: readonly string[]): SyncedProject[] {
  for (const id of named) {
    if (!projects.some((project) => project.id === id)) {
      throw new UsageError(
        `--project: got "${id}"; configured are: ${projects.map((project) => project.id).join(', ')}`,
      )
    }
  }
  return named.length === 0 ? projects : projects.filter(({ id }) => named.includes(id))
}

export async function openWarehouse(config: Config, log: Log): Promise<OpenWarehouse> {
  // Those who work at the queue also keep their jobs alive and look at it.
  const connections = config.source.concurrency + (config.queue.mode === 'none' ? 2 : 5)
  if (config.warehouse.url !== undefined) {
    const warehouse = await connectWarehouse({
      url: config.warehouse.url,
      schema: config.warehouse.schema,
      connections,
    })
    return { warehouse, shown: withoutPassword(config.warehouse.url), embedded: false, close: () => warehouse.close() }
  }
  const server = await startEmbedded({ folder: resolve(DATA_FOLDER) })
  log.debug({ how: server.how }, 'embedded Postgres')
  try {
    const warehouse = await connectWarehouse({ url: server.url, schema: config.warehouse.schema, connections })
    return {
      warehouse,
      shown: server.url,
      embedded: true,
      async close() {
        await warehouse.close()
        await server.release()
      },
    }
  } catch (error) {
    await server.release()
    throw error
  }
}

function withoutPassword(text: string): string {
  const url = new URL(text)
  url.password = ''
  // Parameters may hold secrets too.
  url.search = ''
  return url.href
}

/** What goes wrong while closing comes after the result and must not change it. */
async function quietly(log: Log, what: string, closing: Promise<void>): Promise<void> {
  await closing.catch((error: unknown) => log.warn({ what, reason: messageOf(error) }, 'could not be closed'))
}

export interface Open extends Services {
  projects: SyncedProject[]
  database: OpenWarehouse
}

/** Runs work with the service and the database open, and closes both whatever happens. */
export async function withServices<T>(
  options: { config: Config; log: Log; clock: Clock; version: string; projects?: readonly string[] },
  work: (open: Open) => Promise<T>,
): Promise<T> {
  const { config, log, clock, version } = options
  const shared = config.queue.mode === 'pg-boss' ? await loadQueue() : undefined
  let warehouse: Warehouse | undefined
  const source = await openSource(config, clock, options.projects, {
    onOutage: (outage) => logOutage(log, outage),
    ...(shared && { budgetFor: (project) => budgetOf(project) }),
  })
  const budgetOf = (project: string): RequestBudget =>
    shared!.createSharedBudget(warehouse!, project || DEFAULT_PROJECT, config.source.requests_per_minute, log)
  try {
    const database = await openWarehouse(config, log)
    try {
      warehouse = database.warehouse
      const { client, projects } = source
      const services = { config, log, clock, version, client, source: source.source, warehouse }
      const queue = shared?.sharedQueue(services, source.configured)
      try {
        return await work({ ...services, queue, projects, database })
      } finally {
        await quietly(log, 'queue', queue?.close() ?? Promise.resolve())
      }
    } finally {
      await quietly(log, 'database', database.close())
    }
  } finally {
    await quietly(log, 'service', source.close())
  }
}

/** Without a word, a run that waits for its service would look like one that hangs. */
function logOutage(log: Log, { down, what, reason }: Outage): void {
  if (down) log.warn({ what, reason }, 'no usable answers')
  else log.warn({ what }, 'answers again')
}

/** Loaded only where it is used: most runs are those of one process. */
async function loadQueue() {
  const [{ sharedQueue }, { createSharedBudget }] = await Promise.all([
    import('../queue/coordinator.ts'),
    import('../queue/shared-budget.ts'),
  ])
  return { sharedQueue, createSharedBudget }
}
