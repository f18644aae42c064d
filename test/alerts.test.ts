import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { Alerts } from '../src/alerts/alerts.ts'
import { type Findings, findingsOfDatabase, findingsOfRun, NO_RUN } from '../src/alerts/findings.ts'
import { createRedactor } from '../src/core/redactor.ts'
import { emptyReport } from '../src/sync/run/report.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { runCli, startCli } from './support/cli.ts'
import { startWebhook, until, type Webhook } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'

let setup: Setup
let webhook: Webhook
/** What the webhook answers. */
let answer: number | 'nothing'
beforeEach(async () => {
  setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 } })
  answer = 200
  webhook = await startWebhook(() => answer)
})
afterEach(async () => {
  await webhook.close()
  await setup.close()
})

let isAway = false
/** Alerts of one process, whose ledger can be away. */
function makeAlerts(): Alerts {
  isAway = false
  const { warehouse } = setup.database
  return new Alerts({
    redactor: createRedactor(),
    webhookUrl: webhook.url,
    log: setup.services.log,
    clock: () => new Date(),
    ledger: (work) => (isAway ? Promise.reject(new Error('away')) : work(warehouse)),
  })
}
const rows = () => setup.database.rows('select condition, members from visibility_ops.alerts order by condition')
const trouble = (...members: string[]): Findings => ({ held: { text: `held: ${members.join()}`, members } })
const over: Findings = { held: undefined }

test('without the ledger each condition is told once, and once when it is over', async () => {
  await migrate(setup.database.warehouse, setup.config)
  const alerts = makeAlerts()
  isAway = true
  await alerts.tell(trouble('a'))
  await alerts.tell(trouble('a'))
  await alerts.tell(trouble('a', 'b'))
  expect(webhook.events()).toEqual(['raised held', 'raised held'])
  expect(alerts.open.map(({ condition, members }) => [condition, members])).toEqual([['held', ['a', 'b']]])
  await alerts.tell(over)
  await alerts.tell(over)
  expect(webhook.events()).toEqual(['raised held', 'raised held', 'cleared held'])
  await alerts.tell(trouble('a'))
  expect(webhook.events().at(-1)).toBe('raised held')
})

test('what was told while the ledger was away is not told again when it is back, by this process or another', async () => {
  await migrate(setup.database.warehouse, setup.config)
  const alerts = makeAlerts()
  isAway = true
  await alerts.tell(trouble('a'))
  isAway = false
  await alerts.tell(trouble('a'))
  await alerts.reconcile()
  expect(await rows()).toEqual([{ condition: 'held', members: ['a'] }])
  const other = makeAlerts()
  await other.tell(trouble('a'))
  expect(webhook.events()).toEqual(['raised held'])
  await other.tell(over)
  await alerts.tell(over)
  expect(webhook.events()).toEqual(['raised held', 'cleared held'])
  expect(await rows()).toEqual([])
})

test('what is over while the ledger is away is over there once it is back, and can come again', async () => {
  await migrate(setup.database.warehouse, setup.config)
  const alerts = makeAlerts()
  await alerts.tell(trouble('a'))
  isAway = true
  await alerts.tell(over)
  isAway = false
  expect(await rows()).toEqual([{ condition: 'held', members: ['a'] }])
  await alerts.tell(trouble('a'))
  expect(webhook.events()).toEqual(['raised held', 'cleared held', 'raised held'])
  isAway = true
  await alerts.tell(over)
  isAway = false
  await alerts.reconcile()
  expect(await rows()).toEqual([])
  await alerts.tell(over)
  expect(webhook.events()).toEqual(['raised held', 'cleared held', 'raised held', 'cleared held'])
})

test('a message that the webhook does not take is told at the next look', async () => {
  await migrate(setup.database.warehouse, setup.config)
  const alerts = makeAlerts()
  answer = 404
  await alerts.tell(trouble('a'))
  expect(await rows()).toEqual([])
  answer = 200
  await alerts.tellUnsent()
  await alerts.tellUnsent()
  expect(webhook.events()).toEqual(['raised held'])
  answer = 404
  await alerts.tell(over)
  answer = 200
  await alerts.tellUnsent()
  expect(webhook.events()).toEqual(['raised held', 'cleared held'])
  expect(setup.logs.join()).not.toContain('secret-path')
})

test('a run that failed before it was one is told of, and a database that is away for a moment is not', () => {
  const report = {
    run_id: NO_RUN,
    command: 'sync',
    outcome: 'failed' as const,
    source: 's',
    seconds: 1,
    streams: [emptyReport('p', 'chats')],
    notes: [],
    error: 'no tables',
  }
  expect(findingsOfRun(report).run?.text).toBe('sync failed before it began: no tables')
  const away = { up: false, forMs: 5000, reason: 'it does not answer', mayPass: true }
  expect(findingsOfDatabase(away)).toEqual({})
  expect(findingsOfDatabase({ ...away, forMs: 61_000 }).database?.text).toBe('it does not answer')
  expect(findingsOfDatabase(away, { ...report, run_id: 3 }).database?.text).toContain('run 3 (sync) failed')
  expect(findingsOfDatabase({ ...away, up: true })).toEqual({ database: undefined })
})

test('a plain sync raises the alert of what is held, and a backfill that lets it through clears it', async () => {
  const config = { ...setup.fileConfig, alerts: { webhook_url: webhook.url } }
  const exitOf = async (...args: string[]) => (await runCli(args, { env: setup.env, config })).code
  await setup.sync()
  setup.service.setFaults({ rate_limit: null, empty: true })
  expect(await exitOf('sync', '--stream', 'chats')).toBe(1)
  expect(webhook.events()).toEqual(['raised run', 'raised held'])
  expect(webhook.told[1].detail).toContain(`chats of ${setup.projects[0]!.id}`)
  // One more is held by a backfill: that is news, and what was told before is not.
  const range = ['--from', '2026-03-20', '--to', '2026-03-31']
  const streams = ['--stream', 'chats', '--stream', 'by_model']
  expect(await exitOf('backfill', ...range, ...streams)).toBe(1)
  expect(webhook.events().slice(2)).toEqual(['raised held'])
  expect(webhook.told[2].detail).toContain('by_model of')
  expect(await exitOf('backfill', ...range, ...streams, '--accept-deletes')).toBe(0)
  expect(webhook.events().slice(3)).toEqual(['cleared held'])
}, 90_000)

test('an audit that repairs tells what it held; one that only looks tells nothing', async () => {
  const config = { ...setup.fileConfig, alerts: { webhook_url: webhook.url } }
  const exitOf = async (...args: string[]) => (await runCli(args, { env: setup.env, config })).code
  await setup.sync()
  setup.service.setFaults({ rate_limit: null, empty: true })
  expect(await exitOf('audit')).toBe(1)
  expect(webhook.told).toEqual([])
  expect(await exitOf('audit', '--repair')).toBe(1)
  expect(webhook.events()).toEqual(['raised run', 'raised held'])
  expect(webhook.told[0].detail).toMatch(/^run \d+ \(audit\) was partial: /)
}, 90_000)

test('an audit that repairs tells what it held; one that only looks tells nothing', async () => {
  const config = { ...setup.fileConfig, alerts: { webhook_url: webhook.url } }
  const cli = (...args: string[]) => runCli([...args, '--json'], { env: setup.env, config })
  expect((await cli('sync')).code).toBe(0)
  setup.service.setFaults({ rate_limit: null, empty: true })
  expect((await cli('audit')).code).toBe(1)
  expect(webhook.told).toEqual([])
  expect((await cli('audit', '--repair')).code).toBe(1)
  expect(webhook.events()).toEqual(['raised run', 'raised held'])
  expect(webhook.told[0].detail).toMatch(/^run \d+ \(audit\) was partial: /)
}, 90_000)

test('a webhook that never answers does not keep a sync from saying how it went, nor from ending', async () => {
  answer = 'nothing'
  const config = { ...setup.fileConfig, alerts: { webhook_url: webhook.url } }
  const env = { ...setup.env, VISIBILITY_API_KEY: 'wrong-key-of-the-test' }
  const running = startCli(['sync', '--json'], { env, config })
  await until(() => webhook.asked() > 0)
  expect(JSON.parse(running.output())).toMatchObject({ outcome: 'failed' })
  expect((await running.done).code).toBe(1)
}, 60_000)
