import { count } from '../../core/text.ts'
import { streamsOf } from '../../streams/registry.ts'
import { type RunRequest, runSync } from '../../sync/run.ts'
import { type Open, withServices } from '../open.ts'
import { renderRun } from '../render-run.ts'
import type { Session } from '../session.ts'

export interface SyncOptions {
  stream?: string[]
  project?: string[]
}

/** `sync`: one incremental run. */
export function sync(session: Session, options: SyncOptions): Promise<number> {
  const streams = streamsOf(session.config, options.stream)
  return runAndPrint(session, options.project, (open) => ({
    command: 'sync',
    projects: open.projects,
    streams,
    signal: session.signal,
  }))
}

/** Runs, prints the summary and gives the exit code. */
export async function runAndPrint(
  session: Session,
  projects: readonly string[] | undefined,
  requestOf: (open: Open) => RunRequest,
): Promise<number> {
  const { config, log, clock, version } = session
  return withServices({ config, log, clock, version, projects: projects ?? [] }, async (open) => {
    log.info({ source: open.source, warehouse: open.database.shown, embedded: open.database.embedded }, 'connected')
    if (config.source.base_url === undefined && config.source.api_key !== undefined) {
      log.warn('an API key is set but no VISIBILITY_API_URL: synthetic data of the reference service is being read')
    }
    const report = await runSync(open, requestOf(open), session.observer)
    const warehouse = { url: open.database.shown, schema: config.warehouse.schema, embedded: open.database.embedded }
    session.print({ ...report, warehouse }, renderRun(report, warehouse))
    log.debug({ streams: count(report.streams.length, 'stream') }, 'printed')
    return report.outcome === 'complete' ? 0 : 1
  })
}
