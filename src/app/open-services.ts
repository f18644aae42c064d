import { randomUUID } from 'node:crypto'
import { accessSync, constants, existsSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import {
  chooseDatabase,
  chooseSource,
  chosenDatabase,
  chosenSource,
  EMBEDDED,
  REFERENCE,
} from '../core/config/choose-source.ts'
import type { Config } from '../core/config/load.ts'
import { shownId } from '../core/config/secrets.ts'
import type { Clock } from '../core/day.ts'
import { messageOf, RefusedError, UsageError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { didYouMean, listSome } from '../core/text.ts'
import { DEFAULT_PROJECT } from '../core/vocabulary.ts'
import { waitAtMost } from '../core/waiting.ts'
import { COMPANY_KEY, createWorld, type World } from '../reference/world.ts'
import type { Client, ClientOptions } from '../source/client.ts'
import { StreamSet } from '../streams/registry.ts'
import type { Executor } from '../sync/run/execute.ts'
import type { Services, SyncedProject } from '../sync/run/run.ts'
import { type ConnectOptions, connectWarehouse, type Warehouse } from '../warehouse/connect.ts'
import { findPackage, hasCluster } from '../warehouse/embedded/cluster.ts'

const DATA_FOLDER = '.data'
const QUEUE_CLOSE_MS = 3000

/** The folder of the embedded Postgres. Synthetic rows have one of their own: they never meet those of a real service. */
export function dataFolder(config: Config): string {
  return chosenSource(config)?.kind === 'reference' ? `${DATA_FOLDER}/reference` : DATA_FOLDER
}

export type OpenSource = Awaited<ReturnType<typeof openSource>>
export type OpenWarehouse = Awaited<ReturnType<typeof openWarehouse>>

/** `address` is what the warehouse remembers as its source, `source` is for people. */
export async function openSource(
  config: Config,
  clock: Clock,
  named: readonly string[] = [],
  extra: Pick<ClientOptions, 'budgetFor' | 'onOutage'> = {},
) {
  const { createClient } = await import('../source/client.ts')
  const options = { ...clientOptions(config.source), clock, ...extra }
  const projects = chooseProjects(config, clock, named)
  const source = sourceName(config)
  const address = sourceAddress(config)
  const chosen = chooseSource(config)
  if (chosen.kind === 'service') {
    const client = createClient({ ...options, baseUrl: chosen.baseUrl })
    await refuseMalformed(client, projects).catch((error: unknown) => {
      client.close()
      throw error
    })
    return { client, projects, source, address, close: async () => client.close() }
  }
  const { startReference } = await import('../reference/server.ts')
  const reference = await startReference({ world: referenceWorld(config, clock) })
  const client = createClient({ ...options, baseUrl: reference.url, compress: false })
  const close = async () => {
    client.close()
    await reference.close()
  }
  return { client, projects, source, address, close }
}

const PROJECT_ID = /^or_./

/** An id in another form than the documented one is most likely a name or a key. It is allowed if the service lists it. */
async function refuseMalformed(client: Client, projects: readonly SyncedProject[]): Promise<void> {
  for (const { caller } of projects) {
    const { key, projectId } = caller
    if (projectId === undefined || PROJECT_ID.test(projectId)) continue
    const { items } = await client
      .projects({ key, projectId: undefined }, { limit: 1000, offset: 0 })
      .catch((error: unknown) => {
        if (error instanceof RefusedError) return { items: [] }
        throw error
      })
    const listed = (items as ({ id?: string; name?: string } | null)[]).flatMap((item) => item ?? [])
    if (listed.some(({ id }) => id === projectId)) continue
    const named = listed.map(({ id, name }) => (name ? `${id} (${name})` : (id ?? '')))
    const which = named.length === 0 ? '' : `; the key can read: ${listSome(named, 20)}`
    throw new UsageError(
      `VISIBILITY_PROJECTS: got ${shownId(projectId)}; allowed: ids of projects, which begin with "or_"${which}`,
    )
  }
}

export function clientOptions(source: Config['source']) {
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

export function chooseProjects(config: Config, clock: Clock, named: readonly string[] = []): SyncedProject[] {
  const projects = configuredProjects(config, clock)
  const ids = projects.map(({ id }) => id)
  refuseUnknown(named, ids, 'configured')
  return named.length === 0 ? projects : projects.filter(({ id }) => named.includes(id))
}

export function refuseUnknown(named: readonly string[], known: readonly string[], what: string): void {
  for (const id of named) {
    if (!known.includes(id))
      throw new UsageError(`--project: got ${shownId(id)}; ${what} are: ${listSome(known, 20)}${didYouMean(id, known)}`)
  }
}

export function hasDatabase(config: Config): boolean {
  const chosen = chosenDatabase(config)
  return chosen === EMBEDDED ? hasCluster(dataFolder(config)) : chosen !== undefined
}

export function requireDatabase(config: Config): void {
  chooseDatabase(config)
  if (hasDatabase(config)) return
  const where = resolve(dataFolder(config))
  throw new UsageError(
    `there is no database: nothing was synced into ${where} yet. Run "sync" to create one there, or set DATABASE_URL`,
  )
}

interface Existing {
  config: Config
  log: Log
  signal?: AbortSignal
}

/** For commands that only read or change what is there: they do not create a database. */
export async function openExisting({ config, log, signal }: Existing): Promise<OpenWarehouse> {
  requireDatabase(config)
  return openWarehouse(config, log, { signal })
}

export async function withExisting<T>(
  services: Existing,
  work: (warehouse: Warehouse, shown: string) => Promise<T>,
): Promise<T> {
  const { warehouse, shown, close } = await openExisting(services)
  try {
    return await work(warehouse, shown)
  } finally {
    await close()
  }
}

export function describeNewDatabase(config: Config): string {
  findPackage()
  const folder = dataFolder(config)
  let there = folder
  while (!existsSync(there)) there = dirname(there)
  try {
    accessSync(there, constants.W_OK)
  } catch (error) {
    throw new UsageError(`the embedded Postgres cannot be created in ${folder} (${messageOf(error)}): set DATABASE_URL`)
  }
  return `none yet; the first sync creates an embedded Postgres in ${folder}`
}

/** `described` is `shown` with the folder of an embedded one, and `located` with its whole path. */
export async function openWarehouse(
  config: Config,
  log: Log,
  opening: Pick<ConnectOptions, 'unchecked' | 'signal'> = {},
) {
  const { redactor } = config
  const { schema, patience_seconds } = config.warehouse
  const url = chooseDatabase(config)
  // One for each window that is loaded, one for heartbeats and leases, one for the queue and the request budget.
  const connections = config.source.concurrency + 2
  const options = { ...opening, schema, connections, patienceMs: patience_seconds * 1000, redactor }
  if (url !== EMBEDDED) {
    const warehouse = await connectWarehouse({ ...options, url })
    const shown = withoutSecrets(url)
    return { warehouse, shown, embedded: false, described: shown, located: shown, close: () => warehouse.close() }
  }
  const { startEmbedded } = await import('../warehouse/embedded/server.ts')
  const folder = dataFolder(config)
  const server = await startEmbedded({ folder: resolve(folder), log })
  log.debug({ how: server.how }, 'embedded Postgres')
  try {
    redactor.add([decodeURIComponent(new URL(server.url).password)])
    const warehouse = await connectWarehouse({ ...options, url: server.url, unchecked: false })
    const shown = withoutSecrets(server.url)
    const close = async () => {
      await warehouse.close()
      await server.release()
    }
    const [described, located] = [folder, resolve(folder)].map((path) => `${shown} (in ${path})`) as [string, string]
    return { warehouse, shown, embedded: true, described, located, close }
  } catch (error) {
    await server.release()
    throw error
  }
}

/** Without the password, and without parameters, which may hold secrets too. */
function withoutSecrets(text: string): string {
  return Object.assign(new URL(text), { password: '', search: '' }).href
}

/** Errors while closing come after the result and must not change it. */
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
    projects?: readonly string[] | undefined
    /** True for work that can wait for a database that is away. */
    unchecked?: boolean
    signal?: AbortSignal
  },
  work: (open: Open) => Promise<T>,
): Promise<T> {
  const { config, streams = new StreamSet(options.config), log, clock, version } = options
  chooseSource(config)
  chooseDatabase(config)
  // Loaded only if it is used: most runs are those of one process.
  const usesQueue = config.queue.mode === 'pg-boss'
  const { createSharedBudget } = usesQueue ? await import('../queue/shared-budget.ts') : {}
  const { openQueueExecutor } = usesQueue ? await import('../queue/queue-executor.ts') : {}
  const name = usesQueue ? await queueName(config, streams, clock) : ''
  let warehouse: Warehouse | undefined
  const owner = randomUUID()
  const perMinute = config.source.requests_per_minute
  const source = await openSource(config, clock, options.projects, {
    // Without this message, a run that waits for its service would look like one that hangs.
    onOutage: ({ down, what, reason }) =>
      down ? log.warn({ what, reason }, 'no usable answers') : log.warn({ what }, 'answers again'),
    ...(createSharedBudget && {
      budgetFor: (project) => createSharedBudget(warehouse!, project || DEFAULT_PROJECT, { perMinute, owner, log }),
    }),
  })
  try {
    const database = await openWarehouse(config, log, options)
    warehouse = database.warehouse
    const { client, projects, source: shown, address } = source
    const services = { config, streams, log, clock, version, client, source: shown, warehouse }
    const queue = openQueueExecutor?.(warehouse, name, log)
    try {
      return await work({ ...services, sourceAddress: address, execute: queue?.execute, owner, projects, database })
    } finally {
      // The queue asks the database, which may not answer; that must not keep the program from ending.
      if (queue !== undefined) await quietly(log, 'queue', waitAtMost(QUEUE_CLOSE_MS, queue.close()))
      await quietly(log, 'database', database.close())
    }
  } finally {
    await quietly(log, 'service', source.close())
  }
}
