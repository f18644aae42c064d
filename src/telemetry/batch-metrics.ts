import type { Config } from '../core/config/load.ts'
import { daysOfInterest } from '../core/config/load.ts'
import { type Clock, dayOf } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { outsideFailure } from '../core/outside.ts'
import { readLastEnds } from '../ledger/last-ends.ts'
import { addMetricTotals } from '../ledger/metric-totals.ts'
import { readStatus } from '../ledger/status.ts'
import type { Stream } from '../streams/stream.ts'
import type { Observer } from '../sync/run/run-sync.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { LedgerFigures, Metrics, RunEnd } from './metrics.ts'
import { pushMetrics, writeTextfile } from './push-metrics.ts'

/** The metrics of a command that ends: it leaves them where Prometheus finds them later. */
export interface BatchMetrics {
  observer: Observer
  publish(end: BatchEnd, warehouse: Warehouse | undefined, signal: AbortSignal): Promise<void>
}

export interface BatchEnd {
  command: string
  end: RunEnd
  seconds: number
}

export interface BatchMetricsOptions {
  config: Config
  log: Log
  clock: Clock
  streams: readonly Stream[]
  projects: readonly string[]
}

const NOTHING: Omit<LedgerFigures, 'own'> = { status: undefined, ends: [], totals: undefined }

/** Undefined if nobody wants them: then nothing is counted. */
export async function openBatchMetrics(options: BatchMetricsOptions): Promise<BatchMetrics | undefined> {
  const { push_url, textfile } = options.config.metrics
  if (push_url === undefined && textfile === undefined) return undefined
  // Loaded only if it is used.
  const { createMetrics, COMMANDS } = await import('./metrics.ts')
  const metrics = createMetrics(options.streams.map(({ name }) => name))
  return {
    observer: metrics.observer,
    async publish({ command, end, seconds }, warehouse, signal) {
      const { log, clock } = options
      metrics.finished({ command, outcome: end, seconds }, clock())
      const figures = await readLedgerFigures(options, metrics, warehouse, COMMANDS).catch((error: unknown) => {
        log.warn({ reason: messageOf(error) }, 'the metrics do without the ledger')
        return NOTHING
      })
      const text = await metrics.lastText({ ...figures, own: end === 'locked' ? undefined : command })
      const isWhole = figures.totals !== undefined && figures.status !== undefined
      const sent = [
        ...(push_url === undefined ? [] : [pushMetrics(push_url, text, { isWhole, signal })]),
        ...(textfile === undefined ? [] : [writeTextfile(textfile, text)]),
      ]
      for (const result of await Promise.allSettled(sent)) {
        if (result.status === 'rejected')
          log.warn({ reason: outsideFailure(result.reason) }, 'the metrics could not be published')
      }
    },
  }
}

async function readLedgerFigures(
  { config, clock, streams, projects }: BatchMetricsOptions,
  metrics: Metrics,
  warehouse: Warehouse | undefined,
  commands: readonly string[],
): Promise<Omit<LedgerFigures, 'own'>> {
  if (warehouse === undefined) return NOTHING
  const totals = await addMetricTotals(warehouse, await metrics.counted())
  const today = dayOf(clock())
  const [ends, status] = await Promise.all([
    readLastEnds(warehouse, commands),
    readStatus(warehouse, {
      interest: daysOfInterest(config, today),
      today,
      lookbackDays: config.lookback_days,
      projects: [...projects],
      streams: [...streams],
      runs: 0,
      most: 0,
      // Nobody looks at these here.
      kept: {
        runs: async () => [],
        lookback: () => ({ configured_days: config.lookback_days, needed_days: null, too_short: false }),
      },
    }),
  ])
  return { status, ends, totals }
}
