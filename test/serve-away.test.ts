import { fileURLToPath } from 'node:url'
import { afterEach, expect, test } from '@jest/globals'
import { type RunningCli, startCli, startProcess } from './support/cli.ts'
import { longTest } from './support/long.ts'
import { get, NEVER, startWebhook, until, type Webhook } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.ts'

/* The real `serve`, behind a proxy through which its database goes away in different ways. */

let setup: Setup
let proxy: TcpProxy
let running: RunningCli | undefined
let webhook: Webhook | undefined
afterEach(async () => {
  running?.stop()
  await running?.done
  running = undefined
  await webhook?.close()
  webhook = undefined
  await proxy.close()
  await setup.close()
})

const SMALL = { projects: 1, prompts: 4, models: 2, brands: 3 }

async function start(options: Parameters<typeof setUp>[0] = {}): Promise<void> {
  setup = await setUp({ world: SMALL, ...options })
  proxy = await startTcpProxy(setup.database.url)
}

async function serve(settings: Record<string, unknown> = {}, env: Record<string, string> = {}): Promise<string> {
  const config = { ...setup.fileConfig, schedule: { cron: NEVER, audit_cron: NEVER }, ...settings }
  return addressOf(
    startCli(['serve', '--port', '0'], { env: { ...setup.env, DATABASE_URL: proxy.url, ...env }, config }),
  )
}

async function addressOf(server: RunningCli): Promise<string> {
  running = server
  await server.saw('Schedule:')
  return /Serving: +(\S+)/.exec(server.output())![1]!
}

const completed = async () =>
  (await setup.database.rows("select 1 from visibility_ops.runs where outcome = 'complete'")).length
const metric = async (url: string, name: string) => {
  const line = (await get(`${url}/metrics`)).text.split('\n').find((text) => text.startsWith(name))
  return line === undefined ? undefined : Number(line.split(' ').at(-1))
}
const FAILED = 'visibility_sync_runs_total{command="sync",outcome="failed"}'
const ready = async (url: string) => (await get(`${url}/readyz`)).status === 200

longTest(
  'while the database is away failed syncs are counted and told once, the last gauges stay, and the recovery is told once',
  async () => {
    await start()
    webhook = await startWebhook()
    const url = await serve({
      schedule: { cron: '* * * * * *', audit_cron: NEVER },
      alerts: { webhook_url: webhook.url },
      warehouse: { patience_seconds: 1 },
    })
    await until(async () => (await ready(url)) && (await completed()) > 0)
    await until(async () => (await get(`${url}/metrics`)).text.includes('staleness_seconds{'))
    proxy.refuse()
    await until(async () => ((await metric(url, FAILED)) ?? 0) >= 3)
    await until(async () => !(await ready(url)))
    expect((await get(`${url}/healthz`)).json()).toEqual({ alive: true })
    expect((await get(`${url}/readyz`)).json()).toEqual({ ready: false, reason: 'the database cannot be reached' })
    expect(await metric(url, 'visibility_sync_database_up')).toBe(0)
    expect(await metric(url, 'visibility_sync_ledger_age_seconds')).toBeGreaterThan(0)
    expect(await metric(url, 'visibility_sync_staleness_seconds{')).toBeGreaterThan(0)
    const page = await get(`${url}/`)
    expect([page.status, page.headers.get('retry-after')]).toEqual([503, '5'])
    expect(page.text).toMatch(/The database has not answered for \d+ s.*What follows was read \d+ s ago/)
    const status = await get(`${url}/api/status`)
    expect(status.status).toBe(503)
    expect(status.json()).toMatchObject({
      database: { up: false },
      synced: true,
      failed_to_start: { command: 'sync' },
      alerts: [{ condition: 'database' }],
    })
    expect((await get(`${url}/insights`)).status).toBe(503)
    expect(webhook.events()).toEqual(['raised database'])
    expect(webhook.told[0].text).toMatch(/cannot be reached.*sync\)? (failed|was partial)/)

    const before = await completed()
    proxy.resume()
    await until(async () => (await completed()) > before && (await ready(url)))
    await until(() => webhook!.told.length > 1)
    expect(await metric(url, 'visibility_sync_database_up')).toBe(1)
    expect(await setup.database.rows('select condition from visibility_ops.alerts where cleared_at is null')).toEqual(
      [],
    )
    running!.stop()
    const { code, stderr } = await running!.done
    expect(code).toBe(0)
    expect(webhook.events()).toEqual(['raised database', 'cleared database'])
    expect(stderr).not.toContain('secret-path')
  },
)

test('started while the database is away it waits and says so, and goes on when it is there', async () => {
  await start()
  webhook = await startWebhook()
  proxy.refuse()
  const url = await serve({ alerts: { webhook_url: webhook.url } })
  expect(running!.output()).toContain('does not answer; waiting for it')
  expect((await get(`${url}/healthz`)).status).toBe(200)
  expect((await get(`${url}/readyz`)).status).toBe(503)
  const page = await get(`${url}/`)
  expect(page.status).toBe(503)
  expect(page.text).toContain('Nothing is known of the ledger yet.')
  expect((await get(`${url}/api/status`)).json()).toMatchObject({ database: { up: false }, as_of: null, synced: false })
  const metrics = (await get(`${url}/metrics`)).text
  expect(metrics).toContain('visibility_sync_database_up 0')
  expect(metrics).not.toContain('missing_dates{')
  proxy.resume()
  await until(async () => (await ready(url)) && (await completed()) > 0)
  expect((await get(`${url}/`)).status).toBe(200)
  running!.stop()
  expect((await running!.done).code).toBe(0)
  // Nothing failed meanwhile, and it was not away for long.
  expect(webhook.told).toEqual([])
})

test('a database that answers but cannot be used is no database that is away: serve ends with a sentence', async () => {
  await start()
  const url = new URL(proxy.url)
  url.pathname = '/no_such_database'
  const env = { ...setup.env, DATABASE_URL: url.href }
  const { code, stderr, stdout } = await startCli(['serve', '--port', '0'], { env, config: setup.fileConfig }).done
  expect(code).toBe(2)
  expect(stderr).toContain('cannot be used')
  expect(stdout).toBe('')
})

test('behind a network that lost its way, pages and probes still answer, and SIGTERM during a run ends it', async () => {
  await start({ faults: { rate_limit: null, latency_ms: 200 } })
  const url = await serve({ serve: { grace_seconds: 5 } })
  await until(async () => ((await get(`${url}/api/status`)).json().running?.done ?? 0) > 0)
  proxy.freeze()
  await until(async () => !(await ready(url)))
  expect((await get(`${url}/healthz`)).status).toBe(200)
  expect((await get(`${url}/`)).status).toBe(503)
  expect((await get(`${url}/insights`)).status).toBe(503)
  expect(await metric(url, 'visibility_sync_database_up')).toBe(0)
  running!.stop()
  const { code, stderr } = await running!.done
  expect(code).toBe(0)
  expect(stderr).toContain('asked to stop')
})

longTest('a frozen database that thaws is noticed, and nothing has to be restarted', async () => {
  await start()
  const url = await serve()
  await until(async () => (await ready(url)) && (await completed()) > 0)
  await until(async () => (await get(`${url}/`)).text.includes('Everything is fresh and complete.'))
  proxy.freeze()
  await until(async () => !(await ready(url)))
  const away = await get(`${url}/`)
  expect([away.status, away.text.includes('The database has not answered')]).toEqual([503, true])
  // Nothing is claimed that only the database could confirm.
  expect(away.text).not.toContain('Everything is fresh')
  expect(away.text).not.toMatch(/fresh and complete(?! when last read)/)
  proxy.resume()
  await until(() => ready(url))
  await until(async () => (await get(`${url}/`)).status === 200)
})

test('a webhook that never answers holds up neither the next run nor the end', async () => {
  await start()
  webhook = await startWebhook(() => 'nothing')
  const url = await serve(
    { schedule: { cron: '* * * * * *', audit_cron: NEVER }, alerts: { webhook_url: webhook.url } },
    { VISIBILITY_API_KEY: 'wrong-key-of-the-test' },
  )
  await until(async () => ((await metric(url, FAILED)) ?? 0) >= 3)
  expect(webhook.asked()).toBeGreaterThan(0)
  running!.stop()
  expect((await running!.done).code).toBe(0)
  expect(webhook.told).toEqual([])
})

test('a clock that steps back neither freezes the pages nor hides that the database is away', async () => {
  await start()
  const stepping = fileURLToPath(new URL('./support/step-clock.mjs', import.meta.url))
  const config = { ...setup.fileConfig, schedule: { cron: NEVER, audit_cron: NEVER } }
  const env = { ...setup.env, DATABASE_URL: proxy.url, NODE_OPTIONS: `--import=${stepping}` }
  const server = startProcess(['serve', '--port', '0'], { env, config })
  const url = await addressOf(server)
  await until(async () => (await completed()) === 1 && (await ready(url)))
  expect((await get(`${url}/api/status`)).json().runs[0].run_id).toBe(1)
  server.child.kill('SIGUSR2')
  await server.saw('the clock stepped back')
  await setup.sync()
  await until(async () => (await get(`${url}/api/status`)).json().runs[0].run_id === 2)
  // What the ledger wrote down is compared with the clock of the database that wrote it.
  expect(await metric(url, 'visibility_sync_staleness_seconds{')).toBeGreaterThanOrEqual(0)
  expect((await get(`${url}/`)).text).not.toMatch(/<td><time [^>]*>in /)
  proxy.refuse()
  await until(async () => !(await ready(url)))
})
