import { resolveAllProjects } from './app/all-projects.ts'
import { parseRange, streamsToBackfill } from './app/backfill-request.ts'
import { withServices } from './app/open-services.ts'
import { pruneAfterRun } from './app/prune.ts'
import { type Config, loadConfig } from './core/config/load.ts'
import { dayOf } from './core/day.ts'
import { cleanError, UsageError } from './core/errors.ts'
import { createLog } from './core/logger.ts'
import { packageVersion } from './core/package-files.ts'
import { StreamSet } from './streams/registry.ts'
import type { RunReport } from './sync/run/report.ts'
import { runSync } from './sync/run/run-sync.ts'
import type { Observer } from './sync/run/task.ts'

/* The interface for programs: the client of the service, and a sync as the command runs it. */

export type { Config } from './core/config/load.ts'
export { type Caller, type Client, type ClientOptions, createClient, type Page } from './source/client.ts'
export type { RunReport, StreamReport } from './sync/run/report.ts'
export type { Observer, Step } from './sync/run/task.ts'

export interface SyncOptions {
  /** The configuration file; without one, VISIBILITY_CONFIG or config/sync.yaml. */
  file?: string
  /** Instead of the environment of the process. */
  env?: Record<string, string | undefined>
  /** Only these streams and projects. */
  streams?: string[]
  projects?: string[]
  /** A range to read whatever is known of it; without one, what is due. */
  range?: { from: string; to: string }
  signal?: AbortSignal
  observer?: Observer
  /** Takes the log, a JSON line at a time; without one nothing is logged. */
  onLog?: (line: string) => void
}

/**
 * One run, as `visibility-sync sync` or `backfill` does it. Throws on bad configuration; outcomes are in the report. No
 * error and no report holds a secret of the configuration.
 */
export async function sync(options: SyncOptions = {}): Promise<RunReport> {
  const config = loadConfig({ file: options.file, env: options.env as NodeJS.ProcessEnv | undefined })
  try {
    return config.redactor.value(await runOnce(config, options))
  } catch (error) {
    throw cleanError(error, config.redactor)
  }
}

async function runOnce(config: Config, { onLog, range: asked, signal, ...options }: SyncOptions): Promise<RunReport> {
  const clock = () => new Date()
  const log = createLog({
    level: onLog === undefined ? 'silent' : (config.log_level ?? 'info'),
    redactor: config.redactor,
    destination: { write: (line) => onLog?.(line) },
  })
  const range = asked && parseRange(asked, config, dayOf(clock()))
  await resolveAllProjects(config, signal)
  const configured = new StreamSet(config)
  const streams =
    range === undefined ? configured.named(options.streams) : streamsToBackfill(configured, options.streams)
  if (streams.length === 0) throw new UsageError('streams: nothing to read')
  const { projects } = options
  const services = { config, streams: configured, log, clock, version: packageVersion(), projects }
  return withServices(services, async (open) => {
    const command = range === undefined ? 'sync' : 'backfill'
    const request = { command, projects: open.projects, streams, range, signal }
    const report = await runSync(open, request, options.observer, open.execute)
    await pruneAfterRun(open, open.warehouse, signal)
    return report
  })
}
