import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { MOST_CONNECTIONS } from '../src/web/server.ts'
import { type RunningCli, type RunningProcess, runCli, startCli, startProcess, temporaryFolder } from './support/cli.ts'
import { longTest, sized } from './support/long.ts'
import { startTcpProxy, type TcpProxy } from './support/proxy.ts'
import { get, getAs, NEVER, startWebhook, until, type Webhook } from './support/serve.ts'
import { type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

describe('a server', () => {
  let setup: Setup
  let running: RunningCli

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
    running.stop()
    expect((await running.done).code).toBe(0)
    await expectExact(setup.database, {
      world: setup.service.world,
      range,
      reports: (setup.fileConfig as { reports: never }).reports,
    })
  })

  test('without a configured token nothing can be started, and with one only by requests that have it', async () => {
    await start()
    const url = await serve()
    const body = JSON.stringify({ from: '2026-03-01', to: '2026-03-02' })
    expect((await get(`${url}/api/backfills`, { method: 'POST', headers: bearer, body })).status).toBe(404)
    expect((await get(`${url}/api/runs/1`, { headers: bearer })).status).toBe(404)
    running.stop()
    await running.done

    const opened = await serve({}, { VISIBILITY_TOKEN: TOKEN })
    await until(async () => (await get(`${opened}/api/status`)).json().running === null && (await ended()()))
    const post = (text: string, headers: Record<string, string> = bearer) =>
      get(`${opened}/api/backfills`, { method: 'POST', headers, body: text })
    expect((await post(body, { ...bearer, authorization: 'Bearer wrong' })).status).toBe(401)
    expect((await post(body, { 'content-type': 'application/json' })).status).toBe(401)
    expect((await get(`${opened}/api/runs/1`)).status).toBe(401)
    const asForm = await post(body, { ...bearer, 'content-type': 'application/x-www-form-urlencoded' })
    expect([asForm.status, asForm.json().error]).toEqual([415, expect.stringContaining('application/json')])
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

  test('a stop during a run exits 0, and the next start completes the run', async () => {
    await start({ faults: { rate_limit: null, latency_ms: 300 } })
    const url = await serve()
    await until(async () => ((await get(`${url}/api/status`)).json().running?.done ?? 0) > 0)
    const busy = await get(`${url}/`)
    expect(busy.text).toContain('Running now')
    running.stop()
    expect((await running.done).code).toBe(0)
    expect(await setup.database.rows('select outcome from visibility_ops.runs')).toEqual([{ outcome: 'interrupted' }])
    setup.service.setFaults({ rate_limit: null })
    await serve()
    await until(
      async () =>
        (await setup.database.rows("select 1 from visibility_ops.runs where outcome = 'complete'")).length > 0,
    )
    running.stop()
    expect((await running.done).code).toBe(0)
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

  test('many readers at once all get an answer while a sync is running', async () => {
    await start({ faults: { rate_limit: null, latency_ms: 100 } })
    const url = await serve()
    const paths = ['/', '/insights', '/api/status', '/metrics']
    const answers = await Promise.all(Array.from({ length: 400 }, (_, at) => get(url + paths[at % paths.length]!)))
    expect(answers.filter(({ status }) => status !== 200)).toEqual([])
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

  test('a failing webhook affects no run, and its address is not logged', async () => {
    await start()
    const webhook = await startWebhook(() => 500)
    const alerts = { webhook_url: webhook.url }
    const address = await serve({ alerts }, { VISIBILITY_API_KEY: 'wrong-key-of-the-test' })
    await until(ended())
    await until(() => webhook.asked() > 0)
    expect((await get(`${address}/healthz`)).status).toBe(200)
    running.stop()
    const { code, stderr } = await running.done
    expect(code).toBe(0)
    expect(stderr).not.toContain(new URL(webhook.url).pathname)
    expect(stderr).not.toContain('wrong-key-of-the-test')
  })
})

describe('while others are away', () => {
  /* The real `serve`, behind a proxy through which its database goes away in different ways. */

  let setup: Setup
  let proxy: TcpProxy
  let running: RunningCli
  let webhook: Webhook

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
      running.stop()
      const { code, stderr } = await running.done
      expect(code).toBe(0)
      expect(webhook.events()).toEqual(['raised database', 'cleared database'])
      expect(stderr).not.toContain('secret-path')
    },
  )

  test('started while the database is away it waits and reports it, and continues when it is back', async () => {
    await start()
    webhook = await startWebhook()
    proxy.refuse()
    const url = await serve({ alerts: { webhook_url: webhook.url } })
    expect(running.output()).toContain('does not answer; waiting for it')
    expect((await get(`${url}/healthz`)).status).toBe(200)
    expect((await get(`${url}/readyz`)).status).toBe(503)
    const page = await get(`${url}/`)
    expect(page.status).toBe(503)
    expect(page.text).toContain('Nothing is known of the ledger yet.')
    expect((await get(`${url}/api/status`)).json()).toMatchObject({
      database: { up: false },
      as_of: null,
      synced: false,
    })
    const metrics = (await get(`${url}/metrics`)).text
    expect(metrics).toContain('visibility_sync_database_up 0')
    expect(metrics).not.toContain('missing_dates{')
    proxy.resume()
    await until(async () => (await ready(url)) && (await completed()) > 0)
    expect((await get(`${url}/`)).status).toBe(200)
    running.stop()
    expect((await running.done).code).toBe(0)
    // Nothing failed meanwhile, and it was not away for long.
    expect(webhook.told).toEqual([])
  })

  test('serve ends with a message if the database answers but cannot be used', async () => {
    await start()
    const url = new URL(proxy.url)
    url.pathname = '/no_such_database'
    const env = { ...setup.env, DATABASE_URL: url.href }
    const { code, stderr, stdout } = await startCli(['serve', '--port', '0'], { env, config: setup.fileConfig }).done
    expect(code).toBe(2)
    expect(stderr).toContain('cannot be used')
    expect(stdout).toBe('')
  })

  longTest(
    'behind a network that lost its way, pages and probes still answer, and SIGTERM during a run ends it',
    async () => {
      await start({ faults: { rate_limit: null, latency_ms: 200 } })
      const url = await serve({ serve: { grace_seconds: 5 } })
      await until(async () => ((await get(`${url}/api/status`)).json().running?.done ?? 0) > 0)
      proxy.freeze()
      await until(async () => !(await ready(url)))
      expect((await get(`${url}/healthz`)).status).toBe(200)
      expect((await get(`${url}/`)).status).toBe(503)
      expect((await get(`${url}/insights`)).status).toBe(503)
      expect(await metric(url, 'visibility_sync_database_up')).toBe(0)
      running.stop()
      const { code, stderr } = await running.done
      expect(code).toBe(0)
      expect(stderr).toContain('asked to stop')
    },
  )

  longTest('a frozen database that recovers is detected, and nothing has to be restarted', async () => {
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

  test('a webhook that never answers delays neither the next run nor the end', async () => {
    await start()
    webhook = await startWebhook(() => 'nothing')
    const url = await serve(
      { schedule: { cron: '* * * * * *', audit_cron: NEVER }, alerts: { webhook_url: webhook.url } },
      { VISIBILITY_API_KEY: 'wrong-key-of-the-test' },
    )
    await until(async () => ((await metric(url, FAILED)) ?? 0) >= 3)
    expect(webhook.asked()).toBeGreaterThan(0)
    running.stop()
    expect((await running.done).code).toBe(0)
    expect(webhook.told).toEqual([])
  })

  longTest('a clock that steps back neither freezes the pages nor hides that the database is away', async () => {
    await start()
    const stepping = new URL('./support/step-clock.mjs', import.meta.url).href
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
})

describe('over HTTP', () => {
  /* What `serve` answers to strange requests, and to more of them than it can serve. */

  let setup: Setup
  let running: RunningProcess
  let url: string
  const TOKEN = 'a-token-for-tests'
  const bearer = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }

  beforeAll(async () => {
    setup = await setUp({ world: { projects: 2, prompts: 4, models: 2, brands: 3 } })
    running = startProcess(['serve', '--port', '0'], {
      env: { ...setup.env, VISIBILITY_TOKEN: TOKEN },
      config: {
        ...setup.fileConfig,
        schedule: { cron: NEVER, audit_cron: NEVER },
        serve: { hosts: ['Status.Example.com'] },
      },
    })
    await running.saw('run ended')
    url = /Serving: +(\S+)/.exec(running.output())![1]!
    await until(async () => (await get(`${url}/readyz`)).status === 200)
  })
  afterAll(async () => {
    running.child.kill('SIGTERM')
    await running.done
  })

  test('an unknown host name is refused, since another site may point its name here', async () => {
    for (const path of ['/', '/insights', '/api/status', '/metrics', '/healthz', '/assets/style.css', '/nowhere']) {
      const { status, text } = await getAs(url + path, 'attacker.example')
      expect([path, status]).toEqual([path, 421])
      expect(JSON.parse(text).error).toContain('serve.hosts')
    }
    for (const host of [
      'attacker.example:80',
      'localhost.attacker.example',
      '127.0.0.1.attacker.example',
      'a@127.0.0.1',
      '[',
      ' ',
    ])
      expect([400, 421]).toContain((await getAs(`${url}/`, host)).status)
    expect((await get(`${url}/api/backfills`, { method: 'POST', headers: bearer, body: '{' })).status).toBe(400)
  })

  test('a request without a host name is refused if the protocol requires one', async () => {
    expect((await getAs(`${url}/`, undefined)).status).toBe(400)
  })

  test('configured host names and all IP addresses are accepted, as probes use them', async () => {
    const { port } = new URL(url)
    const names = [
      'localhost',
      'LOCALHOST',
      'localhost.',
      '127.0.0.1',
      '[::1]',
      '10.1.2.3',
      '[fe80::1]',
      hostname(),
      'status.example.com',
    ]
    for (const name of names)
      for (const host of [name, `${name}:${port}`])
        for (const path of ['/healthz', '/readyz', '/'])
          expect([host, path, (await getAs(url + path, host)).status]).toEqual([host, path, 200])
  })

  const BAD: [string, string][] = [
    ['/?to=0001-01-01', 'to: got "0001-01-01"'],
    ['/?to=9999-12-31', 'to: got "9999-12-31"'],
    ['/?to=2026-02-30', 'to: got "2026-02-30"'],
    ['/?to=rubbish', 'to: got'],
    ['/?to=%00', 'to: got'],
    ["/?to='", 'to: got'],
    ['/?to=2026-03-01&to=2026-03-02', 'to: given more than once'],
    ['/?to[]=2026-03-01', 'unknown'],
    ['/?project=nobody', 'project: got "nobody"'],
    ['/?colour=blue', 'colour: unknown'],
    ['/insights?from=rubbish', 'from: got "rubbish"'],
    ['/insights?from=2026-03-02&to=2026-03-01', 'which is after to'],
    ['/insights?from=2000-01-01&to=2026-03-01', 'allowed: at most'],
    ['/insights?from=0001-01-01&to=2026-03-02', 'from: got "0001-01-01"'],
    ['/insights?project=nobody', 'project: got "nobody"'],
    ['/api/status?project=nobody', 'project: got "nobody"'],
    ['/api/status?limit=-1', 'limit: unknown'],
  ]
  test.each(BAD)('%s is refused with a message', async (path, sentence) => {
    const { status, text } = await get(url + path)
    expect(status).toBe(400)
    expect(text.replaceAll(/&quot;|\\"/g, '"')).toContain(sentence)
  })

  test('a very long parameter is refused with a short message', async () => {
    const { status, text } = await get(`${url}/api/status?project=${'x'.repeat(5000)}`)
    expect(status).toBe(400)
    expect(text.length).toBeLessThan(500)
  })

  test('valid parameters are accepted, and empty ones are ignored', async () => {
    const [first, second] = setup.projects.map(({ id }) => id)
    for (const path of [
      `/?project=${second}&to=2026-03-15`,
      `/?project=${first}&to=`,
      '/insights?project=&from=&to=',
      `/insights?project=${second}&from=2026-03-01&to=2026-03-31`,
    ])
      expect([path, (await get(url + path)).status]).toEqual([path, 200])
    const one = (await get(`${url}/api/status?project=${second}`)).json()
    expect(new Set(one.streams.map((row: { project_id: string }) => row.project_id))).toEqual(new Set([second]))
    expect(one.totals.streams).toBe(one.streams.length)
    const all = (await get(`${url}/api/status`)).json()
    expect(all.totals.streams).toBe(2 * one.streams.length)
    expect(all.database).toMatchObject({ up: true, reason: null })
  })

  test('a backfill of invalid days is refused before anything starts', async () => {
    const post = (body: object) =>
      get(`${url}/api/backfills`, { method: 'POST', headers: bearer, body: JSON.stringify(body) })
    for (const [from, to] of [
      ['0001-01-01', '0001-01-02'],
      ['1999-12-31', '2026-03-01'],
      ['2026-03-01', '9999-12-31'],
    ]) {
      const { status, json } = await post({ from, to })
      expect(status).toBe(400)
      expect(json().error).toContain('from 2000-01-01')
    }
    expect((await get(`${url}/api/runs/1e9`, { headers: bearer })).status).toBe(404)
    expect((await get(`${url}/api/runs/999999999999999`, { headers: bearer })).status).toBe(404)
  })

  test('readers beyond the queue get a 503 with Retry-After, and probes are not delayed', async () => {
    const client = new Client({ connectionString: setup.database.url })
    await client.connect()
    try {
      await client.query('begin; lock table visibility_ops.coverage in access exclusive mode')
      const project = setup.projects[0]!.id
      const days = Array.from({ length: 300 }, (_, at) =>
        new Date(Date.UTC(2025, 0, 1 + at)).toISOString().slice(0, 10),
      )
      const answers = await Promise.all(days.map((to) => get(`${url}/?project=${project}&to=${to}`)))
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]))
      for (const { headers } of answers) expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
      expect((await get(`${url}/healthz`)).status).toBe(200)
      expect((await get(`${url}/readyz`)).status).toBe(200)
      expect((await get(`${url}/metrics`)).status).toBe(200)
    } finally {
      await client.end()
    }
    await until(async () => (await get(`${url}/`)).status === 200)
  })

  test('idle connections are closed before they exhaust file descriptors, and probes are answered meanwhile', async () => {
    const { port, hostname: host } = new URL(url)
    let closed = 0
    const sockets = Array.from({ length: MOST_CONNECTIONS + 100 }, () => connect(Number(port), host))
    for (const socket of sockets) socket.on('error', () => {}).once('close', () => closed++)
    try {
      await until(() => closed >= 100)
      for (const path of ['/healthz', '/readyz', '/'])
        expect([path, (await get(url + path)).status]).toEqual([path, 200])
      const files = readdirSync(`/proc/${running.child.pid}/fd`).length
      expect(files).toBeLessThan(MOST_CONNECTIONS + 100)
    } finally {
      for (const socket of sockets) socket.destroy()
    }
  })

  test('the health check of the image finds the server by its command line, and fails without one', async () => {
    const folder = temporaryFolder()
    const check = fileURLToPath(new URL('../bin/healthcheck.js', import.meta.url))
    const exitOf = async (...words: string[]) => {
      const file = join(folder.path, 'cmdline')
      writeFileSync(file, words.join('\0'))
      const child = spawn(process.execPath, [check, file], { cwd: folder.path, env: { PATH: process.env.PATH } })
      const [code] = await once(child, 'exit')
      return code
    }
    const { port } = new URL(url)
    const program = ['node', 'bin/visibility-sync.js']
    expect(await exitOf(...program, 'serve', '--port', port)).toBe(0)
    expect(await exitOf(...program, 'serve', '--host=0.0.0.0', `--port=${port}`)).toBe(0)
    expect(await exitOf(...program, 'serve', '--host', '127.0.0.1', '--port', '1')).toBe(1)
    expect(await exitOf(...program, 'serve', '--host', '::1', '--port', '1')).toBe(1)
    expect(await exitOf(...program, 'sync')).toBe(0)
  })
})
