import { got } from 'got'
import { codeOf, messageOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { clip, count, listSome, redact } from '../core/text.ts'
import { clearAlert, raiseAlert } from '../ledger/alerts.ts'
import type { Status } from '../ledger/status.ts'
import type { RunReport } from '../sync/report.ts'
import type { Warehouse } from '../warehouse/connect.ts'

/* Tells people through a webhook, once when something goes wrong and once when it is over. Never harms a run. */

export type Condition = 'run' | 'key' | 'held' | 'stale'

/** Of each condition, what is wrong now; undefined where nothing is. A condition that is not named was not looked at. */
export type Findings = Partial<Record<Condition, string | undefined>>

export interface Alerting {
  warehouse: Warehouse
  webhookUrl: string | undefined
  log: Log
}

export function findingsOfRun(report: RunReport): Findings {
  if (report.outcome === 'interrupted') return {}
  const failures = report.streams.flatMap(({ failed }) => failed.map(({ error }) => error))
  const reason = report.error ?? failures[0]
  const wrongKey = [report.error ?? '', ...failures].find((text) => text.includes('check VISIBILITY_API_KEY'))
  const quarantined = report.streams.reduce((sum, stream) => sum + stream.quarantined, 0)
  const parts = [
    ...(failures.length > 0 ? [count(failures.length, 'failure')] : []),
    ...(quarantined > 0 ? [`${count(quarantined, 'row')} quarantined`] : []),
    ...(reason === undefined ? [] : [clip(reason, 200)]),
  ]
  return {
    run:
      report.outcome === 'complete'
        ? undefined
        : `run ${report.run_id} (${report.command}) ${report.outcome === 'failed' ? 'failed' : 'was partial'}: ${parts.join('; ') || 'something was held back'}`,
    key: wrongKey === undefined ? undefined : `the service refuses the key: ${clip(wrongKey, 200)}`,
  }
}

export function findingsOfStatus(status: Status, now: Date, maxStalenessMs: number): Findings {
  const stale = status.streams.filter(
    ({ last_read_at }) => last_read_at === null || now.getTime() - last_read_at.getTime() > maxStalenessMs,
  )
  const names = (streams: { project_id: string; stream: string }[]) =>
    listSome(streams.map(({ project_id, stream }) => `${stream} of ${project_id}`))
  return {
    held:
      status.held.length === 0
        ? undefined
        : `held back, since an answer would have deleted most rows: ${names(status.held)}`,
    stale: stale.length === 0 ? undefined : `not read for too long: ${names(stale)}`,
  }
}

/** Compares with what people were told, and tells them what is new and what is over. */
export async function tell({ warehouse, webhookUrl, log }: Alerting, findings: Findings): Promise<void> {
  if (webhookUrl === undefined) return
  for (const [condition, text] of Object.entries(findings)) {
    try {
      if (text !== undefined) {
        if (!(await raiseAlert(warehouse, condition, text))) continue
        await send(webhookUrl, { text: `visibility-sync: ${text}`, event: 'raised', condition, detail: text })
        log.info({ condition }, 'alert sent')
      } else {
        const over = await clearAlert(warehouse, condition)
        if (over === undefined) continue
        const since = over.raised_at.toISOString()
        await send(webhookUrl, {
          text: `visibility-sync: over: ${over.text}`,
          event: 'cleared',
          condition,
          detail: over.text,
          since,
        })
        log.info({ condition }, 'alert cleared')
      }
    } catch (error) {
      // Told again at the next look, where it is still so.
      if (text !== undefined) await clearAlert(warehouse, condition).catch(() => {})
      log.warn(
        { condition, reason: clip(redact(`${codeOf(error) ?? ''} ${messageOf(error)}`, [webhookUrl])) },
        'the webhook failed',
      )
    }
  }
}

async function send(url: string, json: object): Promise<void> {
  await got.post(url, {
    json,
    timeout: { request: 10_000 },
    retry: { limit: 2, methods: ['POST'] },
    followRedirect: false,
  })
}
