import { randomUUID } from 'node:crypto'
import { waitAtMost } from '../core/waiting.ts'
import { runReason } from '../ledger/run-reason.ts'
import type { Stream } from '../streams/stream.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { Services } from '../sync/run/run.ts'
import { eventOf, type LineageEvent, type LineageRun, type RunEndpoints } from './lineage-event.ts'
import type { RunEnd } from './metrics.ts'
import { orWarn, type PingSignal, ping, sendLineage } from './send.ts'

interface RunTelemetryOptions extends Pick<Services, 'config' | 'log' | 'clock' | 'version'> {
  command: string
  streams: readonly Stream[]
}

// If the start event takes longer, only the end event is sent.
const START_MS = 1000

/**
 * Sends the start and the end of a run to the dead man's switch and the lineage catalogue. Failures are logged and never affect
 * the run. `signal` cancels the end events.
 */
export class RunTelemetry {
  private readonly startedAt: Date
  private readonly starts = new AbortController()
  private begun: Promise<unknown> = Promise.resolve()
  private lineage: LineageRun | undefined

  constructor(private readonly options: RunTelemetryOptions) {
    this.startedAt = options.clock()
    // Before anything else: a run that dies is noticed by what does not follow.
    this.alongside(this.ping('start', this.starts.signal))
  }

  started(endpoints: RunEndpoints): void {
    const { url, file } = this.options.config.lineage
    if (url === undefined && file === undefined) return
    const { options, startedAt } = this
    this.lineage = { ...options, ...endpoints, startedAt, uuid: randomUUID() }
    this.alongside(this.event(eventOf(this.lineage, startedAt), this.starts.signal))
  }

  async ended(report: RunReport, end: RunEnd, signal: AbortSignal): Promise<void> {
    const { config, clock } = this.options
    await waitAtMost(START_MS, this.begun)
    this.starts.abort()
    // Another run is at it, and says how it ended.
    if (end === 'locked') return
    const { outcome, error = null, streams } = config.redactor.value(report)
    const reason = runReason({ outcome, error, summary: streams })
    const sent: Promise<void>[] = [this.ping(end === 'complete' ? 'success' : 'fail', signal, reason)]
    if (this.lineage !== undefined) sent.push(this.event(eventOf(this.lineage, clock(), { ...report, reason }), signal))
    await Promise.all(sent)
  }

  private alongside(work: Promise<void>): void {
    this.begun = Promise.all([this.begun, work])
  }

  private async ping(what: PingSignal, signal: AbortSignal, reason?: string): Promise<void> {
    const { config, log, command } = this.options
    const { ping_url } = config.alerts
    if (ping_url === undefined) return
    await orWarn(ping(ping_url, what, signal, reason && `${command}: ${reason}`), log, 'the ping failed', signal)
  }

  private async event(event: LineageEvent, signal: AbortSignal): Promise<void> {
    const { config, log } = this.options
    const sent = sendLineage(config.lineage, config.redactor.value(event), signal)
    await orWarn(sent, log, 'the lineage event was not accepted', signal)
  }
}
