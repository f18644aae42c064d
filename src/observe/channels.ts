import { createHash } from 'node:crypto'
import type { Config } from '../core/config/load.ts'
import { notifyOutside } from '../core/outside.ts'
import { clip } from '../core/text.ts'
import { emailChannel } from './email-channel.ts'
import { type Channel, type Notice, namedProjects, shownSince, summaryOf } from './notice.ts'

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

const LONGEST_SUMMARY = 900

interface PagerDutyOptions {
  key: string
  /** The warehouse: incidents of two installations are two. */
  installation: string
}

/** An event of the Events API v2. The end of a condition resolves the incident that its beginning opened. */
function pagerDutyEvent(notice: Notice, { key, installation }: PagerDutyOptions): Record<string, unknown> {
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

// What Slack takes in a header, and in a field of a section.
const LONGEST_HEADER = 150
const LONGEST_FIELD = 1900
const MARKS = { critical: '🔴', error: '🔴', warning: '🟠' }

/** A message in Slack's blocks; `text` is for notifications, which show no blocks. */
function slackMessage(notice: Notice): Record<string, unknown> {
  const { event, severity, title, run, reason, page, command } = notice
  const mark = event === 'cleared' ? '🟢' : MARKS[severity]
  const fields = [
    ...(notice.projects.length === 0 ? [] : [field('Projects', namedProjects(notice))]),
    field('Since', shownSince(notice)),
    ...(run === undefined ? [] : [field('Run', String(run))]),
  ]
  return {
    text: escaped(summaryOf(notice)),
    blocks: [
      { type: 'header', text: { type: 'plain_text', text: clipped(`${mark} ${title}`, LONGEST_HEADER), emoji: true } },
      { type: 'section', fields },
      ...(reason === undefined ? [] : [section(`*Reason*\n${escaped(clip(reason, LONGEST_FIELD))}`)]),
      ...(command === undefined ? [] : [section(`*What helps*\n\`${escaped(command)}\``)]),
      ...(page === undefined
        ? []
        : [
            {
              type: 'actions',
              elements: [{ type: 'button', text: { type: 'plain_text', text: 'Open the status page' }, url: page }],
            },
          ]),
    ],
  }
}

function section(text: string): Record<string, unknown> {
  return { type: 'section', text: { type: 'mrkdwn', text } }
}

function field(name: string, value: string): Record<string, unknown> {
  return { type: 'mrkdwn', text: `*${name}*\n${escaped(clip(value, LONGEST_FIELD))}` }
}

function clipped(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`
}

/** The three characters that mean something to Slack. */
function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
