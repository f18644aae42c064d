import type { Config } from '../core/config/load.ts'
import { notifyOutside } from '../core/outside.ts'
import { emailChannel } from './email-channel.ts'
import { type Channel, type Notice, summaryOf } from './notice.ts'
import { pagerDutyEvent } from './pagerduty-event.ts'
import { slackMessage } from './slack-message.ts'

export function channelsOf({ alerts, allow_http }: Config, installation: string): Channel[] {
  const { webhook_url, slack_url, pagerduty_key, pagerduty_url, smtp_url, smtp_password, email_from, email_to } = alerts
  const mail = { password: smtp_password, from: email_from, to: email_to, allowPlain: allow_http }
  const channels: Channel[] = []
  if (webhook_url !== undefined) channels.push(webhookChannel(webhook_url))
  if (slack_url !== undefined) channels.push(jsonChannel('slack', slack_url, slackMessage))
  if (pagerduty_key !== undefined) {
    const options = { key: pagerduty_key, installation }
    channels.push(jsonChannel('pagerduty', pagerduty_url, (notice) => pagerDutyEvent(notice, options)))
  }
  if (smtp_url !== undefined) channels.push(emailChannel({ server: smtp_url, ...mail }))
  return channels
}

export function webhookChannel(url: string): Channel {
  return jsonChannel('webhook', url, webhookBody)
}

/** `text` is the message that chat tools display; the other fields are for programs. */
function webhookBody(notice: Notice): Record<string, unknown> {
  const { event, condition, severity, text, projects, since, run, reason, page, command } = notice
  return {
    text: summaryOf(notice),
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

function jsonChannel(name: Channel['name'], url: string, bodyOf: (notice: Notice) => Record<string, unknown>): Channel {
  return { name, send: (notice, signal) => notifyOutside(url, { json: bodyOf(notice), signal }) }
}
