import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, writeFileSync } from 'node:fs'
import { createServer as createHttp } from 'node:http'
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { MOST_CONNECTIONS } from '../src/web/server.ts'
import { type RunningCli, type RunningProcess, runCli, startCli, startProcess, temporaryFolder } from './support/cli.ts'
import { longTest, sized } from './support/long.ts'
import { listening, startTcpProxy, type TcpProxy } from './support/proxy.ts'
import { get, getAs, NEVER, startWebhook, until, type Webhook } from './support/serve.ts'
import { type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

const SMALL = { projects: 1, prompts: 4, models: 2, brands: 3 }
const TOKEN = 'a-token-for-tests'
const bearer = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }

let setup: Setup
let running: RunningCli

async function start(options: SetupOptions = {}): Promise<void> {
  setup = await setUp({ world: SMALL, ...options })
}

/** Starts the command and gives its address. */
async function serve(settings: Record<string, unknown> = {}, env: Record<string, string> = {}): Promise<string> {
  const config = { ...setup.fileConfig, schedule: { cron: NEVER, audit_cron: NEVER }, ...settings }
  return addressOf(startCli(['serve', '--port', '0'], { env: { ...setup.env, ...env }, config }))
}

async function addressOf(server: RunningCli): Promise<string> {
  running = server
  await server.saw('Schedule:')
  return /Serving: +(\S+)/.exec(server.output())![1]!
}

describe('a server', () => {
  const range = { from: '2026-03-01', to: '2026-03-31' }

  const ended = async () =>
    (await setup.database.rows('select 1 from visibility_ops.runs where outcome is not null')).length > 0

  test('its metrics show how commands ended before it began', async () => {
    await start()
    await setup.sync()
    const url = await serve()
    const metrics = (await get(`${url}/metrics`)).text
    for (const name of ['last_run_success', 'last_run_timestamp_seconds', 'last_success_timestamp_seconds'])
      expect(metrics).toMatch(new RegExp(`^visibility_sync_${name}\\{command="sync"\\} [1-9]`, 'm'))
    expect(metrics).toContain('visibility_sync_runs_total{command="sync",outcome="complete"} 0')
  })

  test('it syncs at the start when something is due, and shows it everywhere', async () => {
    await start()
    const url = await serve()
    expect(new URL(url).hostname).toBe('127.0.0.1')
    await until(ended)
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
    expect(metrics).toContain('visibility_sync_database_up 1')
    expect(metrics).toMatch(/visibility_sync_rows_total\{stream="chats",effect="inserted"\} \d+/)
    expect(metrics).toMatch(/visibility_sync_staleness_seconds\{project="or_[^"]+",stream="brand_daily"\} \d/)
    const page = await get(`${url}/`)
    expect(page.text).toContain('Everything is fresh and complete.')
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'")
    expect((await get(`${url}/nowhere`)).status).toBe(404)
    // Nothing secret is shown, whoever asks.
    for (const path of ['/', '/insights', '/api/status', '/metrics'])
      expect((await get(url + path)).text).not.toContain(setup.env.VISIBILITY_API_KEY)
    // Without a configured token nothing can be started.
    const post = { method: 'POST', headers: bearer, body: JSON.stringify(range) }
    expect((await get(`${url}/api/backfills`, post)).status).toBe(404)
    expect((await get(`${url}/api/runs/1`, { headers: bearer })).status).toBe(404)
    running.stop()
    expect((await running.done).code).toBe(0)
    await expectExact(setup.database, {
      world: setup.service.world,
      range,
      reports: (setup.fileConfig as { reports: never }).reports,
    })
  })

  test('a stop during a run exits 0, and the next start completes the run', async () => {
    await start({ faults: { rate_limit: null, latency_ms: 300 } })
    const url = await serve()
    await until(async () => ((await get(`${url}/api/status`)).json().running?.done ?? 0) > 0)
    expect((await get(`${url}/`)).text).toContain('Running now')
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
    const most = sized(3, 40)
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

  test('a database that answers but cannot be used, an address that cannot be listened on, a wrong schedule and a wrong host name are refused', async () => {
    await start()
    const refused = async (args: string[], settings: Record<string, unknown>) => {
      const result = await runCli(['serve', ...args], { env: setup.env, config: { ...setup.fileConfig, ...settings } })
      return [result.code, result.stderr] as const
    }
    expect(await refused(['--host', '203.0.113.7', '--port', '0'], {})).toEqual([
      2,
      expect.stringContaining('cannot listen'),
    ])
    const { origin } = await listening(createHttp())
    expect(await refused(['--port', new URL(origin).port], {})).toEqual([
      2,
      expect.stringMatching(
        /cannot listen on 127\.0\.0\.1:\d+ \(EADDRINUSE\).* --port, or serve\.host and serve\.port/,
      ),
    ])
    const other = new URL(setup.database.url)
    other.pathname = '/no_such_database'
    const env = { ...setup.env, DATABASE_URL: other.href }
    const unusable = await runCli(['serve', '--port', '0'], { env, config: setup.fileConfig })
    expect([unusable.code, unusable.stderr, unusable.stdout]).toEqual([
      2,
      expect.stringContaining('cannot be used'),
      '',
    ])
    expect(await refused([], { schedule: { cron: 'often' } })).toEqual([2, expect.stringContaining('schedule.cron')])
    expect(await refused([], { serve: { hosts: ['https://status.example.com'] } })).toEqual([
      2,
      expect.stringContaining('serve.hosts.0: got "https://status.example.com"; allowed: a host name'),
    ])
  })
})

describe('while others are away', () => {
  /* The real `serve`, behind a proxy through which its database goes away in different ways. */

  let proxy: TcpProxy
  let webhook: Webhook

  async function startBehindProxy(options: SetupOptions = {}): Promise<void> {
    await start(options)
    proxy = await startTcpProxy(setup.database.url)
  }

  const serveBehindProxy = (settings: Record<string, unknown> = {}, env: Record<string, string> = {}) =>
    serve(settings, { DATABASE_URL: proxy.url, ...env })

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
      await startBehindProxy()
      webhook = await startWebhook()
      const url = await serveBehindProxy({
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
      expect(await metric(url, 'visibility_sync_staleness_seconds{')).toBeGreaterThan(0)
      const page = await get(`${url}/`)
      expect([page.status, page.headers.get('retry-after')]).toEqual([503, '5'])
      expect((await get(`${url}/api/status`)).json()).toMatchObject({
        database: { up: false },
        failed_to_start: { command: 'sync' },
        alerts: [{ condition: 'database' }],
      })
      expect(webhook.events()).toEqual(['raised database'])

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
    await startBehindProxy()
    webhook = await startWebhook()
    proxy.refuse()
    const url = await serveBehindProxy({ alerts: { webhook_url: webhook.url } })
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
    expect(await metric(url, 'visibility_sync_database_up')).toBe(0)
    proxy.resume()
    await until(async () => (await ready(url)) && (await completed()) > 0)
    expect((await get(`${url}/`)).status).toBe(200)
    running.stop()
    expect((await running.done).code).toBe(0)
    // Nothing failed meanwhile, and it was not away for long.
    expect(webhook.told).toEqual([])
  })

  test('a webhook that never answers delays neither the next run nor the end', async () => {
    await startBehindProxy()
    webhook = await startWebhook(() => 'nothing')
    const url = await serveBehindProxy(
      { schedule: { cron: '* * * * * *', audit_cron: NEVER }, alerts: { webhook_url: webhook.url } },
      { VISIBILITY_API_KEY: 'wrong-key-of-the-test' },
    )
    await until(async () => ((await metric(url, FAILED)) ?? 0) >= 2)
    expect(webhook.asked()).toBeGreaterThan(0)
    running.stop()
    const { code, stderr } = await running.done
    expect(code).toBe(0)
    for (const secret of ['secret-path', 'wrong-key-of-the-test']) expect(stderr).not.toContain(secret)
    expect(webhook.told).toEqual([])
  })
})

describe('over HTTP', () => {
  /* What `serve` answers to strange requests, and to more of them than it can serve. */

  let setup: Setup
  let running: RunningProcess
  let url: string

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
    for (const path of ['/', '/api/status', '/healthz', '/nowhere']) {
      const { status, text } = await getAs(url + path, 'attacker.example')
      expect([path, status]).toEqual([path, 421])
      expect(JSON.parse(text).error).toContain('serve.hosts')
    }
    for (const host of ['localhost.attacker.example', '127.0.0.1.attacker.example', 'a@127.0.0.1', '[', undefined])
      expect([400, 421]).toContain((await getAs(`${url}/`, host)).status)
  })

  test('configured host names and all IP addresses are accepted, as probes use them', async () => {
    const { port } = new URL(url)
    for (const host of ['LOCALHOST', 'localhost.', '[::1]', '10.1.2.3', hostname(), 'status.example.com'])
      expect([host, (await getAs(`${url}/healthz`, `${host}:${port}`)).status]).toEqual([host, 200])
  })

  test('a request with two hosts, a foreign one in its address, or one that is none is refused with all security headers', async () => {
    const { host, port } = new URL(url)
    const answerTo = async (head: string) => {
      const socket = connect(Number(port), '127.0.0.1')
      socket.write(`${head.replaceAll('HOST', host)}\r\nConnection: close\r\n\r\n`)
      return text(socket)
    }
    const get1 = (path: string) => `GET ${path} HTTP/1.1\r\nHost: HOST`
    for (const [status, head] of [
      [200, get1('http://HOST/healthz')],
      [200, 'GET /healthz HTTP/1.0'],
      [421, get1('http://attacker.example/healthz')],
      [421, get1('http://HOST@attacker.example/healthz')],
      [400, `${get1('/healthz')}\r\nHost: attacker.example`],
      [400, 'GET /healthz HTTP/1.1'],
      [400, get1('/%zz')],
      [400, get1('/runs/%E0%A4%A')],
      [400, get1('healthz')],
      [400, `${get1('/')}\r\na b: c`],
      [400, 'NONSENSE'],
      [417, `${get1('/')}\r\nExpect: much`],
      [431, `${get1('/')}\r\nX: ${'x'.repeat(20_000)}`],
    ] as const) {
      const answer = (await answerTo(head)).toLowerCase()
      expect([head, answer]).toEqual([head, expect.stringContaining(`http/1.1 ${status} `)])
      for (const header of ["content-security-policy: default-src 'none'", 'x-content-type-options: nosniff'])
        expect([head, answer]).toEqual([head, expect.stringContaining(header)])
    }
  })

  test('bad parameters are refused with a short message', async () => {
    for (const [path, sentence] of [
      ['/?to=0001-01-01', 'to: got "0001-01-01"'],
      ['/?to=%00', 'to: has a NUL character'],
      ['/?to=2026-03-01&to=2026-03-02', 'to: given more than once'],
      ['/insights?from=2000-01-01&to=2026-03-01', 'allowed: at most'],
      ['/api/status?project=nobody', 'project: got "nobody"'],
      ['/api/status?limit=-1', 'limit: unknown'],
      [`/api/status?project=${'x'.repeat(5000)}`, 'project: got'],
    ] as const) {
      const { status, text } = await get(url + path)
      expect(status).toBe(400)
      expect(text.replaceAll(/&quot;|\\"/g, '"')).toContain(sentence)
      if (path.startsWith('/api/')) expect(text.length).toBeLessThan(500)
    }
  })

  test('a backfill takes the token, a JSON document and valid days', async () => {
    const body = JSON.stringify({ from: '2026-03-01', to: '2026-03-02' })
    const post = (text: string, headers: Record<string, string> = bearer) =>
      get(`${url}/api/backfills`, { method: 'POST', headers, body: text })
    for (const authorization of ['Bearer wrong', ''])
      expect((await post(body, { ...bearer, authorization })).status).toBe(401)
    expect((await get(`${url}/api/runs/1`)).status).toBe(401)
    expect((await post(body, { ...bearer, 'content-type': 'application/x-www-form-urlencoded' })).status).toBe(415)
    for (const [bad, reason] of [
      ['{', 'JSON'],
      ['{"from":"2026-03-02","to":"2026-03-01"}', 'to'],
      ['{"from":"2026-03-01","to":"2026-03-02","streams":["nonsense"]}', 'nonsense'],
      ['{"from":"2026-03-01","to":"2026-03-02","projects":["or_x"]}', 'or_x'],
      ['{"from":"2026-03-01","to":"2026-03-02","streams":["chats\\u0000"]}', 'chats'],
      ['{"from":"2026-03-01","to":"2026-03-02","projects":["or_x\\u0000"]}', 'or_x'],
      ['{"from":"2019-12-31","to":"2026-03-01"}', '(earliest_date) or later'],
      ['{"from":"1999-12-31","to":"2026-03-01"}', 'from 2000-01-01'],
    ] as const) {
      const { status, json } = await post(bad)
      expect([bad, status, json().error]).toEqual([bad, 400, expect.stringContaining(reason)])
    }
    expect((await post(JSON.stringify({ from: 'x'.repeat(20_000), to: '' }))).status).toBe(413)
    let made = await post(body)
    // The sync of the start is closed in the ledger a moment before it gives its turn away.
    await until(async () => made.status === 202 || (made = await post(body)).status === 202)
    const { run_id } = made.json()
    expect(made.headers.get('location')).toBe(`/api/runs/${run_id}`)
    const run = async () => (await get(`${url}/api/runs/${run_id}`, { headers: bearer })).json()
    await until(async () => (await run()).outcome === 'complete')
    expect(await run()).toMatchObject({ run_id, command: 'backfill' })
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
    expect(await exitOf(...program, 'serve', '--host=127.0.0.1', '--port=1')).toBe(1)
    expect(await exitOf(...program, 'sync')).toBe(0)
  })
})
