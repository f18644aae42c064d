import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import {
  InterruptedError,
  KeyError,
  ProjectError,
  RefusedError,
  TransientError,
  UsageError,
} from '../src/core/errors.ts'
import { type ReferenceService, startReference } from '../src/reference/server.ts'
import { COMPANY_KEY, createWorld } from '../src/reference/world.ts'
import type { Client, ClientOptions } from '../src/source/client.ts'
import { readRateHeaders } from '../src/source/rate-headers.ts'
import { isTriedAgain, retryDelayMs } from '../src/source/retry-policy.ts'
import { closeLater } from './support/close-later.ts'
import { listening, openClient } from './support/proxy.ts'

/** A server that answers as told and remembers what it was asked. */
async function serve(
  answer: (request: IncomingMessage, response: ServerResponse, count: number, body: string) => void,
) {
  const seen: { url: string; headers: IncomingMessage['headers']; body: string }[] = []
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      seen.push({ url: request.url ?? '', headers: request.headers, body })
      answer(request, response, seen.length, body)
    })
  })
  const { origin } = await listening(server)
  return { url: `${origin}/v1`, seen }
}

const clientOf = (baseUrl: string, options: Partial<ClientOptions> = {}) =>
  openClient(baseUrl, { compress: true, requestsPerMinute: 10_000, maxAttempts: 4, timeoutMs: 5000, ...options })

const json = (response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) => {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}
const caller = { key: 'the-secret-key', projectId: 'or_1' }
const chats = { start_date: '2026-01-01', end_date: '2026-01-02' }

describe('against the reference service', () => {
  let service: ReferenceService
  beforeAll(async () => {
    service = await startReference({
      world: createWorld({ restating: false }),
      faults: { rate_limit: null },
      compress: true,
    })
  })
  afterAll(() => service.close())

  test('all ten operations work with a company key and with a project key', async () => {
    const client = clientOf(service.url)
    const [first, second] = service.world.projects
    for (const who of [
      { key: COMPANY_KEY, projectId: first!.id },
      { key: second!.key, projectId: undefined },
    ]) {
      const range = { start_date: '2026-01-01', end_date: '2026-01-02' }
      expect((await client.brandsReport(who, { ...range, dimensions: ['date'] })).items.length).toBe(10)
      expect((await client.projectProfile(who)).profile).toMatchObject({ industry: 'Sporting goods' })
      expect(await client.prompts(who, { limit: 5 })).toMatchObject({ total: 24, items: { length: 5 } })
      expect((await client.promptSuggestions(who, {})).items.length).toBe(8)
      expect((await client.domainClassifications(who, {})).total).toBe(3)
      expect((await client.chats(who, range)).items.length).toBe(192)
      expect(await client.createTopic(who, { name: 'New topic', country_code: 'DE' })).toEqual({
        id: expect.stringMatching(/^to_/),
      })
      expect(await client.createPrompt(who, { text: 'Short one?', country_code: 'DE' })).toEqual({
        id: expect.stringMatching(/^pr_/),
        warning: expect.any(String),
      })
      expect(await client.createDomainClassification(who, { name: 'Blogs', color: 'teal' })).toEqual({
        name: 'Blogs',
        color: 'teal',
      })
      expect(await client.createUrlClassification(who, { name: 'Landing pages' })).toEqual({
        name: 'Landing pages',
        color: 'orange',
      })
    }
  })

  test('a wrong key, a foreign project and a company key without a project are told apart', async () => {
    const client = clientOf(service.url)
    await expect(client.prompts({ key: 'wrong', projectId: undefined }, {})).rejects.toBeInstanceOf(KeyError)
    await expect(client.prompts({ key: COMPANY_KEY, projectId: 'or_foreign' }, {})).rejects.toBeInstanceOf(ProjectError)
    await expect(client.prompts({ key: COMPANY_KEY, projectId: undefined }, {})).rejects.toThrow(
      'project_id is required',
    )
  })
})

describe('limits are checked before anything is sent', () => {
  const attempts: [string, (client: Client) => Promise<unknown>, string][] = [
    ['a limit of 10,001', (client) => client.chats(caller, { ...chats, limit: 10_001 }), 'limit from 1 to 10000'],
    [
      'an unknown dimension',
      (client) => client.brandsReport(caller, { dimensions: ['brand_id' as never] }),
      'dimensions',
    ],
    [
      'a filter without values',
      (client) => client.brandsReport(caller, { filters: [{ field: 'topic_id', operator: 'in', values: [] }] }),
      'filters',
    ],
  ]
  test.each(attempts)('%s', async (_, attempt, told) => {
    const { url, seen } = await serve((_request, response) => json(response, 200, { data: [] }))
    const failure = (async () => attempt(clientOf(url)))()
    await expect(failure).rejects.toBeInstanceOf(UsageError)
    await expect(failure).rejects.toThrow(told)
    expect(seen).toEqual([])
  })
})

describe('faults', () => {
  test('an answer with status 202 or 206, or that says that it failed, is not taken for the whole', async () => {
    const { url, seen } = await serve((_request, response, count) =>
      json(
        response,
        [206, 202, 200, 200][count - 1]!,
        count < 4 ? { data: [], status: 'error' } : { data: [{ id: 'c' }] },
      ),
    )
    expect((await clientOf(url).chats(caller, chats)).items.length).toBe(1)
    expect(seen.length).toBe(4)
  })

  test('a 408, 425, 429, 500, 502, 503 or 504 is retried, for the report too, which is a POST that reads', async () => {
    const isRetried = async (status: number) => {
      const { url, seen } = await serve((_request, response, count) =>
        count < 3
          ? json(response, status, { message: 'later' }, { 'retry-after': '0' })
          : json(response, 200, { data: [1] }),
      )
      const { items } = await clientOf(url).brandsReport(caller, { dimensions: ['date'] })
      expect({ status, items, requests: seen.length }).toEqual({ status, items: [1], requests: 3 })
    }
    await Promise.all([408, 425, 429, 500, 502, 503, 504].map(isRetried))
  })

  test.each([400, 404])('a %d is not', async (status) => {
    const { url, seen } = await serve((_request, response) => json(response, status, { message: 'no' }))
    await expect(clientOf(url).prompts(caller, {})).rejects.toMatchObject({
      status,
      message: expect.stringContaining(`HTTP ${status}: no`),
    })
    expect(seen.length).toBe(1)
  })

  test('resets, truncated bodies, half JSON, web pages and wrong shapes are retried, and counted by kind', async () => {
    const ofType = (response: ServerResponse, type: string, more: Record<string, string> = {}) =>
      response.writeHead(200, { 'content-type': type, ...more })
    const faults: Record<string, (request: IncomingMessage, response: ServerResponse) => unknown> = {
      reset: (request) => request.socket.destroy(),
      truncated: (request, response) =>
        ofType(response, 'application/json', { 'content-length': '100' }).write('{"data":[', () =>
          request.socket.destroy(),
        ),
      'another shape': (_, response) => json(response, 200, { ok: true }),
      'half JSON': (_, response) => ofType(response, 'application/json').end('{"data":[1,'),
      'a web page': (_, response) => ofType(response, 'text/html').end('<html></html>'),
      'a broken gzip': (_, response) =>
        ofType(response, 'application/json', { 'content-encoding': 'gzip' }).end(
          gzipSync('{"data":[1]}').subarray(0, 15),
        ),
      'no text': (_, response) => ofType(response, 'application/json').end(Buffer.from([0x7b, 0xff, 0x7d])),
    }
    const isRetried = async ([name, fault]: [string, (typeof faults)[string]]) => {
      const { url, seen } = await serve((request, response, count) =>
        count === 1 ? fault(request, response) : json(response, 200, { data: [7] }),
      )
      const statuses: (number | undefined)[] = []
      const { items } = await clientOf(url).prompts(caller, {}, { onAttempt: (status) => void statuses.push(status) })
      const found = { name, items, requests: seen.length, retries: statuses.filter(isTriedAgain).length }
      expect(found).toEqual({ name, items: [7], requests: 2, retries: 1 })
    }
    await Promise.all(Object.entries(faults).map(isRetried))
  })

  test('creations are never sent twice', async () => {
    const { url, seen } = await serve((request) => request.socket.destroy())
    await expect(clientOf(url).createTopic(caller, { name: 'x' })).rejects.toBeInstanceOf(TransientError)
    expect(seen.length).toBe(1)
  })

  test('an answer larger than the limit is refused, packed or not', async () => {
    const large = JSON.stringify({ data: ['x'.repeat(3_000_000)] })
    const plain = await serve((_request, response) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(large),
    )
    const statuses: (number | undefined)[] = []
    const refused = clientOf(plain.url, { maxResponseBytes: 1_048_576 }).prompts(
      caller,
      {},
      { onAttempt: (status) => void statuses.push(status) },
    )
    await expect(refused).rejects.toThrow('larger than 1 MB')
    expect(statuses).toEqual([200])
    const packed = await serve((_request, response) =>
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(gzipSync(large)),
    )
    await expect(clientOf(packed.url, { maxResponseBytes: 1_048_576 }).prompts(caller, {})).rejects.toThrow(
      'larger than 1 MB',
    )
    expect(packed.seen.length).toBe(1)
  })

  test('answers that are read side by side do not mix', async () => {
    const { url } = await serve((request, response) => {
      const limit = Number(new URL(request.url!, 'http://x').searchParams.get('limit'))
      const data = Array.from({ length: limit }, (_, index) => ({ id: `pr_${limit}_${index}`, text: 'x'.repeat(99) }))
      const text = JSON.stringify({ data })
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' })
      response.end(gzipSync(text, { level: 1 }))
    })
    const client = clientOf(url)
    const read = async (limit: number) => {
      const { items } = await client.prompts(caller, { limit })
      return items.map((item) => (item as { id: string }).id)
    }
    for (const limits of [
      [9000, 1, 40, 5000],
      [7, 9500, 6000],
    ]) {
      const wanted = limits.map((limit) => Array.from({ length: limit }, (_, index) => `pr_${limit}_${index}`))
      expect(await Promise.all(limits.map(read))).toEqual(wanted)
    }
  })

  test('a large answer that waits for another one can be interrupted, and holds up no later one', async () => {
    const PIECES = 300
    const sent: number[] = []
    const { url } = await serve((_request, response, count) => {
      const pieces = function* () {
        for (sent[count] = 0; sent[count]! < PIECES; sent[count]!++)
          yield `${sent[count] === 0 ? '{"data":["' : ''}${'x'.repeat(65_536)}`
        // The first never ends.
        yield count > 1 ? '"]}' : '"]'
      }
      response.writeHead(200, { 'content-type': 'application/json' })
      Readable.from(pieces()).pipe(response, { end: count > 1 })
    })
    const isHeld = async (count: number) => {
      for (let before = -1; sent[count] === undefined || before !== sent[count]; await sleep(500)) before = sent[count]!
    }
    const client = clientOf(url, { timeoutMs: 120_000 })
    const read = (stop: AbortController) => client.prompts(caller, {}, { signal: stop.signal })
    const [stuck, waiting] = [new AbortController(), new AbortController()]
    const first = read(stuck)
    while (sent[1] !== PIECES) await sleep(20)
    const second = read(waiting)
    await isHeld(2)
    const third = read(new AbortController())
    await isHeld(3)
    waiting.abort()
    await expect(second).rejects.toBeInstanceOf(InterruptedError)
    await isHeld(3)
    expect(sent[3]).toBeLessThan(PIECES)
    stuck.abort()
    await expect(first).rejects.toBeInstanceOf(InterruptedError)
    expect((await third).items).toHaveLength(1)
  })

  test('a clock that differs by more than a day from that of the service is an error, sent once', async () => {
    const { url, seen } = await serve((_, response) => json(response, 200, { data: [] }))
    const ahead = (ms: number) => clientOf(url, { clock: () => new Date(Date.now() + ms) })
    await expect(ahead(-90_000_000).prompts(caller, {})).rejects.toThrow('the clocks differ by more than a day')
    expect(seen).toHaveLength(1)
    expect((await ahead(80_000_000).prompts(caller, {})).items).toEqual([])
  })

  test('a redirect is refused, so the key never follows it to another host', async () => {
    const other = await serve((_request, response) => json(response, 200, { data: [] }))
    const { url } = await serve((_request, response) =>
      response.writeHead(302, { location: `${other.url}/prompts` }).end(),
    )
    await expect(clientOf(url).prompts(caller, {})).rejects.toThrow('redirects are not followed')
    expect(other.seen).toEqual([])
  })

  test('the key is sent in its header only, and appears in no error', async () => {
    const { url, seen } = await serve((_request, response) =>
      json(response, 418, { message: `you sent the-secret-key, ${'long '.repeat(500)}` }),
    )
    const failure: Error = await clientOf(url)
      .chats(caller, chats)
      .then(
        () => new Error('was accepted'),
        (error) => error,
      )
    expect(failure).toBeInstanceOf(RefusedError)
    expect(JSON.stringify({ ...failure, message: failure.message, stack: failure.stack })).not.toContain(
      'the-secret-key',
    )
    expect(failure.message.length).toBeLessThan(500)
    expect(seen[0]!.headers['x-api-key']).toBe('the-secret-key')
    expect(seen[0]!.url).not.toContain('the-secret-key')
    // Of a long body only the beginning is read, which is no JSON.
    const spelled = Array.from('the-secret-key', (letter) => `\\u00${letter.charCodeAt(0).toString(16)}`).join('')
    const escaped = await serve((_request, response) =>
      response
        .writeHead(418, { 'content-type': 'application/json' })
        .end(`{"message":"you sent ${spelled}, ${'long '.repeat(50_000)}"}`),
    )
    await expect(clientOf(escaped.url).chats(caller, chats)).rejects.toThrow('you sent [redacted')
    const dead = clientOf('http://127.0.0.1:1/v1', { maxAttempts: 1, patienceMs: 100 })
    const refused: Error = await dead.chats(caller, chats).then(
      () => new Error('was accepted'),
      (error) => error,
    )
    expect(refused.message).toContain('ECONNREFUSED')
    expect(JSON.stringify({ ...refused, stack: refused.stack, cause: refused.cause })).not.toContain('the-secret-key')
  })

  test('a wrong key is recognised whatever its answer is made of, and never printed in part', async () => {
    const latin = await serve((_request, response) =>
      response.writeHead(401, { 'content-type': 'text/plain' }).end(Buffer.from([0xe9, 0x20, 0xff])),
    )
    await expect(clientOf(latin.url).prompts(caller, {})).rejects.toBeInstanceOf(KeyError)
    expect(latin.seen.length).toBe(1)
    const plain = await serve((_request, response) => json(response, 400, { message: 'Invalid key' }))
    await expect(clientOf(plain.url).prompts(caller, {})).rejects.toBeInstanceOf(KeyError)
    const long = await serve((_request, response) =>
      json(response, 401, { message: `${'x'.repeat(292)} the-secret-key` }),
    )
    await expect(clientOf(long.url).prompts(caller, {})).rejects.toThrow(/^(?!.*the-sec)/s)
  })
})

describe('the request budget', () => {
  test('reads the headers of every known kind', () => {
    const at = Date.parse('2026-01-01T00:00:00Z')
    expect(
      readRateHeaders({ 'x-ratelimit-limit': '200', 'x-ratelimit-remaining': '3', 'x-ratelimit-reset': '17' }, at),
    ).toEqual({ limit: 200, remaining: 3, resetMs: 17_000 })
    expect(
      readRateHeaders({ 'ratelimit-limit': '200;w=60', 'ratelimit-remaining': '3', 'ratelimit-reset': '17' }, at),
    ).toEqual({ limit: 200, remaining: 3, resetMs: 17_000 })
    expect(readRateHeaders({ ratelimit: '"default";r=50;t=30' }, at)).toEqual({ remaining: 50, resetMs: 30_000 })
    expect(readRateHeaders({ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(at / 1000 + 9) }, at)).toEqual({
      remaining: 0,
      resetMs: 9000,
    })
    expect(readRateHeaders({ 'x-ratelimit-reset': '2026-01-01T00:00:30Z' }, at)).toEqual({ resetMs: 30_000 })
    expect(readRateHeaders({ 'retry-after': '7' }, at)).toEqual({ retryAfterMs: 7000 })
    expect(readRateHeaders({ 'retry-after': 'Thu, 01 Jan 2026 00:00:20 GMT' }, at)).toEqual({ retryAfterMs: 20_000 })
    expect(readRateHeaders({ 'x-ratelimit-limit': 'plenty' }, at)).toEqual({})
  })

  test('waits longer after each fault, never less than the service asked for', () => {
    expect([1, 2, 3].map((attempt) => retryDelayMs(attempt, undefined, () => 1))).toEqual([400, 800, 1600])
    expect(retryDelayMs(30, undefined, () => 1)).toBe(20_000)
    expect(retryDelayMs(1, 9000, () => 0)).toBe(9000)
  })

  test('keeps a burst within the limit of the service: not one request is refused', async () => {
    const service = await startReference({
      world: createWorld({ restating: false }),
      faults: { rate_limit: 10, rate_window_ms: 1000 },
    })
    closeLater(() => service.close())
    const client = clientOf(service.url)
    const who = { key: COMPANY_KEY, projectId: service.world.projects[0]!.id }
    await client.prompts(who, {})
    await Promise.all(Array.from({ length: 25 }, () => client.prompts(who, {})))
    expect(service.requests.filter(({ status }) => status === 429)).toEqual([])
    expect(service.requests.length).toBe(26)
  })
})
