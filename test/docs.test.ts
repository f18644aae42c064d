import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { loadConfig } from '../src/core/config/load.ts'
import { channelTwins, configSchema, DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { NAMES } from '../src/create/requests-file.ts'
import { faultsSchema } from '../src/reference/change.ts'
import { OPS_TABLES, reportNote, SUM_VIEWS, TABLES, VIEWS } from '../src/warehouse/schema/catalogue.ts'
import { query, runCli } from './support/cli.ts'
import { createDatabase, serverUrl } from './support/postgres.ts'
import { type Setup, setUp } from './support/setup.ts'

/* Docs are true. */

const root = new URL('../', import.meta.url)
const read = (path: string) => readFileSync(new URL(path, root), 'utf8')
const pages = [
  'README.md',
  'CONTRIBUTING.md',
  'src/README.md',
  ...readdirSync(new URL('docs', root), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
]

/** The fenced block after a marker comment. */
function block(page: string, name: string): string {
  const found = new RegExp(`<!-- run: ${name} -->\\n\`\`\`\\w+\\n([\\s\\S]*?)\`\`\``).exec(read(page))
  if (found === null) throw new Error(`${page} has no block ${name}`)
  return found[1]!
}

/** The sentences of a page, without code. Cells of tables and items of lists are texts of their own. */
function sentencesOf(page: string): string[] {
  const text = read(page)
    .replaceAll(/```[\s\S]*?```/g, '\n\n')
    .replaceAll(/`[^`]*`/g, 'code')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
  const blocks = text.split(/\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|\|)\s)|\n(?=#)/)
  return blocks
    .flatMap((part) => (part.trim().startsWith('|') ? part.split('|') : [part]))
    .flatMap((part) => part.replaceAll(/\s+/g, ' ').split(/(?<=[.!?:])\s+/))
}

test('no sentence has more than 35 words', () => {
  const words = (sentence: string) => sentence.split(' ').filter((word) => /\w/.test(word)).length
  const long = pages.flatMap((page) => sentencesOf(page).filter((sentence) => words(sentence) > 35))
  expect(long).toEqual([])
})

test('the docs are short: a how-to has at most 62 lines, and all pages but the tables 2,800', () => {
  const lines = (page: string) => read(page).split('\n').length - 1
  const long = pages.filter((page) => page.includes('/how-to/') && lines(page) > 62)
  expect(long).toEqual([])
  const all = pages.filter((page) => page.startsWith('docs/') && !page.endsWith('/tables.md'))
  expect(all.reduce((sum, page) => sum + lines(page), 0)).toBeLessThanOrEqual(2800)
})

test('the README has at most 80 lines', () => {
  expect(read('README.md').split('\n').length - 1).toBeLessThanOrEqual(80)
})

test('the page of commands lists every command once', async () => {
  const listed = [...read('docs/reference/commands.md').matchAll(/^\| `([a-z-]+)/gm)].map(([, name]) => name)
  const help = (await runCli(['--help'])).stdout.replace(/[\s\S]*\nStart:/, '')
  expect(listed.sort()).toEqual([...help.matchAll(/^ {2}([a-z-]+) .*/gm)].map(([, name]) => name).sort())
})

test('files of the repository that pages name are there', () => {
  const gone = pages.flatMap((page) =>
    [...read(page).matchAll(/`((?:\w+\/)+[\w.-]+\.(?:ts|mjs|sh|sql|md))`/g)]
      .map(([, path]) => path!)
      .filter((path) => !existsSync(new URL(path, root)) && !existsSync(new URL(`src/${path}`, root)))
      .map((path) => `${page}: ${path}`),
  )
  expect(gone).toEqual([])
})

test('the generated pages are current', () => {
  execFileSync(process.execPath, ['scripts/generate.mjs', '--check'], { cwd: root })
})

test('the shipped configuration is valid and spells out the defaults', () => {
  const config = loadConfig({ file: fileURLToPath(new URL('config/sync.example.yaml', root)), env: {} })
  expect(config.reports).toEqual([...DEFAULT_REPORTS, ...channelTwins(DEFAULT_REPORTS)])
  expect(config.warnings).toEqual([])
  expect(config.source.base_url).toBeUndefined()
})

test('every setting, variable and fault is documented', () => {
  const page = read('docs/reference/configuration.md') + read('docs/reference/expert-settings.md')
  for (const [section, schema] of Object.entries(configSchema.shape)) {
    expect(page).toContain(`\`${section}`)
    const inner = (schema as any).unwrap?.().shape ?? (schema as any).def?.innerType?.shape
    for (const field of Object.keys(inner ?? {})) expect(page).toContain(`${section}.${field}`)
  }
  for (const variable of ['VISIBILITY_API_URL', 'VISIBILITY_API_KEY_FILE', 'DATABASE_URL_FILE', 'LOG_LEVEL'])
    expect(page).toContain(variable)
  for (const fault of Object.keys(faultsSchema.shape))
    expect(read('docs/reference/reference-service.md')).toContain(`\`${fault}\``)
})

test('"help" lists the pages and prints each, and messages name only topics that it has', async () => {
  const list = (await runCli(['help'])).stdout
  const topics = pages.filter((page) => /^docs\/(?!README)/.test(page))
  for (const page of topics) {
    const topic = page.replace(/^.*\/|\.md$/g, '')
    const title = read(page).split('\n')[0]!.slice(2)
    expect(list).toMatch(new RegExp(`^${topic} +${title.replaceAll(/\W/g, '.').slice(0, 30)}`, 'm'))
    if (topic.startsWith('w'))
      expect((await runCli(['help', topic])).stdout).toBe(read(page).replaceAll(/^ *<!--.*-->\n/gm, ''))
  }
  expect(new Set(topics.map((page) => page.replace(/^.*\//, ''))).size).toBe(topics.length)
  const wrong = await runCli(['help', 'worker'])
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('did you mean "workers"?')])
  const names = readdirSync(new URL('src', root), { recursive: true, encoding: 'utf8' })
  const sources = [
    'config/sync.example.yaml',
    ...names.filter((name) => name.endsWith('.ts')).map((name) => `src/${name}`),
  ]
  for (const name of sources) {
    const text = read(name).replaceAll(/^ *(\/?\*|\/\/).*$/gm, '')
    expect([name, text.match(/docs\/[\w-]+\/[\w-]+\.md/)?.[0]]).toEqual([name, undefined])
    for (const [, topic] of text.matchAll(/(?:helpOn\('|visibility-sync help )([a-z][\w-]*)/g))
      expect([name, topics.some((page) => page.endsWith(`/${topic}.md`)) ? topic : '']).toEqual([name, topic])
  }
})

test('how-to pages name every column of a file, and count the default reports', () => {
  for (const name of Object.keys(NAMES)) expect(read('docs/how-to/create-prompts.md')).toContain(`\`${name}\``)
  const [reports, twins] = [DEFAULT_REPORTS.length, channelTwins(DEFAULT_REPORTS).length]
  const numbers = ['none', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten']
  const page = read('docs/how-to/add-a-breakdown.md')
  expect(page).toContain(`the ${numbers[reports]} default reports. With \`extras: auto\`, ${numbers[twins]} of them`)
})

test('links between pages lead somewhere', () => {
  for (const page of pages) {
    for (const [, target] of read(page).matchAll(/\]\((?!https?:)([^)#]+)/g)) {
      expect({ page, target, there: existsSync(new URL(target!, new URL(page, root))) }).toEqual({
        page,
        target,
        there: true,
      })
    }
  }
})

test('every npm script and every command that the docs name exists', async () => {
  const { scripts } = JSON.parse(read('package.json'))
  const help = (await runCli(['--help'])).stdout
  for (const page of pages) {
    for (const [, script] of read(page).matchAll(/npm run ([\w:]+)/g)) expect(Object.keys(scripts)).toContain(script)
    for (const [, command] of read(page).matchAll(/(?:^|npx |"|`)visibility-sync ([a-z]+)/gm))
      expect(help).toMatch(new RegExp(`^  ${command}\\b`, 'm'))
  }
})

test('the files of the repository name no registry and no workplace', () => {
  const tracked = execFileSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' }).trim().split('\n')
  for (const file of tracked.filter(
    (name) =>
      /\.(ts|md|json|yaml|yml|mjs|js|sql)$|Dockerfile|\.npmrc$/.test(name) &&
      name !== 'test/docs.test.ts' &&
      name !== 'test/structure.test.ts',
  )) {
    expect({ file, text: read(file).match(/registry\.(npmjs|yarnpkg)|\/work\/main/)?.[0] }).toEqual({
      file,
      text: undefined,
    })
  }
})

describe('against a database', () => {
  const TWINS = channelTwins(DEFAULT_REPORTS).map(({ name, dimensions, filters }) => ({ name, dimensions, filters }))
  const REPORTS = [...DEFAULT_REPORTS, ...TWINS]
  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 1, prompts: 7, models: 2, brands: 3 },
      config: { reports: REPORTS },
    })
    await setup.sync()
  })

  test('the statements in docs/reference/tables.md run, and it lists every function', async () => {
    const page = read('docs/reference/tables.md')
    const [first, second] = [...page.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, sql]) => sql!)
    expect((await setup.database.rows(first!)).length).toBeGreaterThan(3)
    await setup.database.rows(second!)
    const functions = await setup.database.rows<{ name: string }>(
      "select distinct proname as name from pg_proc where pronamespace = 'visibility'::regnamespace",
    )
    expect(functions.filter(({ name }) => !page.includes(`${name}(`))).toEqual([])
  })

  test('every table and column of both schemas has the comment of the catalogue, and there are no others', async () => {
    const found = await setup.database.rows<{ place: string; comment: string | null }>(
      `select n.nspname || '.' || c.relname || '.' || a.attname as place, col_description(c.oid, a.attnum) as comment
       from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
       where n.nspname in ('visibility', 'visibility_ops') and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped`,
    )
    const catalogue = {
      visibility: {
        ...TABLES,
        ...Object.fromEntries(REPORTS.map((report) => [report.name, reportNote(report)])),
        ...VIEWS,
      },
      visibility_ops: { ...OPS_TABLES, ...SUM_VIEWS },
    }
    const expected = Object.entries(catalogue).flatMap(([schema, tables]) =>
      Object.entries(tables).flatMap(([table, note]) =>
        Object.entries(note.columns).map(([column, comment]) => ({ place: `${schema}.${table}.${column}`, comment })),
      ),
    )
    const byPlace = (a: { place: string }, b: { place: string }) => (a.place < b.place ? -1 : 1)
    expect(found.sort(byPlace)).toEqual(expected.sort(byPlace))
    const tables = await setup.database.rows<{ comment: string | null }>(
      "select obj_description(c.oid) as comment from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname in ('visibility', 'visibility_ops') and c.relkind in ('r', 'v')",
    )
    expect(tables.filter(({ comment }) => comment === null)).toEqual([])
  })

  test.each([
    ['grants', [['check'], ['sync'], ['audit']]],
    ['grants-with-schemas', [['sync', '--queue'], ['status']]],
  ])(
    'the role of docs/how-to/database-role.md (%s) can sync, audit, use the queue and be checked, and is no superuser',
    async (name, commands) => {
      const database = await createDatabase()
      const role = `writer_${Math.random().toString(36).slice(2)}`
      const url = new URL(database.url)
      const inThisDatabase = (sql: string) =>
        sql.replaceAll('visibility_writer', role).replaceAll('database warehouse', `database ${url.pathname.slice(1)}`)
      await database.rows(inThisDatabase(block('docs/how-to/database-role.md', name)))
      Object.assign(url, { username: role, password: 'choose one' })
      const options = { env: { ...setup.env, DATABASE_URL: url.href }, config: setup.fileConfig }
      if (name !== 'grants') {
        const queued = { ...options, config: { ...setup.fileConfig, queue: { mode: 'pg-boss' } } }
        await database.rows(inThisDatabase(block('docs/how-to/workers.md', 'queue-schema')))
        expect(await runCli(['migrate'], queued)).toMatchObject({ code: 0 })
        await database.rows(inThisDatabase(block('docs/how-to/workers.md', 'queue-schema-after')))
      }
      for (const command of commands) {
        const result = await runCli(command, options)
        expect({ command, code: result.code, stderr: result.code === 0 ? '' : result.stderr + result.stdout }).toEqual({
          command,
          code: 0,
          stderr: '',
        })
      }
      expect(await database.rows('select rolsuper from pg_roles where rolname = $1', [role])).toEqual([
        { rolsuper: false },
      ])
      const [privilege] = await database.rows<{ may: boolean }>(
        'select has_database_privilege($1, current_database(), $2) as may',
        [role, 'create'],
      )
      expect(privilege!.may).toBe(name === 'grants')
      await database.drop()
      await query(serverUrl().href, `drop role ${role}`)
    },
  )
})
