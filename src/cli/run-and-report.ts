import { NO_RUN } from '../alerts/findings.ts'
import { configuredProjects, type Open } from '../app/open-services.ts'
import { pruneAfterRun } from '../app/prune.ts'
import { waitAtMost } from '../core/time-limit.ts'
import { runReason } from '../ledger/run-reason.ts'
import type { Stream } from '../streams/stream.ts'
import type { RunReport } from '../sync/run/report.ts'
import { cleanReport } from '../sync/run/report.ts'
import type { Observer } from '../sync/run/run-sync.ts'
import { openBatchMetrics } from '../telemetry/batch-metrics.ts'
import type { RunEnd } from '../telemetry/metrics.ts'
import { observers } from '../telemetry/observers.ts'
import { RunTelemetry } from '../telemetry/run-telemetry.ts'
import { alertAfterRun } from './alert-after-run.ts'
import { failedRun } from './failed-run.ts'
import type { Session } from './session.ts'

export interface ReportedCommand {
  command: string
  streams: readonly Stream[]
  /** True if it works at everything that is configured. */
  isWhole: boolean
  /** False if only those outside hear of it, and nobody is alerted. */
  alerts?: boolean
}

export interface RunReporter {
  observer: Observer
  /** Does what needs the service and the database, and reports what goes wrong there while they are open. */
  inside<T>(open: Open, work: () => Promise<T>): Promise<T>
  /** After the result was printed, with the database still open. */
  ended(report: RunReport): Promise<void>
}

// For all that is sent after a run, together.
const SEND_MS = 4000

/**
 * Runs a command that ends, and reports its end: to people, a dead man's switch, Prometheus, a catalogue of lineage.
 * All are notified however it ended. One that does not answer delays the exit by a few seconds at most.
 */
export async function runAndReport(
  session: Session,
  request: ReportedCommand,
  work: (reporter: RunReporter) => Promise<number>,
): Promise<number> {
  const { config, log, clock, version, monotonic } = session
  const { command } = request
  const begun = monotonic()
  const telemetry = new RunTelemetry({ config, log, clock, version, command, streams: request.streams })
  const metrics = await openBatchMetrics({
    config,
    log,
    clock,
    streams: session.streams.all,
    projects: configuredProjects(config, clock).map(({ id }) => id),
  })
  let open: Open | undefined
  let runId: number | undefined
  let isReported = false
  const started: Observer = {
    started(run) {
      // The first is the run itself: an audit that repairs begins another one.
      runId ??= run.runId
      if (open !== undefined) telemetry.started({ sourceAddress: open.sourceAddress, warehouse: open.database.shown })
    },
  }
  const send = async (report: RunReport, end: RunEnd) => {
    if (isReported) return
    isReported = true
    const seconds = (monotonic() - begun) / 1000
    const reason = runReason({ outcome: report.outcome, error: report.error ?? null, summary: report.streams })
    const late = new AbortController()
    const sent: Promise<void>[] = [
      telemetry.ended({ end, runId, streams: report.streams, seconds, reason }, late.signal),
    ]
    if (metrics !== undefined) sent.push(metrics.publish({ command, end, seconds }, open?.warehouse, late.signal))
    if (end !== 'locked') {
      if (request.alerts !== false)
        sent.push(alertAfterRun(session, open, report, { isWhole: request.isWhole, late: late.signal }))
      if (open !== undefined) sent.push(pruneAfterRun(session, open.warehouse, session.signal))
    }
    await waitAtMost(SEND_MS, Promise.allSettled(sent))
    late.abort()
  }
  const reportFailure = async (error: unknown) => {
    const seconds = (monotonic() - begun) / 1000
    const about = { run_id: runId ?? NO_RUN, command, source: open?.source ?? '', seconds }
    const { report, end } = failedRun(error, session.signal.aborted, about)
    await send(cleanReport(report, config.redactor), end)
  }
  telemetry.begin()
  try {
    return await work({
      observer: observers(session.observer, started, ...(metrics === undefined ? [] : [metrics.observer])),
      async inside(services, inner) {
        open = services
        try {
          return await inner()
        } catch (error) {
          await reportFailure(error)
          throw error
        } finally {
          open = undefined
        }
      },
      ended: (report) => send(report, report.outcome),
    })
  } catch (error) {
    await reportFailure(error)
    throw error
  }
}
