import { readFileSync } from 'node:fs'
import { afterEach, expect, test } from '@jest/globals'
import { type RunningCli, runCli, startCli, startProcess } from './support/cli.ts'
import { longTest, sized } from './support/long.ts'
import { get, NEVER, startWebhook, until } from './support/serve.ts'
import { type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

let setup: Setup
let running: RunningCli | undefined
afterEach(async () => {
  running?.stop()
  await running?.done
  running = undefined
  await setup.close()
})

const SMALL = { projects: 1, prompts: 5, models: 2, brands: 3 }
const range = { from: '2026-03-01', to: '2026-03-31' }
const TOKEN = 'a-token-for-tests'

/** Starts the real command and gives its address. */
async function serve(settings: Record<string, unknown> = {}, env: Record<string, string> = {}): Promise<string> {
  const config = { ...setup.fileConfig, schedule: { cron: NEVER, audit_cron: NEVER }, ...settings }
  running = startCli(['serve', '--port', '0'], { env: { ...setup.env, ...env }, config })
  await running.saw('Schedule:')
  return /Serving: +(\S+)/.exec(running.output())![1]!
}

const start = async (options: SetupOptions = {}) => {
  setup = await setUp({ world: SMALL, ...options })
}
const bearer = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }

const ended =
  (command = 'sync') =>
  async () =>
    (
      await setup.database.rows('select 1 from visibility_ops.runs where command = $1 and outcome is not null', [
        command,
      ])
    ).length > 0

test('it syncs at the start when something is due, and shows it everywhere', async () => {
  await start()
  const url = await serve()
  expect(new URL(url).hostname).toBe('127.0.0.1')
  await until(ended())
  expect((await get(`${url}/healthz`)).json()).toEqual({ alive: true })
  // Probes are told what was read last.
  await until(async () => (await get(`${url}/readyz`)).status === 200)
  expect((await get(`${url}/readyz`)).json()).toEqual({ ready: true })
  await until(async () => (await get(`${url}/api/status`)).json().running === null)
  const status = (await get(`${url}/api/status`)).json()
  expect(status).toMatchObject({
    synced: true,
    running: null,
    alerts: [],
    next_sync: expect.stringContaining('-01-01T'),
  })
  expect(status.runs[0]).toMatchObject({ command: 'sync', outcome: 'complete' })
  await until(async () => (await get(`${url}/metrics`)).text.includes('stream="brand_daily"'))
  const metrics = (await get(`${url}/metrics`)).text
  expect(metrics).toContain('visibility_sync_runs_total{command="sync",outcome="complete"} 1')
  expect(metrics).toContain('visibility_sync_runs_total{command="audit",outcome="failed"} 0')
  expect(metrics).toContain('visibility_sync_database_up 1')
  expect(metrics).toMatch(/visibility_sync_rows_total\{stream="chats",effect="inserted"\} \d+/)
  expect(metrics).toMatch(/visibility_sync_requests_total\{status="200"\} \d+/)
  expect(metrics).toMatch(/visibility_sync_staleness_seconds\{project="or_[^"]+",stream="brand_daily"\} \d/)
  const page = await get(`${url}/`)
  expect(page.text).toContain('Everything is fresh and complete.')
  expect(page.headers.get('content-security-policy')).toContain("default-src 'none'")
  expect((await get(`${url}/insights`)).status).toBe(200)
  expect((await get(`${url}/nowhere`)).status).toBe(404)
  // Nothing secret is shown, whoever asks.
  for (const path of ['/', '/insights', '/api/status', '/metrics'])
    expect((await get(url + path)).text).not.toContain(setup.env.VISIBILITY_API_KEY)
  running!.stop()
  expect((await running!.done).code).toBe(0)
  await expectExact(setup.database, {
    world: setup.service.world,
    range,
    reports: (setup.fileConfig as { reports: never }).reports,
  })
})

test('without a token nothing can be started, and with one only by who has it', async () => {
  await start()
  const url = await serve()
  const body = JSON.stringify({ from: '2026-03-01', to: '2026-03-02' })
  expect((await get(`${url}/api/backfills`, { method: 'POST', headers: bearer, body })).status).toBe(404)
  expect((await get(`${url}/api/runs/1`, { headers: bearer })).status).toBe(404)
  running!.stop()
  await running!.done

  const opened = await serve({}, { VISIBILITY_TOKEN: TOKEN })
  await until(async () => (await get(`${opened}/api/status`)).json().running === null && (await ended()()))
  const post = (text: string, headers: Record<string, string> = bearer) =>
    get(`${opened}/api/backfills`, { method: 'POST', headers, body: text })
  expect((await post(body, { ...bearer, authorization: 'Bearer wrong' })).status).toBe(401)
  expect((await post(body, { 'content-type': 'application/json' })).status).toBe(401)
  expect((await get(`${opened}/api/runs/1`)).status).toBe(401)
  for (const bad of ['{', '{}', '{"from":"2026-02-30","to":"2026-03-01"}', '{"from":"2026-03-02","to":"2026-03-01"}'])
    expect((await post(bad)).status).toBe(400)
  expect(
    (await post(JSON.stringify({ from: '2026-03-01', to: '2026-03-02', streams: ['nonsense'] }))).json().error,
  ).toContain('nonsense')
  expect((await post(JSON.stringify({ from: '2026-03-01', to: '2026-03-02', projects: ['or_x'] }))).status).toBe(400)
  expect((await post('{"from":"2019-12-31","to":"2026-03-01"}')).json().error).toContain('(earliest_date) or later')
  expect((await post(JSON.stringify({ from: 'x'.repeat(20_000), to: '' }))).status).toBe(413)
  let made = await post(body)
  // The sync of the start is closed in the ledger a moment before it gives its turn away.
  await until(async () => made.status === 202 || (made = await post(body)).status === 202)
  const { run_id } = made.json()
  expect(made.headers.get('location')).toBe(`/api/runs/${run_id}`)
  await until(ended('backfill'))
  expect((await get(`${opened}/api/runs/${run_id}`, { headers: bearer })).json()).toMatchObject({
    run_id,
    command: 'backfill',
    outcome: 'complete',
  })
  expect((await get(`${opened}/api/runs/999999`, { headers: bearer })).status).toBe(404)
})

test('asked to stop during a run it exits 0, and the next start completes it', async () => {
  await start({ faults: { rate_limit: null, latency_ms: 300 } })
  const url = await serve()
  await until(async () => ((await get(`${url}/api/status`)).json().running?.done ?? 0) > 0)
  const busy = await get(`${url}/`)
  expect(busy.text).toContain('Running now')
  running!.stop()
  expect((await running!.done).code).toBe(0)
  expect(await setup.database.rows('select outcome from visibility_ops.runs')).toEqual([{ outcome: 'interrupted' }])
  setup.service.setFaults({ rate_limit: null })
  await serve()
  await until(
    async () => (await setup.database.rows("select 1 from visibility_ops.runs where outcome = 'complete'")).length > 0,
  )
  running!.stop()
  expect((await running!.done).code).toBe(0)
})

test('under a cron of every second it neither overlaps nor leaks connections', async () => {
  await start({ world: { ...SMALL, prompts: 2 } })
  await serve({ schedule: { cron: '* * * * * *', audit_cron: NEVER } })
  const runs = () =>
    setup.database.rows<{ started_at: Date; ended_at: Date | null; outcome: string | null }>(
      'select started_at, ended_at, outcome from visibility_ops.runs order by run_id',
    )
  const connections: number[] = []
  const most = sized(5, 40)
  await until(async () => {
    const [row] = await setup.database.rows<{ n: number }>(
      "select count(*)::int as n from pg_stat_activity where datname = current_database() and application_name like 'visibility-sync%'",
    )
    connections.push(row!.n)
    return (await runs()).length > most
  })
  const all = await runs()
  for (let index = 1; index < all.length; index++)
    expect(all[index - 1]!.ended_at!.getTime()).toBeLessThanOrEqual(all[index]!.started_at.getTime())
  expect(all.slice(0, -1).every(({ outcome }) => outcome === 'complete')).toBe(true)
  // Six of runs, two of pages, one that watches.
  expect(Math.max(...connections)).toBeLessThanOrEqual(9)
})

longTest('under a cron of every second its memory does not grow', async () => {
  await start({ world: { ...SMALL, prompts: 2 } })
  const config = { ...setup.fileConfig, schedule: { cron: '* * * * * *', audit_cron: NEVER } }
  const server = startProcess(['serve', '--port', '0'], { env: setup.env, config })
  running = server
  await server.saw('Schedule:')
  const memory: number[] = []
  while (memory.length < 36) {
    await new Promise((done) => setTimeout(done, 1000))
    memory.push(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))?.[1] ?? 0))
  }
  const middle = (list: number[]) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]!
  // The last third against the second: what grows without end would show.
  expect(middle(memory.slice(24))).toBeLessThan(middle(memory.slice(12, 24)) * 1.25)
})

test('many who look at once all get an answer while a sync is running', async () => {
  await start({ faults: { rate_limit: null, latency_ms: 100 } })
  const url = await serve()
  const answers = await Promise.all(Array.from({ length: 400 }, () => get(`${url}/api/status`)))
  expect(answers.every(({ status }) => status === 200)).toBe(true)
  await until(ended())
  expect(await setup.database.rows('select outcome from visibility_ops.runs')).toEqual([{ outcome: 'complete' }])
})

test('an address that cannot be listened on, a wrong schedule and a wrong staleness are refused', async () => {
  await start()
  const refused = async (args: string[], settings: Record<string, unknown>) => {
    const result = await runCli(['serve', ...args], { env: setup.env, config: { ...setup.fileConfig, ...settings } })
    return [result.code, result.stderr] as const
  }
  expect(await refused(['--host', '203.0.113.7', '--port', '0'], {})).toEqual([
    2,
    expect.stringContaining('cannot listen'),
  ])
  expect(await refused([], { schedule: { cron: 'often' } })).toEqual([2, expect.stringContaining('schedule.cron')])
  expect(await refused([], { serve: { max_staleness: 'long' } })).toEqual([2, expect.stringContaining('26h')])
  expect(await refused([], { serve: { hosts: ['https://status.example.com'] } })).toEqual([
    2,
    expect.stringContaining('serve.hosts.0: got "https://status.example.com"; allowed: a host name'),
  ])
  expect(await refused(['--port', '99999'], {})).toEqual([2, expect.stringContaining('--port')])
})

test('a webhook that fails harms no run, and is not shown in the log', async () => {
  await start()
  const webhook = await startWebhook(() => 500)
  const alerts = { webhook_url: webhook.url }
  const address = await serve({ alerts }, { VISIBILITY_API_KEY: 'wrong-key-of-the-test' })
  await until(ended())
  await until(() => webhook.asked() > 0)
  expect((await get(`${address}/healthz`)).status).toBe(200)
  running!.stop()
  const { code, stderr } = await running!.done
  await webhook.close()
  expect(code).toBe(0)
  expect(stderr).not.toContain(new URL(webhook.url).pathname)
  expect(stderr).not.toContain('wrong-key-of-the-test')
})
