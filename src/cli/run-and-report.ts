import { configuredProjects, type Open } from '../app/open-services.ts'
import { pruneAfterRun } from '../app/prune.ts'
import type { AuditResult } from '../audit/run-audit.ts'
import { LockedError, messageOf, TransientError } from '../core/errors.ts'
import { failureCodeOf, reportedCode } from '../core/failure-code.ts'
import { waitAtMost } from '../core/waiting.ts'
import { readHeld, readUnreconciled } from '../ledger/status.ts'
import { Alerts } from '../observe/alerts.ts'
import { publishLastRun } from '../observe/batch-metrics.ts'
import { channelsOf } from '../observe/channels.ts'
import { findingOfHeld, findingOfUnreconciled, findingsOfRun, NO_RUN } from '../observe/findings.ts'
import type { RunEnd } from '../observe/metrics.ts'
import { RunTelemetry } from '../observe/run-telemetry.ts'
import type { Stream } from '../streams/stream.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { Observer } from '../sync/run/task.ts'
import { createSidePool } from '../warehouse/side-pool.ts'
import { readProjectNames } from './project-names.ts'
import type { Session } from './session.ts'

export interface ReportedCommand {
  command: string
  streams: readonly Stream[]
  coversEverything: boolean
  /** False: send telemetry, but no alerts. */
  alerts?: boolean
}

const SEND_MS = 4000

/**
 * Runs a command that ends, and reports its end: to people, a dead man's switch, Prometheus, a catalogue of lineage.
 * All are notified however it ended. One that does not answer delays the exit by a few seconds at most.
 */
export async function runAndReport(
  session: Session,
  command: ReportedCommand,
  work: (reporter: RunReporter) => Promise<number>,
): Promise<number> {
  const reporter = new RunReporter(session, command)
  try {
    return await work(reporter)
  } catch (error) {
    await reporter.failed(error)
    throw error
  }
}

export class RunReporter {
  readonly observer: Observer
  private readonly telemetry: RunTelemetry
  private readonly begun: number
  private open: Open | undefined
  /** The run itself, not the one that repairs. Undefined before it began. */
  runId: number | undefined
  private isReported = false

  constructor(
    private readonly session: Session,
    private readonly command: ReportedCommand,
  ) {
    const { config, log, clock, version, monotonic } = session
    this.begun = monotonic()
    this.telemetry = new RunTelemetry({ config, log, clock, version, ...command })
    this.observer = {
      ...session.observer,
      started: (run) => {
        session.observer.started?.(run)
        this.started(run.runId)
      },
    }
  }

  /** Does what needs the service and the database, and reports what goes wrong there while they are open. */
  async run<T>(open: Open, work: () => Promise<T>): Promise<T> {
    this.open = open
    try {
      return await work()
    } catch (error) {
      await this.failed(error)
      throw error
    } finally {
      this.open = undefined
    }
  }

  /** After the result was printed, with the database still open. */
  ended(report: RunReport): Promise<void> {
    return this.send(report, report.outcome)
  }

  async failed(error: unknown): Promise<void> {
    const { signal, config } = this.session
    const { command } = this.command
    const about = { run_id: this.runId ?? NO_RUN, command, source: this.open?.source ?? '', seconds: this.seconds }
    const { report, end } = failedRun(error, signal.aborted, about)
    await this.send(config.redactor.value(report), end)
  }

  private get seconds(): number {
    return (this.session.monotonic() - this.begun) / 1000
  }

  private started(runId: number): void {
    this.runId ??= runId
    if (this.open === undefined) return
    const { sourceAddress, database } = this.open
    this.telemetry.started({ sourceAddress, warehouse: database.shown })
  }

  private async send(report: RunReport, end: RunEnd): Promise<void> {
    if (this.isReported) return
    this.isReported = true
    const { session, command, open, seconds } = this
    const { config, log, clock } = session
    const projects = configuredProjects(config, clock).map(({ id }) => id)
    const late = new AbortController()
    const sent: Promise<void>[] = [
      this.telemetry.ended({ ...report, seconds }, end, late.signal),
      publishLastRun(
        { config, log, clock, streams: session.streams.all, projects, warehouse: open?.warehouse },
        { command: command.command, end, seconds, streams: report.streams },
        late.signal,
      ),
    ]
    if (end !== 'locked') {
      const { coversEverything, alerts = true } = command
      if (alerts) sent.push(alertAfterRun(session, open, report, { coversEverything, late: late.signal }))
      if (open !== undefined) sent.push(pruneAfterRun(session, open.warehouse, session.signal))
    }
    await waitAtMost(SEND_MS, Promise.allSettled(sent))
    late.abort()
  }
}

export function failedRun(
  error: unknown,
  isStopped: boolean,
  about: Pick<RunReport, 'run_id' | 'command' | 'source' | 'seconds'>,
): { report: RunReport; end: RunEnd } {
  const end = isStopped ? 'interrupted' : error instanceof LockedError ? 'locked' : 'failed'
  const outcome = end === 'interrupted' ? 'interrupted' : 'failed'
  const code = reportedCode(failureCodeOf(error))
  return { end, report: { ...about, outcome, streams: [], notes: [], error: messageOf(error), code } }
}

export function auditReport({ remaining, repair }: AuditResult, runId: number, source: string): RunReport {
  return {
    run_id: runId,
    command: 'audit',
    outcome: remaining === 0 ? (repair?.outcome ?? 'complete') : 'partial',
    source,
    seconds: 0,
    streams: repair?.streams ?? [],
    notes: [],
    ...(remaining === 0 ? {} : { error: `${remaining} days still differ from the service` }),
  }
}

const MOST_HELD = 1000
const LEDGER = { name: 'visibility-sync alerts', connections: 1, waiting: 4, patienceMs: 3000, limitMs: 3000 }

/**
 * Sends alerts about a run of a command that ends, and about what is held or not reconciled now. It comes after the result and cannot change it.
 * Without a database, each command that fails sends its alerts anew: nothing remembers what was sent before.
 */
async function alertAfterRun(
  session: Session,
  open: Open | undefined,
  report: RunReport,
  { coversEverything, late }: { coversEverything: boolean; late: AbortSignal },
): Promise<void> {
  const { config, log, clock, signal } = session
  const channels = channelsOf(config, open?.database.shown ?? '')
  if (channels.length === 0) return
  const pool = open === undefined ? undefined : createSidePool(open.warehouse, LEDGER)
  const names =
    open === undefined
      ? new Map<string, string>()
      : await readProjectNames(open.warehouse).catch(() => new Map<string, string>())
  const alerts = new Alerts({
    channels,
    quietMs: config.alerts.quiet_minutes * 60_000,
    pageUrl: config.alerts.page_url,
    nameOf: (id) => names.get(id) ?? id,
    log,
    redactor: config.redactor,
    clock,
    signal: AbortSignal.any([signal, late]),
    ledger: (work) => pool?.write(work) ?? Promise.reject(new TransientError('there is no database')),
  })
  try {
    await alerts.update(findingsOfRun(report, { coversEverything }))
    if (open === undefined) return
    const { warehouse } = open
    await alerts.update({
      held: findingOfHeld((await readHeld(warehouse, MOST_HELD)).ranges),
      unreconciled: findingOfUnreconciled(await readUnreconciled(warehouse)),
    })
  } finally {
    pool?.close()
  }
}
