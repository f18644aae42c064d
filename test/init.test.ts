import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from '@jest/globals'
import { parse, stringify } from 'yaml'
import { defaultConfig, loadConfig } from '../src/core/config/load.ts'
import { everySetting } from '../src/core/config/settings.ts'
import { runCli, runningIn, startProcess, temporaryFolder } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { longTest } from './support/long.ts'

describe('init', () => {
  /* The configuration that `init` writes. */

  const TEMPLATE = readFileSync(new URL('../config/sync.example.yaml', import.meta.url), 'utf8')
  const folder = temporaryFolder()

  /** As if somebody had taken away every "#" before a setting. */
  const everything = TEMPLATE.replaceAll(/^( *)#(?=[\w-])/gm, '$1')

  /** All values at a path such as "reports[].filters[].field" or "labels.brands.*.own". */
  function valuesAt(document: unknown, path: string): unknown[] {
    return path
      .replaceAll('[]', '.*')
      .split('.')
      .reduce<unknown[]>(
        (found, step) =>
          found.flatMap((value) => {
            if (typeof value !== 'object' || value === null) return []
            if (step === '*') return Object.values(value)
            return step in value ? [(value as Record<string, unknown>)[step]] : []
          }),
        [document],
      )
  }

  describe('the template', () => {
    test('has every setting of the schema in its place, and no other', () => {
      const document: unknown = parse(everything)
      const settings = everySetting()
      expect(settings.length).toBeGreaterThan(35)
      const missing = settings.filter(({ path }) => valuesAt(document, path).length === 0).map(({ path }) => path)
      expect(missing).toEqual([])
      const file = join(folder.path, 'everything.yaml')
      writeFileSync(file, everything)
      const variables = [...everything.matchAll(/\$\{(\w+)\}/g)].map(([, name]) => name!)
      const env = Object.fromEntries(variables.map((name, index) => [name, `https://a.example/${index}-value`]))
      expect(loadConfig({ file, env: { ...env, DATABASE_URL: 'postgres://h/d' } }).warnings).toEqual([])
    })

    test('as it is sets nothing but defaults, so that the same is read without it', () => {
      const file = join(folder.path, 'as-it-is.yaml')
      writeFileSync(file, TEMPLATE)
      const { file: _file, redactor: _one, variables: _own, ...written } = loadConfig({ file, env: {} })
      const { file: _none, redactor: _other, variables: _no, ...defaults } = defaultConfig()
      expect(written).toEqual(defaults)
    })
  })

  describe('init', () => {
    const init = (args: string[], env: Record<string, string> = {}) =>
      runCli(['init', ...args], { cwd: folder.path, env })

    test('writes the file that --config names, with its folders, its schema and the command to go on with', async () => {
      const result = await init(['--config', 'some/where/new.yaml'])
      expect([result.code, result.stderr]).toEqual([0, ''])
      expect(readFileSync(join(folder.path, 'some/where/new.yaml'), 'utf8')).toBe(TEMPLATE)
      expect(JSON.parse(readFileSync(join(folder.path, 'some/where/sync.schema.json'), 'utf8'))).toHaveProperty('title')
      expect(result.stdout).toContain('npx visibility-sync check --config some/where/new.yaml')
      expect(existsSync(join(folder.path, 'config'))).toBe(false)
    })

    test('asks for the variables that are not set', async () => {
      const asked = async (env: Record<string, string>) => {
        const { stdout } = await init(['--force'], env)
        return [...stdout.matchAll(/export (\w+)=/g)].map(([, name]) => name)
      }
      const env = { VISIBILITY_API_URL: 'https://a.example/v1', DATABASE_URL_FILE: '/run/secrets/url' }
      expect(await asked(env)).toEqual(['VISIBILITY_API_KEY', 'VISIBILITY_PROJECTS'])
      expect(await asked({ ...env, VISIBILITY_PROJECTS: '' })).toEqual(['VISIBILITY_API_KEY', 'VISIBILITY_PROJECTS'])
      const all = { ...env, VISIBILITY_API_KEY: 'k', VISIBILITY_PROJECTS: 'or_1' }
      expect(await asked(all)).toEqual([])
      expect((await init(['--force'], all)).stdout).toContain('Next: npx visibility-sync check')
    })

    test('overwrites nothing without --force, and mends what cannot be read with it', async () => {
      const file = join(folder.path, 'broken.yaml')
      writeFileSync(file, 'a: [')
      const refused = await init(['--config', 'broken.yaml'])
      expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('broken.yaml exists; --force')])
      expect(readFileSync(file, 'utf8')).toBe('a: [')
      expect((await init(['--config', 'broken.yaml', '--force'])).code).toBe(0)
      expect(readFileSync(file, 'utf8')).toBe(TEMPLATE)
    })
  })
})

describe('npm run demo', () => {
  /* npm run demo shows synthetic data, and nothing that is configured in any way is touched by it. */

  let folder: ReturnType<typeof temporaryFolder>
  let trap: Awaited<ReturnType<typeof startTrap>>
  beforeEach(async () => {
    folder = temporaryFolder()
    trap = await startTrap()
  })

  /** Stands for every database and service that someone configured, and counts who comes. */
  async function startTrap() {
    let visits = 0
    const server = createServer((socket) => {
      visits++
      socket.destroy()
    })
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
    const { port } = server.address() as { port: number }
    closeLater(() => server.close())
    return { host: `127.0.0.1:${port}`, visits: () => visits }
  }

  const demo = (env: Record<string, string>, args: string[] = []) =>
    startProcess(['--port', '0', ...args], { cwd: folder.path, script: 'scripts/demo.mjs', env })

  longTest('the demo touches no configured database or service, however it is configured', async () => {
    const database = `postgres://u:p@${trap.host}/warehouse`
    const api = `http://${trap.host}/v1`
    const settings = {
      source: { base_url: api, api_key: 'k' },
      warehouse: { url: database },
      alerts: { webhook_url: `http://${trap.host}/hook` },
    }
    mkdirSync(join(folder.path, 'config'))
    for (const name of ['config/sync.yaml', 'own.yaml']) writeFileSync(join(folder.path, name), stringify(settings))
    const secret = (name: string, text: string) => {
      writeFileSync(join(folder.path, name), text)
      return join(folder.path, name)
    }
    const address = new URL(api)
    const running = demo({
      DATABASE_URL: database,
      DATABASE_URL_FILE: secret('database_url', database),
      VISIBILITY_CONFIG: join(folder.path, 'own.yaml'),
      VISIBILITY_API_URL: api,
      VISIBILITY_API_KEY: 'k',
      VISIBILITY_PROJECTS: 'or_mine',
      VISIBILITY_TOKEN: 'a-token-of-my-own',
      PGHOST: address.hostname,
      PGPORT: address.port,
      http_proxy: `http://${trap.host}`,
    })
    await running.saw('Schedule:')
    expect(running.output()).toContain('the reference service (synthetic data')
    const data = join(folder.path, '.data/demo/.data/reference')
    expect(running.output()).toMatch(/postgres:\/\/visibility@127\.0\.0\.1:\d+\/visibility \(in /)
    expect(running.output()).toContain(`(in ${data})`)
    const page = /Serving: +(\S+)/.exec(running.output())![1]!
    expect(running.output()).toContain(`${page}/insights`)
    expect((await fetch(`${page}/healthz`)).status).toBe(200)
    const backfill = await fetch(`${page}/api/backfills`, {
      method: 'POST',
      headers: { authorization: 'Bearer a-token-of-my-own', 'content-type': 'application/json' },
      body: '{}',
    })
    expect(backfill.status).toBe(404)
    running.child.kill('SIGTERM')
    const { code, stderr } = await running.done
    // Only one folder is named.
    expect({ code, named: stderr.includes('.data') }).toEqual({ code: 0, named: false })
    expect(trap.visits()).toBe(0)
    // Nor the folder in which a warehouse without DATABASE_URL is kept, real or synthetic.
    for (const name of ['.data/postgres', '.data/reference']) expect(existsSync(join(folder.path, name))).toBe(false)
    expect(runningIn(data)).toBeUndefined()
  })

  test('the demo refuses a configuration', async () => {
    const { code, stderr } = await demo({}, ['--config=own.yaml']).done
    expect([code, stderr]).toEqual([2, expect.stringContaining('npx visibility-sync serve --config FILE')])
    expect(existsSync(join(folder.path, '.data'))).toBe(false)
  })
})
