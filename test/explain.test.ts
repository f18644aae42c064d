import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { COMPANY_KEY } from '../src/reference/world.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { type Setup, setUp } from './support/setup.ts'

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
afterAll(async () => {
  folder.remove()
  await setup.close()
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

test('config tells each setting, where it came from, and no secret', async () => {
  const { config, env } = everySecret()
  const { code, stdout, stderr, json } = await runCli(['config', '--json'], { config, env })
  expect([code, stderr]).toEqual([0, ''])
  expectNoSecret(stdout)
  const settings = new Map<string, { value: unknown; from: string }>(
    json().settings.map(({ setting, ...rest }: { setting: string; value: unknown; from: string }) => [setting, rest]),
  )
  const all = Object.fromEntries(settings)
  expect(all).toMatchObject({
    'source.base_url': { value: setup.service.url, from: 'variable VISIBILITY_API_URL' },
    'source.api_key': { value: '[redacted]', from: 'variable VISIBILITY_API_KEY' },
    'source.page_limit': { value: 10_000, from: 'default' },
    'source.max_attempts': { value: 6, from: 'file' },
    'projects.0.id': { from: 'variable VISIBILITY_PROJECTS' },
    'projects.0.api_key': { value: '[redacted]' },
    'reports.1.dimensions': { value: ['date', 'model_id'], from: 'file' },
    'alerts.webhook_url': { value: 'https://hooks.example.com/[redacted]', from: 'file' },
    'alerts.slack_url': { value: 'https://hooks.example.com/[redacted]', from: 'file, from SLACK_URL' },
    'alerts.smtp_password': { value: '[redacted]', from: 'file' },
    'alerts.page_url': { value: null, from: 'default' },
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

test('a support bundle holds what helps, is for its owner alone, and has no secret', async () => {
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
    plan: { requests: expect.any(Number) },
    queue: null,
  })
  expect(bundle.migrations.length).toBeGreaterThan(10)
  expect(bundle.configuration.settings.length).toBeGreaterThan(50)
  expect(bundle.tables.warehouse.map(({ name }: { name: string }) => name)).toContain('chats')
  expect(bundle.tables.ledger.map(({ name }: { name: string }) => name)).toContain('coverage')
  // What is there is not overwritten.
  const again = await runCli(['support-bundle', '--output', file], { config, env })
  expect([again.code, again.stderr]).toEqual([2, expect.stringContaining('name another with --output')])
})

test('a bundle is made without a database, too, and says what could not be read', async () => {
  const { config, env } = everySecret()
  const url = new URL(setup.database.url)
  url.port = '1'
  url.password = SECRETS.database
  const cwd = folder.path
  const away = { ...env, DATABASE_URL: url.href }
  const { code, json } = await runCli(['support-bundle', '--json'], { config, env: away, cwd })
  expect(code).toBe(0)
  const file = join(cwd, json().file)
  expect(existsSync(file)).toBe(true)
  const text = readFileSync(file, 'utf8')
  expectNoSecret(text)
  const bundle = JSON.parse(text)
  expect(bundle.status.error).toEqual(expect.any(String))
  expect(bundle.configuration.settings.length).toBeGreaterThan(50)
})
