import { randomUUID } from 'node:crypto'
import { accessSync, constants, existsSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { chooseSource, chosenSource, REFERENCE } from '../core/config/choose-source.ts'
import { shownId } from '../core/config/describe-issue.ts'
import type { Config } from '../core/config/load.ts'
import type { Clock } from '../core/day.ts'
import { messageOf, UsageError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { DEFAULT_PROJECT } from '../core/vocabulary.ts'
import { waitAtMost } from '../core/waiting.ts'
import { COMPANY_KEY, createWorld, type World } from '../reference/world.ts'
import { TemplateCaches } from '../rows/fast-path/template-cache.ts'
import type { RequestBudget } from '../source/budget.ts'
import { type Client, type ClientOptions, createClient } from '../source/client.ts'
import { StreamSet } from '../streams/registry.ts'
import type { Executor } from '../sync/run/execute.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import { connectWarehouse, type Warehouse } from '../warehouse/connect.ts'
import { hasCluster } from '../warehouse/embedded/cluster.ts'
import { findPackage } from '../warehouse/embedded/programs.ts'
import { startEmbedded } from '../warehouse/embedded/server.ts'

/* Opens what a command works with, and closes it again. `chooseSource` says which service is read; without DATABASE_URL an
 * embedded Postgres runs under .data/. */

const DATA_FOLDER = '.data'
const QUEUE_CLOSE_MS = 3000

/** The folder of the embedded Postgres. Synthetic rows have one of their own: they never meet those of a real service. */
export function dataFolder(config: Config): string {
  return chosenSource(config)?.kind === 'reference' ? `${DATA_FOLDER}/reference` : DATA_FOLDER
}

export interface OpenSource {
  client: Client
  projects: SyncedProject[]
  source: string
  /** What the warehouse remembers as its source. */
  address: string
  close(): Promise<void>
}

export interface OpenWarehouse {
  warehouse: Warehouse
  shown: string
  embedded: boolean
  /** The same with the folder of an embedded one. */
  described: string
  close(): Promise<void>
}

export async function openSource(
  config: Config,
  clock: Clock,
  named: readonly string[] = [],
  extra: Pick<ClientOptions, 'budgetFor' | 'onOutage'> = {},
): Promise<OpenSource> {
  const options = { ...clientOptions(config), clock, ...extra }
  const chosen = chooseSource(config)
  const projects = chooseProjects(configuredProjects(config, clock), named)
  if (chosen.kind === 'reference') {
    const world = referenceWorld(config, clock)
    const { startReference } = await import('../reference/server.ts')
    const reference = await startReference({ world })
    const client = createClient({ ...options, baseUrl: reference.url, compress: false })
    const close = async () => {
      client.close()
      await reference.close()
    }
    return { client, projects, source: sourceName(config), address: REFERENCE, close }
  }
  const client = createClient({ ...options, baseUrl: chosen.baseUrl })
  const address = sourceAddress(config)
  return { client, projects, source: address, address, close: async () => client.close() }
}

export function clientOptions({ source }: Config) {
  return {
    timeoutMs: source.timeout_seconds * 1000,
    maxAttempts: source.max_attempts,
    maxResponseBytes: source.max_response_mb * 1_048_576,
    requestsPerMinute: source.requests_per_minute,
    patienceMs: source.patience_seconds * 1000,
    compress: source.compress,
  }
}

/** For people: the address without what may be secret in it, or that it is the reference service. */
export function sourceName(config: Config): string {
  const chosen = chooseSource(config)
  if (chosen.kind === 'reference')
    return 'the reference service (synthetic data; set VISIBILITY_API_URL for a real one)'
  const { origin, pathname } = new URL(chosen.baseUrl)
  return origin + pathname
}

export function sourceAddress(config: Config): string {
  return chooseSource(config).kind === 'reference' ? REFERENCE : sourceName(config)
}

export function configuredProjects(config: Config, clock: Clock): SyncedProject[] {
  if (chosenSource(config)?.kind === 'reference') {
    const { projects } = referenceWorld(config, clock)
    return projects.map(({ id }) => ({ id, caller: { key: COMPANY_KEY, projectId: id }, ownKey: false }))
  }
  // Which projects there are was not asked yet, as by commands that work without the service.
  if (config.all_projects) return []
  const list = config.projects.length === 0 ? [{ id: undefined, api_key: undefined }] : config.projects
  return list.map(({ id, api_key }) => ({
    id: id ?? DEFAULT_PROJECT,
    caller: { key: api_key ?? config.source.api_key ?? '', projectId: id },
    ownKey: api_key !== undefined || list.length === 1,
  }))
}

function referenceWorld(config: Config, clock: Clock): World {
  const ids = config.projects.flatMap(({ id }) => id ?? [])
  return createWorld({ clock, ...(ids.length > 0 ? { projectIds: ids } : {}) })
}

/** The projects that were named, or all; a name that is not configured is refused. */
export function chooseProjects(projects: SyncedProject[], named: readonly string[]): SyncedProject[] {
  for (const id of named) {
    if (!projects.some((project) => project.id === id)) {
      const ids = projects.map((project) => project.id).join(', ')
      throw new UsageError(`--project: got ${shownId(id)}; configured are: ${ids}`)
    }
  }
  return named.length === 0 ? projects : projects.filter(({ id }) => named.includes(id))
}

export function hasDatabase(config: Config): boolean {
  return config.warehouse.url !== undefined || hasCluster(dataFolder(config))
}

/** For commands that only read or change what is there: they do not create a database. */
export async function openExisting(config: Config, log: Log): Promise<OpenWarehouse> {
  requireDatabase(config)
  return openWarehouse(config, log)
}

export async function withExisting<T>(
  { config, log }: { config: Config; log: Log },
  work: (warehouse: Warehouse, shown: string) => Promise<T>,
): Promise<T> {
  const { warehouse, shown, close } = await openExisting(config, log)
  try {
    return await work(warehouse, shown)
  } finally {
    await close()
  }
}

export function requireDatabase(config: Config): void {
  if (hasDatabase(config)) return
  const where = resolve(dataFolder(config))
  throw new UsageError(
    `there is no database: DATABASE_URL is not set, and nothing was synced into ${where} yet. Set DATABASE_URL, or run "sync" to create one there`,
  )
}

/** What `check` reports of an embedded Postgres that the first sync creates. */
export function describeNewDatabase(config: Config): string {
  findPackage()
  refuseReadOnly(dataFolder(config))
  return `none yet; the first sync creates an embedded Postgres in ${dataFolder(config)}`
}

function refuseReadOnly(folder: string): void {
  let there = folder
  while (!existsSync(there)) there = dirname(there)
  try {
    accessSync(there, constants.W_OK)
  } catch (error) {
    throw new UsageError(`the embedded Postgres cannot be created in ${folder} (${messageOf(error)}): set DATABASE_URL`)
  }
}

export async function openWarehouse(config: Config, log: Log, unchecked = false): Promise<OpenWarehouse> {
  // One for each window that is loaded, one for heartbeats and leases, one for the queue and the request budget.
  const connections = config.source.concurrency + 2
  const { redactor } = config
  const { schema, patience_seconds } = config.warehouse
  const options = { schema, connections, patienceMs: patience_seconds * 1000, redactor }
  if (config.warehouse.url !== undefined) {
    const warehouse = await connectWarehouse({ ...options, url: config.warehouse.url, unchecked })
    const shown = withoutPassword(config.warehouse.url)
    return { warehouse, shown, embedded: false, described: shown, close: () => warehouse.close() }
  }
  const folder = dataFolder(config)
  const server = await startEmbedded({ folder: resolve(folder), log })
  log.debug({ how: server.how }, 'embedded Postgres')
  try {
    redactor.add([decodeURIComponent(new URL(server.url).password)])
    const warehouse = await connectWarehouse({ ...options, url: server.url })
    const shown = withoutPassword(server.url)
    const close = async () => {
      await warehouse.close()
      await server.release()
    }
    return { warehouse, shown, embedded: true, described: `${shown} (in ${folder})`, close }
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
async function quietly(log: Log, what: string, closing: Promise<unknown>): Promise<void> {
  await closing.catch((error: unknown) => log.warn({ what, reason: messageOf(error) }, 'could not be closed'))
}

export interface Open extends Services {
  projects: SyncedProject[]
  database: OpenWarehouse
  /** A name that no other process has: by it others know whose requests are under way. */
  owner: string
  /** Does the work of runs through the shared queue; without one, this process does everything itself. */
  execute: Executor | undefined
}

export async function queueName(config: Config, streams: StreamSet, clock: Clock): Promise<string> {
  const { queueNameOf } = await import('../queue/boss.ts')
  const projects = configuredProjects(config, clock).map(({ id }) => id)
  const address = chosenSource(config) === undefined ? '' : sourceAddress(config)
  return queueNameOf({ config, streams, sourceAddress: address, projects })
}

export async function withServices<T>(
  options: {
    config: Config
    streams?: StreamSet
    log: Log
    clock: Clock
    version: string
    projects?: readonly string[]
    /** True for work that can wait for a database that is away. */
    unchecked?: boolean
  },
  work: (open: Open) => Promise<T>,
): Promise<T> {
  const { config, streams = new StreamSet(options.config), log, clock, version } = options
  const templates = new TemplateCaches()
  const shared = config.queue.mode === 'pg-boss' ? await loadQueue() : undefined
  let warehouse: Warehouse | undefined
  const owner = randomUUID()
  const perMinute = config.source.requests_per_minute
  const source = await openSource(config, clock, options.projects, {
    // Without this message, a run that waits for its service would look like one that hangs.
    onOutage: ({ down, what, reason }) =>
      down ? log.warn({ what, reason }, 'no usable answers') : log.warn({ what }, 'answers again'),
    ...(shared && { budgetFor: (project) => budgetOf(project) }),
  })
  const budgetOf = (project: string): RequestBudget =>
    shared!.createSharedBudget(warehouse!, project || DEFAULT_PROJECT, { perMinute, owner, log })
  try {
    const database = await openWarehouse(config, log, options.unchecked)
    try {
      warehouse = database.warehouse
      const { client, projects, source: shown, address } = source
      const services = { config, streams, templates, log, clock, version, client, source: shown, warehouse }
      const queue = shared?.openQueueExecutor(warehouse, await queueName(config, streams, clock), log)
      try {
        return await work({ ...services, sourceAddress: address, execute: queue?.execute, owner, projects, database })
      } finally {
        // The queue asks the database, which may not answer; that must not keep the program from ending.
        if (queue !== undefined) await quietly(log, 'queue', waitAtMost(QUEUE_CLOSE_MS, queue.close()))
      }
    } finally {
      await quietly(log, 'database', database.close())
    }
  } finally {
    await quietly(log, 'service', source.close())
  }
}

/** Loaded only if it is used: most runs are those of one process. */
async function loadQueue() {
  const [{ openQueueExecutor }, { createSharedBudget }] = await Promise.all([
    import('../queue/queue-executor.ts'),
    import('../queue/shared-budget.ts'),
  ])
  return { openQueueExecutor, createSharedBudget }
}
