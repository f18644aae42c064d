import { parseRange, streamsToBackfill } from '../../app/backfill-request.ts'
import { chooseProjects, type Open } from '../../app/open-services.ts'
import { dayOf } from '../../core/day.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { runReason } from '../../ledger/run-reason.ts'
import { type HeldStatus, readHeld } from '../../ledger/status.ts'
import type { RunReport } from '../../sync/run/report.ts'
import type { RunRequest } from '../../sync/run/run.ts'
import { runSync } from '../../sync/run/run-sync.ts'
import { namesIn } from '../project-names.ts'
import { renderRun } from '../render-run.ts'
import { runAndReport } from '../run-and-report.ts'
import type { Selection, Session } from '../session.ts'

export function sync(session: Session, { stream, project }: Selection): Promise<number> {
  const streams = session.streams.named(stream)
  return runAndPrint(session, project, { command: 'sync', streams }, stream === undefined && project === undefined)
}

async function runAndPrint(
  session: Session,
  projects: readonly string[] | undefined,
  request: Omit<RunRequest, 'projects' | 'signal'>,
  coversEverything = false,
): Promise<number> {
  const { config, log, clock, signal } = session
  chooseProjects(config, clock, projects)
  const { command, streams } = request
  if (streams.length === 0)
    throw new UsageError(
      'streams: nothing to read: the configuration has no stream of this kind; add some under streams or reports',
    )
  return runAndReport(session, { command, streams, projects, coversEverything }, async (open, reporter) => {
    const { shown, embedded } = open.database
    log.info({ source: open.source, warehouse: shown, embedded }, 'connected')
    session.say(`connected: from ${open.source} to ${shown}`)
    const whole = { ...request, projects: open.projects, signal, isWatched: session.isWatched }
    const report = await runSync(open, whole, reporter.observer, open.execute)
    if (report.outcome === 'complete') session.say(`run ${report.run_id} ended: complete`)
    const clean = config.redactor.value(report)
    const reason = runReason({ ...clean, error: clean.error ?? null, summary: clean.streams }) ?? null
    const warehouse = { url: shown, schema: config.warehouse.schema, embedded }
    session.print({ ...report, reason, warehouse }, session.json ? '' : await summaryOf(session, open, clean))
    await reporter.ended(report)
    return report.outcome === 'complete' ? 0 : 1
  })
}

/**
 * The summary for people, with what the warehouse knows beside the run: names, and what is held. Its report is clean: a secret
 * that is broken into two lines would not be found any more.
 */
async function summaryOf({ width, command, log, fullIds }: Session, open: Open, report: RunReport): Promise<string> {
  // A database that went away must not take the summary with it.
  const known = async <T>(read: Promise<T>, otherwise: T): Promise<T> =>
    read.catch((error: unknown) => {
      log.debug({ reason: messageOf(error) }, 'the summary is printed without it')
      return otherwise
    })
  const held = await known(readHeld(open.warehouse), { ranges: [], total: 0 })
  const names = await known(
    namesIn(open.warehouse, open.projects, fullIds),
    await namesIn(undefined, open.projects, fullIds),
  )
  const isOwn = ({ project_id, stream }: HeldStatus) =>
    report.streams.some((row) => row.project_id === project_id && row.stream === stream && row.held.length > 0)
  return renderRun(report, { warehouse: open.database, names, width, held: held.ranges.filter(isOwn), command })
}

interface BackfillOptions extends Selection {
  missing?: boolean
  acceptDeletes?: boolean
}

export function backfill(session: Session, options: BackfillOptions): Promise<number> {
  const today = dayOf(session.clock())
  const range = parseRange(options, session.config, today)
  if (range.to > today) session.log.warn(`--to: ${range.to} is after today; this reads until today (${today}, UTC)`)
  const streams = streamsToBackfill(session.streams, options.stream, options.acceptDeletes)
  const { missing: missingOnly = false, acceptDeletes = false } = options
  return runAndPrint(session, options.project, { command: 'backfill', streams, range, missingOnly, acceptDeletes })
}
