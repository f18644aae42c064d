import { parseRange, streamsToBackfill } from '../../app/backfill-request.ts'
import { type Open, withServices } from '../../app/open-services.ts'
import { dayOf } from '../../core/day.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { runReason } from '../../ledger/run-reason.ts'
import { type HeldStatus, readHeld } from '../../ledger/status.ts'
import type { RunReport } from '../../sync/run/report.ts'
import type { RunRequest } from '../../sync/run/run.ts'
import { runSync } from '../../sync/run/run-sync.ts'
import { refuseUnknownProjects } from '../choose-projects.ts'
import { projectNames, readProjectNames } from '../project-names.ts'
import { renderRun } from '../render-run.ts'
import { type ReportedCommand, runAndReport } from '../run-and-report.ts'
import type { Session } from '../session.ts'

export interface SyncOptions {
  stream?: string[]
  project?: string[]
}

export function sync(session: Session, options: SyncOptions): Promise<number> {
  const streams = session.streams.named(options.stream)
  const command = {
    command: 'sync',
    streams,
    coversEverything: options.stream === undefined && options.project === undefined,
  }
  return runAndPrint(session, options.project, command, { command: 'sync', streams })
}

async function runAndPrint(
  session: Session,
  projects: readonly string[] | undefined,
  command: ReportedCommand,
  request: Omit<RunRequest, 'projects' | 'signal'>,
): Promise<number> {
  const { config, log, clock, version, signal } = session
  refuseUnknownProjects(config, projects)
  if (command.streams.length === 0) {
    throw new UsageError(
      'streams: nothing to read: the configuration has no stream of this kind; add some under streams or reports',
    )
  }
  return runAndReport(session, command, (reporter) =>
    withServices({ config, log, clock, version, projects: projects ?? [] }, (open) =>
      reporter.run(open, async () => {
        const { shown, embedded } = open.database
        log.info({ source: open.source, warehouse: shown, embedded }, 'connected')
        session.say(`connected: from ${open.source} to ${shown}`)
        const report = await runSync(
          open,
          { ...request, projects: open.projects, signal },
          reporter.observer,
          open.execute,
        )
        const warehouse = { url: shown, schema: config.warehouse.schema, embedded }
        if (report.outcome === 'complete') session.say(`run ${report.run_id} ended: complete`)
        const summary = session.json ? '' : await summaryOf(session, open, report)
        const { outcome, error = null, streams } = config.redactor.value(report)
        const reason = runReason({ outcome, error, summary: streams }) ?? null
        session.print({ ...report, reason, warehouse }, summary)
        await reporter.ended(report)
        return report.outcome === 'complete' ? 0 : 1
      }),
    ),
  )
}

/** The summary for people, with what the warehouse knows beside the run: names, and what is held. */
async function summaryOf({ width, command, log, config }: Session, open: Open, report: RunReport): Promise<string> {
  // A database that went away must not take the summary with it.
  const known = async <T>(read: Promise<T>, otherwise: T): Promise<T> =>
    read.catch((error: unknown) => {
      log.debug({ reason: messageOf(error) }, 'the summary is printed without it')
      return otherwise
    })
  const held = await known(readHeld(open.warehouse), { ranges: [], total: 0 })
  const names = await known(readProjectNames(open.warehouse), new Map<string, string>())
  const ids = open.projects.map(({ id }) => id)
  const isOwn = ({ project_id, stream }: HeldStatus) =>
    report.streams.some((row) => row.project_id === project_id && row.stream === stream && row.held.length > 0)
  // A secret that is broken into two lines would not be found any more.
  return renderRun(config.redactor.value(report), {
    warehouse: open.database,
    names: projectNames(ids, names),
    width,
    held: held.ranges.filter(isOwn),
    command,
  })
}

export interface BackfillOptions extends SyncOptions {
  from: string
  to: string
  missing?: boolean
  acceptDeletes?: boolean
}

/** `backfill`: re-reads a range of days, or only its missing ones. */
export function backfill(session: Session, options: BackfillOptions): Promise<number> {
  const today = dayOf(session.clock())
  const range = parseRange(options, session.config, today)
  if (range.to > today) session.log.warn(`--to: ${range.to} is after today; this reads until today (${today}, UTC)`)
  const streams = streamsToBackfill(session.streams, options.stream, options.acceptDeletes)
  const command = { command: 'backfill', streams, coversEverything: false }
  const { missing: missingOnly = false, acceptDeletes = false } = options
  return runAndPrint(session, options.project, command, {
    command: 'backfill',
    streams,
    range,
    missingOnly,
    acceptDeletes,
  })
}
