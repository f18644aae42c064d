import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { createMetrics } from '../src/observe/metrics.ts'
import { pingAddress, pushAddress } from '../src/observe/send.ts'
import { type CliResult, runCli, startCli, temporaryFolder } from './support/cli.ts'
import { lineageFaults } from './support/open-lineage.ts'
import { type Outside, parseExposition, startOutside } from './support/outside.ts'
import { until } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'

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
  afterAll(async () => {
    folder.remove()
    await outside.close()
    await setup.close()
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
    // What only a process that stays can count is not left behind.
    expect([...first.keys()].filter((key) => /_total|_bucket|staleness|ledger_age|budget_remaining/.test(key))).toEqual(
      [],
    )

    expect(events().map(({ eventType }) => eventType)).toEqual(['START', 'COMPLETE'])
    expect(events().flatMap(lineageFaults)).toEqual([])
    const [start, complete] = events()
    expect(complete.run.runId).toBe(start.run.runId)
    expect(complete.job).toMatchObject({ namespace: 'tests', name: 'visibility-sync.sync' })
    const output = complete.outputs.find(({ name }: { name: string }) => name.endsWith('.visibility.chats'))
    expect(output.outputFacets.outputStatistics.rowCount).toBe(rows)
    expect(output.facets.schema.fields[0]).toEqual({ name: 'project_id', type: 'text' })
    expect(complete.inputs.map(({ name }: { name: string }) => name)).toContain('/v1/chats')
    expect(outside.heard.find(({ path }) => path === '/api/v1/lineage')!.headers.authorization).toBe(
      'Bearer key-of-the-catalogue',
    )

    expect((await cli(['backfill', '--from', '2026-03-30', '--to', '2026-03-31'])).code).toBe(0)
    const second = parseExposition(pushes().at(-1)!.body)
    for (const command of ['sync', 'backfill'])
      expect(second.get(`visibility_sync_last_run_success{command="${command}"}`)).toBe(1)
    expect(second.get('visibility_sync_last_run_rows{stream="chats",effect="inserted"}')).toBe(0)
  })

  test('a wrong key is a failure with its reason', async () => {
    await cli(['sync'])
    const before = parseExposition(pushes().at(-1)!.body)
    outside.heard.length = 0
    const { code } = await cli(['sync'], { VISIBILITY_API_KEY: 'wrong-key-of-the-test' })
    expect(code).toBe(1)
    const after = parseExposition(pushes().at(-1)!.body)
    expect(after.get('visibility_sync_last_run_success{command="sync"}')).toBe(0)
    expect(after.get('visibility_sync_last_success_timestamp_seconds{command="sync"}')).toBe(
      before.get('visibility_sync_last_success_timestamp_seconds{command="sync"}'),
    )
    expect(pings()).toEqual(['GET …/start', expect.stringMatching(/^POST …\/fail sync: .*HTTP 401/)])
    expect(events().map(({ eventType }) => eventType)).toEqual(['START', 'FAIL'])
    expect(events().flatMap(lineageFaults)).toEqual([])
    expect(events()[1].run.facets.errorMessage.message).toContain('HTTP 401')
    expect(outside.heard.map(({ body }) => body).join()).not.toContain('wrong-key-of-the-test')
  })

  test('a run that finds another at work tells nobody that it failed', async () => {
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

  test('without a database the failure is reported all the same', async () => {
    const url = new URL(setup.database.url)
    url.port = '1'
    const { code } = await cli(['audit'], { DATABASE_URL: url.href })
    expect(code).toBe(1)
    expect(pings()).toEqual(['GET …/start', expect.stringMatching(/^POST …\/fail audit: /)])
    const [push] = pushes()
    expect(push!.method).toBe('POST')
    const samples = parseExposition(push!.body)
    expect([...samples.keys()].sort()).toEqual([
      'visibility_sync_database_up',
      'visibility_sync_last_run_seconds{command="audit"}',
      'visibility_sync_last_run_success{command="audit"}',
      'visibility_sync_last_run_timestamp_seconds{command="audit"}',
    ])
    expect(samples.get('visibility_sync_database_up')).toBe(0)
    expect(outside.heard.map(({ body }) => body).join()).not.toContain(url.password || 'no password')
  })

  test('those who never answer change neither the result nor the exit code, and do not keep the process', async () => {
    answer = 'nothing'
    const running = startCli(['sync', '--json'], { env: setup.env, config: settings() })
    const result = await running.done
    expect(result.code).toBe(0)
    expect(result.json()).toMatchObject({ outcome: 'complete' })
    expect(pushes().length).toBeGreaterThan(0)
    expect(result.stderr).not.toContain('secret-uuid')
    // And where they refuse, that is said, without their addresses.
    answer = 403
    const refused = await cli(['sync'])
    expect(refused.code).toBe(0)
    for (const message of [
      'the ping failed',
      'the metrics could not be published',
      'the lineage event was not accepted',
    ])
      expect(refused.stderr).toContain(message)
    expect(refused.stderr).not.toContain('secret-uuid')
  })

  test('addresses keep what people wrote in them', () => {
    expect(pingAddress('https://hc.example/uuid', 'start')).toBe('https://hc.example/uuid/start')
    expect(pingAddress('https://hc.example/uuid?rid=1', 'fail')).toBe('https://hc.example/uuid/fail?rid=1')
    expect(pingAddress('https://hc.example/uuid', 'success')).toBe('https://hc.example/uuid')
    expect(pushAddress('http://gateway:9091')).toBe('http://gateway:9091/metrics/job/visibility_sync')
    expect(pushAddress('http://gateway/base')).toBe('http://gateway/base/metrics/job/visibility_sync')
    const own = 'http://gateway:9091/metrics/job/sync/instance/acme'
    expect(pushAddress(own)).toBe(own)
  })

  test('the text of a server follows the format, with every command, outcome and stream at zero', async () => {
    const metrics = createMetrics(['chats', 'brand_daily'])
    const state = { database: { up: true }, ledger: undefined, ledgerAgeMs: 0, budgets: new Map(), now: new Date() }
    const samples = parseExposition(await metrics.text(state))
    for (const command of ['sync', 'audit', 'backfill'])
      for (const outcome of ['complete', 'partial', 'failed', 'interrupted', 'locked'])
        expect(samples.get(`visibility_sync_runs_total{command="${command}",outcome="${outcome}"}`)).toBe(0)
    expect(samples.get('visibility_sync_rows_total{stream="chats",effect="quarantined"}')).toBe(0)
    metrics.observer.onRequest?.(401)
    expect(parseExposition(await metrics.text(state)).get('visibility_sync_retries_total')).toBe(0)
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
    await setup.close()
  })

  const called = (spans: ReadableSpan[], name: string) => spans.filter((span) => span.name === name)

  test('without an SDK nothing is kept; with one, a run holds its windows, and these their requests and loads', async () => {
    await setup.sync({ streams: [] })
    expect(exporter.getFinishedSpans()).toEqual([])

    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
    trace.setGlobalTracerProvider(provider)
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

  test('what fails is marked by its kind, without words that may hold a secret', async () => {
    exporter.reset()
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

  test('the command, too, gives its spans to an SDK that is brought with --import', async () => {
    const folder = temporaryFolder()
    const file = join(folder.path, 'spans')
    const sdk = fileURLToPath(new URL('./support/trace-sdk.mjs', import.meta.url))
    const env = { ...setup.env, NODE_OPTIONS: `--import=${sdk}`, TRACE_FILE: file }
    expect((await runCli(['sync', '--stream', 'chats'], { env, config: setup.fileConfig })).code).toBe(0)
    const spans = readFileSync(file, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { name: string; isRoot: boolean })
    expect(new Set(spans.map(({ name }) => name))).toEqual(new Set(['run', 'window', 'request', 'load']))
    expect(spans.filter(({ isRoot }) => isRoot).map(({ name }) => name)).toEqual(['run'])
    folder.remove()
  })
})
