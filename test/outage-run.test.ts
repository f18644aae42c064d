import { afterEach, expect, test } from '@jest/globals'
import { runAudit } from '../src/audit/run-audit.ts'
import { countDays } from '../src/core/day.ts'
import { createClient } from '../src/source/client.ts'
import type { RunReport } from '../src/sync/run/report.ts'
import { runCli } from './support/cli.ts'
import { longTest } from './support/long.ts'
import { startProxy } from './support/proxy.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* Whole runs against a service that hangs, for all of it or for a part, and runs that take too long. */

let setup: Setup
const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
  await setup.close()
})

const range = { from: '2026-03-18', to: '2026-03-31' }
const start = async (options: SetupOptions = {}) => {
  setup = await setUp({
    world: { projects: 2, prompts: 5, models: 2, brands: 3 },
    ...options,
    config: { start_date: range.from, source: { timeout_seconds: 1, patience_seconds: 2 }, ...options.config },
  })
}
const exact = (projects = setup.service.world.projects) =>
  expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS, projects })
const failures = (report: RunReport) => report.streams.flatMap(({ failed }) => failed.map(({ error }) => error))

test('a service that hangs ends the run with one sentence, and the next run completes it', async () => {
  await start({ faults: { ...NO_LIMIT, hang: 1 } })
  const report = await setup.sync()
  expect(report.outcome).toBe('failed')
  expect(report.error).toMatch(/^the service at 127\.0\.0\.1:\d+ has given no usable answer for \d+ s/)
  // Every stream of both projects is named as not read; few of them were asked for.
  expect(report.streams.every(({ failed }) => failed.length > 0)).toBe(true)
  expect(setup.service.requests.length).toBeLessThan(50)
  setup.service.setFaults(NO_LIMIT)
  expect((await setup.sync()).outcome).toBe('complete')
  await exact()
})

test('a service that begins to hang leaves what is loaded, and is partial', async () => {
  await start()
  const report = await setup.sync({}, { advanced: () => setup.service.setFaults({ ...NO_LIMIT, hang: 1 }) })
  expect(report.outcome).toBe('partial')
  expect(report.streams.some(({ windows }) => windows > 0)).toBe(true)
  expect(failures(report).length).toBeGreaterThan(0)
  setup.service.setFaults(NO_LIMIT)
  expect((await setup.sync()).outcome).toBe('complete')
  await exact()
})

test('a project that hangs fails alone', async () => {
  await start()
  const [first, second] = setup.service.world.projects
  setup.service.setFaults({ ...NO_LIMIT, hang: 1, only_project: first!.id })
  const report = await setup.sync()
  expect(report.outcome).toBe('partial')
  expect(report.error).toBeUndefined()
  expect(failures(report).every((error) => error.includes(`project ${first!.id}: the service at`))).toBe(true)
  await exact([second!])
})

test('an operation that fails for long fails its streams alone, without a request for each window', async () => {
  await start({
    world: { projects: 1, prompts: 5, models: 2, brands: 3 },
    config: {
      reports: [],
      start_date: '2025-03-01',
      source: { timeout_seconds: 1, patience_seconds: 1, max_attempts: 3, max_window_days: 1 },
    },
  })
  setup.service.setFaults({ ...NO_LIMIT, server_error: 1, only_path: '/chats' })
  const report = await setup.sync()
  expect(report.outcome).toBe('partial')
  const failed = report.streams.filter(({ failed: all }) => all.length > 0)
  expect(failed.map(({ stream }) => stream)).toEqual(['chats'])
  expect(failures(report)).toContainEqual(
    expect.stringMatching(/^not read: project .*: GET \/chats has given no usable answer/),
  )
  // A year of days was due.
  expect(failed[0]!.requests).toBeLessThan(100)
})

test('a service that is away for a moment is waited for', async () => {
  await start({ config: { source: { timeout_seconds: 1, patience_seconds: 60, max_attempts: 4 } } })
  let isOver = false
  const report = await setup.sync(
    {},
    {
      advanced() {
        if (isOver) return
        isOver = true
        setup.service.setFaults({ ...NO_LIMIT, reset: 1 })
        setTimeout(() => setup.service.setFaults(NO_LIMIT), 1500)
      },
    },
  )
  expect([report.outcome, failures(report)]).toEqual(['complete', []])
  await exact()
})

test('windows that the service cannot answer in time get shorter until it can', async () => {
  await start({ world: { projects: 1, prompts: 5, models: 2, brands: 3 } })
  const isLong = (url: string, body: string) => {
    const query = { ...Object.fromEntries(new URL(url, 'http://x').searchParams), ...(body && JSON.parse(body)) }
    return query.start_date !== undefined && countDays({ from: query.start_date, to: query.end_date }) > 3
  }
  const proxy = await startProxy(setup.service.url, ({ url }, body) => isLong(url!, body), 0)
  closers.push(() => proxy.close())
  const client = createClient({
    baseUrl: proxy.url,
    compress: false,
    requestsPerMinute: 100_000,
    timeoutMs: 1000,
    patienceMs: 2000,
  })
  closers.push(() => client.close())
  setup.services.client = client
  const report = await setup.sync()
  expect([report.outcome, failures(report)]).toEqual(['complete', []])
  await exact()
})

longTest('with a shared queue, too, a service that hangs ends the run', async () => {
  await start({ faults: { ...NO_LIMIT, hang: 1 } })
  const result = await runCli(['sync', '--queue', '--json'], { env: setup.env, config: setup.fileConfig })
  expect(result.code).toBe(1)
  const report = result.json() as RunReport
  expect(report.outcome).toBe('failed')
  expect(failures(report).every((error) => /no usable answer for/.test(error))).toBe(true)
  setup.service.setFaults(NO_LIMIT)
  expect((await runCli(['sync', '--queue'], { env: setup.env, config: setup.fileConfig })).code).toBe(0)
  await exact()
})

test('an address where nothing listens is said in one sentence, with exit 1', async () => {
  await start()
  const env = { ...setup.env, VISIBILITY_API_URL: 'http://127.0.0.1:1/v1' }
  const result = await runCli(['sync'], { env, config: setup.fileConfig })
  expect(result.code).toBe(1)
  const told = 'VISIBILITY_API_URL: 127.0.0.1:1 cannot be reached'
  const output = result.stdout.replaceAll(/\s+/g, ' ')
  expect(output.split(told).length - 1).toBe(1)
  expect(output).toContain(`${told}: the connection was refused: nothing listens there (ECONNREFUSED)`)
})

test('a run that takes longer than run_minutes is stopped, and the next one continues', async () => {
  await start({ faults: { ...NO_LIMIT, latency_ms: 400 } })
  const { config } = setup.services
  setup.services.config = { ...config, source: { ...config.source, concurrency: 1, run_minutes: 1 / 40 } }
  const report = await setup.sync()
  expect(report.outcome).toBe('partial')
  expect(report.error).toContain('source.run_minutes passed')
  expect(failures(report)).toContainEqual(expect.stringContaining('not read: source.run_minutes passed'))
  const [{ outcome, error } = {}] = await setup.database.rows<{ outcome: string; error: string }>(
    'select outcome, error from visibility_ops.runs',
  )
  expect([outcome, error]).toEqual(['partial', report.error])
  setup.services.config = config
  setup.service.setFaults(NO_LIMIT)
  expect((await setup.sync()).outcome).toBe('complete')
  await exact()
})

test('an audit that takes longer than run_minutes is stopped, and counts as failed', async () => {
  await start()
  await setup.sync()
  setup.service.setFaults({ ...NO_LIMIT, latency_ms: 2000 })
  const { config } = setup.services
  setup.services.config = { ...config, source: { ...config.source, run_minutes: 1 / 120 } }
  const request = { projects: setup.projects, repair: false, signal: new AbortController().signal }
  await expect(runAudit(setup.services, request)).rejects.toThrow('source.run_minutes passed')
  expect(
    await setup.database.rows("select outcome, error from visibility_ops.runs where command = 'audit'"),
  ).toMatchObject([{ outcome: 'failed', error: expect.stringContaining('source.run_minutes passed') }])
})

test('a run that is asked to stop counts no request that it broke off', async () => {
  await start({ faults: { ...NO_LIMIT, hang: 1 }, config: { source: { timeout_seconds: 60 } } })
  const stop = new AbortController()
  const asked: unknown[] = []
  const running = setup.sync({ signal: stop.signal }, { onRequest: (status) => void asked.push(status) })
  while (setup.service.requests.length < 4) await new Promise((done) => setTimeout(done, 10))
  stop.abort()
  const report = await running
  expect(report.outcome).toBe('interrupted')
  expect(asked).toEqual([])
  expect(report.streams.every(({ requests }) => requests === 0)).toBe(true)
})
