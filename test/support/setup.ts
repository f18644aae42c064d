import type { Config } from '../../src/core/config/load.ts'
import { createLog } from '../../src/core/logger.ts'
import type { FaultSettings } from '../../src/reference/change.ts'
import { type ReferenceService, startReference } from '../../src/reference/server.ts'
import { COMPANY_KEY, createWorld, type WorldOptions } from '../../src/reference/world.ts'
import type { ClientOptions } from '../../src/source/client.ts'
import { StreamSet } from '../../src/streams/registry.ts'
import { type Executor, executeHere } from '../../src/sync/run/execute.ts'
import type { RunReport } from '../../src/sync/run/report.ts'
import type { RunRequest, Services, SyncedProject } from '../../src/sync/run/run.ts'
import { runSync } from '../../src/sync/run/run-sync.ts'
import type { Observer } from '../../src/sync/run/task.ts'
import { closeLater } from './close-later.ts'
import { configOf, FOUR_GRAINS } from './config.ts'
import { createDatabase, type TestDatabase } from './postgres.ts'
import { openClient } from './proxy.ts'

export { configOf, FOUR_GRAINS } from './config.ts'

/** Extra reports, which are read beside those of a test if TEST_EXTRAS is on. */
const SOURCES = [
  { name: 'extra_domains', of: 'domains', dimensions: ['date'] },
  { name: 'extra_urls', of: 'urls', dimensions: ['date'] },
]

export const NO_LIMIT: FaultSettings = { rate_limit: null }

/** A service, a database, and a program between them, all real, in this process. */
export interface Setup {
  service: ReferenceService
  database: TestDatabase
  config: Config
  logs: string[]
  services: Services
  projects: SyncedProject[]
  sync(request?: Partial<RunRequest>, observer?: Observer, execute?: Executor): Promise<RunReport>
  /** Does work that reads the service through another address, such as that of a proxy. */
  through<T>(url: string, work: () => Promise<T>, options?: Partial<ClientOptions>): Promise<T>
  /** The same things as environment and configuration for the real command. */
  env: Record<string, string>
  fileConfig: Record<string, unknown>
}

export interface SetupOptions {
  world?: WorldOptions
  faults?: FaultSettings
  config?: Record<string, unknown>
  now?: string
  /** Extra operations that the service offers. */
  extras?: Parameters<ReferenceService['setExtras']>[0]
  /** For tests of the very first run: nothing was migrated yet. */
  emptyDatabase?: boolean
}

/**
 * With TEST_EXTRAS=on a test that says nothing of extras gets a service that offers all of them, and a configuration that asks for
 * them: what holds for the contract must hold beside them.
 */
function withExtras(options: SetupOptions): SetupOptions {
  const { config = {} } = options
  if (process.env.TEST_EXTRAS !== 'on' || options.extras !== undefined || 'extras' in config) return options
  const reports = [...((config.reports as object[] | undefined) ?? FOUR_GRAINS), ...SOURCES]
  return { ...options, extras: 'all', config: { ...config, extras: 'auto', reports } }
}

export async function setUp(given: SetupOptions = {}): Promise<Setup> {
  const options = withExtras(given)
  const now = options.now ?? '2026-03-31T12:00:00Z'
  const clock = () => new Date(now)
  const service = await startReference({
    world: createWorld({ restating: false, clock, ...options.world }),
    faults: options.faults ?? NO_LIMIT,
    ...(options.extras && { extras: options.extras }),
  })
  closeLater(() => service.close())
  const hasUsualTables = options.config?.reports === undefined && options.config?.warehouse === undefined
  const database = await createDatabase(options.emptyDatabase ? 'empty' : hasUsualTables ? 'reports' : 'migrated')
  const fileConfig = {
    start_date: '2026-03-01',
    end_date: '2026-03-31',
    reports: FOUR_GRAINS,
    extras: 'off',
    ...options.config,
    // A service without rate limit headers would otherwise be read at the configured pace, and one that is down waited for.
    source: {
      max_attempts: 6,
      requests_per_minute: 100_000,
      patience_seconds: 2,
      ...(options.config?.source as object | undefined),
    },
  }
  const ids = service.world.projects.map(({ id }) => id)
  const env = {
    VISIBILITY_API_URL: service.url,
    VISIBILITY_API_KEY: COMPANY_KEY,
    VISIBILITY_PROJECTS: ids.join(','),
    DATABASE_URL: database.url,
  }
  const config = configOf(fileConfig, env)
  const client = openClient(service.url, {
    maxAttempts: config.source.max_attempts,
    timeoutMs: config.source.timeout_seconds * 1000,
    patienceMs: config.source.patience_seconds * 1000,
  })
  const logs: string[] = []
  const log = createLog({
    level: 'trace',
    destination: { write: (line: string) => void logs.push(line) },
  })
  const services: Services = {
    config,
    streams: new StreamSet(config),
    client,
    warehouse: database.warehouse,
    log,
    clock,
    version: 'test',
    source: service.url,
    sourceAddress: service.url,
  }
  const projects = ids.map((id) => ({ id, caller: { key: COMPANY_KEY, projectId: id }, ownKey: false }))
  return {
    service,
    database,
    config,
    logs,
    services,
    projects,
    sync: (request = {}, observer = {}, execute = executeHere) =>
      runSync(
        services,
        { command: 'sync', projects, streams: services.streams.named(), ...request },
        observer,
        execute,
      ),
    async through(url, work, options) {
      services.client = openClient(url, options)
      try {
        return await work()
      } finally {
        services.client = client
      }
    },
    env,
    fileConfig,
  }
}
