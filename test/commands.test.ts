import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { addDays, dayOf } from '../src/core/day.ts'
import { COMPANY_KEY } from '../src/reference/world.ts'
import { runCli, startProcess, temporaryFolder } from './support/cli.ts'
import { createDatabase } from './support/postgres.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, setUp } from './support/setup.ts'

describe('commands', () => {
  /* The commands as people type them. */

  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({ emptyDatabase: true, world: { projects: 2, prompts: 7, models: 2, brands: 3 } })
  })
  const cli = (...args: string[]) => runCli(args, { env: setup.env, config: setup.fileConfig })

  test('the program prints its version and its exit codes', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
    expect((await runCli(['--version'])).stdout.trim()).toBe(version)
    const help = await runCli(['--help'])
    expect(help.stdout).toContain('3 another run holds the lock')
    const groups = [...help.stdout.matchAll(/^(\w+):\n((?: .*\n)+)/gm)].map(([, title, lines]) => [
      title,
      [...lines!.matchAll(/^ {2}([a-z-]+)/gm)].map(([, name]) => name),
    ])
    expect(Object.fromEntries(groups)).toEqual({
      Options: expect.any(Array),
      Start: ['init', 'check', 'sync', 'serve', 'status'],
      Operate: ['backfill', 'plan', 'audit', 'quarantine', 'worker', 'migrate'],
      BI: expect.arrayContaining(['grant', 'metabase', 'pack']),
      Write: ['create'],
      More: expect.arrayContaining(['config', 'help', 'completion', 'database', 'reference']),
    })
  })

  test('a command loads only the packages that it needs', async () => {
    const { path, remove } = temporaryFolder()
    const own = await setUp({ world: { projects: 1 } })
    const hook = join(path, 'loaded.cjs')
    writeFileSync(
      hook,
      `process.on('exit', () => {
        const maps = Object.keys(require.cache).filter((file) => file.endsWith('.cjs') && file !== __filename)
        const sources = maps.flatMap((file) => JSON.parse(require('fs').readFileSync(file + '.map', 'utf8')).sources)
        console.error('loaded ' + sources.flatMap((source) => /node_modules\\/(.*)\\//.exec(source)?.[1].split('/')[0] ?? []))
      })`,
    )
    const loaded = async (...args: string[]) => {
      const env = { ...own.env, NODE_OPTIONS: `--require ${hook}` }
      const { stderr } = await startProcess(args, { env, config: own.fileConfig }).done
      return [...new Set(/^loaded (.*)$/m.exec(stderr)![1]!.split(','))]
    }
    expect(await loaded('--version')).toEqual(['commander'])
    expect(await loaded('--help')).toEqual(['commander'])
    expect(await loaded('status')).not.toContain('got')
    const bySync = await loaded('sync', '--stream', 'brand_daily')
    expect(bySync).toContain('got')
    for (const name of ['nodemailer', 'fastify', 'prom-client']) expect(bySync).not.toContain(name)
    remove()
  })

  test.each([
    ['sync', '--project'],
    ['backfill', '--from'],
    ['quarantine', 'list', '--limit'],
    ['metabase', '--url'],
    ['help'],
  ])('a key that is pasted as an argument of %s %s is not shown', async (...words) => {
    const { code, stderr } = await runCli([...words, 'sk_live_1234567890abcd'])
    expect([code, stderr]).toEqual([2, expect.not.stringContaining('1234567890')])
  })

  describe('bad usage exits 2 with one message, before any request or table', () => {
    const cases: [string, string[], string][] = [
      ['an unknown command', ['sink'], "unknown command 'sink'"],
      ['an unknown option', ['sync', '--fast'], "unknown option '--fast'"],
      ['an unknown stream', ['sync', '--stream', 'chat'], '--stream: got "chat"; configured are: project_profile'],
      ['an impossible date', ['backfill', '--from', '2026-02-30', '--to', '2026-03-01'], '--from: got "2026-02-30"'],
      [
        'a range that ends before it starts',
        ['backfill', '--from', '2026-03-02', '--to', '2026-03-01'],
        '--to: got "2026-03-01"; allowed: --from (2026-03-02) or later',
      ],
      [
        'a backfill from the year 1',
        ['backfill', '--from', '0001-01-01', '--to', '2026-03-01'],
        '--from: got "0001-01-01"; allowed: 2020-01-01 (earliest_date) or later',
      ],
      ['a backfill without range', ['backfill'], '--from or --last: give one of both'],
      ['half a range', ['plan', '--to', '2026-03-01'], '--from or --last: give one of both'],
      ['both beginnings', ['backfill', '--from', '2026-03-01', '--last', '3d'], '--from or --last: give one of both'],
      ['a length that is none', ['backfill', '--last', '3'], '--last: got "3"; allowed: a number of days such as 30d'],
      ['a length beyond any data', ['plan', '--last', '9999d'], '(earliest_date) or later'],
      ['a bad number', ['status', '--runs', 'all'], '--runs: got "all"'],
      ['a long name', ['sync', '--stream', 'brand_daily_2026_q1'], '--stream: got "brand_daily_2026_q1"; configured'],
      ['an unknown fault', ['reference', '--fault', 'chaos=1'], '--fault: chaos'],
      ['a file that is not there', ['sync', '--config', '/nowhere.yaml'], '/nowhere.yaml: cannot be read'],
    ]
    test.each(cases)('%s', async (_, args, message) => {
      setup.service.requests.length = 0
      const result = await cli(...args)
      expect(result.stderr).toContain(message)
      expect([result.code, result.stdout]).toEqual([2, ''])
      expect(result.stderr).not.toMatch(/\n\s+at /)
      expect(setup.service.requests).toEqual([])
    })

    test('with --json the error is a document too', async () => {
      const result = await cli('sync', '--stream', 'chat', '--json')
      expect(result.json()).toEqual({ error: { code: 'usage', message: expect.stringContaining('--stream') } })
    })
  })

  test('a project is named by its name, the start of its id or its id as it is shown, if that is unique', async () => {
    const own = await setUp({ world: { projects: 2, prompts: 2, models: 1, brands: 2 } })
    const [first = '', second = ''] = own.service.world.projects.map(({ id }) => id)
    const run = (...args: string[]) => runCli(args, { env: own.env, config: own.fileConfig })
    const setName = (name: string, id: string) =>
      own.database.rows('update visibility.projects set name = $1 where project_id = $2', [name, id])
    const start = first.slice(0, 8)
    expect((await run('sync', '--project', start)).code).toBe(0)
    await run('sync')
    const name = 'Handelsgesellschaft "2026" – Ελλάδα'
    await setName(name, first)
    const short = (await run('plan')).stdout.match(/or_\w+…\w+/)![0]
    for (const text of [name.toLowerCase(), ` ${name}`, start, `${first.slice(0, 8)}...${first.slice(-4)}`]) {
      const plan = (await run('plan', '--json', '--project', text)).json()
      expect({ text, projects: plan.streams.map((row: any) => row.project_id) }).toEqual({
        text,
        projects: expect.not.arrayContaining([second]),
      })
    }
    expect((await run('plan', '--json', '--project', short)).json().streams).not.toEqual([])
    expect((await run('quarantine', 'list', '--project', name)).code).toBe(0)
    const refused = async (text: string) => (await run('sync', '--project', text)).stderr
    expect(await refused('or_')).toContain('--project: "or_" is the start of ')
    await setName(name, second)
    expect(await refused(name)).toContain(
      `is the name of ${[first, second].sort().join(', ')}: give the id, or more of it`,
    )
    const unknown = await run('sync', '--project', 'Handelsgesellschaft 2027')
    expect([unknown.code, unknown.stderr]).toEqual([
      2,
      expect.stringContaining(`--project: got "Handelsgesellschaft 2027"; configured are: ${first}, ${second}`),
    ])
  })

  test('--ids prints whole ids in place of names', async () => {
    const own = await setUp({ world: { projects: 2, prompts: 2, models: 1, brands: 2 } })
    const [first = ''] = own.service.world.projects.map(({ id }) => id)
    const run = (...args: string[]) => runCli(args, { env: own.env, config: own.fileConfig })
    await run('sync')
    for (const command of [['status'], ['plan'], ['check']]) {
      const [usual, whole] = [await run(...command), await run(...command, '--ids')]
      expect([command, usual.stdout.includes(first), whole.stdout.includes(first)]).toEqual([command, false, true])
    }
  })

  test('backfill reads the last days until yesterday, or until --to', async () => {
    const today = dayOf(new Date())
    const own = await setUp({ world: { projects: 1, prompts: 2, models: 1, brands: 2 }, config: { end_date: today } })
    const daysRead = async (...args: string[]) => {
      own.service.requests.length = 0
      const { code } = await runCli(['backfill', '--stream', 'chats', ...args], {
        env: own.env,
        config: own.fileConfig,
      })
      const asked = own.service.requests.filter(({ path }) => path.endsWith('/chats')).map(({ query }) => query)
      const days = asked.flatMap(({ start_date, end_date }) => [start_date!, end_date!]).sort()
      return [code, days[0], days.at(-1)]
    }
    const ago = (days: number) => addDays(today, -days)
    expect(await daysRead('--last', '3d')).toEqual([0, ago(3), ago(1)])
    expect(await daysRead('--last', '2d', '--to', ago(5))).toEqual([0, ago(6), ago(5)])
    expect(await daysRead('--from', ago(2))).toEqual([0, ago(2), ago(1)])
    expect(await daysRead('--from', today)).toEqual([0, today, today])
  })

  test('plan shows windows and requests before anything exists, and creates nothing', async () => {
    const result = await cli('plan', '--json')
    expect(result.code).toBe(0)
    const { streams } = result.json()
    expect(streams.find((row: any) => row.stream === 'by_prompt')).toMatchObject({ due_days: 31, guessed: true })
    expect(await setup.database.rows("select 1 from pg_namespace where nspname like 'visibility%'")).toEqual([])
  })

  test('plan and sync send about as many requests, at first and later', async () => {
    const reports = [...FOUR_GRAINS, { name: 'by_tag', dimensions: ['date', 'tag_id'] }]
    const today = dayOf(new Date())
    const own = await setUp({
      now: `${today}T12:00:00Z`,
      world: { projects: 2, prompts: 7, models: 2, brands: 3 },
      config: { reports, start_date: addDays(today, -60), end_date: today },
    })
    const run = async (command: string) =>
      (await runCli([command, '--json'], { env: own.env, config: own.fileConfig })).json()
    const first = await run('plan')
    const { streams, outcome } = await run('sync')
    const sum = (some: { requests: number }[]) => some.reduce((total, { requests }) => total + requests, 0)
    expect(outcome).toBe('complete')
    expect(first.requests / sum(streams)).toBeGreaterThan(0.9)
    for (const { project_id, stream, requests } of first.streams) {
      const real = streams.find((row: any) => row.project_id === project_id && row.stream === stream)
      expect([stream, real.requests]).toEqual([stream, Math.max(requests, real.requests)])
    }
    const again = await run('plan')
    expect(again.requests).toBe(sum((await run('sync')).streams))
    // Days that were never read: other days show their size, and a service that truncated answers makes it a guess.
    const range = ['--from', addDays(today, -90), '--to', addDays(today, -70), '--stream', 'by_prompt']
    const planOf = async () =>
      (await runCli(['plan', ...range, '--json'], { env: own.env, config: own.fileConfig })).json()
    expect((await planOf()).streams).toMatchObject([
      { requests: 1, guessed: false },
      { requests: 1, guessed: false },
    ])
    await own.database.rows(
      `insert into visibility_ops.drift (project_id, stream, run_id, kind, name, example) values ($1, 'chats', 1, 'short_page', 'limit', 'x')`,
      [own.projects[0]!.id],
    )
    expect((await planOf()).streams).toMatchObject([{ guessed: true }, { guessed: false }])
  })

  test('plan makes windows of the lengths that a run would use', async () => {
    const lengthsOf = async (source: object) => {
      const config = { ...setup.fileConfig, source: { ...(setup.fileConfig.source as object), ...source } }
      const { streams } = (await runCli(['plan', '--json'], { env: setup.env, config })).json()
      return Object.fromEntries(streams.map((row: any) => [row.stream, row.windows.length]))
    }
    expect(await lengthsOf({})).toMatchObject({ brand_daily: 1, by_prompt: 2 })
    expect(await lengthsOf({ max_window_days: 4 })).toMatchObject({ brand_daily: 8, by_prompt: 8 })
  })

  test('status before the first sync says what to do, and check passes', async () => {
    expect((await cli('status')).stdout).toContain('Nothing was synced')
    const check = await cli('check')
    expect(check.code).toBe(0)
    expect(check.stdout.match(/✓/g)!.length).toBe(8)
  })

  test('migrate makes the tables and says what the next sync asks for, and a second time has nothing to do', async () => {
    expect((await cli('migrate', '--json')).json()).toMatchObject({
      applied: expect.arrayContaining(['0001_warehouse.sql']),
      reports_made: expect.arrayContaining(['by_prompt']),
      next_sync_requests: (await cli('plan', '--json')).json().requests,
    })
    expect((await cli('migrate')).stdout.split('\n')).toEqual([
      expect.stringMatching(/^Nothing to do: .* is up to date\.$/),
      expect.stringMatching(/^Left out: visibility_by_channel_weekly, .*; --json has the reasons$/),
      expect.stringMatching(/^Empty: sources_weekly, .*; --json has the reasons$/),
      '',
    ])
  })

  test('sync prints a table with its columns, the warehouse and the next step; a second one says that nothing changed', async () => {
    const first = await cli('sync')
    expect(first.code).toBe(0)
    expect(first.stdout).toMatch(/stream +days +rows read +inserted +updated +deleted +quarantined +requests +seconds/)
    expect(first.stdout).toMatch(/total +31 +/)
    expect(first.stdout).toMatch(
      /Warehouse: +postgres:\/\/[^\n]+\nNext: +see freshness and coverage:\n +npx visibility-sync status/,
    )
    const second = await cli('sync', '--json')
    expect(second.json()).toMatchObject({ outcome: 'complete', warehouse: { schema: 'visibility', embedded: false } })
    expect(second.json().streams.every((stream: any) => stream.inserted + stream.updated + stream.deleted === 0)).toBe(
      true,
    )
  })

  test('migrate after an upgrade says how many requests the next sync takes', async () => {
    await cli('sync')
    await setup.database.rows('drop view visibility.visibility_daily cascade')
    const { requests } = (await cli('plan', '--json')).json()
    expect((await cli('migrate')).stdout).toMatch(
      new RegExp(`\\nNext sync: (about|at least) ${requests} requests, and more for `),
    )
  })

  test('backfill reads exactly the asked-for streams, projects and days', async () => {
    await cli('sync')
    setup.service.requests.length = 0
    const [first] = setup.service.world.projects
    const range = ['--from', '2026-03-10', '--to', '2026-03-12']
    const result = await cli('backfill', ...range, '--stream', 'chats', '--project', first!.id, '--json')
    expect(result.json().streams).toMatchObject([{ project_id: first!.id, stream: 'chats', days: 3, rows_read: 42 }])
    const asked = setup.service.requests.filter(({ path }) => path.endsWith('/chats'))
    expect(asked.map(({ query }) => [query.start_date, query.end_date, query.project_id])).toEqual([
      ['2026-03-10', '2026-03-12', first!.id],
    ])
    expect(
      (await cli('backfill', '--from', '2026-03-01', '--to', '2026-03-31', '--missing', '--json'))
        .json()
        .streams.every((stream: any) => stream.days === 0),
    ).toBe(true)
  })

  test('status shows coverage, runs and their outcomes', async () => {
    await cli('sync')
    await cli('backfill', '--from', '2026-03-10', '--to', '2026-03-10', '--stream', 'chats')
    const result = await cli('status')
    expect(result.stdout).toMatch(/✓ +by_prompt +\d+ s ago +(2026-03-01 +)?2026-03-31 +31 +0 +1,302\n/)
    expect(result.stdout).toMatch(/\d+ +backfill +[\d-]+ [\d:]+ +\d+ s +complete/)
  })

  test('status says first that all is fresh, or what needs attention, why, and the one command that helps', async () => {
    const own = await setUp({ world: { projects: 1, prompts: 3, models: 1, brands: 2 } })
    const run = (...args: string[]) => runCli(args, { env: own.env, config: own.fileConfig })
    const first = async () => (await run('status')).stdout.split('\n\n')[1]
    await run('sync', '--stream', 'chats')
    expect(await first()).toBe(
      '! Needs attention\n  8 streams never read\n    npx visibility-sync sync'.replace(
        '8',
        String(own.services.streams.all.length - 1),
      ),
    )
    await run('sync')
    expect((await first())!.split('\n')).toEqual([
      `✓ Fresh: ${own.services.streams.all.length} streams, nothing is missing, held or quarantined`,
      '  Recent days may still change: is_provisional in data_status marks them.',
    ])
    expect((await run('status', '--json')).json().attention).toEqual([])
    own.service.setFaults({ ...NO_LIMIT, empty: true })
    await run('sync', '--stream', 'by_topic')
    const { attention, held } = (await run('status', '--json')).json()
    expect(attention).toEqual([
      { reasons: [expect.stringMatching(/^\d+ ranges? held, to be let through only if/)], command: held[0].accept },
      { reasons: ['4 streams with days to read again'], command: 'npx visibility-sync sync' },
    ])
    expect(await first()).toContain(held[0].accept)
  })

  test('check names each thing that is wrong and exits 1', async () => {
    const wrong = await runCli(['check', '--json'], {
      env: { ...setup.env, VISIBILITY_API_KEY: 'wrong', DATABASE_URL: 'postgres://x@127.0.0.1:1/x' },
      config: setup.fileConfig,
    })
    expect(wrong.code).toBe(1)
    expect(wrong.json().verdicts.map((verdict: any) => [verdict.what.split(' ')[0], verdict.ok])).toEqual([
      ['configuration', true],
      ['source', true],
      ['project', false],
      ['project', false],
      ['database', false],
    ])
  })

  test('check lists the projects that a key can read where an id is wrong, and reports unknown variables', async () => {
    setup.service.setExtras('all')
    const [project] = setup.service.world.projects
    const env = {
      ...setup.env,
      VISIBILITY_PROJECTS: 'or_wrong',
      VISIBILITY_PROJECT: 'foo',
      VISIBILITY_SERVICE_HOST: '::1',
    }
    const { stdout, stderr, code } = await runCli(['check'], { env, config: setup.fileConfig })
    expect(code).toBe(1)
    const told = stdout.replaceAll(/\s+/g, ' ')
    expect(told).toContain('check the id in VISIBILITY_PROJECTS, or under projects in the file; the key can read: ')
    expect(told).toContain(project!.id)
    expect(stderr.match(/unknown variable/g)).toHaveLength(1)
    expect(stderr).toContain('VISIBILITY_PROJECT: unknown variable, ignored; did you mean "VISIBILITY_PROJECTS"?')
    setup.service.setExtras([])
  })

  test('quarantined rows are listed, shown with their raw JSON, and retried', async () => {
    setup.service.setFaults({ ...NO_LIMIT, malformed: 0.02 })
    expect((await cli('backfill', '--from', '2026-03-01', '--to', '2026-03-31', '--stream', 'by_prompt')).code).toBe(1)
    const { entries } = (await cli('quarantine', 'list', '--json')).json()
    expect(entries.length).toBeGreaterThan(2)
    const shown = await cli('quarantine', 'show', String(entries[0].quarantine_id))
    expect(shown.stdout).toContain('by_prompt of or_')
    expect(shown.stdout).toContain('"mention_count"')

    const still = await cli('quarantine', 'retry', '--json')
    expect([still.code, still.json().loaded]).toEqual([1, 0])

    setup.service.setFaults(NO_LIMIT)
    const retried = await cli('quarantine', 'retry', String(entries[0].quarantine_id))
    expect(retried.stdout).toContain('1 row read again, 1 loaded or gone, 0 still bad.')
    expect(retried.code).toBe(0)
    const open = (await cli('quarantine', 'list', '--json')).json().entries.length
    expect(open).toBeLessThan(entries.length)
    const rest = await cli('quarantine', 'retry', '--json')
    expect([rest.code, rest.json()]).toEqual([0, { tried: open, loaded: open, still_bad: [] }])
    expect((await cli('quarantine', 'list')).stdout).toContain('No open rows')
    const { groups } = (await cli('quarantine', 'list', '--all', '--json')).json()
    const total = (field: 'rows' | 'open') => groups.reduce((sum: number, group: any) => sum + group[field], 0)
    expect([total('rows'), total('open')]).toEqual([entries.length, 0])
  })

  test('reference runs on its own until it is stopped, and a sync against it succeeds', async () => {
    const reference = startProcess(['reference', '--port', '0', '--projects', '1', '--prompts', '3'])
    await reference.saw('Ctrl-C stops it.')
    // The lines that it prints are what a user would paste into a shell.
    const settings = Object.fromEntries(
      [...reference.output().matchAll(/export (\w+)=(\S+)/g)].map(([, name, value]) => [name!, value!]),
    )
    expect(settings).toMatchObject({
      VISIBILITY_API_KEY: COMPANY_KEY,
      VISIBILITY_PROJECTS: expect.stringMatching(/^or_/),
    })
    const database = await createDatabase()
    const synced = await runCli(['sync', '--json'], {
      env: { ...settings, DATABASE_URL: database.url },
      config: setup.fileConfig,
    })
    expect([synced.code, synced.json().source]).toEqual([0, settings.VISIBILITY_API_URL])
    expect(await database.rows('select count(*)::int as n from visibility.prompts')).toEqual([{ n: 3 }])
    reference.child.kill('SIGTERM')
    expect((await reference.done).code).toBe(0)
  })
})

describe('the bundled command', () => {
  const folder = temporaryFolder()
  beforeAll(() =>
    writeFileSync(join(folder.path, 'sync.yaml'), 'reports: [{ name: my_own_report, dimensions: [date] }]'),
  )

  /** What the script of a shell would offer for the last of the words. */
  async function offered(...words: string[]): Promise<string[]> {
    const env = { VISIBILITY_CONFIG: 'sync.yaml' }
    const { stdout } = await runCli(['complete', '--', ...words], { cwd: folder.path, env })
    return stdout
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith(':'))
      .map((line) => line.split('\t')[0]!)
  }

  test('a shell completes commands, subcommands, options and names of streams', async () => {
    expect(await offered('quarantine', '')).toEqual(['list', 'show', 'retry', 'dismiss'])
    expect(await offered('backfill', '--mi')).toEqual(['--missing'])
    expect(await offered('sync', '--stream', 'my')).toEqual(['my_own_report'])
  })

  test('there is a script for a shell, and an unknown shell is refused', async () => {
    const { stdout } = await runCli(['completion', 'zsh'])
    expect(stdout).toContain('visibility-sync complete --')
    const { code, stderr } = await runCli(['completion', 'bsh'])
    expect([code, stderr]).toEqual([2, expect.stringContaining('Allowed choices are bash, zsh, fish')])
  })

  test.each([
    ['log', 'stderr', 0, ''],
    ['output', 'stdout', 1, 'the output could not be written (ENOSPC)'],
  ] as const)('a full disk under the %s ends the command only if its result is lost', async (_, full, code, text) => {
    const setup = await setUp({ world: { projects: 1, prompts: 2, models: 1, brands: 2 } })
    const { done } = startProcess(['sync', '--stream', 'prompts'], { env: setup.env, full })
    const { code: ended, stderr } = await done
    const [run] = await setup.database.rows('select outcome from visibility_ops.runs')
    expect([ended, stderr]).toEqual([code, expect.stringContaining(text)])
    expect(run).toEqual({ outcome: 'complete' })
  })
})

describe('check --spec', () => {
  /* check --spec: a published description of the service, compared with what is sent and read. */

  let setup: Setup
  const { path: folder } = temporaryFolder()
  beforeAll(async () => {
    setup = await setUp({ world: { projects: 1, prompts: 6 }, extras: 'all', config: { extras: 'auto' } })
  })

  type Node = Record<string, any>
  const published = async () => (await (await fetch(`${setup.service.url}/openapi.json`)).json()) as Node
  const check = (from: string) =>
    runCli(['check', '--spec', from, '--json'], { env: setup.env, config: setup.fileConfig })

  /** What the command says of the published description after a change. */
  async function changed(change: (spec: Node) => void) {
    const spec = await published()
    change(spec)
    const file = join(folder, 'spec.json')
    writeFileSync(file, JSON.stringify(spec))
    const { code, json } = await check(file)
    return { code, ...(json() as { gone: string[]; different: string[]; added: string[] }) }
  }
  const itemOf = (spec: Node, path: string, method: string) =>
    spec.paths[path][method].responses[200].content['application/json'].schema.properties.data.items

  test('the description of a service that offers everything has all that is used', async () => {
    const { code, json } = await check(`${setup.service.url}/openapi.json`)
    expect([code, json()]).toMatchObject([0, { ok: true, gone: [] }])
    setup.service.setExtras([])
    const few = await check(`${setup.service.url}/openapi.json`)
    setup.service.setExtras('all')
    expect([few.code, few.json().gone]).toEqual([0, []])
    expect(few.json().different).toContain('GET topics: no such operation')
  })

  test.each<[string, string, (spec: Node) => void]>([
    ['an operation', 'GET chats: no such operation', (spec) => delete spec.paths['/chats']],
    [
      'a parameter',
      'GET prompts: no parameter offset',
      ({ paths }) => {
        const { get } = paths['/prompts']
        get.parameters = get.parameters.filter(({ name }: Node) => name !== 'offset')
      },
    ],
    [
      'a field',
      'POST reports/brands: no field mention_count in the answer',
      (spec) => delete itemOf(spec, '/reports/brands', 'post').properties.mention_count,
    ],
  ])('%s that is used and gone is named, and the exit code is 1', async (_, text, change) => {
    const { code, gone } = await changed(change)
    expect([code, gone]).toEqual([1, [text]])
  })

  test('references, shared parameters, alternatives and a common start of all paths are followed', async () => {
    const { code, gone } = await changed((spec) => {
      const { get } = spec.paths['/chats']
      spec.components = {
        schemas: { Chat: itemOf(spec, '/chats', 'get') },
        parameters: { Limit: { name: 'limit', in: 'query' } },
      }
      get.responses[200].content['application/json'].schema = {
        allOf: [{ properties: { data: { type: 'array', items: { $ref: '#/components/schemas/Chat' } } } }],
      }
      spec.paths['/chats'].parameters = [{ $ref: '#/components/parameters/Limit' }]
      get.parameters = get.parameters.filter(({ name }: Node) => name !== 'limit')
      spec.paths = Object.fromEntries(Object.entries(spec.paths).map(([path, of]) => [`/customer/v1${path}`, of]))
      spec.paths['/health'] = { get: {} }
    })
    expect([code, gone]).toEqual([0, []])
  })

  test('what is no description is refused with the reason', async () => {
    const file = join(folder, 'bad.json')
    writeFileSync(file, '{"a": 1}')
    const { code, stderr } = await check(file)
    expect([code, stderr]).toEqual([2, expect.stringContaining('has no paths')])
  })
})
