import { createHash } from 'node:crypto'
import { clip } from '../core/text.ts'
import type { Notice } from './notice.ts'

const LONGEST_SUMMARY = 900

interface PagerDutyOptions {
  key: string
  /** The warehouse: incidents of two installations are two. */
  installation: string
}

/** An event of the Events API v2. The end of a condition resolves the incident that its beginning opened. */
export function pagerDutyEvent(notice: Notice, { key, installation }: PagerDutyOptions): Record<string, unknown> {
  const { event, condition, severity, text, projects, since, run, reason, page, command } = notice
  const installed = createHash('sha256').update(installation).digest('hex').slice(0, 12)
  return {
    routing_key: key,
    event_action: event === 'raised' ? 'trigger' : 'resolve',
    dedup_key: `visibility-sync/${installed}/${condition}`,
    client: 'visibility-sync',
    ...(page === undefined ? {} : { client_url: page, links: [{ href: page, text: 'Status page' }] }),
    payload: {
      summary: clip(`visibility-sync: ${text}`, LONGEST_SUMMARY),
      source: installation,
      severity,
      timestamp: since.toISOString(),
      component: 'visibility-sync',
      class: condition,
      custom_details: { projects, run: run ?? null, reason: reason ?? null, command: command ?? null },
    },
  }
}
