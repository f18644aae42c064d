import { beforeAll, expect, test } from '@jest/globals'
import { parse } from 'csv-parse/sync'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { openOverHttp } from './support/assistant.ts'
import { type RunningCli, startCli } from './support/cli.ts'
import { get, getAs, NEVER } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'

/* The tools for assistants at /mcp of the real `serve`, and the same numbers on its pages. */

const TOKEN = 'a-token-of-tests-that-is-long'
const RANGE = { from: '2026-03-02', to: '2026-03-29' }
let setup: Setup
let running: RunningCli
let url: string
let project: string

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 1, prompts: 16, models: 3, brands: 5 },
    config: { start_date: '2026-01-05', end_date: '2026-03-31', reports: DEFAULT_REPORTS },
  })
  const config = {
    ...setup.fileConfig,
    schedule: { cron: NEVER, audit_cron: NEVER },
    mcp: { database_url: setup.env.DATABASE_URL },
  }
  running = startCli(['serve', '--port', '0'], { env: { ...setup.env, VISIBILITY_TOKEN: TOKEN }, config })
  await running.saw('run ended')
  url = /Serving: +(\S+)/.exec(running.output())![1]!
  project = setup.projects[0]!.id
})

/** The rows of a section as the pages give them. */
async function csv(section: string): Promise<Record<string, string>[]> {
  const { from, to } = RANGE
  const { text } = await get(`${url}/insights/${section}.csv?project=${project}&from=${from}&to=${to}`)
  return parse(text, { columns: true }) as Record<string, string>[]
}

test.each(['auto', 'legacy'] as const)('tools and pages have the same numbers (protocol: %s)', async (mode) => {
  const assistant = await openOverHttp(url, TOKEN, mode)
  const { data } = await assistant.ask('get_visibility', RANGE)
  const summary = await csv('summary')
  expect(data.rows.map(({ metric, value, sample }: any) => [metric, value, sample])).toEqual(
    summary.map(({ metric, value, sample }) => [metric, Number(value), Number(sample)]),
  )
  const leads = await assistant.ask('compare_brands', RANGE)
  expect(leads.data.rows.map(({ rival_brand, lead_verdict }: any) => [rival_brand, lead_verdict])).toEqual(
    (await csv('head-to-head')).map(({ rival_brand, lead_verdict }) => [rival_brand, lead_verdict]),
  )
  const changes = await assistant.ask('find_changes', { ...RANGE, brand: 'all', limit: 50 })
  const movers = (await csv('movers')).filter(({ q_value, clarity }) => Number(q_value) <= 0.1 && Number(clarity) > 1)
  const clear = movers.filter(({ q_value, verdict }) => q_value !== '' && ['up', 'down'].includes(verdict!))
  expect(changes.data.total_rows).toBe(clear.length)
  expect(changes.data.rows.map(({ brand, topic, q_value }: any) => [brand, topic, q_value])).toEqual(
    clear.slice(0, changes.data.rows.length).map(({ brand, topic, q_value }) => [brand, topic, Number(q_value)]),
  )
})

test('each answer has the link to its page, which shows the same period', async () => {
  const assistant = await openOverHttp(url, TOKEN)
  const [{ topics }] = (await assistant.ask('list_projects')).data.rows
  const calls: [string, object][] = [
    ['list_projects', {}],
    ['get_visibility', RANGE],
    ['get_visibility', { ...RANGE, topic: topics[0] }],
    ['get_visibility', { by: 'month' }],
    ['get_visibility', { by: 'day', ...RANGE, compare: 'year' }],
    ['compare_brands', { ...RANGE, by: 'topic' }],
    ['find_changes', RANGE],
    ['find_gaps', RANGE],
    ['explain_day', { day: '2026-03-20' }],
    ['check_data', {}],
  ]
  for (const [tool, question] of calls) {
    const { data, text } = await assistant.ask(tool, question as Record<string, unknown>)
    expect(text).toContain(`Page: ${url}/`)
    const page = await get(data.link)
    expect([tool, page.status]).toEqual([tool, 200])
    if (data.period !== null) expect(page.text).toContain(data.period.to)
  }
})

test('without the token, with a wrong one, or from a foreign origin or name, nothing is answered', async () => {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} })
  const json = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
  const asked = (headers: Record<string, string>) =>
    get(`${url}/mcp`, { method: 'POST', headers: { ...json, ...headers }, body })
  const own = { authorization: `Bearer ${TOKEN}` }
  expect((await asked({})).status).toBe(401)
  expect((await asked({ authorization: 'Bearer something-else' })).status).toBe(401)
  expect((await asked({ ...own, origin: 'https://evil.example' })).status).toBe(403)
  expect((await asked({ ...own, origin: 'null' })).status).toBe(403)
  expect((await getAs(`${url}/mcp`, 'evil.example')).status).toBe(421)
  expect((await asked({ ...own, origin: url })).status).toBe(200)
  await expect(openOverHttp(url, 'something-else')).rejects.toThrow()
})

test('other methods and bodies that are not of the protocol end with a sentence', async () => {
  const headers = {
    authorization: `Bearer ${TOKEN}`,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
  }
  expect((await get(`${url}/mcp`, { headers })).status).toBe(405)
  for (const body of [
    '',
    '{',
    '[]',
    '{"jsonrpc":"2.0"}',
    JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'x'.repeat(20_000) }),
  ])
    expect((await get(`${url}/mcp`, { method: 'POST', headers, body })).status).toBeGreaterThanOrEqual(400)
  const listen = { jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params: { notifications: {} } }
  expect((await get(`${url}/mcp`, { method: 'POST', headers, body: JSON.stringify(listen) })).text).toContain('error')
})

test('ten questions at once get the same answer, and the pages go on', async () => {
  const assistant = await openOverHttp(url, TOKEN)
  const asked = Array.from({ length: 10 }, () => assistant.ask('get_visibility', RANGE))
  const page = await get(`${url}/insights`)
  const answers = await Promise.all(asked)
  expect(new Set(answers.map(({ text }) => text)).size).toBe(1)
  expect([answers[0]!.isError, page.status]).toEqual([false, 200])
})

test('a server without a token has no such address', async () => {
  const bare = startCli(['serve', '--port', '0'], {
    env: setup.env,
    config: { ...setup.fileConfig, schedule: { cron: NEVER, audit_cron: NEVER } },
  })
  await bare.saw('Serving:')
  const address = /Serving: +(\S+)/.exec(bare.output())![1]!
  expect((await get(`${address}/mcp`, { method: 'POST' })).status).toBe(404)
})
