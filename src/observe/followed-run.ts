import { randomUUID } from 'node:crypto'
import type { Open } from '../app/open-services.ts'
import { LockedError, messageOf } from '../core/errors.ts'
import { failureCodeOf, reportedCode } from '../core/failure-code.ts'
import { type Monotonic, waitAtMost } from '../core/waiting.ts'
import { runReason } from '../ledger/run-reason.ts'
import type { Stream } from '../streams/stream.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { Services } from '../sync/run/run.ts'
import { NO_RUN } from './findings.ts'
import { eventOf, type LineageEvent, type LineageRun } from './lineage-event.ts'
import type { RunEnd } from './metrics.ts'
import { orWarn, type PingSignal, ping, sendLineage } from './send.ts'

interface FollowingServices extends Pick<Services, 'config' | 'log' | 'clock' | 'version'> {
  monotonic: Monotonic
  signal: AbortSignal
}

export interface FollowedCommand {
  command: string
  streams: readonly Stream[]
}

export interface EndedRun {
  report: RunReport
  end: RunEnd
}

// If the start event takes longer, only the end event is sent.
const START_MS = 1000

/**
 * One run from its start to its end, also if it fails before the ledger knows of it. Both are sent to the dead man's switch and
 * the lineage catalogue. Failures of these are logged and never affect the run.
 */
export class FollowedRun {
  open: Open | undefined
  private runId = NO_RUN
  private readonly startedAt: Date
  private readonly begun: number
  private readonly starts = new AbortController()
  private sendingStart: Promise<unknown> = Promise.resolve()
  private lineage: LineageRun | undefined

  constructor(
    private readonly services: FollowingServices,
    private readonly command: FollowedCommand,
  ) {
    this.startedAt = services.clock()
    this.begun = services.monotonic()
    // Before anything else: a run that dies is noticed by what does not follow.
    this.alongside(this.ping('start', this.starts.signal))
  }

  /** False if it has begun before: an audit that repairs begins another run. */
  started(runId: number): boolean {
    if (this.runId !== NO_RUN) return false
    this.runId = runId
    const { config, version } = this.services
    if (this.open === undefined || (config.lineage.url === undefined && config.lineage.file === undefined)) return true
    const { command, startedAt } = this
    const { sourceAddress, database } = this.open
    const run = { ...command, config, version, startedAt, sourceAddress, warehouse: database.shown, uuid: randomUUID() }
    this.lineage = run
    this.alongside(this.event(eventOf(run, startedAt), this.starts.signal))
    return true
  }

  ended(report: RunReport): EndedRun {
    return { report: { ...report, ...this.facts }, end: report.outcome }
  }

  failed(error: unknown): EndedRun {
    const { config, signal } = this.services
    const end = signal.aborted ? 'interrupted' : error instanceof LockedError ? 'locked' : 'failed'
    const outcome = end === 'interrupted' ? 'interrupted' : 'failed'
    const code = reportedCode(failureCodeOf(error))
    const about = { command: this.command.command, source: this.open?.source ?? '', ...this.facts }
    const report: RunReport = { ...about, outcome, streams: [], notes: [], error: messageOf(error), code }
    return { report: config.redactor.value(report), end }
  }

  /** `signal` cancels what is sent. */
  async sendEnd({ report, end }: EndedRun, signal: AbortSignal): Promise<void> {
    const { config, clock } = this.services
    await waitAtMost(START_MS, this.sendingStart)
    this.starts.abort()
    // Another run is at it, and says how it ended.
    if (end === 'locked') return
    const { outcome, error = null, streams } = config.redactor.value(report)
    const reason = runReason({ outcome, error, summary: streams })
    const sent: Promise<void>[] = [this.ping(end === 'complete' ? 'success' : 'fail', signal, reason)]
    if (this.lineage !== undefined) sent.push(this.event(eventOf(this.lineage, clock(), { ...report, reason }), signal))
    await Promise.all(sent)
  }

  private get facts(): Pick<RunReport, 'run_id' | 'seconds'> {
    return { run_id: this.runId, seconds: Math.round(this.services.monotonic() - this.begun) / 1000 }
  }

  private alongside(work: Promise<void>): void {
    this.sendingStart = Promise.all([this.sendingStart, work])
  }

  private async ping(what: PingSignal, signal: AbortSignal, reason?: string): Promise<void> {
    const { config, log } = this.services
    const { ping_url } = config.alerts
    if (ping_url === undefined) return
    const text = reason && `${this.command.command}: ${reason}`
    await orWarn(ping(ping_url, what, signal, text), log, 'the ping failed', signal)
  }

  private async event(event: LineageEvent, signal: AbortSignal): Promise<void> {
    const { config, log } = this.services
    const sent = sendLineage(config.lineage, config.redactor.value(event), signal)
    await orWarn(sent, log, 'the lineage event was not accepted', signal)
  }
}
