import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, test } from '@jest/globals'
import { type CliOptions, runCli, temporaryFolder } from './support/cli.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { type Setup, setUp } from './support/setup.ts'

/* Which service is read, and that its rows never mix with those of another. */

const SMALL = { start_date: '2026-03-01', end_date: '2026-03-02', reports: [{ name: 'daily', dimensions: ['date'] }] }

describe('a warehouse that is configured without the address of the service', () => {
  let database: TestDatabase
  const folder = temporaryFolder()
  afterEach(() => database.drop())
  afterAll(() => folder.remove())

  const ways: [string, () => CliOptions][] = [
    ['DATABASE_URL', () => ({ env: { DATABASE_URL: database.url } })],
    [
      'DATABASE_URL_FILE',
      () => {
        const file = join(folder.path, 'database_url')
        writeFileSync(file, database.url)
        return { env: { DATABASE_URL_FILE: file } }
      },
    ],
    ['the configuration file', () => ({ config: { ...SMALL, warehouse: { url: database.url } } })],
    [
      'a misspelt variable',
      () => ({ env: { DATABASE_URL: database.url, VISIBILITY_API_ULR: 'https://api.example.com/v1' } }),
    ],
  ]
  test.each(ways)('by %s: commands that read the service exit 2 and name the variable', async (way, options) => {
    database = await createDatabase()
    const { env, ...rest } = options()
    const settings = { VISIBILITY_API_KEY: 'k', VISIBILITY_PROJECTS: 'or_real', ...env }
    const given = { config: SMALL, ...rest, env: settings }
    const days = ['--from', '2026-03-01', '--to', '2026-03-02']
    // Each command asks the same function, so one way is tried with all of them.
    const commands = way === ways[0]![0] ? [['sync'], ['backfill', ...days], ['audit'], ['check']] : [['sync']]
    for (const command of commands) {
      const result = await runCli(command, given)
      expect({ command, code: result.code, output: result.stdout + result.stderr }).toEqual({
        command,
        code: 2,
        output: expect.stringContaining('VISIBILITY_API_URL'),
      })
    }
    expect(await database.rows("select 1 from pg_namespace where nspname like 'visibility%'")).toEqual([])
  })
})

test('a key without an address is a real service that was meant, not a reason for synthetic data', async () => {
  const folder = temporaryFolder()
  const result = await runCli(['sync'], { cwd: folder.path, env: { VISIBILITY_API_KEY: 'k' } })
  expect([result.code, result.stderr]).toEqual([2, expect.stringContaining('VISIBILITY_API_URL')])
  expect(existsSync(join(folder.path, '.data'))).toBe(false)
  folder.remove()
})

test('the reference service is read where it is asked for by name, and the embedded warehouse of the trial has its own folder', async () => {
  const folder = temporaryFolder()
  const result = await runCli(['sync', '--json'], {
    cwd: folder.path,
    config: SMALL,
    env: { VISIBILITY_API_URL: 'reference' },
  })
  expect([result.code, result.json().source]).toEqual([0, expect.stringContaining('reference service')])
  expect(existsSync(join(folder.path, '.data/reference/postgres/PG_VERSION'))).toBe(true)
  expect(existsSync(join(folder.path, '.data/postgres'))).toBe(false)
  folder.remove()
})

describe('a warehouse knows its source', () => {
  let setup: Setup
  let other: Setup | undefined
  afterEach(async () => {
    await setup.close()
    await other?.close()
    other = undefined
  })
  const small = { world: { projects: 1, prompts: 3, models: 1, brands: 2 }, config: SMALL }
  const cli = (env: Record<string, string> = {}) => ({ env: { ...setup.env, ...env }, config: setup.fileConfig })
  const rows = () => setup.database.rows('select * from visibility.daily order by 1, 2, 3')

  test('another address, or the reference service, is refused with both named, and nothing is read or written', async () => {
    setup = await setUp(small)
    other = await setUp({ ...small, world: { ...small.world, seed: 2 } })
    expect((await runCli(['sync'], cli())).code).toBe(0)
    const before = await rows()
    for (const address of [other.service.url, 'reference']) {
      for (const command of address === 'reference' ? ['sync'] : ['sync', 'audit', 'check', 'worker', 'serve']) {
        const result = await runCli([command], cli({ VISIBILITY_API_URL: address }))
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

  test('a service that moved to another address is recorded on purpose, and read from then on', async () => {
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

  test('a warehouse of an earlier version takes its source from its runs', async () => {
    setup = await setUp(small)
    expect((await runCli(['sync'], cli())).code).toBe(0)
    await setup.database.rows('drop table visibility_ops.source, visibility_ops.run_leases')
    await setup.database.rows(
      'alter table visibility_ops.runs drop column lease_expires_at, drop column process, drop column lock_token',
    )
    await setup.database.rows('drop index visibility_ops.runs_open')
    await setup.database.rows('delete from visibility_ops.migrations where version = 10')
    expect((await runCli(['migrate'], cli())).code).toBe(0)
    expect(await setup.database.rows('select address from visibility_ops.source')).toEqual([
      { address: setup.service.url },
    ])
  })
})
