import { createHash } from 'node:crypto'
import type { Config } from '../core/config/load.ts'
import { isLoopback } from '../core/config/secrets.ts'
import { InterruptedError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { type Channel, factsOf, type Notice } from './notice.ts'
import { notifyOutside } from './send.ts'

export function channelsOf({ alerts, allow_http }: Config): Channel[] {
  const { webhook_url, slack_url, pagerduty_key, pagerduty_url, smtp_url } = alerts
  const channels: Channel[] = []
  if (webhook_url !== undefined) channels.push(webhookChannel(webhook_url))
  if (slack_url !== undefined) channels.push(jsonChannel('slack', slack_url, slackMessage))
  if (pagerduty_key !== undefined) {
    const eventOf = (notice: Notice) => pagerDutyEvent(notice, pagerduty_key)
    channels.push(jsonChannel('pagerduty', pagerduty_url, eventOf))
  }
  if (smtp_url !== undefined) channels.push(emailChannel(smtp_url, alerts, allow_http))
  return channels
}

export function webhookChannel(url: string): Channel {
  return jsonChannel('webhook', url, ({ title: _title, ...body }) => body)
}

function jsonChannel(name: Channel['name'], url: string, bodyOf: (notice: Notice) => object): Channel {
  return { name, send: (notice, signal) => notifyOutside(url, { json: bodyOf(notice), signal }) }
}

const LONGEST_SUMMARY = 900

/**
 * An event of the Events API v2. The end of a condition resolves the incident that its beginning opened. Incidents
 * of two warehouses are two.
 */
function pagerDutyEvent(notice: Notice, key: string): object {
  const { event, condition, severity, detail, projects, warehouse, since, run, reason, page, command } = notice
  const installed = createHash('sha256').update(warehouse).digest('hex').slice(0, 12)
  return {
    routing_key: key,
    event_action: event === 'raised' ? 'trigger' : 'resolve',
    dedup_key: `visibility-sync/${installed}/${condition}`,
    client: 'visibility-sync',
    ...(page !== null && { client_url: page, links: [{ href: page, text: 'Status page' }] }),
    payload: {
      summary: clip(`visibility-sync: ${detail}`, LONGEST_SUMMARY),
      source: warehouse,
      severity,
      timestamp: since,
      component: 'visibility-sync',
      class: condition,
      custom_details: { projects, run, reason, command },
    },
  }
}

// The limits of Slack for a header, and for a field of a section.
const LONGEST_HEADER = 150
const LONGEST_FIELD = 1900
const MARKS = { critical: '🔴', error: '🔴', warning: '🟠' }

/** A message in Slack's blocks; `text` is for notifications, which show no blocks. */
function slackMessage(notice: Notice): object {
  const { event, severity, title, text, page } = notice
  const plain = (words: string) => ({ type: 'plain_text', text: words, emoji: true })
  const mark = event === 'cleared' ? '🟢' : MARKS[severity]
  const facts = factsOf(notice).filter(([label]) => label !== 'Page')
  const fields = facts.map(([label, value]) => ({
    type: 'mrkdwn',
    text: `*${label}*\n${escaped(clip(value, LONGEST_FIELD))}`,
  }))
  const button = { type: 'button', text: plain('Open the status page'), url: page }
  return {
    text: escaped(text),
    blocks: [
      { type: 'header', text: plain(`${mark} ${title}`.slice(0, LONGEST_HEADER)) },
      { type: 'section', fields },
      ...(page === null ? [] : [{ type: 'actions', elements: [button] }]),
    ],
  }
}

/** The three characters that mean something to Slack. */
function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

const STEP_MS = 4000

function emailOf(notice: Notice): { subject: string; text: string } {
  const { event, title, detail } = notice
  const facts = factsOf(notice).map(([label, value]) => `${`${label}:`.padEnd(12)}${value}`)
  const lines = [event === 'cleared' ? `Over: ${detail}` : detail, '', ...facts, '']
  // A line break in a header would begin another one.
  return { subject: `visibility-sync: ${title}`.replaceAll(/\s+/g, ' '), text: lines.join('\n') }
}

/** `allowPlain` lets a mail and its password travel unencrypted to another machine. */
function emailChannel(
  server: string,
  { smtp_password: password, email_from: from, email_to: to }: Config['alerts'],
  allowPlain: boolean,
): Channel {
  const { protocol, hostname, port, username, password: inAddress } = new URL(server)
  const secure = protocol === 'smtps:'
  const user = decodeURIComponent(username)
  const pass = password ?? decodeURIComponent(inAddress)
  return {
    name: 'e-mail',
    async send(notice, signal) {
      // Loaded only if it is used: few send mails.
      const { createTransport } = await import('nodemailer')
      const transport = createTransport({
        host: hostname.replaceAll(/[[\]]/g, ''),
        port: Number(port) || (secure ? 465 : 587),
        secure,
        requireTLS: !secure && !allowPlain && !isLoopback(server),
        ...(user === '' ? {} : { auth: { user, pass } }),
        connectionTimeout: STEP_MS,
        greetingTimeout: STEP_MS,
        socketTimeout: STEP_MS,
        dnsTimeout: STEP_MS,
      })
      try {
        const tooLate = new Promise<never>((_, fail) => {
          signal.addEventListener('abort', () => fail(new InterruptedError('too late')))
        })
        tooLate.catch(() => {})
        const mail = { from: from ?? `visibility-sync <${bareAddress(to[0]!)}>`, to: [...to], ...emailOf(notice) }
        await Promise.race([transport.sendMail(mail), tooLate])
      } finally {
        transport.close()
      }
    },
  }
}

function bareAddress(address: string): string {
  return /<([^>]+)>/.exec(address)?.[1] ?? address
}
