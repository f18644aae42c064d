import { configuredProjects, type Open, withServices } from '../app/open-services.ts'
import { pruneAfterRun } from '../app/prune.ts'
import type { AuditResult } from '../audit/run-audit.ts'
import { TransientError } from '../core/errors.ts'
import { streamDays } from '../core/text.ts'
import { waitAtMost } from '../core/waiting.ts'
import { readDiffering } from '../ledger/days.ts'
import { readHeld } from '../ledger/status.ts'
import { type AlertOptions, Alerts } from '../observe/alerts.ts'
import { publishLastRun } from '../observe/batch-metrics.ts'
import { channelsOf } from '../observe/channels.ts'
import { findingOfHeld, findingOfUnreconciled, findingsOfRun, NO_RUN } from '../observe/findings.ts'
import { type EndedRun, type FollowedCommand, FollowedRun } from '../observe/followed-run.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { Observer } from '../sync/run/task.ts'
import { createSidePool } from '../warehouse/side-pool.ts'
import { readProjectNames } from './project-names.ts'
import type { Session } from './session.ts'

interface ReportedCommand extends FollowedCommand {
  projects?: readonly string[] | undefined
  coversEverything: boolean
  /** False: send telemetry, but no alerts. */
  alerts?: boolean
}

interface Reporter {
  observer: Observer
  /** After the result was printed, with the database still open. */
  ended(report: RunReport): Promise<void>
}

const SEND_MS = 4000

/**
 * Runs a command that ends, and reports its end: to people, a dead man's switch, Prometheus, a catalogue of lineage.
 * All are notified however it ended. One that does not answer delays the exit by a few seconds at most.
 */
export async function runAndReport(
  session: Session,
  command: ReportedCommand,
  work: (open: Open, reporter: Reporter) => Promise<number>,
): Promise<number> {
  const run = new FollowedRun(session, command)
  let isReported = false
  const report = async (ended: EndedRun) => {
    if (isReported) return
    isReported = true
    await sendEnd(session, command, run, ended)
  }
  const observer: Observer = {
    ...session.observer,
    started: (begun) => {
      session.observer.started?.(begun)
      run.started(begun.runId)
    },
  }
  try {
    return await withServices({ ...session, projects: command.projects }, async (open) => {
      run.open = open
      try {
        return await work(open, { observer, ended: (result) => report(run.ended(result)) })
      } catch (error) {
        // While the database is open.
        await report(run.failed(error))
        throw error
      } finally {
        run.open = undefined
      }
    })
  } catch (error) {
    await report(run.failed(error))
    throw error
  }
}

async function sendEnd(session: Session, command: ReportedCommand, run: FollowedRun, ended: EndedRun): Promise<void> {
  const { report, end } = ended
  const { open } = run
  const { config, log, clock, signal } = session
  const projects = configuredProjects(config, clock).map(({ id }) => id)
  const late = new AbortController()
  const sent: Promise<void>[] = [
    run.sendEnd(ended, late.signal),
    publishLastRun(
      { config, log, clock, streams: session.streams.all, projects, warehouse: open?.warehouse },
      { command: command.command, end, seconds: report.seconds, streams: report.streams },
      late.signal,
    ),
  ]
  if (end !== 'locked') {
    if (command.alerts ?? true)
      sent.push(alertAfterRun(session, open, report, { ...command, stop: AbortSignal.any([signal, late.signal]) }))
    if (open !== undefined) sent.push(pruneAfterRun(session, open.warehouse, signal))
  }
  await waitAtMost(SEND_MS, Promise.allSettled(sent))
  late.abort()
}

/** Of an audit; the run's number and its seconds are added later. */
export function auditReport({ remaining, repair, notes }: AuditResult, source: string): RunReport {
  return {
    ...{ run_id: NO_RUN, command: 'audit', source, seconds: 0, notes, streams: repair?.streams ?? [] },
    outcome: remaining === 0 ? (repair?.outcome ?? 'complete') : 'partial',
    ...(remaining === 0
      ? {}
      : { error: `${streamDays(remaining)} ${remaining === 1 ? 'differs' : 'differ'} from the service` }),
  }
}

const MOST_HELD = 1000
const LEDGER = { name: 'visibility-sync alerts', connections: 1, waiting: 4, patienceMs: 3000, limitMs: 3000 }

export function alertsOf(
  { config, log }: Session,
  options: Pick<AlertOptions, 'warehouse' | 'nameOf' | 'clock' | 'signal' | 'ledger'>,
): Alerts {
  const { quiet_minutes, page_url: pageUrl } = config.alerts
  const channels = channelsOf(config)
  return new Alerts({ ...options, channels, quietMs: quiet_minutes * 60_000, pageUrl, log, redactor: config.redactor })
}

/**
 * Sends alerts about a run of a command that ends, and about what is held or not reconciled now. It comes after the result and cannot change it.
 * Without a database, each command that fails sends its alerts anew: nothing remembers what was sent before.
 */
async function alertAfterRun(
  session: Session,
  open: Open | undefined,
  report: RunReport,
  { coversEverything, stop }: { coversEverything: boolean; stop: AbortSignal },
): Promise<void> {
  if (channelsOf(session.config).length === 0) return
  const pool = open && createSidePool(open.warehouse, LEDGER)
  const names = await (open && readProjectNames(open.warehouse).catch(() => undefined))
  const alerts = alertsOf(session, {
    warehouse: open?.database.shown ?? '',
    nameOf: (id) => names?.get(id) ?? id,
    clock: session.clock,
    signal: stop,
    ledger: (work) => pool?.write(work) ?? Promise.reject(new TransientError('there is no database')),
  })
  try {
    await alerts.update(findingsOfRun(report, { coversEverything }))
    if (open === undefined) return
    const { warehouse } = open
    await alerts.update({
      held: findingOfHeld((await readHeld(warehouse, MOST_HELD)).ranges),
      unreconciled: findingOfUnreconciled(await readDiffering(warehouse, 'differs')),
    })
  } finally {
    pool?.close()
  }
}
