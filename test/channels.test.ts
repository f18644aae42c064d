import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { Alerts } from '../src/observe/alerts.ts'
import { channelsOf } from '../src/observe/channels.ts'
import { findingsOfRun } from '../src/observe/findings.ts'
import { emptyReport } from '../src/sync/run/report.ts'
import { type Outside, startMailServer, startOutside } from './support/outside.ts'
import { configOf } from './support/setup.ts'

/* What arrives at each channel, at real servers. The ledger is away: it is not what is looked at here. */

let outside: Outside
let mail: Awaited<ReturnType<typeof startMailServer>>
let answer: number | 'nothing' = 200
let isSilent = false
const logs: string[] = []
beforeAll(async () => {
  outside = await startOutside(() => answer)
  mail = await startMailServer(() => isSilent)
})
afterAll(async () => {
  await outside.close()
  await mail.close()
})

const KEY = 'pagerduty-routing-key-0123456789'
const PASSWORD = 'password-of-the-mail-server'
function makeAlerts(): Alerts {
  const config = configOf({
    alerts: {
      slack_url: `${outside.url}/slack/T000/secret-of-slack`,
      pagerduty_key: KEY,
      pagerduty_url: `${outside.url}/v2/enqueue`,
      smtp_url: `smtp://robot@127.0.0.1:${mail.port}`,
      smtp_password: PASSWORD,
      email_from: 'visibility-sync <robot@example.com>',
      email_to: ['oncall@example.com', 'Second <second@example.com>'],
    },
  })
  return new Alerts({
    channels: channelsOf(config, 'postgres://warehouse.example.com:5432/visibility'),
    quietMs: 0,
    pageUrl: 'https://status.example.com',
    nameOf: (id) => (id === 'or_1' ? 'Acme <Shoes> & Co' : id),
    log: createLog({
      level: 'trace',
      redactor: config.redactor,
      destination: { write: (line) => void logs.push(line) },
    }),
    redactor: config.redactor,
    clock: () => new Date('2026-04-01T10:30:00Z'),
    ledger: () => Promise.reject(new Error('away')),
  })
}

const stream = { ...emptyReport('or_1', 'chats'), windows: 1 }
const run = { run_id: 12, command: 'sync', source: 's', seconds: 1, notes: [] }
const error = `GET /chats: HTTP 503: busy with ${PASSWORD}`
const bad = findingsOfRun(
  {
    ...run,
    outcome: 'partial',
    streams: [{ ...stream, failed: [{ range: '2026-03-01', error, code: 'transient' }] }],
  },
  { coversEverything: true },
)
const well = findingsOfRun({ ...run, run_id: 13, outcome: 'complete', streams: [stream] }, { coversEverything: true })
const heardAt = (path: string) =>
  outside.heard.filter((one) => one.path.startsWith(path)).map(({ body }) => JSON.parse(body))

test('Slack gets blocks, PagerDuty an event that is resolved later, and e-mail a message, each with all that helps', async () => {
  const alerts = makeAlerts()
  await alerts.update(bad)
  await alerts.update(well)

  const [raised, cleared] = heardAt('/slack')
  expect(raised.text).toContain('Acme &lt;Shoes&gt; &amp; Co')
  expect(raised.blocks.map(({ type }: { type: string }) => type)).toEqual([
    'header',
    'section',
    'section',
    'section',
    'actions',
  ])
  expect(raised.blocks[0].text).toEqual({ type: 'plain_text', text: '🟠 run 12 (sync) was partial', emoji: true })
  expect(raised.blocks[1].fields.map(({ text }: { text: string }) => text)).toEqual([
    '*Projects*\nAcme &lt;Shoes&gt; &amp; Co',
    '*Since*\n2026-04-01 10:30 UTC',
    '*Run*\n12',
  ])
  expect(raised.blocks[2].text.text).toBe('*Reason*\n1 failure; GET /chats: HTTP 503: busy with [redacted]')
  expect(raised.blocks[3].text.text).toBe('*What helps*\n`visibility-sync status`')
  expect(raised.blocks[4].elements[0].url).toBe('https://status.example.com/?project=or_1')
  expect(cleared.blocks[0].text.text).toContain('🟢 over: run 12 (sync) was partial')

  const [trigger, resolve] = heardAt('/v2/enqueue')
  expect(trigger).toMatchObject({
    routing_key: KEY,
    event_action: 'trigger',
    client_url: 'https://status.example.com/?project=or_1',
    payload: {
      source: 'postgres://warehouse.example.com:5432/visibility',
      severity: 'warning',
      timestamp: '2026-04-01T10:30:00.000Z',
      class: 'run',
      custom_details: { projects: ['Acme <Shoes> & Co'], run: 12, command: 'visibility-sync status' },
    },
  })
  expect(resolve).toMatchObject({ event_action: 'resolve', dedup_key: trigger.dedup_key })

  expect(mail.mails.map(({ login, from, to }) => ({ login, from, to }))).toEqual(
    Array.from({ length: 2 }, () => ({
      login: `robot ${PASSWORD}`,
      from: 'robot@example.com',
      to: ['oncall@example.com', 'second@example.com'],
    })),
  )
  const text = mail.mails[0]!.data.replaceAll('=\n', '')
  expect(text).toContain('Subject: visibility-sync: run 12 (sync) was partial')
  for (const line of ['Acme <Shoes> & Co', '2026-04-01 10:30 UTC', 'Run:        12', 'visibility-sync status'])
    expect(text).toContain(line)
  expect(mail.mails[1]!.data).toContain('Subject: visibility-sync: over: run 12 (sync) was partial')
  expect([...outside.heard.map(({ body }) => body), text].join().includes(PASSWORD)).toBe(false)
})

test('a channel that fails or hangs keeps no other from being told, and shows no secret in the log', async () => {
  const alerts = makeAlerts()
  answer = 500
  isSilent = true
  await alerts.update(bad)
  expect(alerts.open).toEqual([])
  // One that takes it is enough.
  answer = 200
  await alerts.sendUnsent()
  expect(alerts.open.map(({ condition }) => condition)).toEqual(['run'])
  const text = logs.join('')
  expect(text).toContain('"channel":"e-mail"')
  for (const secret of [KEY, PASSWORD, 'secret-of-slack']) expect(text).not.toContain(secret)
})
