import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals'
import { createRedactor } from '../src/core/redactor.ts'
import { readStatus } from '../src/ledger/status.ts'
import { Alerts } from '../src/observe/alerts.ts'
import { webhookChannel } from '../src/observe/channels.ts'
import {
  type Findings,
  findingOfHeld,
  findingsOfDatabase,
  findingsOfRun,
  findingsOfStatus,
  NO_RUN,
} from '../src/observe/findings.ts'
import { emptyReport, type RunReport } from '../src/sync/run/report.ts'
import { createSidePool, type SidePool } from '../src/warehouse/side-pool.ts'
import { runCli, startCli } from './support/cli.ts'
import { longTest } from './support/long.ts'
import { startWebhook, until, type Webhook } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'

let setup: Setup
let webhook: Webhook
/** What the webhook answers. */
let answer: number | 'nothing'
let now: Date
let pool: SidePool
beforeAll(async () => {
  setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 } })
  const many = { connections: 8, waiting: 400, patienceMs: 30_000, limitMs: 30_000 }
  pool = createSidePool(setup.database.warehouse, { name: 'alerts of tests', ...many })
})
afterAll(async () => {
  pool.close()
  await setup.close()
})
beforeEach(async () => {
  answer = 200
  now = new Date('2026-04-01T00:00:00Z')
  webhook = await startWebhook(() => answer)
  await setup.database.rows('delete from visibility_ops.alerts')
  setup.service.setFaults({ rate_limit: null })
})
afterEach(() => webhook.close())

let isAway = false
/** Alerts of one process, whose ledger can be away. */
function makeAlerts(quietMs = 0): Alerts {
  isAway = false
  return new Alerts({
    redactor: createRedactor(),
    channels: [webhookChannel(webhook.url)],
    quietMs,
    pageUrl: 'https://status.example.com',
    nameOf: (id) => `Project ${id}`,
    log: setup.services.log,
    clock: () => now,
    // 300 of them at once on a busy machine wait for each other.
    ledgerMs: 60_000,
    ledger: (work) => (isAway ? Promise.reject(new Error('away')) : pool.write(work)),
  })
}
const rows = () =>
  setup.database.rows(
    'select condition, members from visibility_ops.alerts where cleared_at is null and is_told order by condition',
  )
const trouble = (...streams: string[]): Findings => ({
  held: findingOfHeld(streams.map((stream) => ({ project_id: 'p', stream, since: new Date(4e12), accept: '' }))),
})
const over: Findings = trouble()
const MINUTE = 60_000
const pass = (minutes: number) => {
  now = new Date(now.getTime() + minutes * MINUTE)
}

test('without the ledger each condition is told once, and once when it is over', async () => {
  const alerts = makeAlerts()
  isAway = true
  await alerts.update(trouble('a'))
  await alerts.update(trouble('a'))
  await alerts.update(trouble('a', 'b'))
  expect(webhook.events()).toEqual(['raised held', 'raised held'])
  expect(alerts.open.map(({ condition, members }) => [condition, members])).toEqual([['held', ['a of p', 'b of p']]])
  await alerts.update(over)
  await alerts.update(over)
  expect(webhook.events()).toEqual(['raised held', 'raised held', 'cleared held'])
  await alerts.update(trouble('a'))
  expect(webhook.events().at(-1)).toBe('raised held')
})

test('what was told while the ledger was away is not told again when it is back, by this process or another', async () => {
  const alerts = makeAlerts()
  isAway = true
  await alerts.update(trouble('a'))
  isAway = false
  await alerts.update(trouble('a'))
  await alerts.reconcile()
  expect(await rows()).toEqual([{ condition: 'held', members: ['a of p'] }])
  const other = makeAlerts()
  await other.update(trouble('a'))
  expect(webhook.events()).toEqual(['raised held'])
  await other.update(over)
  await alerts.update(over)
  expect(webhook.events()).toEqual(['raised held', 'cleared held'])
  expect(await rows()).toEqual([])
})

test('what is over while the ledger is away is over there once it is back, and can come again', async () => {
  const alerts = makeAlerts()
  await alerts.update(trouble('a'))
  isAway = true
  await alerts.update(over)
  isAway = false
  expect(await rows()).toEqual([{ condition: 'held', members: ['a of p'] }])
  await alerts.update(trouble('a'))
  expect(webhook.events()).toEqual(['raised held', 'cleared held', 'raised held'])
  isAway = true
  await alerts.update(over)
  isAway = false
  await alerts.reconcile()
  expect(await rows()).toEqual([])
  await alerts.update(over)
  expect(webhook.events()).toEqual(['raised held', 'cleared held', 'raised held', 'cleared held'])
})

test('a message that the webhook does not take is told at the next look', async () => {
  const alerts = makeAlerts()
  answer = 404
  await alerts.update(trouble('a'))
  expect(await rows()).toEqual([])
  answer = 200
  await alerts.sendUnsent()
  await alerts.sendUnsent()
  expect(webhook.events()).toEqual(['raised held'])
  answer = 404
  await alerts.update(over)
  answer = 200
  await alerts.sendUnsent()
  expect(webhook.events()).toEqual(['raised held', 'cleared held'])
  expect(setup.logs.join()).not.toContain('secret-path')
})

test('after a message, more of the same is gathered and told as one when the quiet period is over', async () => {
  const alerts = makeAlerts(30 * MINUTE)
  await alerts.update(trouble('a'))
  for (const streams of [['a', 'b'], ['b', 'c'], ['a']]) {
    pass(5)
    await alerts.update(trouble(...streams))
    await alerts.sendUnsent()
  }
  expect(webhook.events()).toEqual(['raised held'])
  pass(20)
  await alerts.sendUnsent()
  await alerts.sendUnsent()
  expect(webhook.events()).toEqual(['raised held', 'raised held'])
  expect(webhook.told[1]).toMatchObject({ projects: ['Project p'], since: '2026-04-01T00:00:00.000Z' })
  // What comes and goes within it is not told: neither that it came nor that it went.
  pass(60)
  await alerts.update(over)
  expect(webhook.events().slice(2)).toEqual(['cleared held'])
  pass(1)
  await alerts.update(trouble('a'))
  expect(alerts.open).toEqual([])
  pass(1)
  await alerts.update(over)
  pass(60)
  await alerts.sendUnsent()
  expect(webhook.events().length).toBe(3)
})

test('what was gathered is not told by a process that does not know that another saw the end of it', async () => {
  const alerts = makeAlerts(30 * MINUTE)
  await alerts.update(trouble('a'))
  pass(1)
  await alerts.update(trouble('a', 'b'))
  await makeAlerts(30 * MINUTE).update(over)
  pass(60)
  await alerts.sendUnsent()
  expect(await rows()).toEqual([])
  // The other told of the end.
  expect(webhook.events()).toEqual(['raised held', 'cleared held'])
})

const failed = (project: string, error = 'GET /chats: HTTP 503: no') => ({
  ...emptyReport(project, 'chats'),
  failed: [{ range: '2026-03-01', error, code: 'transient' as const }],
})
const runOf = (over: Partial<RunReport>): RunReport => ({
  run_id: 9,
  command: 'sync',
  outcome: 'complete',
  source: 's',
  seconds: 1,
  streams: [],
  notes: [],
  ...over,
})

test('a ledger that is slow is no reason to tell: others may be telling the same', async () => {
  let isSlow = true
  const alerts = new Alerts({
    redactor: createRedactor(),
    channels: [webhookChannel(webhook.url)],
    quietMs: 0,
    pageUrl: undefined,
    nameOf: (id) => id,
    log: setup.services.log,
    clock: () => now,
    ledgerMs: 1000,
    ledger: (work) => (isSlow ? new Promise(() => {}) : pool.write(work)),
  })
  await alerts.update({
    ...trouble('a'),
    ...findingsOfDatabase({ up: false, forMs: 90_000, reason: 'refused', mayPass: true }),
  })
  expect(webhook.told).toEqual([])
  isSlow = false
  await alerts.update(trouble('a'))
  expect(webhook.events()).toEqual(['raised held'])
})

test('one cause of a failed run is one message, and a run of everything that went well ends it', async () => {
  const alerts = makeAlerts()
  const tell = (over: Partial<RunReport>, coversEverything = true) =>
    alerts.update(findingsOfRun(runOf(over), { coversEverything }))
  const wrongKey = 'GET /prompts: HTTP 401: no (check VISIBILITY_API_KEY)'
  await tell({ outcome: 'failed', error: wrongKey, code: 'key' })
  await tell({ outcome: 'failed', error: wrongKey, code: 'key' })
  await tell({ outcome: 'failed', error: 'the disk is full' })
  expect(webhook.events()).toEqual(['raised key', 'raised run'])
  expect(webhook.told[1].text).toContain('run 9 (sync) failed')
  // Neither an interrupted run nor a backfill that went well says anything of the sync that failed.
  await tell({ outcome: 'interrupted' })
  await tell({ command: 'backfill' }, false)
  expect(webhook.told.length).toBe(2)
  const streams = [{ ...emptyReport('p', 'chats'), windows: 1 }]
  await tell({ streams })
  await tell({ streams })
  expect(webhook.events().slice(2)).toEqual(['cleared run', 'cleared key'])
})

test('a stream that was not read for too long is stale, one that was never read is not late', async () => {
  await setup.sync()
  const options = {
    interest: { from: '2026-03-01', to: '2026-03-31' },
    today: '2026-03-31',
    lookbackDays: 7,
    projects: setup.projects.map(({ id }) => id),
    streams: [
      { name: 'chats', by: 'day' as const },
      { name: 'newly_added', by: 'day' as const },
    ],
    runs: 5,
  }
  const status = (await readStatus(setup.database.warehouse, options))!
  const hour = 3_600_000
  expect(findingsOfStatus(status, new Date(), hour)).toEqual({
    held: { over: 'all' },
    unreconciled: { over: 'all' },
    stale: { over: 'all' },
  })
  const later = findingsOfStatus(status, new Date(Date.now() + 2 * hour), hour)
  expect(later.stale).toMatchObject({ members: [`chats of ${setup.projects[0]!.id}`] })
})

test('300 projects that fail in one run are one message, which names the first ones', async () => {
  const alerts = makeAlerts(30 * MINUTE)
  const projects = Array.from({ length: 300 }, (_, index) => `p${index}`)
  const report = runOf({ outcome: 'failed', streams: projects.map((id) => failed(id)) })
  await alerts.update(findingsOfRun(report, { coversEverything: true }))
  expect(webhook.events()).toEqual(['raised run'])
  const [told] = webhook.told
  expect(told.projects.length).toBe(300)
  expect(told.text).toBe(
    `visibility-sync: run 9 (sync) failed: 300 failures; GET /chats: HTTP 503: no; chats of ${projects
      .slice(0, 10)
      .map((id) => `Project ${id}`)
      .join(', ')} and 290 more`,
  )
  expect(told).toMatchObject({
    run: 9,
    severity: 'error',
    page: 'https://status.example.com/',
    command: 'visibility-sync status',
  })
})

longTest(
  '300 processes that fail for a project each are two messages: the first, and the others together',
  async () => {
    const projects = Array.from({ length: 300 }, (_, index) => `p${index}`)
    const fail = (id: string) =>
      makeAlerts(30 * MINUTE).update(
        findingsOfRun(runOf({ outcome: 'failed', streams: [failed(id)] }), { coversEverything: false }),
      )
    for (const batch of [projects.slice(0, 100), projects.slice(100, 200), projects.slice(200)])
      await Promise.all(batch.map(fail))
    expect(webhook.events()).toEqual(['raised run'])
    pass(31)
    await fail('p7')
    expect(webhook.events()).toEqual(['raised run', 'raised run'])
    expect(webhook.told[1].projects.length).toBe(300)
    // One that is well again does not end it; the last one does.
    const well = (...ids: string[]) =>
      findingsOfRun(runOf({ streams: ids.map((id) => ({ ...emptyReport(id, 'chats'), windows: 1 })) }), {
        coversEverything: false,
      })
    pass(60)
    await makeAlerts().update(well(...projects.slice(1)))
    expect(webhook.told.length).toBe(2)
    await makeAlerts().update(well('p0'))
    expect(webhook.events().slice(2)).toEqual(['cleared run'])
  },
)

test('a run that failed before it was one is told of, and a database that is away for a moment is not', () => {
  const report = runOf({ run_id: NO_RUN, outcome: 'failed', error: 'no tables' })
  expect(findingsOfRun(report, { coversEverything: true }).run).toMatchObject({
    what: 'sync failed before it began',
    reason: 'no tables',
  })
  const away = { up: false, forMs: 5000, reason: 'connection refused', mayPass: true }
  expect(findingsOfDatabase(away)).toEqual({})
  expect(findingsOfDatabase({ ...away, forMs: 61_000 }).database).toMatchObject({ reason: 'connection refused' })
  expect(findingsOfDatabase(away, { ...report, run_id: 3 }).database).toMatchObject({
    reason: 'connection refused; run 3 (sync) failed',
    run: 3,
  })
  expect(findingsOfDatabase({ ...away, up: true })).toEqual({ database: { over: 'all' } })
})

const quickly = () => ({ ...setup.fileConfig, alerts: { webhook_url: webhook.url, quiet_minutes: 0 } })
const exitOf = async (...args: string[]) => (await runCli(args, { env: setup.env, config: quickly() })).code

test('a plain sync raises the alert of what is held, and a backfill that lets it through clears it', async () => {
  await setup.sync()
  setup.service.setFaults({ rate_limit: null, empty: true })
  expect(await exitOf('sync', '--stream', 'chats')).toBe(1)
  expect(webhook.events()).toEqual(['raised run', 'raised held'])
  expect(webhook.told[1].detail).toContain(`chats of ${webhook.told[1].projects[0]}`)
  const [named] = await setup.database.rows<{ name: string }>('select name from visibility.projects')
  expect(webhook.told[1].projects).toEqual([named!.name])
  // One more is held by a backfill: that is news, and what was told before is not.
  const range = ['--from', '2026-03-01', '--to', '2026-03-31']
  const streams = ['--stream', 'chats', '--stream', 'by_model']
  expect(await exitOf('backfill', ...range, ...streams)).toBe(1)
  expect(webhook.events().slice(2)).toEqual(['raised run', 'raised held'])
  expect(webhook.told[3].detail).toContain('by_model')
  expect(await exitOf('backfill', ...range, ...streams, '--accept-deletes')).toBe(0)
  expect(webhook.events().slice(4)).toEqual(['cleared held'])
})

test('an audit that repairs tells what it held; one that only looks tells nothing', async () => {
  await setup.sync()
  setup.service.setFaults({ rate_limit: null, empty: true })
  expect(await exitOf('audit')).toBe(1)
  expect(webhook.told).toEqual([])
  expect(await exitOf('audit', '--repair')).toBe(1)
  expect(webhook.events()).toEqual(['raised run', 'raised held'])
  expect(webhook.told[0].detail).toMatch(/^run \d+ \(audit\) was partial: /)
})

longTest('a webhook that never answers does not keep a sync from saying how it went, nor from ending', async () => {
  answer = 'nothing'
  const env = { ...setup.env, VISIBILITY_API_KEY: 'wrong-key-of-the-test' }
  const running = startCli(['sync', '--json'], { env, config: quickly() })
  await until(() => webhook.asked() > 0)
  expect(JSON.parse(running.output())).toMatchObject({ outcome: 'failed' })
  expect((await running.done).code).toBe(1)
})
