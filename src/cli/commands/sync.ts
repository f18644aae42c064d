import { UsageError } from '../../core/errors.ts'
import { findingsOfRun, tell } from '../../schedule/alerts.ts'
import { streamsOf } from '../../streams/registry.ts'
import type { Stream } from '../../streams/stream.ts'
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
  return runAndPrint(session, options.project, streams, (open) => ({
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
  streams: readonly Stream[],
  requestOf: (open: Open) => RunRequest,
): Promise<number> {
  const { config, log, clock, version } = session
  if (streams.length === 0) {
    throw new UsageError(
      'streams: nothing to read: the configuration has no stream of this kind; add some under streams or reports',
    )
  }
  return withServices({ config, log, clock, version, projects: projects ?? [] }, async (open) => {
    log.info({ source: open.source, warehouse: open.database.shown, embedded: open.database.embedded }, 'connected')
    const report = await runSync(open, requestOf(open), session.observer, open.drain)
    await tell({ warehouse: open.warehouse, webhookUrl: config.alerts.webhook_url, log }, findingsOfRun(report))
    const warehouse = { url: open.database.shown, schema: config.warehouse.schema, embedded: open.database.embedded }
    session.print({ ...report, warehouse }, renderRun(report, warehouse))
    return report.outcome === 'complete' ? 0 : 1
  })
}
