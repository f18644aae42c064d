import { getEventListeners } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { countDays } from '../src/core/day.ts'
import { DownError, InterruptedError, TransientError, UsageError } from '../src/core/errors.ts'
import { unlessStopped } from '../src/core/waiting.ts'
import type { ClientOptions, Outage } from '../src/source/client.ts'
import type { RunReport } from '../src/sync/run/report.ts'
import { selfSigned, type TestCertificate } from './support/certificate.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { openClient, startProxy } from './support/proxy.ts'
import { until } from './support/serve.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* A service that hangs, is away, restarts, or asks to be left alone, as the client meets it. */

type Answer = (request: IncomingMessage, response: ServerResponse) => void

/** A server that can go away and come back at the same address. */
async function serve(answer: Answer, certificate?: TestCertificate) {
  const seen: string[] = []
  let behaviour = answer
  const handle: Answer = (request, response) => {
    request.resume()
    request.on('end', () => {
      seen.push(`${request.method} ${request.url}`)
      behaviour(request, response)
    })
  }
  const make = () => (certificate === undefined ? createServer(handle) : createTlsServer(certificate, handle))
  let server = make()
  const listen = (port: number) => new Promise<void>((done) => server.listen(port, '127.0.0.1', done))
  const stop = () =>
    new Promise<void>((done) => {
      server.close(() => done())
      server.closeAllConnections()
    })
  await listen(0)
  const { port } = server.address() as AddressInfo
  closeLater(stop)
  return {
    url: `${certificate === undefined ? 'http' : 'https'}://127.0.0.1:${port}/v1`,
    host: `127.0.0.1:${port}`,
    seen,
    behave: (next: Answer) => void (behaviour = next),
    stop,
    async start() {
      server = make()
      await listen(port)
    },
  }
}

function clientOf(baseUrl: string, options: Partial<ClientOptions> = {}) {
  const outages: Outage[] = []
  const client = openClient(baseUrl, {
    compress: true,
    requestsPerMinute: 10_000,
    maxAttempts: 4,
    timeoutMs: 100,
    patienceMs: 400,
    onOutage: (outage) => void outages.push(outage),
    ...options,
  })
  return { client, outages }
}

/** For tests in which some requests are answered: a busy machine takes its time. */
const PATIENT = { timeoutMs: 1000, patienceMs: 4000 }

const json = (response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) => {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}
const fine: Answer = (_request, response) => json(response, 200, { data: [] })
const hang: Answer = () => {}
const failing: Answer = (_request, response) => json(response, 503, { message: 'down' })
const one = { key: 'the-secret-key', projectId: 'or_1' }
const two = { key: 'the-secret-key', projectId: 'or_2' }
const range = { start_date: '2026-01-01', end_date: '2026-01-02' }

let aheadMs = 0

/** Sets the clock that durations are measured by. */
function passTime(ms: number): void {
  const now = performance.now.bind(performance)
  if (aheadMs === 0) jest.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs)
  aheadMs += ms
}

afterEach(() => {
  aheadMs = 0
  jest.restoreAllMocks()
})

/** Requests of probes, which are smaller than all others. */
const isProbe = (line: string) => line.startsWith('GET /v1/prompts?limit=1&')

async function failureOf(work: Promise<unknown>): Promise<Error & { code?: string }> {
  return work.then(
    () => new Error('it succeeded'),
    (error) => error,
  )
}

describe('a service without answers', () => {
  test.each([
    ['hangs', hang],
    ['resets every connection', (request: IncomingMessage) => void request.socket.destroy()],
  ])('that %s is given up once for all projects, and then not asked again', async (_, answer) => {
    const service = await serve(answer)
    const { client, outages } = clientOf(service.url)
    const asked = [one, two].flatMap((caller) =>
      Array.from({ length: 40 }, () => failureOf(client.chats(caller, range))),
    )
    const failures = await Promise.all(asked)
    expect(failures.every((error) => error instanceof TransientError)).toBe(true)
    const sent = service.seen.length
    const late = await failureOf(client.projectProfile(two))
    expect(late).toMatchObject({ code: 'service-down', neverSent: true })
    expect(late.message).toMatch(
      new RegExp(`the service at ${service.host} has given no usable answer for \\d+ s \\(\\d+ attempts, the last: `),
    )
    expect(service.seen.length).toBe(sent)
    expect(outages).toContainEqual(expect.objectContaining({ down: true, what: 'the service' }))
  })

  test('is asked again by new work, and its answers are used immediately', async () => {
    const service = await serve(failing)
    const { client, outages } = clientOf(service.url, { timeoutMs: 5000 })
    await Promise.all(Array.from({ length: 12 }, () => failureOf(client.prompts(one, {}))))
    expect(await failureOf(client.prompts(one, {}))).toMatchObject({ code: 'project-down' })
    client.resetOutages([one])
    expect(await failureOf(client.prompts(one, {}))).toMatchObject({ code: 'project-down' })
    service.behave(fine)
    client.resetOutages([one])
    const pages = await Promise.all(Array.from({ length: 6 }, () => client.prompts(one, {})))
    expect(pages.every(({ items }) => items.length === 0)).toBe(true)
    expect(outages.map(({ down }) => down)).toEqual([true, false])
  })

  test('gets ten requests that fail in a row, then one small request at a time until it answers', async () => {
    let open = 0
    let most = 0
    const slowly: Answer = (_request, response) => {
      most = Math.max(most, ++open)
      setImmediate(() => json(response, open-- && 503, { message: 'down' }))
    }
    const service = await serve(slowly)
    const { client, outages } = clientOf(service.url, { maxAttempts: 1, timeoutMs: 5000, patienceMs: 60_000 })
    for (let count = 0; count < 10; count++) {
      expect(outages).toEqual([])
      expect(await failureOf(client.chats(one, range))).toMatchObject({ code: 'transient', status: 503 })
    }
    expect(outages).toMatchObject([{ down: true, what: 'project or_1' }])
    const waiting = [1, 2, 3, 4].map(() => client.chats(one, range))
    await until(() => service.seen.length >= 12)
    expect(service.seen.slice(10).filter((line) => !isProbe(line))).toEqual([])
    expect(most).toBe(1)
    service.behave(fine)
    expect((await Promise.all(waiting)).length).toBe(4)
    expect(service.seen.filter((line) => !isProbe(line)).length).toBe(14)
  })

  test('that was given up gets one small request from new work, and one after each pause of 30 seconds', async () => {
    const service = await serve(failing)
    const { client } = clientOf(service.url, { timeoutMs: 5000 })
    const ask = async () => {
      const before = service.seen.length
      const failures = await Promise.all([1, 2, 3, 4, 5, 6].map(() => failureOf(client.chats(one, range))))
      expect(new Set(failures.map(({ code }) => code))).toEqual(new Set(['project-down']))
      return service.seen.slice(before)
    }
    await Promise.all(Array.from({ length: 12 }, () => failureOf(client.chats(one, range))))
    expect(await ask()).toEqual([])
    client.resetOutages([one])
    expect(await ask()).toEqual([expect.stringContaining('/v1/prompts?limit=1&')])
    expect(await ask()).toEqual([])
    passTime(30_000)
    expect(await ask()).toEqual([expect.stringContaining('/v1/prompts?limit=1&')])
    expect(await ask()).toEqual([])
  })

  test('for one project fails that project alone', async () => {
    const service = await serve((request, response) =>
      request.url?.includes('or_1') ? hang(request, response) : fine(request, response),
    )
    const { client } = clientOf(service.url, PATIENT)
    const hung = Promise.all(Array.from({ length: 12 }, () => failureOf(client.prompts(one, {}))))
    for (let count = 0; count < 20; count++) await client.prompts(two, {})
    expect((await hung).at(-1)).toBeInstanceOf(TransientError)
    expect(await failureOf(client.prompts(one, {}))).toMatchObject({
      code: 'project-down',
      message: expect.stringContaining('project or_1: the service at'),
    })
    await client.prompts(two, {})
  })

  test('for one operation fails that operation alone', async () => {
    const service = await serve((request, response) =>
      request.url?.startsWith('/v1/chats') ? failing(request, response) : fine(request, response),
    )
    const { client } = clientOf(service.url, { maxAttempts: 1, timeoutMs: 5000, patienceMs: 1 })
    for (let count = 0; count < 20; count++) {
      expect(await failureOf(client.chats(one, range))).toMatchObject({ code: 'transient', status: 503 })
    }
    const sent = () => service.seen.filter((line) => line.includes('chats')).length
    expect(await failureOf(client.chats(one, range))).toMatchObject({
      code: 'operation-down',
      message: expect.stringContaining('project or_1: GET /chats has given no usable answer'),
    })
    expect(sent()).toBe(20)
    const spent = { 'x-ratelimit-limit': '100', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2' }
    service.behave((request, response) =>
      request.url?.startsWith('/v1/chats') ? failing(request, response) : json(response, 200, { data: [] }, spent),
    )
    await client.prompts(one, {})
    passTime(30_000)
    // The one that may be sent waits for the request budget first.
    const late = await Promise.all([1, 2, 3].map(() => failureOf(client.chats(one, range))))
    expect(late.map(({ code }) => code).toSorted()).toEqual(['operation-down', 'operation-down', 'transient'])
    expect(sent()).toBe(21)
    expect(await failureOf(client.chats(two, range))).toMatchObject({ code: 'transient' })
  })

  test('that restarts is waited for, beyond the number of attempts', async () => {
    const service = await serve(fine)
    const { client, outages } = clientOf(service.url, { maxAttempts: 2, timeoutMs: 5000, patienceMs: 30_000 })
    await client.prompts(one, {})
    await service.stop()
    const waiting = [one, two, one, two].map((caller) => client.chats(caller, range))
    await until(async () => outages.length > 0)
    await service.start()
    expect((await Promise.all(waiting)).length).toBe(4)
    expect(outages.map(({ down }) => down)).toEqual([true, false])
  })
})

describe('a service that asks to wait', () => {
  test.each([
    ['a 503 with a day of Retry-After', 503, { 'retry-after': '86400' }],
    ['a date by a clock that is ahead', 503, datesOf(7200, 3600)],
  ])('%s: the project is left alone, and the others are not', async (_, status, headers) => {
    const service = await serve((request, response) =>
      request.url?.includes('or_1') ? json(response, status, { message: 'later' }, headers) : fine(request, response),
    )
    const { client } = clientOf(service.url, { timeoutMs: 5000 })
    const first = await failureOf(client.prompts(one, {}))
    expect(first).toMatchObject({ code: 'project-down' })
    expect(first.message).toMatch(/^project or_1: the service asks to wait until 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ, and/)
    const others = await Promise.all(Array.from({ length: 10 }, () => failureOf(client.chats(one, range))))
    expect(others.map(({ message }) => message)).toEqual(Array.from({ length: 10 }, () => first.message))
    expect(service.seen.length).toBe(1)
    client.resetOutages([one])
    expect(await failureOf(client.prompts(one, {}))).toMatchObject({ code: 'project-down' })
    expect((await client.prompts(two, {})).items).toEqual([])
  })

  test.each([
    ['in seconds', 503, { 'retry-after': '2' }],
    ['as a date', 503, datesOf(2, 3600)],
    ['with a 429', 429, { 'retry-after': '2' }],
  ])('%s is left alone for as long as it says, by all requests of the project', async (_, status, headers) => {
    const service = await serve((request, response) =>
      service.seen.length === 1 ? json(response, status, {}, headers) : fine(request, response),
    )
    const { client } = clientOf(service.url, { timeoutMs: 5000 })
    const waits: number[] = []
    const context = { onWait: (ms: number) => void waits.push(ms) }
    const first = client.prompts(one, {}, context)
    await until(() => waits.length > 0)
    const second = client.chats(one, range, context)
    await Promise.all([first, second])
    for (const ms of waits.slice(0, 2)) {
      expect(ms).toBeGreaterThan(500)
      expect(ms).toBeLessThan(2500)
    }
    expect(service.seen.length).toBe(3)
  })

  test('with a 429 to everything for five minutes is given up', async () => {
    const limits = { 'x-ratelimit-limit': '9000', 'x-ratelimit-remaining': '8000', 'x-ratelimit-reset': '60' }
    const service = await serve((_request, response) => json(response, 200, { data: [] }, limits))
    const { client } = clientOf(service.url, { timeoutMs: 5000 })
    await client.prompts(one, {})
    service.behave((_request, response) => json(response, 429, {}, limits))
    const asked = Array.from({ length: 12 }, () => failureOf(client.chats(one, range)))
    await until(() => service.seen.length > 12)
    passTime(301_000)
    for (const failure of await Promise.all(asked))
      expect(failure).toMatchObject({
        code: 'project-down',
        message: expect.stringMatching(
          /^project or_1: the service has refused every request for 5 min \(\d+ attempts, the last: /,
        ),
      })
    const sent = service.seen.length
    expect(await failureOf(client.chats(one, range))).toMatchObject({ code: 'project-down' })
    expect(service.seen.length).toBe(sent)
    service.behave(fine)
    client.resetOutages([one])
    expect((await client.chats(one, range)).items).toEqual([])
  })

  test.each(['-5', 'Thu, 01 Jan 1970 00:00:00 GMT'])(
    'with Retry-After "%s" is retried after the usual delay',
    async (value) => {
      let count = 0
      const service = await serve((request, response) =>
        ++count <= 2 ? json(response, 503, {}, { 'retry-after': value }) : fine(request, response),
      )
      const { client } = clientOf(service.url, { timeoutMs: 5000, patienceMs: 60_000 })
      expect((await client.prompts(one, {})).items).toEqual([])
      expect(client.budgetView(one).waits).toBe(0)
    },
  )
})

/** A Retry-After of so many seconds by a clock that is so many seconds ahead. */
function datesOf(waitSeconds: number, aheadSeconds: number): Record<string, string> {
  const at = Date.now() + aheadSeconds * 1000
  return { date: new Date(at).toUTCString(), 'retry-after': new Date(at + waitSeconds * 1000).toUTCString() }
}

describe('the request budget', () => {
  test('gets back the requests that had no answer', async () => {
    const service = await serve((request) => void request.socket.destroy())
    const { client } = clientOf(service.url, { maxAttempts: 1, timeoutMs: 5000, patienceMs: 60_000 })
    // As many as may be under way while no limit is known.
    for (const _ of [1, 2]) await Promise.all([1, 2, 3, 4].map(() => failureOf(client.prompts(one, {}))))
    expect(client.budgetView(one).waits).toBe(0)
    service.behave(fine)
    await client.prompts(one, {})
    expect(client.budgetView(one).waits).toBe(0)
  })
})

describe('a request that waits', () => {
  test.each([
    ['for its next attempt', 503, 1],
    ['for the request budget', 429, 1],
    ['for a service that is down', 500, 12],
  ])('%s ends at once if it is stopped, and leaves no listener', async (_, status, requests) => {
    const headers: Record<string, string> = status === 500 ? {} : { 'retry-after': '200' }
    const service = await serve((_request, response) => json(response, status, {}, headers))
    const { client } = clientOf(service.url, { maxAttempts: 3, timeoutMs: 5000, patienceMs: 600_000 })
    const stop = new AbortController()
    let waits = 0
    const context = { signal: stop.signal, onWait: (ms: number) => void (ms > 100_000 && waits++) }
    const asked = Array.from({ length: requests }, () => failureOf(client.chats(one, range, context)))
    await until(() => waits >= requests)
    expect(getEventListeners(stop.signal, 'abort').length).toBeLessThanOrEqual(requests)
    stop.abort()
    for (const failure of await Promise.all(asked)) expect(failure).toBeInstanceOf(InterruptedError)
    expect(getEventListeners(stop.signal, 'abort')).toEqual([])
    const sent = service.seen.length
    await new Promise(setImmediate)
    expect(service.seen.length).toBe(sent)
  })
})

describe('work that waits for the service with others', () => {
  test('leaves no listener at their signal, whatever is collected as garbage meanwhile', async () => {
    const { signal } = new AbortController()
    let end = () => {}
    const work = new Promise<void>((done) => (end = done))
    const waits = Array.from({ length: 5 }, () => unlessStopped(work, signal))
    await new Promise(setImmediate)
    setFlagsFromString('--expose-gc')
    const collectGarbage = runInNewContext('gc') as () => void
    collectGarbage()
    end()
    await Promise.all(waits)
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })
})

describe('a host that cannot be reached', () => {
  test('a closed port is said once for all that is asked', async () => {
    const { client } = clientOf('http://127.0.0.1:1/v1', { timeoutMs: 5000, maxAttempts: 6 })
    const attempts: unknown[] = []
    const context = { onAttempt: (status: unknown) => void attempts.push(status) }
    const asked = [one, two].flatMap((caller) =>
      Array.from({ length: 20 }, () => failureOf(client.chats(caller, range, context))),
    )
    const failures = await Promise.all(asked)
    const [first] = failures
    expect(first).toBeInstanceOf(DownError)
    expect(first!.message).toContain('VISIBILITY_API_URL: 127.0.0.1:1 cannot be reached')
    expect(first!.message).toContain('ECONNREFUSED')
    expect(new Set(failures.map(({ message }) => message)).size).toBe(1)
    // Each of those that were sent at once has failed once; the rest are probes.
    expect(attempts.length).toBeLessThan(60)
  })

  test('an untrusted certificate is not retried', async () => {
    const service = await serve(fine, selfSigned())
    const { client } = clientOf(service.url, { timeoutMs: 5000, patienceMs: 60_000 })
    const attempts: unknown[] = []
    const failure = await failureOf(client.prompts(one, {}, { onAttempt: (status) => void attempts.push(status) }))
    expect(failure).toMatchObject({ code: 'service-down', message: expect.stringContaining('NODE_EXTRA_CA_CERTS') })
    expect(failure.message).toContain('not signed by an authority that is trusted here')
    expect(attempts).toHaveLength(1)
    expect(service.seen).toEqual([])
  })
})

describe('a host that speaks no TLS', () => {
  test('is not asked again, and its address is questioned', async () => {
    const service = await serve(fine)
    const { client } = clientOf(service.url.replace('http:', 'https:'), { timeoutMs: 5000, patienceMs: 60_000 })
    const attempts: unknown[] = []
    const failure = await failureOf(client.prompts(one, {}, { onAttempt: (status) => void attempts.push(status) }))
    expect(failure).toMatchObject({
      code: 'service-down',
      message: expect.stringContaining('is it an http:// address?'),
    })
    expect(attempts).toHaveLength(1)
  })
})

describe('the command', () => {
  const config = { source: { timeout_seconds: 1, patience_seconds: 2 }, streams: ['prompts', 'chats'], reports: [] }
  const env = (url: string, projects = 'or_1,or_2'): Record<string, string> => ({
    VISIBILITY_API_URL: url,
    VISIBILITY_API_KEY: 'the-secret-key',
    ...(projects === '' ? {} : { VISIBILITY_PROJECTS: projects }),
    DATABASE_URL: process.env.TEST_SERVER_URL!,
  })

  test('check trusts an authority that NODE_EXTRA_CA_CERTS names', async () => {
    const certificate = selfSigned()
    const service = await serve(fine, certificate)
    const file = join(temporaryFolder().path, 'authority.pem')
    writeFileSync(file, certificate.cert)
    const { stdout } = await runCli(['check'], { env: { ...env(service.url), NODE_EXTRA_CA_CERTS: file }, config })
    expect(stdout).toContain('✓ project or_1')
  })

  test('sync with a company key and no projects sends one request, and names the setting to add', async () => {
    const projects = { data: [{ id: 'or_1', name: 'Acme', status: 'active' }, { id: 'or_2' }] }
    const service = await serve((request, response) =>
      request.url?.startsWith('/v1/projects')
        ? json(response, 200, projects)
        : json(response, 400, { message: 'project_id is required when a company API key is used' }),
    )
    const result = await runCli(['sync'], { env: env(service.url, ''), config })
    expect(result.code).toBe(2)
    const told = `${result.stdout}${result.stderr}`
    expect(told).toContain('VISIBILITY_PROJECTS: got nothing')
    expect(told).toContain('or_1 (Acme), or_2')
    expect(told.match(/VISIBILITY_PROJECTS/g)!.length).toBe(1)
    expect(service.seen.map((line) => line.split('?')[0])).toEqual(['GET /v1/prompts', 'GET /v1/projects'])
  })

  test('a 403 is about the project only where the key can list several', async () => {
    const forbidding = (projects: number) => (request: IncomingMessage, response: ServerResponse) =>
      request.url?.startsWith('/v1/projects')
        ? json(response, projects === 0 ? 403 : 200, { data: [{ id: 'or_1' }] })
        : json(response, 403, { message: 'your plan does not cover this' })
    const nameless = { key: 'k', projectId: undefined }
    const company = clientOf((await serve(forbidding(1))).url).client
    expect(await failureOf(company.chats(nameless, range))).toBeInstanceOf(UsageError)
    const own = clientOf((await serve(forbidding(0))).url).client
    expect(await failureOf(own.chats(nameless, range))).toMatchObject({ code: 'project' })
  })
})

describe('a run', () => {
  /* Whole runs against a service that hangs, for all of it or for a part, and runs that take too long. */

  let setup: Setup

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

  test('with 16 requests at once prints no warning of Node, also while the service is down', async () => {
    await start({ faults: { ...NO_LIMIT, latency_ms: 100 } })
    const source = { ...(setup.fileConfig.source as object), concurrency: 16 }
    const options = { env: setup.env, config: { ...setup.fileConfig, source }, cwd: temporaryFolder().path }
    const first = await runCli(['sync'], options)
    expect([first.code, first.stderr]).toEqual([0, expect.not.stringContaining('Warning')])
    setup.service.setFaults({ ...NO_LIMIT, hang: 1 })
    const second = await runCli(['sync'], options)
    expect([second.code, second.stderr]).toEqual([1, expect.not.stringContaining('Warning')])
  })

  test('windows that the service cannot answer in time get shorter until it can', async () => {
    await start({ world: { projects: 1, prompts: 5, models: 2, brands: 3 } })
    const isLong = (url: string, body: string) => {
      const query = { ...Object.fromEntries(new URL(url, 'http://x').searchParams), ...(body && JSON.parse(body)) }
      return query.start_date !== undefined && countDays({ from: query.start_date, to: query.end_date }) > 3
    }
    const proxy = await startProxy(setup.service.url, ({ url }, body) => isLong(url!, body), 0)
    const report = await setup.through(proxy.url, () => setup.sync(), { timeoutMs: 500, patienceMs: 2000 })
    expect([report.outcome, failures(report)]).toEqual(['complete', []])
    await exact()
  })

  test('an address where nothing listens is reported in one sentence, with exit 1', async () => {
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
})
