import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { stringify } from 'yaml'
import { addDays } from '../src/core/day.ts'
import { sync } from '../src/index.ts'
import { COMPANY_KEY } from '../src/reference/world.ts'
import { type CliResult, runCli, startCli, temporaryFolder } from './support/cli.ts'
import { type HostileService, startHostile, WAYS } from './support/hostile.ts'
import { type Outside, startOutside } from './support/outside.ts'
import { type Setup, setUp } from './support/setup.ts'

describe('secrets', () => {
  /* Secrets never reach a log, an error, a result, a table, a page, a file or a webhook, whatever a service does with them. */

  const MARK = 'canary'
  const SECRETS = {
    key: `Kz7q/${MARK}+"key=~'91`,
    ownKey: `Pz7q-${MARK}-own-key-5521`,
    password: `Dz7q ${MARK}%41/p\u00e4"ss'word`,
    hook: `Hz7q-${MARK}-hook-81c2ffae`,
    token: `Tz7q-${MARK}-token-aa91c2`,
    metabase: `Mz7q-${MARK}-metabase-77aa`,
  }
  /** Any part of a secret, in any form: found here in another way than the program hides it. */
  const TRACES = [
    MARK,
    'z7q',
    Buffer.from(MARK).toString('hex'),
    ...[0, 1, 2].map((before) =>
      Buffer.from(`${'x'.repeat(before)}${MARK}${'x'.repeat(3)}`)
        .toString('base64')
        .slice(2, 9),
    ),
  ].map((trace) => trace.toLowerCase())

  function tracesIn(text: string): string[] {
    const lower = text.toLowerCase()
    return TRACES.filter((trace) => lower.includes(trace)).map((trace) => {
      const at = lower.indexOf(trace)
      return text.slice(Math.max(0, at - 80), at + 60)
    })
  }

  /** Each way has a day of its own. */
  const REPORTED = Object.keys(WAYS).filter((way) => !/wrong key|may not read|created/.test(way))
  const dayOf = (way: string) => addDays('2026-03-01', REPORTED.indexOf(way))
  const range = { from: '2026-03-01', to: dayOf(REPORTED.at(-1)!) }

  let setup: Setup
  let hostile: HostileService
  let webhook: Outside
  let owner: Client
  const told = () => webhook.heard.map(({ body }) => body).join('\n')
  const role = `vs_bird_${randomBytes(4).toString('hex')}`
  const folder = temporaryFolder()
  /** The way in which everything is answered, instead of that of each report. */
  let everything: string | undefined
  let env: Record<string, string>
  let config: Record<string, unknown>

  beforeAll(async () => {
    setup = await setUp({ world: { projects: 2, prompts: 100, models: 2, brands: 2 } })
    hostile = await startHostile(setup.service.url, Object.values(SECRETS), ({ method, url }, body) => {
      if (everything !== undefined) return everything
      if (method === 'POST' && url!.includes('/topics')) return 'a thing that was created, with a warning'
      if (method === 'POST' && url!.includes('/prompts')) return 'a refusal in JSON'
      if (!url!.includes('/reports/')) return 'rows'
      const { start_date } = JSON.parse(body) as { start_date: string }
      return REPORTED.find((way) => dayOf(way) === start_date)
    })
    webhook = await startOutside()
    const database = new URL(setup.database.url)
    const quoted = SECRETS.password.replaceAll("'", "''")
    await setup.database.rows(`create role ${role} login password '${quoted}'`)
    await setup.database.rows(`grant create, temporary on database ${database.pathname.slice(1)} to ${role}`)
    database.username = role
    database.password = encodeURIComponent(SECRETS.password)
    owner = new Client({ connectionString: database.href })
    await owner.connect()
    const [first, second] = setup.projects.map(({ id }) => id)
    env = {
      VISIBILITY_API_URL: hostile.url,
      VISIBILITY_API_KEY: SECRETS.key,
      DATABASE_URL: database.href,
      VISIBILITY_TOKEN: SECRETS.token,
      OWN_KEY: SECRETS.ownKey,
      METABASE_PASSWORD: SECRETS.metabase,
      LOG_LEVEL: 'trace',
    }
    config = {
      source: {
        max_attempts: 1,
        requests_per_minute: 100_000,
        timeout_seconds: 20,
        max_window_days: 1,
        // Some of them answer nothing that can be used: the run ends at once.
        patience_seconds: 1,
      },
      // Of a role of its own, whose password is one of the secrets.
      warehouse: { schema: 'guarded' },
      projects: [{ id: first }, { id: second, api_key: '${OWN_KEY}' }],
      start_date: range.from,
      end_date: range.to,
      streams: ['project_profile', 'prompts', 'chats'],
      reports: [{ name: 'daily', dimensions: ['date'] }],
      alerts: { webhook_url: `${webhook.url}/${SECRETS.hook}` },
      schedule: { cron: '0 0 1 1 *', audit_cron: '0 0 1 1 *' },
    }
  })
  afterAll(async () => {
    await owner.query(`drop owned by ${role} cascade`)
    await owner.end()
    await setup.database.rows(`revoke all on database ${new URL(setup.database.url).pathname.slice(1)} from ${role}`)
    await setup.database.rows(`drop role ${role}`)
  })

  const run = (args: string[], over: Record<string, string> = {}) => runCli(args, { env: { ...env, ...over }, config })

  let first: Promise<CliResult> | undefined
  /** The sync that fills the tables, whichever test asks for it first. */
  const firstSync = () => (first ??= run(['sync']))

  const rows = async <T extends object>(sql: string) => (await owner.query<T>(sql)).rows

  function expectClean(result: CliResult): CliResult {
    expect(tracesIn(result.stdout)).toEqual([])
    expect(tracesIn(result.stderr)).toEqual([])
    return result
  }

  /** Every row of every table of every schema of ours, as text. */
  async function expectCleanTables(): Promise<void> {
    const tables = await rows<{ name: string }>(
      `select format('%I.%I', nspname, relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where nspname like 'guarded%' and relkind in ('r', 'p')`,
    )
    expect(tables.length).toBeGreaterThanOrEqual(30)
    for (const { name } of tables) {
      const found = await rows<{ text: string }>(`select t::text as text from ${name} t`)
      expect({ name, traces: tracesIn(found.map(({ text }) => text).join('\n')) }).toEqual({ name, traces: [] })
    }
  }

  test('a service that repeats keys and passwords gets none of them into the output, the log or a table', async () => {
    const result = expectClean(await firstSync())
    expect(result.code).toBe(1)
    expect(result.stdout).toContain('daily of')
    expect([...hostile.used].sort()).toEqual(expect.arrayContaining([...REPORTED, 'rows'].sort()))
    const again = ['sync', '--json', '--stream', 'daily', '--project', setup.projects[0]!.id]
    const document = expectClean(await run(again)).json()
    expect(document.streams.flatMap(({ failed }: any) => failed).length).toBeGreaterThanOrEqual(REPORTED.length)
    const [kept] = await rows<{ quarantined: number; drift: number; alerts: number }>(
      `select (select count(*)::int from guarded_ops.quarantine) as quarantined,
       (select count(*)::int from guarded_ops.drift) as drift, (select count(*)::int from guarded_ops.alerts) as alerts`,
    )
    expect(kept!.quarantined).toBeGreaterThan(0)
    expect(kept!.drift).toBeGreaterThan(0)
    expect(kept!.alerts).toBeGreaterThan(0)
    await expectCleanTables()
    expect(webhook.heard.length).toBeGreaterThan(0)
    expect(tracesIn(told())).toEqual([])
  })

  test('stored rows are shown without them', async () => {
    await firstSync()
    const list = expectClean(await run(['quarantine', 'list', '--json'])).json().entries
    expect(list.length).toBeGreaterThan(3)
    expect(JSON.stringify(list)).toContain('[redacted]')
    for (const args of [['status'], ['quarantine', 'show', String(list[0].quarantine_id)], ['audit', '--json']]) {
      expectClean(await run(args))
    }
    await expectCleanTables()
  })

  test('a wrong key and a broken service are reported without them', async () => {
    for (const way of ['a wrong key', 'the type of the content']) {
      everything = way
      for (const args of [['sync'], ['check', '--json']])
        expect({ way, args, code: expectClean(await run(args)).code }).toEqual({ way, args, code: 1 })
    }
    everything = undefined
    await expectCleanTables()
    expect(tracesIn(told())).toEqual([])
  })

  test('create writes none of them to its results, its file or its ledger', async () => {
    const project = setup.projects[0]!.id
    const file = join(folder.path, 'topics.csv')
    writeFileSync(file, 'name\r\nRunning\r\n')
    expectClean(await run(['create', 'topic', '--project', project, '--from', file, '--yes']))
    expect(tracesIn(readFileSync(`${file}.results.csv`, 'utf8'))).toEqual([])
    expectClean(
      await run(['create', 'prompt', '--project', project, '--text', 'Which shoe?', '--country', 'DE', '--json']),
    )
    const kept = await rows<{ text: string }>('select t::text as text from guarded_ops.creations t')
    expect(kept.length).toBeGreaterThanOrEqual(2)
    expect(tracesIn(JSON.stringify(kept))).toEqual([])
  })

  test('the shared queue and its tables hold none of them', async () => {
    const day = dayOf('the encoding of the content')
    const words = ['backfill', '--queue', '--stream', 'daily', '--from', day, '--to', day]
    expect(expectClean(await run(words)).code).toBe(1)
    expectClean(await run(['status', '--json']))
    await expectCleanTables()
  })

  test('no page, answer or metric shows them, and no request parameter is repeated with them', async () => {
    await firstSync()
    const server = startCli(['serve', '--port', '0'], { env, config })
    await server.saw('Schedule:')
    const address = /Serving: +(\S+)/.exec(server.output())![1]!
    try {
      const bearer = { authorization: `Bearer ${SECRETS.token}`, 'content-type': 'application/json' }
      const post = (body: object) =>
        fetch(`${address}/api/backfills`, { method: 'POST', headers: bearer, body: JSON.stringify(body) })
      expect((await post({ from: range.from, to: range.from, streams: ['daily'] })).status).toBe(202)
      await server.saw('"run ended"')
      const asked = encodeURIComponent(SECRETS.key)
      const answers = await Promise.all([
        ...['/', '/insights', '/api/status', '/metrics', '/healthz', '/readyz', `/${asked}`, `/?project=${asked}`].map(
          (path) => fetch(address + path),
        ),
        fetch(`${address}/api/runs/1`, { headers: bearer }),
        post({ from: SECRETS.key }),
        post({ ...range, projects: [SECRETS.key] }),
      ])
      for (const answer of answers) {
        const text = `${await answer.text()}\n${JSON.stringify([...answer.headers])}`
        expect({ path: answer.url.length, traces: tracesIn(text) }).toEqual({ path: answer.url.length, traces: [] })
      }
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 503, 404, 400, 200, 400, 400])
    } finally {
      server.stop()
      expectClean(await server.done)
    }
    await expectCleanTables()
  })

  test('an uncaught error is printed by its message alone, without them', async () => {
    const carried =
      'Object.assign(new Error("lost " + process.env.VISIBILITY_API_KEY, { cause: new Error(process.env.VISIBILITY_TOKEN) }), { options: { headers: process.env } })'
    // The crash comes once the command runs: it prints, and this looks at what is printed.
    const hook = `const write = process.stdout.write.bind(process.stdout); process.stdout.write = (...words) => { setTimeout(() => { throw ${carried} }); return write(...words) }`
    const options = `--import data:text/javascript,${encodeURIComponent(hook)}`
    const result = expectClean(await run(['reference', '--port', '0'], { NODE_OPTIONS: options }))
    expect(result.code).toBe(1)
    expect(result.stderr).toContain('internal error: Error: lost [redacted]')
    expect(result.stderr).toContain('caused by: Error: [redacted]')
  })

  test('an argument that is one of them is not repeated', async () => {
    for (const args of [
      [SECRETS.key],
      ['sync', '--project', SECRETS.key],
      ['sync', `--${SECRETS.token}`],
      ['backfill', '--from', SECRETS.key, '--to', SECRETS.key, '--json'],
      ['metabase', '--url', SECRETS.metabase],
      ['sync', '--config', `/${SECRETS.token}`],
    ])
      expect({ args, code: expectClean(await run(args)).code }).toEqual({ args, code: 2 })
  })

  test('a program that uses the library finds none of them in the report, the log or an error', async () => {
    const file = join(folder.path, 'sync.json')
    writeFileSync(file, JSON.stringify(config))
    const lines: string[] = []
    const report = await sync({ file, env, streams: ['daily'], onLog: (line) => lines.push(line) })
    expect(report.outcome).toBe('failed')
    expect(tracesIn(JSON.stringify(report) + lines.join(''))).toEqual([])
    everything = 'a wrong key'
    const wrong = { ...env, DATABASE_URL: env.DATABASE_URL!.replace(/:\d+\//, ':9/') }
    const error = await sync({ file, env: wrong }).catch((cause: unknown) => cause as Error)
    everything = undefined
    expect(error).toBeInstanceOf(Error)
    expect(tracesIn(`${(error as Error).message} ${(error as Error).stack}`)).toEqual([])
  })
})

describe('what config and support-bundle show', () => {
  /* What `config` and `support-bundle` show, and what they must not. */

  let setup: Setup
  const folder = temporaryFolder()
  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 2, prompts: 4, models: 2, brands: 3 },
      config: { start_date: '2026-03-25' },
    })
    await setup.sync()
  })

  const SECRETS = {
    token: 'token-of-the-pages-0123',
    project: 'key-of-one-project-0123',
    webhook: 'T0000/B0000/webhook-secret-0123',
    slack: 'T1111/B1111/slack-secret-0123456',
    pagerduty: 'pagerduty-secret-0123456789',
    smtp: 'smtp-secret-0123456789',
    ping: 'ping-secret-uuid-0123456789',
    push: 'push-secret-0123456789',
    lineage: 'lineage-secret-0123456789',
    metabaseKey: 'metabase-key-0123456789',
    metabasePassword: 'metabase-password-0123',
    metabaseDatabase: 'metabase-database-0123',
    database: 'database-password-0123',
  }

  /** Every setting that can hold a secret holds one; nothing of it is there to be reached. */
  function everySecret() {
    writeFileSync(join(folder.path, 'token'), SECRETS.token)
    const [first, second] = setup.projects.map(({ id }) => id)
    const config = {
      ...setup.fileConfig,
      projects: [{ id: first, api_key: '${PROJECT_KEY}' }, { id: second }],
      alerts: {
        webhook_url: `https://hooks.example.com/${SECRETS.webhook}`,
        slack_url: '${SLACK_URL}',
        pagerduty_key: SECRETS.pagerduty,
        smtp_url: 'smtp://robot@mail.example.com:587',
        smtp_password: SECRETS.smtp,
        email_to: ['oncall@example.com'],
        ping_url: `https://hc.example.com/${SECRETS.ping}`,
      },
      metrics: { push_url: `https://pusher:${SECRETS.push}@gateway.example.com` },
      lineage: { url: 'https://catalogue.example.com', api_key: SECRETS.lineage },
      retention: { runs_days: 30 },
    }
    const env = {
      ...setup.env,
      PROJECT_KEY: SECRETS.project,
      SLACK_URL: `https://hooks.example.com/${SECRETS.slack}`,
      VISIBILITY_TOKEN_FILE: join(folder.path, 'token'),
      METABASE_API_KEY: SECRETS.metabaseKey,
      METABASE_PASSWORD: SECRETS.metabasePassword,
      METABASE_DATABASE_URL: `postgres://reader:${SECRETS.metabaseDatabase}@h/d`,
    }
    return { config, env }
  }

  function expectNoSecret(text: string): void {
    const secrets = [...Object.values(SECRETS), COMPANY_KEY, new URL(setup.database.url).password]
    for (const secret of secrets.filter((one) => one.length > 3)) expect(text).not.toContain(secret)
  }

  test('config prints each setting and its origin, and no secret', async () => {
    const { config, env } = everySecret()
    const { code, stdout, stderr, json } = await runCli(['config', '--json'], { config, env })
    expect([code, stderr]).toEqual([0, ''])
    expectNoSecret(stdout)
    const all = json().settings.map(({ setting, ...rest }: { setting: string }) => [setting, rest])
    expect(Object.fromEntries(all)).toMatchObject({
      'source.base_url': { value: setup.service.url, from: 'variable VISIBILITY_API_URL' },
      'source.api_key': { value: '[redacted]', from: 'variable VISIBILITY_API_KEY' },
      'projects.0.id': { from: 'variable VISIBILITY_PROJECTS' },
      'projects.0.api_key': { value: '[redacted]' },
      'alerts.webhook_url': { value: 'https://hooks.example.com/[redacted]', from: 'file' },
      'alerts.slack_url': { value: 'https://hooks.example.com/[redacted]', from: 'file, from SLACK_URL' },
      'alerts.smtp_password': { value: '[redacted]', from: 'file' },
      'retention.runs_days': { value: 30, from: 'file' },
      VISIBILITY_TOKEN: { value: '[redacted]', from: 'the file that VISIBILITY_TOKEN_FILE names' },
      METABASE_DATABASE_URL: { value: 'postgres://reader@h/d', from: 'variable METABASE_DATABASE_URL' },
      LOG_LEVEL: { value: null, from: 'default' },
    })
    const changed = await runCli(['config', '--changed'], { config, env })
    expectNoSecret(changed.stdout)
    expect(changed.stdout).toMatch(/retention\.runs_days +30 +file/)
    expect(changed.stdout).not.toContain('source.page_limit')
  })

  test('config names .env in the current folder as the origin, and hides its secrets', async () => {
    const { config, env } = everySecret()
    const own = temporaryFolder()
    mkdirSync(join(own.path, 'config'))
    writeFileSync(join(own.path, 'config/sync.yaml'), stringify(config))
    const lines = Object.entries(env).map(([name, value]) => `${name}='${value}'`)
    writeFileSync(join(own.path, '.env'), lines.join('\n'))
    const run = (...args: string[]) => runCli(args, { cwd: own.path, env: { LOG_LEVEL: 'warn' } })
    const { code, stdout, stderr, json } = await run('config', '--json')
    expect([code, stderr]).toEqual([0, ''])
    expectNoSecret(stdout)
    const origins = json().settings.map(({ setting, from }: { setting: string; from: string }) => [setting, from])
    expect(Object.fromEntries(origins)).toMatchObject({
      'source.api_key': 'variable VISIBILITY_API_KEY (.env)',
      'alerts.slack_url': 'file, from SLACK_URL (.env)',
      VISIBILITY_TOKEN: 'the file that VISIBILITY_TOKEN_FILE (.env) names',
      LOG_LEVEL: 'variable LOG_LEVEL',
      'retention.runs_days': 'file',
    })
    const pasted = await run('sync', '--project', COMPANY_KEY)
    expect(pasted.code).toBe(2)
    expectNoSecret(pasted.stderr)
    const unknown = await run('sync', `--${COMPANY_KEY}`)
    expect(unknown.code).toBe(2)
    expectNoSecret(unknown.stderr)
  })

  test('a support bundle has its documents, is readable by its owner alone, and has no secret', async () => {
    const { config, env } = everySecret()
    const file = join(folder.path, 'bundle.json')
    const { code, stdout } = await runCli(['support-bundle', '--output', file], { config, env })
    expect(code).toBe(0)
    expect(stdout).toContain('bundle.json')
    expect(statSync(file).mode & 0o777).toBe(0o600)
    const text = readFileSync(file, 'utf8')
    expectNoSecret(text)
    const bundle = JSON.parse(text)
    expect(bundle).toMatchObject({
      versions: { visibility_sync: expect.any(String), node: process.version },
      database: { version: expect.stringContaining('PostgreSQL') },
      status: { runs: [{ command: 'sync', outcome: 'complete' }], drift: expect.any(Array) },
      queue: null,
    })
    expect(bundle.plan.requests).toBeGreaterThan(0)
    expect(bundle.configuration.settings.length).toBeGreaterThan(50)
    expect(bundle.tables.warehouse.map(({ name }: { name: string }) => name)).toContain('chats')
    // What is there is not overwritten.
    const again = await runCli(['support-bundle', '--output', file], { config, env })
    expect([again.code, again.stderr]).toEqual([2, expect.stringContaining('name another with --output')])
    // Without a database it lists what could not be read.
    const url = new URL(setup.database.url)
    Object.assign(url, { port: '1', password: SECRETS.database })
    const other = join(folder.path, 'away.json')
    const away = { ...env, DATABASE_URL: url.href }
    expect((await runCli(['support-bundle', '--output', other], { config, env: away })).code).toBe(0)
    const partial = readFileSync(other, 'utf8')
    expectNoSecret(partial)
    expect(JSON.parse(partial).status.error).toEqual(expect.any(String))
  })
})
