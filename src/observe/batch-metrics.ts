import { dayOf } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import { readLastEnds } from '../ledger/runs.ts'
import { readStatus } from '../ledger/status.ts'
import type { Stream } from '../streams/stream.ts'
import type { Services } from '../sync/run/run.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { LastRun, LedgerFigures } from './metrics.ts'
import { orWarn, pushMetrics, writeTextfile } from './send.ts'

interface BatchMetricsOptions extends Pick<Services, 'config' | 'log' | 'clock'> {
  streams: readonly Stream[]
  projects: string[]
  warehouse: Warehouse | undefined
}

export async function publishLastRun(
  options: BatchMetricsOptions,
  run: Omit<LastRun, 'endedAt'>,
  signal: AbortSignal,
): Promise<void> {
  const { config, log, clock } = options
  const { push_url, textfile } = config.metrics
  if (push_url === undefined && textfile === undefined) return
  const { COMMANDS, lastRunText } = await import('./metrics.ts')
  const ledger = await readLedger(options, COMMANDS).catch((error: unknown) => {
    log.warn({ reason: messageOf(error) }, 'the metrics do without the ledger')
    return undefined
  })
  const text = await lastRunText({ ...run, endedAt: clock() }, ledger)
  const warn = (sent: Promise<void>, where: string) => orWarn(sent, log, `the metrics could not be ${where}`)
  await Promise.all([
    push_url && warn(pushMetrics(push_url, text, ledger !== undefined, signal), 'pushed'),
    textfile && warn(writeTextfile(textfile, text), `written to ${textfile}`),
  ])
}

async function readLedger(
  { config, clock, streams, projects, warehouse }: BatchMetricsOptions,
  commands: readonly string[],
): Promise<LedgerFigures | undefined> {
  if (warehouse === undefined) return undefined
  const [ends, status] = await Promise.all([
    readLastEnds(warehouse, commands),
    readStatus(warehouse, {
      config,
      today: dayOf(clock()),
      projects,
      streams: [...streams],
      runs: 0,
      most: 0,
    }),
  ])
  return status === undefined ? undefined : { status, ends }
}
