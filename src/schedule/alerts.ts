import { got } from 'got'
import { codeOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { clip, count, listSome } from '../core/text.ts'
import { forgetAlert, openAlerts, raiseAlert } from '../ledger/alerts.ts'
import type { Status } from '../ledger/status.ts'
import type { RunReport } from '../sync/report.ts'
import type { Warehouse } from '../warehouse/connect.ts'

/* Tells people through a webhook, once when something goes wrong and once when it is over. Never harms a run. */

export type Condition = 'run' | 'key' | 'held' | 'stale'

export interface Finding {
  text: string
  /** What it is about, where it can spread. */
  members: string[]
}

/** Of each condition, what is wrong now; undefined where nothing is. A condition that is not named was not looked at. */
export type Findings = Partial<Record<Condition, Finding | undefined>>

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
  const how = report.outcome === 'failed' ? 'failed' : 'was partial'
  const found = (text: string): Finding => ({ text, members: [] })
  const answered = report.streams.some(({ windows }) => windows > 0)
  return {
    // Only the sync that comes round says that all is well again; a backfill of one day does not.
    ...(report.outcome !== 'complete'
      ? {
          run: found(
            `run ${report.run_id} (${report.command}) ${how}: ${parts.join('; ') || 'something was held back'}`,
          ),
        }
      : report.command === 'sync'
        ? { run: undefined }
        : {}),
    ...(wrongKey !== undefined
      ? { key: found(`the service refuses the key: ${clip(wrongKey, 200)}`) }
      : answered
        ? { key: undefined }
        : {}),
  }
}

export function findingsOfStatus(status: Status, now: Date, maxStalenessMs: number): Findings {
  // What was never read shows as missing, and as a run that failed; it is not late.
  const stale = status.streams.filter(
    ({ last_read_at }) => last_read_at !== null && now.getTime() - last_read_at.getTime() > maxStalenessMs,
  )
  const about = (streams: { project_id: string; stream: string }[], text: string): Finding | undefined => {
    const members = [...new Set(streams.map(({ project_id, stream }) => `${stream} of ${project_id}`))]
    return members.length === 0 ? undefined : { text: `${text}: ${listSome(members)}`, members }
  }
  return {
    held: about(status.held, 'held back, since an answer would have deleted most rows'),
    stale: about(stale, 'not read for too long'),
  }
}

/** Compares with what people were told, and tells them what is new and what is over. */
export async function tell({ warehouse, webhookUrl, log }: Alerting, findings: Findings): Promise<void> {
  if (webhookUrl === undefined) return
  const say = (json: object) => send(webhookUrl, warehouse.redactor.value(json))
  for (const [condition, finding] of Object.entries(findings)) {
    try {
      if (finding !== undefined) {
        const { text, members } = finding
        if (!(await raiseAlert(warehouse, condition, text, members))) continue
        await say({ text: `visibility-sync: ${text}`, event: 'raised', condition, detail: text })
        log.info({ condition }, 'alert sent')
      } else {
        const over = (await openAlerts(warehouse)).find((alert) => alert.condition === condition)
        if (over === undefined) continue
        const { text: detail, raised_at } = over
        await say({
          text: `visibility-sync: over: ${detail}`,
          event: 'cleared',
          condition,
          detail,
          since: raised_at.toISOString(),
        })
        await forgetAlert(warehouse, condition)
        log.info({ condition }, 'alert cleared')
      }
    } catch (error) {
      // Told again at the next look, where it is still so.
      if (finding !== undefined) await forgetAlert(warehouse, condition).catch(() => {})
      // Not the error's own words: they hold the address, which is a secret.
      const status = (error as { response?: { statusCode?: number } }).response?.statusCode
      log.warn(
        { condition, reason: status === undefined ? (codeOf(error) ?? 'no answer') : `HTTP ${status}` },
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
