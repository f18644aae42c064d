import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterEach, expect, test } from '@jest/globals'
import { startProcess } from './support/cli.ts'
import { longTest } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'

/* The real command, on answers made to take as much memory as 63 MB can. `bench/answer-memory.mjs` knows more of them. */

const BYTES = 63 * 1_048_576
// The bar is 350 MB; the rest is for other versions of Node and other machines. Without bounds it was 1,600 and more.
const MOST_MB = 450
const TELLS_ITS_PEAK = `data:text/javascript,process.on('exit',()=>process._rawDebug('peak',process.resourceUsage().maxRSS/1024))`

let database: TestDatabase
const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
  await database.drop()
})

/** What the command says of an answer, and its peak in MB. */
async function peakFor(stream: string, body: Buffer): Promise<{ said: string; code: number | null; peak: number }> {
  database = await createDatabase()
  const packed = gzipSync(body, { level: 1 })
  const server = createServer((request, response) => {
    request.resume()
    request.on('end', () =>
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(packed),
    )
  })
  // While an answer is parsed its connection is idle.
  server.keepAliveTimeout = 60_000
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  closers.push(() => {
    server.closeAllConnections()
    return new Promise((done) => server.close(done))
  })
  const cli = startProcess(['sync', '--stream', stream, '--json'], {
    env: {
      NODE_OPTIONS: `--import="${TELLS_ITS_PEAK}"`,
      VISIBILITY_API_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
      VISIBILITY_API_KEY: 'key',
      VISIBILITY_PROJECTS: 'or_1',
      DATABASE_URL: database.url,
    },
    config: {
      source: { max_attempts: 1, patience_seconds: 1 },
      start_date: '2026-03-31',
      end_date: '2026-03-31',
      reports: [{ name: 'brand_daily', dimensions: ['date'] }],
    },
  })
  const { code, stdout, stderr } = await cli.done
  return { said: stdout + stderr, code, peak: Number(/peak ([\d.]+)/.exec(stderr)?.[1]) }
}

const filled = (start: string, piece: string, end: string) =>
  Buffer.concat([
    Buffer.from(start),
    Buffer.alloc(Math.floor((BYTES - 100) / piece.length) * piece.length, piece),
    Buffer.from(end),
  ])

test('63 MB of empty rows are refused early, with what was asked for and what came', async () => {
  const { said, code, peak } = await peakFor('brand_daily', filled('{"data":[{}', ',{}', ']}'))
  expect(code).toBe(1)
  expect(said).toContain('asked for at most 10,000 items and got more than 20,000 items')
  expect(peak).toBeGreaterThan(50)
  expect(peak).toBeLessThan(MOST_MB)
})

longTest('63 MB of lists in lists are refused, and take no more memory than they have bytes', async () => {
  const half = Math.floor(BYTES / 2) - 100
  const body = Buffer.concat([
    Buffer.from('{"data":['),
    Buffer.alloc(half, '['),
    Buffer.alloc(half, ']'),
    Buffer.from(']}'),
  ])
  const { said, code, peak } = await peakFor('prompts', body)
  expect(code).toBe(1)
  // It is asked for once more, because nothing says how many rows there are.
  expect(said).toMatch(/the page has \d+ bytes, more than the 16777216 that can be kept at once/)
  expect(peak).toBeLessThan(MOST_MB)
})

longTest('a full page of rows that are 63 MB of empty objects is refused, not kept', async () => {
  const row = `{"x":[${'{},'.repeat(2050)}{}]}`
  const body = Buffer.from(`{"data":[${Array.from({ length: 10_000 }, () => row).join(',')}]}`)
  const { said, code, peak } = await peakFor('prompts', body)
  expect(code).toBe(1)
  expect(said).toMatch(/the page has \d+ bytes, more than the 16777216 that can be kept at once/)
  expect(peak).toBeLessThan(MOST_MB)
})
