import { notifyOutside } from '../core/outside.ts'
import type { Channel } from './channel.ts'
import type { Notice } from './notice.ts'

/** The body of the webhook: `text` is the message that chat tools such as Slack display; the other fields are for programs. */
export function webhookBody(notice: Notice): Record<string, unknown> {
  const { event, condition, severity, text, projects, since, run, reason, page, command } = notice
  return {
    text: `visibility-sync: ${event === 'cleared' ? 'over: ' : ''}${text}`,
    event,
    condition,
    severity,
    detail: text,
    projects,
    since: since.toISOString(),
    run: run ?? null,
    reason: reason ?? null,
    page: page ?? null,
    command: command ?? null,
  }
}

export function webhookChannel(url: string): Channel {
  return { name: 'webhook', send: (notice, signal) => notifyOutside(url, { json: webhookBody(notice), signal }) }
}
