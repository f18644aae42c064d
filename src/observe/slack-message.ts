import { clip } from '../core/text.ts'
import { type Notice, namedProjects, shownSince, summaryOf } from './notice.ts'

// What Slack takes in a header, and in a field of a section.
const LONGEST_HEADER = 150
const LONGEST_FIELD = 1900
const MARKS = { critical: '🔴', error: '🔴', warning: '🟠' }

/** A message in Slack's blocks; `text` is for notifications, which show no blocks. */
export function slackMessage(notice: Notice): Record<string, unknown> {
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
