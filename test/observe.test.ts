import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { createLog } from '../src/core/logger.ts'
import { createRedactor } from '../src/core/redactor.ts'
import { readStatus } from '../src/ledger/status.ts'
import { Alerts } from '../src/observe/alerts.ts'
import { channelsOf, webhookChannel } from '../src/observe/channels.ts'
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
import { type CliResult, runCli, startCli, temporaryFolder } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { lineageFaults, type Outside, parseExposition, startMailServer, startOutside } from './support/outside.ts'
import { startWebhook, until, type Webhook } from './support/serve.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'

const DAY = { from: '2026-03-01', to: '2026-03-01' }
const WAREHOUSE = 'postgres://warehouse.example.com:5432/visibility'

describe('alerts', () => {
  let setup: Setup
  let webhook: Webhook
  /** What the webhook answers. */
  let answer: number | 'nothing'
  let now: Date
  let pool: SidePool
  beforeAll(async () => {
    setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 } })
    const many = { connections: 2, waiting: 64, patienceMs: 30_000, limitMs: 30_000 }
    pool = createSidePool(setup.database.warehouse, { name: 'alerts of tests', ...many })
    closeLater(() => pool.close())
  })
  beforeEach(async () => {
    answer = 200
    now = new Date('2026-04-01T00:00:00Z')
    webhook = await startWebhook(() => answer)
    await setup.database.rows('delete from visibility_ops.alerts')
    setup.service.setFaults({ rate_limit: null })
  })

  let isAway = false
  /** Alerts of one process, whose ledger can be away. */
  function makeAlerts(quietMs = 0): Alerts {
    isAway = false
    return new Alerts({
      redactor: createRedactor(),
      channels: [webhookChannel(webhook.url)],
      quietMs,
      pageUrl: 'https://status.example.com',
      warehouse: WAREHOUSE,
      nameOf: (id) => `Project ${id}`,
      log: setup.services.log,
      clock: () => now,
      ledgerMs: 60_000,
      ledger: (work) => (isAway ? Promise.reject(new Error('away')) : pool.write(work)),
    })
  }
  const rows = () =>
    setup.database.rows(
      'select condition, members from visibility_ops.alerts where cleared_at is null and is_told order by condition',
    )
  const trouble = (...streams: string[]): Findings => ({
    held: findingOfHeld(
      streams.map((stream) => ({ ...DAY, project_id: 'p', stream, since: new Date(4e12), accept: '' })),
    ),
  })
  const over: Findings = trouble()
  const MINUTE = 60_000
  const pass = (minutes: number) => {
    now = new Date(now.getTime() + minutes * MINUTE)
  }

  test('alerts sent while the ledger was away are not sent again when it is back, by this process or another', async () => {
    const alerts = makeAlerts()
    isAway = true
    for (let check = 1; check <= 2; check++) await alerts.update(trouble('a'))
    expect(webhook.events()).toEqual(['raised held'])
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

  test('a condition that resolves while the ledger is away is resolved there later, and can fire again', async () => {
    const alerts = makeAlerts()
    await alerts.update(trouble('a'))
    isAway = true
    await alerts.update(over)
    isAway = false
    expect(await rows()).toEqual([{ condition: 'held', members: ['a of p'] }])
    await alerts.update(trouble('a'))
    expect(webhook.events()).toEqual(['raised held', 'cleared held', 'raised held'])
    await alerts.update(over)
    expect(await rows()).toEqual([])
  })

  test('a message that the webhook refuses is sent at the next check', async () => {
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

  test('further alerts of a kind are collected and sent as one message after the quiet period', async () => {
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
    pass(60)
    await alerts.update(over)
    expect(webhook.events().slice(2)).toEqual(['cleared held'])
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

  test('one cause of a failed run is one message, and a complete run of everything resolves it', async () => {
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
      config: setup.config,
      today: '2026-03-31',
      projects: setup.projects.map(({ id }) => id),
      streams: [
        { name: 'chats', table: 'chats', by: 'day' as const },
        { name: 'newly_added', table: 'newly_added', by: 'day' as const },
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
    expect(told.text).toMatch(/300 failures; GET \/chats: HTTP 503: no; chats of Project p0, .* and 290 more/)
    expect(told).toMatchObject({ run: 9, severity: 'error', page: 'https://status.example.com/' })
  })

  test('a run that fails before it begins fires an alert, and a database that is away briefly does not', () => {
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

  test('a sync fires the alert for held days, and a backfill that accepts them resolves it', async () => {
    await setup.sync()
    setup.service.setFaults({ rate_limit: null, empty: true })
    expect(await exitOf('sync', '--stream', 'chats')).toBe(1)
    expect(webhook.events()).toEqual(['raised held'])
    expect(webhook.told[0].detail).toMatch(
      new RegExp(`rows: 2026-\\S+\\.\\.2026-\\S+; chats of ${webhook.told[0].projects[0]}$`),
    )
    const [named] = await setup.database.rows<{ name: string }>('select name from visibility.projects')
    expect(webhook.told[0].projects).toEqual([named!.name])
    const range = ['--from', '2026-03-01', '--to', '2026-03-31']
    const streams = ['--stream', 'chats']
    expect(await exitOf('backfill', ...range, ...streams, '--accept-deletes')).toBe(0)
    expect(webhook.events().slice(1)).toEqual(['cleared held'])
  })
})

describe('channels of alerts', () => {
  const [KEY, PASSWORD] = ['pagerduty-routing-key-0123456789', 'password-of-the-mail-server']
  const stream = { ...emptyReport('or_1', 'chats'), windows: 1 }
  const run = { run_id: 12, command: 'sync', source: 's', seconds: 1, notes: [] }
  const error = `GET /chats: HTTP 503: busy with ${PASSWORD}`
  const failed = { ...stream, failed: [{ range: '2026-03-01', error, code: 'transient' as const }] }
  const bad = findingsOfRun({ ...run, outcome: 'partial', streams: [failed] }, { coversEverything: true })
  const well = findingsOfRun({ ...run, outcome: 'complete', streams: [stream] }, { coversEverything: true })

  test('Slack, PagerDuty and e-mail get the alert and its end; one that fails keeps no other from it, and no secret is shown', async () => {
    let isBroken = false
    const logs: string[] = []
    const outside = await startOutside(() => (isBroken ? 500 : 200))
    const mail = await startMailServer(() => isBroken)
    const config = configOf({
      alerts: {
        slack_url: `${outside.url}/slack/secret-of-slack`,
        pagerduty_key: KEY,
        pagerduty_url: `${outside.url}/v2/enqueue`,
        smtp_url: `smtp://robot@127.0.0.1:${mail.port}`,
        smtp_password: PASSWORD,
        email_from: 'visibility-sync <robot@example.com>',
        email_to: ['oncall@example.com', 'Second <second@example.com>'],
      },
    })
    const { redactor } = config
    const alerts = new Alerts({
      channels: channelsOf(config),
      quietMs: 0,
      pageUrl: 'https://status.example.com',
      warehouse: WAREHOUSE,
      nameOf: () => 'Acme <Shoes> & Co',
      log: createLog({ level: 'trace', redactor, destination: { write: (line) => void logs.push(line) } }),
      redactor,
      clock: () => new Date('2026-04-01T10:30:00Z'),
      ledger: () => Promise.reject(new Error('away')),
    })
    isBroken = true
    await alerts.update(bad)
    expect(alerts.open).toEqual([])
    isBroken = false
    outside.heard.length = 0
    await alerts.sendUnsent()
    await alerts.update(well)

    const heardAt = (path: string) =>
      outside.heard.filter((one) => one.path.startsWith(path)).map(({ body }) => JSON.parse(body))
    const [raised, cleared] = heardAt('/slack')
    expect(raised.blocks[0].text.text).toBe('🟠 run 12 (sync) was partial')
    expect(raised.blocks[1].fields.map(({ text }: { text: string }) => text)).toEqual([
      '*Projects*\nAcme &lt;Shoes&gt; &amp; Co',
      `*Warehouse*\n${WAREHOUSE}`,
      '*Since*\n2026-04-01 10:30 UTC',
      '*Run*\n12',
      '*Reason*\n1 failure; GET /chats: HTTP 503: busy with [redacted]',
      '*What helps*\nnpx visibility-sync status',
    ])
    expect(cleared.blocks[0].text.text).toContain('🟢 over: run 12 (sync) was partial')

    const [trigger, resolve] = heardAt('/v2/enqueue')
    expect(trigger).toMatchObject({
      routing_key: KEY,
      event_action: 'trigger',
      payload: { severity: 'warning', class: 'run' },
    })
    expect(resolve).toMatchObject({ event_action: 'resolve', dedup_key: trigger.dedup_key })

    const to = ['oncall@example.com', 'second@example.com']
    const envelope = { login: `robot ${PASSWORD}`, from: 'robot@example.com', to }
    expect(mail.mails).toMatchObject([envelope, envelope])
    const text = mail.mails[0]!.data.replaceAll('=\n', '')
    for (const part of ['Subject: visibility-sync: run 12 (sync) was partial', 'Acme <Shoes> & Co', 'Run:        12'])
      expect(text).toContain(part)
    const shown = [...outside.heard.map(({ body }) => body), text, ...logs].join()
    expect(shown).toContain('"channel":"e-mail"')
    for (const secret of [PASSWORD, 'secret-of-slack']) expect(shown).not.toContain(secret)
    expect(logs.join()).not.toContain(KEY)
  })
})

describe('commands that end', () => {
  /* What programs outside hear of commands that end. */

  let setup: Setup
  let outside: Outside
  let answer: number | 'nothing' = 200
  const folder = temporaryFolder()
  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 2, prompts: 4, models: 2, brands: 3 },
      config: { start_date: '2026-03-25' },
    })
    outside = await startOutside(() => answer)
  })
  beforeEach(() => {
    answer = 200
    outside.heard.length = 0
  })

  const TEXTFILE = join(folder.path, 'sync.prom')
  function settings(): Record<string, unknown> {
    return {
      ...setup.fileConfig,
      alerts: { ping_url: `${outside.url}/ping/secret-uuid-of-the-check`, quiet_minutes: 0 },
      metrics: { push_url: outside.url, textfile: TEXTFILE },
      lineage: { url: outside.url, api_key: 'key-of-the-catalogue', namespace: 'tests' },
    }
  }
  const cli = (args: string[], env: Record<string, string> = {}): Promise<CliResult> =>
    runCli([...args, '--json'], { env: { ...setup.env, ...env }, config: settings() })
  const pings = () =>
    outside.heard
      .filter(({ path }) => path.startsWith('/ping'))
      .map(({ method, path, body }) =>
        `${method} ${path.replace('/ping/secret-uuid-of-the-check', '…')} ${body}`.trim(),
      )
  const pushes = () => outside.heard.filter(({ path }) => path.startsWith('/metrics'))
  const events = () =>
    outside.heard.filter(({ path }) => path === '/api/v1/lineage').map(({ body }) => JSON.parse(body) as any)
  test('a sync pushes gauges of its run and of the ledger, leaves the same as a file, pings, and reports the lineage', async () => {
    expect((await cli(['sync'])).code).toBe(0)
    expect(pings()).toEqual(['GET …/start', 'GET …'])
    const [push] = pushes()
    expect([push!.method, push!.path]).toEqual(['PUT', '/metrics/job/visibility_sync'])
    expect(readFileSync(TEXTFILE, 'utf8')).toBe(push!.body)
    const first = parseExposition(push!.body)
    expect(first.get('visibility_sync_last_run_success{command="sync"}')).toBe(1)
    const project = setup.projects[0]!.id
    const ofChats = `{project="${project}",stream="chats"}`
    expect(first.get(`visibility_sync_last_read_timestamp_seconds${ofChats}`)).toBeGreaterThan(1.7e9)
    expect(first.get(`visibility_sync_held_dates${ofChats}`)).toBe(0)
    const [{ rows }] = (await setup.database.rows<{ rows: number }>(
      'select count(*)::int as rows from visibility.chats',
    )) as [{ rows: number }]
    expect(first.get('visibility_sync_last_run_rows{stream="chats",effect="inserted"}')).toBe(rows)
    expect(first.get('visibility_sync_last_run_requests{stream="chats"}')).toBeGreaterThan(0)

    expect(events().map(({ eventType }) => eventType)).toEqual(['START', 'COMPLETE'])
    expect(events().flatMap(lineageFaults)).toEqual([])
    const [start, complete] = events()
    expect(complete.run.runId).toBe(start.run.runId)
    expect(complete.job).toMatchObject({ namespace: 'tests', name: 'visibility-sync.sync' })
    const output = complete.outputs.find(({ name }: { name: string }) => name.endsWith('.visibility.chats'))
    expect(output.outputFacets.outputStatistics.rowCount).toBe(rows)
    expect(complete.inputs.map(({ name }: { name: string }) => name)).toContain('/v1/chats')
    expect(outside.heard.find(({ path }) => path === '/api/v1/lineage')!.headers.authorization).toBe(
      'Bearer key-of-the-catalogue',
    )
  })

  test('a wrong key is a failure with its reason', async () => {
    const { code } = await cli(['sync'], { VISIBILITY_API_KEY: 'wrong-key-of-the-test' })
    expect(code).toBe(1)
    const after = parseExposition(pushes().at(-1)!.body)
    expect(after.get('visibility_sync_last_run_success{command="sync"}')).toBe(0)
    expect(pings()).toEqual(['GET …/start', expect.stringMatching(/^POST …\/fail sync: .*HTTP 401/)])
    expect(events().map(({ eventType }) => eventType)).toEqual(['START', 'FAIL'])
    expect(events().flatMap(lineageFaults)).toEqual([])
    expect(events()[1].run.facets.errorMessage.message).toContain('HTTP 401')
    expect(outside.heard.map(({ body }) => body).join()).not.toContain('wrong-key-of-the-test')
  })

  test('check --alerts sends a test message to every channel, and says which one refuses it', async () => {
    const alerts = { webhook_url: `${outside.url}/hook`, slack_url: `${outside.url}/slack`, quiet_minutes: 0 }
    const check = async () => {
      const options = { env: setup.env, config: { ...settings(), alerts } }
      const { code, json } = await runCli(['check', '--alerts', '--json'], options)
      const verdicts: { what: string; detail: string }[] = json().verdicts
      return [
        code,
        ...verdicts.flatMap(({ what, detail }) => (what.startsWith('alerts') ? [`${what}: ${detail}`] : [])),
      ]
    }
    const sent = 'accepted a test message'
    expect(await check()).toEqual([0, `alerts by webhook: ${sent}`, `alerts by slack: ${sent}`])
    const { username, host, pathname } = new URL(setup.database.url)
    const body = JSON.parse(outside.heard.find(({ path }) => path === '/hook')!.body)
    expect(body).toMatchObject({ event: 'cleared', text: expect.stringContaining('a test message') })
    expect(body.warehouse).toBe(`postgres://${username}@${host}${pathname}`)
    answer = 500
    expect(await check()).toEqual([1, 'alerts by webhook: HTTP 500', 'alerts by slack: HTTP 500'])
    expect(await setup.database.rows('select * from visibility_ops.alerts')).toEqual([])
    const none = await runCli(['check', '--alerts'], { env: setup.env, config: setup.fileConfig })
    expect([none.code, none.stdout]).toEqual([1, expect.stringContaining('no channel is configured')])
  })

  test('a run that finds the lock taken reports no failure', async () => {
    setup.service.setFaults({ rate_limit: null, latency_ms: 1500 })
    const first = startCli(['sync', '--json'], { env: setup.env, config: setup.fileConfig })
    await until(async () => (await setup.database.rows('select from visibility_ops.run_leases')).length > 0)
    expect((await cli(['sync'])).code).toBe(3)
    setup.service.setFaults({ rate_limit: null })
    await first.done
    expect(pings()).toEqual(['GET …/start'])
    expect(events()).toEqual([])
    const samples = parseExposition(pushes().at(-1)!.body)
    expect([...samples.keys()].filter((key) => key.startsWith('visibility_sync_last_run_seconds'))).toEqual([])
  })

  test('without a database the failure is still reported', async () => {
    const url = new URL(setup.database.url)
    url.port = '1'
    const { code } = await cli(['audit'], { DATABASE_URL: url.href })
    expect(code).toBe(1)
    expect(pings()).toEqual(['GET …/start', expect.stringMatching(/^POST …\/fail audit: /)])
    const [push] = pushes()
    expect(push!.method).toBe('POST')
    const samples = parseExposition(push!.body)
    expect(samples.get('visibility_sync_last_run_success{command="audit"}')).toBe(0)
    expect(samples.get('visibility_sync_database_up')).toBe(0)
    expect(outside.heard.map(({ body }) => body).join()).not.toContain(url.password || 'no password')
  })

  test('receivers that never answer change neither result nor exit code, and do not keep the process alive', async () => {
    answer = 'nothing'
    const result = await cli(['sync'])
    expect(result.code).toBe(0)
    expect(result.json()).toMatchObject({ outcome: 'complete' })
    expect(pushes().length).toBeGreaterThan(0)
    expect(result.stderr).not.toContain('secret-uuid')
    // And where they refuse, that is said, without their addresses.
    answer = 403
    const refused = await cli(['sync'])
    expect(refused.code).toBe(0)
    for (const message of ['the ping failed', 'the metrics could not be pushed', 'the lineage event was not accepted'])
      expect(refused.stderr).toContain(message)
    expect(refused.stderr).not.toContain('secret-uuid')
  })
})

describe('spans, as a real SDK exports them', () => {
  /* Spans as a real SDK exports them. */

  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 } })
  })
  afterAll(async () => {
    trace.disable()
    context.disable()
    await provider.shutdown()
  })

  const called = (spans: ReadableSpan[], name: string) => spans.filter((span) => span.name === name)

  /** Sets the SDK up, as a program does that wants spans. */
  function listen(): void {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
    trace.setGlobalTracerProvider(provider)
    exporter.reset()
  }

  test('without an SDK nothing is kept; with one, a run holds its windows, and these their requests and loads', async () => {
    await setup.sync({ streams: [] })
    expect(exporter.getFinishedSpans()).toEqual([])

    listen()
    const report = await setup.sync()
    const spans = exporter.getFinishedSpans()
    const [run, ...others] = called(spans, 'run')
    expect(others).toEqual([])
    expect(run!.attributes).toMatchObject({
      'visibility_sync.command': 'sync',
      'visibility_sync.run_id': report.run_id,
      'visibility_sync.outcome': 'complete',
    })
    const windows = called(spans, 'window')
    const streams = new Set(windows.map(({ attributes }) => attributes['visibility_sync.stream']))
    expect(streams).toEqual(new Set(report.streams.map(({ stream }) => stream)))
    for (const window of windows) expect(window.parentSpanContext?.spanId).toBe(run!.spanContext().spanId)
    const ids = new Set(windows.map((window) => window.spanContext().spanId))
    const loads = called(spans, 'load')
    expect(loads.length).toBe(windows.length)
    for (const load of loads) expect(ids.has(load.parentSpanContext!.spanId)).toBe(true)
    const requests = called(spans, 'request').filter(({ parentSpanContext }) => ids.has(parentSpanContext!.spanId))
    expect(requests.length).toBeGreaterThanOrEqual(windows.length)
    expect(requests[0]!.attributes).toMatchObject({ 'http.response.status_code': 200 })
    expect(new Set(spans.map((span) => span.spanContext().traceId)).size).toBe(1)
  })

  test('a failure is marked by its kind, without text that may contain a secret', async () => {
    listen()
    const wrong = setup.projects.map((project) => ({
      ...project,
      caller: { ...project.caller, key: 'wrong-key-in-a-span' },
    }))
    await setup.sync({ projects: wrong })
    const spans = exporter.getFinishedSpans()
    expect(called(spans, 'run')[0]).toMatchObject({ status: { code: 2 }, attributes: { 'error.type': 'key' } })
    const refused = called(spans, 'request').find(({ attributes }) => attributes['http.response.status_code'] === 401)
    expect(refused!.attributes['error.type']).toBe('key')
    const told = JSON.stringify(spans.map(({ attributes, status, events }) => ({ attributes, status, events })))
    expect(told).not.toContain('wrong-key-in-a-span')
  })
})
