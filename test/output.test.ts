import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { widthOf } from '../src/cli/table.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { createDatabase } from './support/postgres.ts'
import { listening } from './support/proxy.ts'
import { NO_LIMIT, type Setup, setUp } from './support/setup.ts'

/* What people see: at a terminal, in a file, and where a service says what a terminal would obey. */

const OBEYED = /[^\P{Cc}\n]|[\u202a-\u202e\u2066-\u2069]/u
const EVIL = '\u001b]52;c;aGVsbG8=\u0007 \u009b31m \u007f \u202edesrever\u2066 \r\nRun 9: complete'

let setup: Setup
const REPORTS = [
  { name: 'brand_daily', dimensions: ['date'] },
  {
    name: 'a_report_with_the_longest_name_that_it_may_have',
    dimensions: ['date', 'prompt_id', 'model_id'],
  },
]
beforeAll(async () => {
  setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 }, config: { reports: REPORTS } })
})
const cli = (args: string[], env: Record<string, string> = {}) =>
  runCli(args, { env: { ...setup.env, ...env }, config: setup.fileConfig })
const one = (text: string) => text.replaceAll(/\s+/g, ' ')

/** Lines that may be wider than a terminal: commands to copy, and words that must not be broken. */
const isForCopying = (line: string) => /npx visibility-sync|^ +visibility-sync |:\/\/|^ +\S+$/.test(line)
const tooWide = (text: string) => text.split('\n').filter((line) => widthOf(line) > 80 && !isForCopying(line))

describe('at a terminal of 80 columns', () => {
  const cli = (args: string[]) =>
    runCli(args, { env: { ...setup.env, NO_COLOR: '1' }, config: setup.fileConfig, columns: 80 })

  test('sync, status, audit and check fit, and call projects by their names', async () => {
    setup.service.setFaults({ ...NO_LIMIT, malformed: 0.01, extra_fields: true })
    const first = await cli(['sync'])
    setup.service.setFaults(NO_LIMIT)
    expect([first.code, tooWide(first.stdout)]).toEqual([1, []])
    const [project] = setup.service.world.projects
    await setup.database.rows(
      "update visibility_ops.coverage set state = 'held', held_since = now() where project_id = $1 and stream = 'chats' and date = '2026-03-10'",
      [project!.id],
    )
    for (const command of ['status', 'audit', 'check']) {
      const { stdout } = await cli([command])
      expect({ command, wide: tooWide(stdout) }).toEqual({ command, wide: [] })
      const prose = stdout
        .split('\n')
        .filter((line) => !isForCopying(line))
        .join('\n')
      const names = await setup.database.rows<{ id: string; name: string }>(
        'select project_id as id, name from visibility.projects',
      )
      expect(names.length).toBe(2)
      for (const { id, name } of names) {
        expect(prose).toContain(name)
        expect(prose).not.toContain(id)
        expect(prose).toContain(`${id.slice(0, 7)}…${id.slice(-4)}`)
      }
    }
    const status = (await cli(['status'])).stdout
    expect(status).toContain(`--project ${project!.id} --accept-deletes`)
    expect(one(status)).toContain('! chats')
    expect(one(status)).toContain('1 day held')
    const asJson = (await cli(['status', '--json'])).json()
    expect(asJson.streams[0].project_id).toBe(project!.id)
  })
})

test('output that is piped has one line for each row and sentence, and none at a terminal breaks a word', async () => {
  const long = 'a_report_with_the_longest_name_that_it_may_have'
  const labels = {
    brands: Object.fromEntries([1, 2, 3, 4, 5, 6].map((n) => [`kw_${n}${'0'.repeat(9)}`, { name: 'A' }])),
  }
  const run = (args: string[], columns: object) =>
    runCli(args, {
      env: { ...setup.env, NO_COLOR: '1', LOG_LEVEL: 'info' },
      config: { ...setup.fileConfig, labels },
      ...columns,
    })
  await run(['sync'], {})
  for (const args of [['sync'], ['status'], ['check'], ['migrate'], ['config'], ['plan']]) {
    const [piped, shown] = [await run(args, {}), await run(args, { columns: 80 })]
    const log = shown.stderr.split('\n').map((line) => line.split('\r').at(-1)!.replace('\u001b[2K', ''))
    expect([args[0], tooWide(shown.stdout), tooWide(log.join('\n'))]).toEqual([args[0], [], []])
    const words = (text: string) => new Set(text.split(/\s+/).filter((word) => /^[a-z]{4,}$/.test(word)))
    const broken = [...words(shown.stdout)].filter((word) => !words(piped.stdout).has(word))
    expect([args[0], broken]).toEqual([args[0], []])
    if (args[0] === 'config')
      expect(piped.stdout).toMatch(/^reports\.1\.dimensions +\["date","prompt_id","model_id"\] +file$/m)
    if (args[0] === 'sync' || args[0] === 'status') expect(piped.stdout).toMatch(new RegExp(`^\\W*${long} `, 'm'))
    if (args[0] === 'check') expect(piped.stdout).toMatch(/^! labels\.brands\.kw_1.*; .*$/m)
  }
})

test('output has colours only if they are forced', async () => {
  const plain = await cli(['check'])
  const forced = await cli(['check'], { FORCE_COLOR: '1' })
  expect(plain.stdout).not.toContain('\u001b')
  expect(forced.stdout).toContain('\u001b[32m✓\u001b[39m configuration')
})

describe('the log', () => {
  test('is a few readable lines by default, and JSON on request', async () => {
    const range = ['backfill', '--from', '2026-03-01', '--to', '2026-03-31']
    const people = await cli(range)
    const lines = people.stderr.trim().split('\n')
    expect(lines.length).toBeLessThanOrEqual(6)
    expect(lines[0]).toMatch(/^\d\d:\d\d:\d\d connected: from http/)
    expect(people.stderr).toMatch(/run \d+ started: backfill\n.* to read: 186 stream-days\n/)
    expect(lines.at(-1)).toMatch(/run \d+ ended: complete$/)
    const asked = await cli(range, { LOG_FORMAT: 'json' })
    const messages = asked.stderr
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { msg: string }).msg)
    expect(messages).toEqual(expect.arrayContaining(['connected', 'run started', 'window loaded', 'run ended']))
  })

  test('repeats a message about many windows only a few times, and the summary counts them', async () => {
    setup.service.setFaults({ ...NO_LIMIT, malformed: 0.5 })
    const result = await cli(['backfill', '--from', '2026-03-01', '--to', '2026-03-03'])
    setup.service.setFaults(NO_LIMIT)
    expect(result.stderr.match(/✗ failed/g)!.length).toBeLessThanOrEqual(3)
    expect(result.stderr).toMatch(/! run ended .*reason=.*had too many bad rows/)
    expect(one(result.stdout)).toMatch(/windows of .* had too many bad rows/)
  })
})

describe('terminal control sequences', () => {
  test('of an answer are never printed, as text or JSON, on stdout or stderr', async () => {
    const server = createServer((_message, reply) => {
      reply.writeHead(403, { 'content-type': 'application/json' }).end(JSON.stringify({ message: EVIL }))
    })
    const { origin } = await listening(server)
    // A warehouse is filled from one address.
    const database = await createDatabase()
    const env = { VISIBILITY_API_URL: `${origin}/v1`, DATABASE_URL: database.url }
    const results = [
      await cli(['sync'], env),
      await cli(['sync', '--json'], env),
      await cli(['check'], env),
      await cli(['status'], env),
    ]
    for (const { stdout, stderr } of results) {
      expect(stdout).not.toMatch(OBEYED)
      expect(stderr).not.toMatch(OBEYED)
    }
    expect(results[0]!.stdout).toContain('\\u001b]52')
    expect(results[0]!.stdout).not.toMatch(/^Run 9/m)
    expect(JSON.stringify(results[1]!.json())).toContain(JSON.stringify(EVIL.replace('\r\n', '')).slice(1, 20))
  })

  test('of stored names and rows are never printed', async () => {
    await setup.database.rows('update visibility.projects set name = $1', [EVIL.replace('\r\n', ' ')])
    await setup.database.rows('update visibility_ops.quarantine set raw = to_json($1::text), reason = $1', [EVIL])
    for (const args of [['status'], ['check'], ['quarantine', 'list']]) {
      const { stdout } = await cli(args)
      expect({ args, obeyed: OBEYED.exec(stdout)?.[0] }).toEqual({ args, obeyed: undefined })
    }
  })
})

test('a results file has no cell that a spreadsheet would evaluate', async () => {
  const folder = temporaryFolder()
  const file = join(folder.path, 'topics.csv')
  const names = ['=1+1', '+cmd', '-2', '@sum', '\tx', 'plain']
  writeFileSync(file, `name\n${names.map((name) => `"${name}"`).join('\n')}\n`)
  const [project] = setup.service.world.projects
  const result = await cli(['create', 'topic', '--from', file, '--yes', '--project', project!.id])
  expect([result.code, result.stderr]).toEqual([0, expect.any(String)])
  const cells = readFileSync(`${file}.results.csv`, 'utf8')
    .trim()
    .split('\r\n')
    .slice(1)
    .map((line) => [line.split(',')[0], line.split(',').at(-1)])
  expect(cells).toEqual([
    ['2', "'=1+1"],
    ['3', "'+cmd"],
    ['4', '-2'],
    ['5', "'@sum"],
    ['6', "'\tx"],
    ['7', 'plain'],
  ])
})

test('every command has a help with examples, by -h and by --help', async () => {
  const program = await cli(['-h'])
  expect(program.stdout).toContain('VISIBILITY_API_URL=reference')
  expect(tooWide(program.stdout)).toEqual([])
  const commands = program.stdout.slice(program.stdout.indexOf('Start:'))
  const names = [...commands.matchAll(/^ {2}([a-z-]+)/gm)].map(([, name]) => [name!])
  expect(names.length).toBeGreaterThan(12)
  for (const words of [[], ...names, ['quarantine', 'list'], ['create', 'topic']]) {
    const { code, stdout } = await cli([...words, words.length === 0 ? '-h' : '--help'])
    const command = ['visibility-sync', ...words].join(' ')
    expect([code, stdout]).toEqual([0, expect.stringContaining(`Usage: ${command}`)])
    if (words.length > 0 && !stdout.includes('Commands:')) expect(stdout).toContain(`Examples:\n  $ ${command}`)
  }
})

test('a misspelling is answered with a suggestion', async () => {
  const { id } = setup.service.world.projects[0]!
  for (const [words, expected] of [
    [['sync', '--stream', 'chat'], 'did you mean "chats"?'],
    [['snyc'], 'Did you mean sync?'],
    [['quarantine', 'lits'], 'Did you mean list?'],
    [['sync', '--straem', 'x'], 'Did you mean --stream?'],
    [['plan', '--project', `${id.slice(0, -2)}x${id.slice(-1)}`], `did you mean "${id}"?`],
  ] as const) {
    const result = await cli([...words])
    expect([result.code, result.stderr]).toEqual([2, expect.stringContaining(expected)])
  }
})
