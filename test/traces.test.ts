import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { runCli, temporaryFolder } from './support/cli.ts'
import { type Setup, setUp } from './support/setup.ts'

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
