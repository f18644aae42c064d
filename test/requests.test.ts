import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { type CliResult, runCli } from './support/cli.ts'
import { FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

let setup: Setup
let first: CliResult
let requestsOfFirst: Setup['service']['requests']
const range = { from: '2025-12-21', to: '2026-03-31' }

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 1, prompts: 20, models: 3, brands: 6 },
    config: { start_date: range.from, end_date: range.to },
  })
  first = await runCli(['sync', '--json'], { env: setup.env, config: setup.fileConfig })
  requestsOfFirst = [...setup.service.requests]
})
afterAll(() => setup.close())

test('100 days at four grains cost close to rows / 10,000 requests, none of them by offset', async () => {
  expect(first.code).toBe(0)
  const { streams } = first.json()
  const pages = streams.reduce(
    (sum: number, stream: { rows_read: number }) => sum + Math.ceil(stream.rows_read / 10_000),
    0,
  )
  const requests = requestsOfFirst
  expect(requests.length).toBeLessThanOrEqual(1.35 * pages + 12)
  // Only one row after the last of a page is asked for by offset.
  const isPage = ({ query, body }: (typeof requests)[number]) => Number(query.limit ?? body.limit) > 1
  const byOffset = requests.filter(({ query, body }) => Number(query.offset ?? body.offset ?? 0) > 0)
  expect(byOffset.filter(isPage)).toEqual([])
  await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
})

test('once its density is known, a stream costs at most 1.1 × rows / 10,000 + 2 requests', async () => {
  setup.service.requests.length = 0
  const result = await runCli(['backfill', '--from', range.from, '--to', range.to, '--stream', 'by_prompt', '--json'], {
    env: setup.env,
    config: setup.fileConfig,
  })
  expect(result.code).toBe(0)
  const [stream] = result.json().streams
  expect(stream.rows_read).toBeGreaterThan(30_000)
  expect(setup.service.requests.length).toBeLessThanOrEqual(1.1 * (stream.rows_read / 10_000) + 2)
  expect(stream.unchanged).toBe(stream.rows_read)
})
