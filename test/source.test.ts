import { existsSync } from 'node:fs'
import type { IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { resolveAllProjects } from '../src/app/all-projects.ts'
import { explain } from '../src/core/config/explain.ts'
import { startReference } from '../src/reference/server.ts'
import { createWorld } from '../src/reference/world.ts'
import type { Client } from '../src/source/client.ts'
import { StreamSet } from '../src/streams/registry.ts'
import type { RunReport } from '../src/sync/run/report.ts'
import { runSync } from '../src/sync/run/run-sync.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { createDatabase } from './support/postgres.ts'
import { startProxy, startRewriter } from './support/proxy.ts'
import { configOf, NO_LIMIT, type Setup, setUp } from './support/setup.ts'

/* Which service is read, and that its rows never mix with those of another. */

const SMALL = { start_date: '2026-03-01', end_date: '2026-03-02', reports: [{ name: 'daily', dimensions: ['date'] }] }

test('without the address of the service, commands that read it exit 2 and name the variable', async () => {
  const database = await createDatabase()
  const days = ['--from', '2026-03-01', '--to', '2026-03-02']
  const wanted = { VISIBILITY_API_KEY: 'k', VISIBILITY_PROJECTS: 'or_real', DATABASE_URL: database.url }
  const env = { ...wanted, VISIBILITY_API_ULR: 'https://api.example.com/v1' }
  for (const command of [['sync'], ['backfill', ...days], ['audit'], ['check']]) {
    const result = await runCli(command, { env, config: SMALL })
    expect({ command, code: result.code, output: result.stdout + result.stderr }).toEqual({
      command,
      code: 2,
      output: expect.stringContaining('VISIBILITY_API_URL'),
    })
  }
  expect(await database.rows("select 1 from pg_namespace where nspname like 'visibility%'")).toEqual([])
})

test('a key without an address is an error, not a reason for synthetic data', async () => {
  const folder = temporaryFolder()
  const result = await runCli(['sync'], { cwd: folder.path, env: { VISIBILITY_API_KEY: 'k' } })
  expect([result.code, result.stderr]).toEqual([2, expect.stringContaining('VISIBILITY_API_URL')])
  expect(existsSync(join(folder.path, '.data'))).toBe(false)
})

describe('without DATABASE_URL', () => {
  const service = {
    VISIBILITY_API_URL: 'http://127.0.0.1:9/v1',
    VISIBILITY_API_KEY: 'key',
    VISIBILITY_PROJECTS: 'or_1',
  }
  const days = ['--from', '2026-03-01', '--to', '2026-03-02']

  test('a service is refused with exit 2 by every command that needs a database, and none is created', async () => {
    const folder = temporaryFolder()
    const commands = [
      ['sync'],
      ['backfill', ...days],
      ['audit'],
      ['check'],
      ['plan'],
      ['status'],
      ['serve'],
      ['migrate'],
    ]
    const more = [['database'], ['worker'], ['quarantine', 'list'], ['grant', '--role', 'r']]
    for (const command of [...commands, ...more]) {
      const result = await runCli(command, { cwd: folder.path, env: service })
      const output = (result.stdout + result.stderr).replaceAll(/\s+/g, ' ')
      expect({ command, code: result.code, output }).toEqual({
        command,
        code: 2,
        output: expect.stringContaining('DATABASE_URL: nothing is set, but a service is configured'),
      })
    }
    expect(existsSync(join(folder.path, '.data'))).toBe(false)
  })

  test('a misspelt name of it is part of the message', async () => {
    const env = { ...service, DATBASE_URL: 'postgres://h/d' }
    const { stderr } = await runCli(['sync'], { cwd: temporaryFolder().path, env })
    expect(stderr).toContain('DATBASE_URL: unknown variable, ignored; did you mean "DATABASE_URL"?')
  })

  test('"embedded" asks for the embedded Postgres by name, which then holds real rows', async () => {
    const folder = temporaryFolder()
    const setup = await setUp({
      world: { projects: 1, prompts: 3, models: 1, brands: 2 },
      config: SMALL,
      emptyDatabase: true,
    })
    const env = { ...setup.env, DATABASE_URL: 'embedded' }
    const checked = await runCli(['check'], { cwd: folder.path, env, config: SMALL })
    expect(checked.stdout).toContain('the first sync creates an embedded Postgres in .data\n')
    const result = await runCli(['sync'], { cwd: folder.path, env, config: SMALL })
    expect({ code: result.code, stderr: result.stderr }).toEqual({ code: 0, stderr: expect.any(String) })
    expect(result.stdout).toContain('(in .data)')
    const synthetic = await runCli(['sync'], { cwd: folder.path, env: { DATABASE_URL: 'embedded' }, config: SMALL })
    expect([synthetic.code, synthetic.stderr]).toEqual([
      2,
      expect.stringContaining('VISIBILITY_API_URL: nothing is set'),
    ])
  })
})

describe('a warehouse knows its source', () => {
  let setup: Setup
  const small = { world: { projects: 1, prompts: 3, models: 1, brands: 2 }, config: SMALL }
  const cli = (env: Record<string, string> = {}) => ({ env: { ...setup.env, ...env }, config: setup.fileConfig })
  const rows = () => setup.database.rows('select * from visibility.daily order by 1, 2, 3')

  test('another address, or the reference service, is refused with both named, and nothing is read or written', async () => {
    setup = await setUp(small)
    const other = await setUp({ ...small, world: { ...small.world, seed: 2 } })
    expect((await runCli(['sync'], cli())).code).toBe(0)
    const before = await rows()
    for (const address of [other.service.url, 'reference']) {
      for (const command of address === 'reference' ? ['sync'] : ['sync', 'audit', 'serve']) {
        const args = command === 'serve' ? [command, '--port', '0'] : [command]
        const result = await runCli(args, cli({ VISIBILITY_API_URL: address }))
        const output = (result.stdout + result.stderr).replaceAll(/\s+/g, ' ')
        expect({ command, code: result.code, output }).toEqual({
          command,
          code: 2,
          output: expect.stringContaining(`filled from ${setup.service.url}`),
        })
        expect(output).toContain(address === 'reference' ? 'the reference service' : address)
      }
    }
    expect(other.service.requests.filter(({ path }) => !['/v1/prompts', '/v1/projects'].includes(path))).toEqual([])
    expect(await rows()).toEqual(before)
  })

  test('a wrong first address is corrected on request alone', async () => {
    setup = await setUp(small)
    const wrong = cli({ VISIBILITY_API_URL: 'http://127.0.0.1:9/v1' })
    const options = { ...wrong, config: { ...setup.fileConfig, source: { patience_seconds: 1, max_attempts: 1 } } }
    expect((await runCli(['sync'], options)).code).toBe(1)
    expect((await runCli(['sync'], cli())).code).toBe(2)
    expect((await runCli(['migrate', '--move-source'], cli())).code).toBe(0)
    expect((await runCli(['sync'], cli())).code).toBe(0)
  })

  test('a service that moved to another address is recorded on request, and then read', async () => {
    setup = await setUp(small)
    expect((await runCli(['sync'], cli())).code).toBe(0)
    const moved = setup.service.url.replace('127.0.0.1', 'localhost')
    expect((await runCli(['sync'], cli({ VISIBILITY_API_URL: moved }))).code).toBe(2)
    const result = await runCli(['migrate', '--move-source'], cli({ VISIBILITY_API_URL: moved }))
    expect([result.code, result.stdout]).toEqual([
      0,
      expect.stringContaining(`moved from ${setup.service.url} to ${moved}`),
    ])
    expect((await runCli(['sync'], cli({ VISIBILITY_API_URL: moved }))).code).toBe(0)
    expect((await runCli(['sync'], cli())).code).toBe(2)
  })

  test('synthetic rows cannot be turned into those of a real service', async () => {
    setup = await setUp(small)
    expect((await runCli(['sync'], cli({ VISIBILITY_API_URL: 'reference' }))).code).toBe(0)
    for (const command of [['sync'], ['migrate', '--move-source']]) {
      const result = await runCli(command, cli())
      expect([result.code, result.stderr]).toEqual([2, expect.stringContaining('use another database')])
    }
  })
})

describe('all projects', () => {
  /* VISIBILITY_PROJECTS=all, and what a refusal of extra lists does to a run. */

  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 3, prompts: 3, models: 1, brands: 2 },
      extras: ['GET /projects'],
      config: {
        start_date: '2026-03-30',
        end_date: '2026-03-31',
        reports: [{ name: 'brand_daily', dimensions: ['date'] }],
      },
    })
  })

  const all = () => ({ ...setup.env, VISIBILITY_PROJECTS: 'all' }) as Record<string, string>
  const run = (args: string[], env = all()) => runCli(args, { env, config: setup.fileConfig })
  const asked = (path: string) => setup.service.requests.filter((request) => request.path === path).length
  const ids = () => setup.service.world.projects.map(({ id }) => id).sort()

  /** The same database under another configuration, and maybe through another address. */
  function syncWith(settings: Record<string, unknown>, client: Client = setup.services.client, names?: string[]) {
    const config = configOf({ ...setup.fileConfig, ...settings }, setup.env)
    const services = { ...setup.services, config, streams: new StreamSet(config), client }
    return runSync(services, { command: 'sync', projects: setup.projects, streams: services.streams.named(names) })
  }

  test('every listed project is synced, and the list is read to its end', async () => {
    setup.service.requests.length = 0
    const { code, stdout } = await run(['sync', '--json'])
    expect(code).toBe(0)
    const { streams } = JSON.parse(stdout) as { streams: { project_id: string }[] }
    expect([...new Set(streams.map(({ project_id }) => project_id))].sort()).toEqual(ids())
    expect(asked('/v1/projects')).toBe(2)
    // The stream of projects takes the row of each project from one answer, and asks anew in the next run.
    for (const times of [3, 4]) {
      expect((await syncWith({ extras: ['projects'] }, undefined, ['projects'])).outcome).toBe('complete')
      expect(asked('/v1/projects')).toBe(times)
    }
    const rows = await setup.database.rows(
      'select project_id from visibility.projects where status is not null order by 1',
    )
    expect(rows.map(({ project_id }) => project_id)).toEqual(ids())
  })

  test('pages that are shorter than asked for hide no project, and a list that ends before its total is refused', async () => {
    for (const [total, expected] of [
      [3, 0],
      [4, 1],
    ] as const) {
      const proxy = await startRewriter(setup.service.url, (text, { url }) => {
        if (!url!.includes('/projects?')) return text
        const { data } = JSON.parse(text)
        return JSON.stringify({ data: data.slice(0, 1), totalCount: total })
      })
      const { code, stderr } = await run(['plan', '--json'], {
        ...all(),
        VISIBILITY_API_URL: proxy.url,
      })
      expect([code, stderr.includes('only 3 of 4 projects')]).toEqual([expected, total === 4])
    }
  })

  test('commands that take projects know them, and one that is not listed is refused', async () => {
    const [first] = ids()
    const plan = await run(['plan', '--json', '--project', first!])
    expect([plan.code, JSON.parse(plan.stdout).streams[0].project_id]).toEqual([0, first])
    const unknown = await run(['audit', '--project', 'or_other'])
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining(`--project: got "or_other"`)])
    const check = await run(['check', '--json'])
    expect(JSON.parse(check.stdout).verdicts.map(({ what }: { what: string }) => what)).toEqual(
      expect.arrayContaining(ids().map((id) => `project ${id}`)),
    )
  })

  test('projects that are deleted or ended are skipped, and reported', async () => {
    const [first, second, third] = setup.service.world.projects
    Object.assign(first!, { status: 'DELETED' })
    Object.assign(second!, { status: 'TRIAL_ENDED' })
    const { code, stdout, stderr } = await run(['sync', '--json'])
    const streams = JSON.parse(stdout).streams as { project_id: string }[]
    expect([code, new Set(streams.map(({ project_id }) => project_id))]).toEqual([0, new Set([third!.id])])
    expect(stderr).toContain('deleted and ended projects are skipped')
    expect(stderr).toContain(`${first!.id} (DELETED)`)
    expect((await run(['check'])).stdout).toContain(`${second!.id} (TRIAL_ENDED)`)
    Object.assign(third!, { status: 'pitch_ended' })
    const none = await run(['sync'])
    expect([none.code, none.stderr]).toEqual([2, expect.stringContaining('every project is deleted or ended')])
    for (const project of [first, second, third]) delete project!.status
  })

  test('if projects are not listed, the variable is named, and commands without the service still work', async () => {
    setup.service.setExtras([])
    const { code, stderr } = await run(['sync'])
    const refusal = 'VISIBILITY_PROJECTS: got "all", but the service does not list projects: GET /projects: HTTP 404'
    expect([code, stderr]).toEqual([2, expect.stringContaining(refusal)])
    const status = await run(['status', '--json'])
    expect([status.code, status.stderr]).toEqual([0, expect.stringContaining('the projects are not known')])
    setup.service.setExtras(['GET /projects'])
    const load = (env: Record<string, string>) => configOf(setup.fileConfig, { ...all(), ...env })
    const ofOneProject = load({ VISIBILITY_API_KEY: setup.service.world.projects[0]!.key })
    await expect(resolveAllProjects(ofOneProject)).rejects.toThrow('HTTP 403')
    expect(() => load({ VISIBILITY_PROJECTS: 'all,or_1' })).toThrow('"all" alone, or ids')
    expect(() => load({ VISIBILITY_API_KEY: '' })).toThrow('VISIBILITY_API_KEY')
    expect(explain(load({}), {}, all())).toContainEqual({
      setting: 'projects',
      value: 'all',
      from: 'variable VISIBILITY_PROJECTS',
    })
  })
})

describe('a project of which everything is refused', () => {
  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({ world: { projects: 2, prompts: 3, models: 1, brands: 2 } })
  })

  /** A service that refuses everything of the second project, the requests for it, and the command line. */
  async function refusing(status: number, fileConfig: Record<string, unknown> = setup.fileConfig) {
    const [, refused] = setup.service.world.projects
    const asked: string[] = []
    const isOf = ({ url, method }: IncomingMessage, body: string) => {
      const isRefused = `${url}${body}`.includes(refused!.id)
      if (isRefused) asked.push(`${method} ${url!.split('?')[0]}`)
      return isRefused
    }
    const proxy = await startProxy(setup.service.url, isOf, status)
    const env = { ...setup.env, VISIBILITY_API_URL: proxy.url, DATABASE_URL: (await createDatabase('empty')).url }
    const run = (args: string[], more = {}) => runCli(args, { env: { ...env, ...more }, config: fileConfig })
    return { id: refused!.id, asked, run }
  }

  test.each([
    [400, 'the id of the project is wrong'],
    [404, 'the id of the project is wrong'],
    [402, 'its plan'],
  ])(
    'by HTTP %i: two requests show it, other projects are read, and the advice is about the project',
    async (status, cause) => {
      const { id, asked, run } = await refusing(status, { ...setup.fileConfig, extras: 'auto' })
      const { code, stdout } = await run(['sync', '--json'])
      const { streams, outcome } = JSON.parse(stdout) as RunReport
      expect([code, outcome, asked]).toEqual([1, 'partial', [expect.any(String), expect.any(String)]])
      expect(new Set(asked).size).toBe(2)
      const codes = (of: (project: string) => boolean) =>
        new Set(streams.filter((row) => of(row.project_id)).flatMap(({ failed }) => failed.map((entry) => entry.code)))
      expect([codes((project) => project === id), codes((project) => project !== id)]).toEqual([
        new Set(['project']),
        new Set(),
      ])
      const alone = (await run(['sync'], { VISIBILITY_PROJECTS: id })).stdout.replaceAll(/\s+/g, ' ')
      expect(alone).toContain(cause)
      expect(alone).toMatch(/Next: check the id of \S+ in VISIBILITY_PROJECTS.*: npx visibility-sync check/)
      expect(alone.slice(alone.indexOf('Next:'))).not.toContain('project_profile')
      const check = await run(['check'], { VISIBILITY_PROJECTS: id })
      expect([check.code, check.stdout.replaceAll(/\s+/g, ' ')]).toEqual([
        1,
        expect.stringContaining('check the id in VISIBILITY_PROJECTS'),
      ])
    },
  )

  test('a backfill finds it out by two requests, too', async () => {
    const { asked, run } = await refusing(404)
    const { code } = await run(['backfill', '--from', '2026-03-01', '--to', '2026-03-31'])
    expect([code, asked.length]).toEqual([1, 2])
  })

  test('one operation that is refused is not the project', async () => {
    const proxy = await startProxy(setup.service.url, ({ url }) => url!.includes('/project-profile'), 404)
    const env = { ...setup.env, VISIBILITY_API_URL: proxy.url, DATABASE_URL: (await createDatabase('empty')).url }
    const { streams } = (await runCli(['sync', '--json'], { env, config: setup.fileConfig })).json() as RunReport
    const failed = streams.filter((row) => row.failed.length > 0)
    expect(failed.map(({ stream, windows, failed: [entry] }) => [stream, windows, entry!.code])).toEqual([
      ['project_profile', 0, 'refused'],
      ['project_profile', 0, 'refused'],
    ])
  })

  test('days of a report that are not asked for after a refusal have its code and reason', async () => {
    const having = [{ field: 'mention_count', operator: 'gte', value: 5 }]
    const config = { ...setup.fileConfig, reports: [{ name: 'frequent', dimensions: ['date'], having }] }
    const env = { ...setup.env, DATABASE_URL: (await createDatabase('empty')).url }
    const result = await runCli(['sync', '--stream', 'frequent', '--json'], { env, config })
    const failed = (result.json() as RunReport).streams.flatMap((row) => row.failed)
    expect(failed.length).toBeGreaterThan(2)
    for (const { code, error } of failed)
      expect([code, error]).toEqual([
        'refused',
        expect.stringMatching(/^(not read: )?POST \/reports\/brands: HTTP 400/),
      ])
  })

  test('an id that is none is refused before anything is sent, unless the service lists it', async () => {
    const env = { ...setup.env, VISIBILITY_PROJECTS: 'foo', DATABASE_URL: (await createDatabase('empty')).url }
    for (const args of [['sync'], ['audit'], ['check']]) {
      setup.service.requests.length = 0
      const { code, stdout, stderr } = await runCli(args, { env, config: setup.fileConfig })
      expect([code, `${stdout}${stderr}`.replaceAll(/\s+/g, ' ')]).toEqual([
        2,
        expect.stringContaining('VISIBILITY_PROJECTS: got "foo"; allowed: ids of projects, which begin with "or_"'),
      ])
      expect(setup.service.requests.filter(({ path }) => path !== '/v1/projects')).toEqual([])
    }
    const world = createWorld({ projectIds: ['foo'], prompts: 2, models: 1, brands: 2 })
    const listing = await startReference({ world, faults: NO_LIMIT, extras: ['GET /projects'] })
    closeLater(() => listing.close())
    const ask = { env: { ...env, VISIBILITY_API_URL: listing.url, VISIBILITY_PROJECTS: 'bar' } }
    expect((await runCli(['sync'], ask)).stderr).toContain(
      '"bar"; allowed: ids of projects, which begin with "or_"; the key can read: foo (Fernweh Europe)',
    )
    const listed = await runCli(['sync'], {
      env: { ...env, VISIBILITY_API_URL: listing.url },
      config: setup.fileConfig,
    })
    expect([listed.code, listed.stderr]).toEqual([0, expect.not.stringContaining('allowed')])
  })
})
