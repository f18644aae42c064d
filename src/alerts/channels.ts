import type { Config } from '../core/config/load.ts'
import type { Channel } from './channel.ts'
import { emailChannel } from './email-channel.ts'
import { pagerDutyChannel } from './pagerduty-channel.ts'
import { slackChannel } from './slack-channel.ts'
import { webhookChannel } from './webhook-channel.ts'

/** The configured channels. `installation` names this warehouse among others. */
export function channelsOf({ alerts, allow_http }: Config, installation: string): Channel[] {
  const { webhook_url, slack_url, pagerduty_key, pagerduty_url, smtp_url, smtp_password, email_from, email_to } = alerts
  const mail = { password: smtp_password, from: email_from, to: email_to, allowPlain: allow_http }
  return [
    ...(webhook_url === undefined ? [] : [webhookChannel(webhook_url)]),
    ...(slack_url === undefined ? [] : [slackChannel(slack_url)]),
    ...(pagerduty_key === undefined
      ? []
      : [pagerDutyChannel({ url: pagerduty_url, key: pagerduty_key, installation })]),
    ...(smtp_url === undefined ? [] : [emailChannel({ server: smtp_url, ...mail })]),
  ]
}
