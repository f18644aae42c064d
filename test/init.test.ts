import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from '@jest/globals'
import { parse, stringify } from 'yaml'
import { defaultConfig, loadConfig } from '../src/core/config/load.ts'
import { everySetting } from '../src/core/config/settings.ts'
import { COMPANY_KEY, type WorldOptions } from '../src/reference/world.ts'
import { runCli, runningIn, startProcess, temporaryFolder } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { longTest } from './support/long.ts'
import { setUp } from './support/setup.ts'
import { DOWN, ENTER, INTERRUPT, SPACE, startInTerminal } from './support/terminal.ts'

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
      const valueOf = (name: string, index: number) =>
        name.endsWith('DATABASE_URL') ? 'postgres://h/d' : `https://a.example/${index}-value`
      const env = Object.fromEntries(variables.map((name, index) => [name, valueOf(name, index)]))
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
      const { stdout } = await init(['--force'], all)
      expect(stdout).toContain('Next: npx visibility-sync check')
      expect(stdout).toContain('Variables that are set are not stored')
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

describe('init in a terminal', () => {
  /* The questions, as a person at a terminal sees them. */

  async function start(world: WorldOptions = {}) {
    const setup = await setUp({
      world: { prompts: 3, models: 1, brands: 3, ...world },
      extras: 'all',
      emptyDatabase: true,
    })
    return { setup, folder: temporaryFolder().path, ...setup.service.world }
  }
  const written = (folder: string, name: string) => readFileSync(join(folder, name), 'utf8')

  test('asks and tests one thing after the other, and what it writes is all that a sync needs', async () => {
    const { setup, folder, projects } = await start({ projects: 3 })
    const [first, second, third] = projects
    const url = new URL(setup.database.url)
    url.password = 'not-the-password'
    const terminal = startInTerminal(['init'], { cwd: folder })
    await terminal.answer('Address of the service', 'http://127.0.0.1:9/v1', ENTER)
    await terminal.answer('the connection was refused')
    await terminal.answer('Address of the service', 'example.com', ENTER)
    await terminal.answer('allowed: an http://')
    await terminal.answer('Address of the service', setup.service.url, ENTER)
    await terminal.answer('Key (hidden)', 'not-the-key', ENTER)
    await terminal.answer('HTTP 401')
    await terminal.answer('Key (hidden)', COMPANY_KEY, ENTER)
    await terminal.answer('Database (hidden)', url.href, ENTER)
    await terminal.answer('The user or the password is wrong')
    await terminal.answer('Database (hidden)', setup.database.url, ENTER)
    await terminal.answer('Which of the 3 projects', DOWN, SPACE, ENTER)
    // The brand that the service calls own is chosen already; of the second project, another one is.
    await terminal.answer('Which brands are your own', DOWN, DOWN, DOWN, SPACE, DOWN, SPACE, ENTER)
    await terminal.answer('How often', DOWN, DOWN, ENTER)
    const { code, text } = await terminal.ended()
    expect({ code, text }).toEqual({ code: 0, text: expect.stringContaining('Next: npx visibility-sync sync') })
    for (const secret of [COMPANY_KEY, 'not-the-key', new URL(setup.database.url).password])
      expect(terminal.output()).not.toContain(secret)

    const config = parse(written(folder, 'config/sync.yaml'))
    expect(config).toEqual({
      source: { base_url: setup.service.url },
      projects: [{ id: first!.id }, { id: third!.id }],
      labels: {
        brands: {
          [first!.brands[0]!.id]: { own: true },
          [third!.brands[0]!.id]: { own: false },
          [third!.brands[1]!.id]: { own: true },
        },
      },
      schedule: { cron: '0 6 * * *', timezone: expect.any(String) },
    })
    expect(written(folder, 'config/sync.yaml')).toContain(`# ${first!.name}`)
    expect(written(folder, 'config/sync.yaml')).not.toContain(second!.id)
    expect(statSync(join(folder, '.env')).mode & 0o777).toBe(0o600)
    expect(written(folder, '.gitignore')).toBe('.env\n')
    const synced = await runCli(['sync'], { cwd: folder })
    expect({ code: synced.code, stderr: synced.stderr }).toEqual({ code: 0, stderr: expect.any(String) })
    const own = await setup.database.rows('select name from visibility.brands where is_own order by 1')
    expect(own).toEqual([first!.brands[0]!.name, third!.brands[1]!.name].sort().map((name) => ({ name })))
  })

  test('an interrupt at any question writes nothing', async () => {
    const { setup, folder } = await start()
    const given = { VISIBILITY_API_URL: setup.service.url, VISIBILITY_API_KEY: COMPANY_KEY }
    for (const [question, env] of [
      ['Address of the service', {}],
      ['Database (hidden)', given],
      ['How often', { ...given, DATABASE_URL: 'embedded', VISIBILITY_PROJECTS: setup.projects[0]!.id }],
    ] as const) {
      const terminal = startInTerminal(['init'], { cwd: folder, env })
      if (question === 'How often') await terminal.answer('Which brands', ENTER)
      await terminal.answer(question, INTERRUPT)
      const { code, text } = await terminal.ended()
      expect([question, code, text]).toEqual([question, 1, expect.stringContaining('stopped; nothing was written')])
    }
    expect(readdirSync(folder)).toEqual([])
  })

  test('names that are hostile, long, odd or equal are safe on a narrow terminal and in the file', async () => {
    const { setup, folder, projects } = await start({ projects: 3, brands: 2 })
    const hostile = '\u001b]0;owned\u0007\u001b[2J\nlabels: { brands: {} } # "\u202e\u2028'
    for (const project of projects) project.name = 'Ελληνικά 漢字 👩‍👩‍👧'.repeat(9)
    projects[2]!.name = hostile
    const [one, two] = projects[0]!.brands
    one!.name = two!.name = hostile
    two!.name = ` ${hostile} `
    projects[1]!.brands[0]!.name = '__proto__'
    projects[1]!.brands[1]!.name = ''
    const env = { VISIBILITY_API_URL: setup.service.url, VISIBILITY_API_KEY: COMPANY_KEY, DATABASE_URL: 'embedded' }
    const terminal = startInTerminal(['init'], { cwd: folder, env, columns: 40 })
    await terminal.answer('Which of the 3 projects', ENTER)
    await terminal.answer('Which brands', DOWN, SPACE, ENTER)
    await terminal.answer('How often', ENTER)
    const { code, text } = await terminal.ended()
    expect({ code, text }).toEqual({ code: 0, text: expect.stringContaining('Next:') })
    for (const raw of [']0;owned\u0007', '\u202e', '\u001b[2J']) expect(terminal.output()).not.toContain(raw)
    expect(text).toContain('\\u001b]0;owned')
    const config = loadConfig({ file: join(folder, 'config/sync.yaml'), env: { DATABASE_URL: 'embedded' } })
    expect(config.projects.map(({ id }) => id)).toEqual(projects.map(({ id }) => id))
    expect(config.labels.brands).toMatchObject({ [two!.id]: { own: true } })
    expect(existsSync(join(folder, '.env'))).toBe(false)
  })

  test('what .env has is tested and not asked for, and stays', async () => {
    const { setup, folder, projects } = await start({ projects: 1 })
    const before = `# mine\nVISIBILITY_API_KEY="${projects[0]!.key}"\nOTHER=1`
    writeFileSync(join(folder, '.env'), before)
    writeFileSync(join(folder, '.gitignore'), 'node_modules')
    const terminal = startInTerminal(['init'], { cwd: folder })
    await terminal.answer('Address of the service', setup.service.url, ENTER)
    await terminal.answer('VISIBILITY_API_KEY is set')
    await terminal.answer('Database (hidden)', 'embedded', ENTER)
    // A key of one project needs no choice, and no id.
    await terminal.answer('Which brands', ENTER)
    await terminal.answer('How often', DOWN, ENTER)
    const { code } = await terminal.ended()
    expect([code, written(folder, '.env')]).toEqual([0, `${before}\nDATABASE_URL='embedded'\n`])
    expect(written(folder, '.gitignore')).toBe('node_modules\n.env\n')
    expect(parse(written(folder, 'config/sync.yaml'))).toMatchObject({ schedule: { cron: '15 */6 * * *' } })
    const again = startInTerminal(['init'], { cwd: folder })
    expect(await again.ended()).toMatchObject({ code: 2, text: expect.stringContaining('config/sync.yaml exists') })
    const wrong = startInTerminal(['init', '--force'], { cwd: folder, env: { VISIBILITY_API_KEY: 'wrong-key' } })
    await wrong.answer('Address of the service', setup.service.url, ENTER)
    expect(await wrong.ended()).toMatchObject({ code: 1, text: expect.stringContaining('HTTP 401') })
  })

  test('ids are asked for where the service lists no projects, and none for the reference service', async () => {
    const { setup, folder, projects } = await start({ projects: 2 })
    setup.service.setExtras([])
    const env = { DATABASE_URL: 'embedded' }
    const terminal = startInTerminal(['init'], { cwd: folder, env })
    await terminal.answer('Address of the service', setup.service.url, ENTER)
    await terminal.answer('Key (hidden)', COMPANY_KEY, ENTER)
    await terminal.answer('Ids of the projects', 'or_none', ENTER)
    await terminal.answer('HTTP 403')
    await terminal.answer('Ids of the projects', `${projects[1]!.id}, ${projects[0]!.id}`, ENTER)
    await terminal.answer('Which brands', DOWN, SPACE, ENTER)
    await terminal.answer('How often', ENTER)
    expect((await terminal.ended()).code).toBe(0)
    expect(parse(written(folder, 'config/sync.yaml'))).toMatchObject({
      projects: [{ id: projects[1]!.id }, { id: projects[0]!.id }],
    })
    const other = startInTerminal(['init', '--config', 'other/own.yaml'], { cwd: folder, env })
    await other.answer('Address of the service', 'reference', ENTER)
    await other.answer('Which brands', ENTER)
    await other.answer('How often', ENTER)
    expect((await other.ended()).code).toBe(0)
    expect(parse(written(folder, 'other/own.yaml'))).toEqual({ source: { base_url: 'reference' } })
  })

  test('--full and --yes ask nothing', async () => {
    for (const option of ['--full', '--yes']) {
      const folder = temporaryFolder().path
      const { code } = await startInTerminal(['init', option], { cwd: folder }).ended()
      expect([code, written(folder, 'config/sync.yaml')]).toEqual([0, written('config', 'sync.example.yaml')])
    }
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
