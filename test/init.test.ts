import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from '@jest/globals'
import { parse } from 'yaml'
import { loadConfig } from '../src/core/config/load.ts'
import { channelTwins, configSchema } from '../src/core/config/schema.ts'
import { everySetting } from '../src/core/config/settings.ts'
import { runCli, temporaryFolder } from './support/cli.ts'

/* The configuration that `init` writes. */

const TEMPLATE = readFileSync(new URL('../config/sync.yaml', import.meta.url), 'utf8')
const folder = temporaryFolder()
afterAll(() => folder.remove())

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

  test('tells the defaults as they are', () => {
    const document = parse(everything) as Record<string, unknown>
    const defaults: Record<string, unknown> = configSchema.parse({})
    for (const { path } of everySetting().filter((setting) => !/\[|\*/.test(setting.path))) {
      const [value] = valuesAt(defaults, path)
      // Examples stand where there is no default.
      if (value === undefined || (typeof value === 'object' && Object.keys(value as object).length === 0)) continue
      // The one setting that a new file has otherwise: what a service offers is found out.
      expect({ path, value: valuesAt(document, path)[0] }).toEqual({ path, value: path === 'extras' ? 'auto' : value })
    }
  })

  test('as it is sets nothing but defaults, and asks for what the service offers besides', () => {
    const file = join(folder.path, 'as-it-is.yaml')
    writeFileSync(file, TEMPLATE)
    const { file: _file, redactor: _one, ...written } = loadConfig({ file, env: {} })
    const { file: _none, redactor: _other, ...defaults } = loadConfig({ file: '/dev/null', env: {} })
    const reports = [...defaults.reports, ...channelTwins(defaults.reports)]
    expect(written).toEqual({ ...defaults, extras: 'auto', reports })
  })

  test('explains each setting: a comment stands above it or above its group', () => {
    const lines = TEMPLATE.split('\n')
    const top = lines.flatMap((line, index) => (/^#?[a-z_]+:/.test(line) ? [index] : []))
    for (const index of top) {
      const above = lines[index - 1]!
      expect({ line: lines[index], explained: /^# \S|^#?[a-z_]+:/.test(above) }).toEqual({
        line: lines[index],
        explained: true,
      })
    }
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
    const plan = await runCli(['plan', '--config', 'some/where/new.yaml', '--json'], { cwd: folder.path })
    expect(plan.code).toBe(0)
  })

  test('takes --config before the command, and VISIBILITY_CONFIG where there is none', async () => {
    expect((await runCli(['--config', 'a.yaml', 'init', '--json'], { cwd: folder.path })).json().file).toBe('a.yaml')
    expect((await init(['--json'], { VISIBILITY_CONFIG: 'b.yaml' })).json().file).toBe('b.yaml')
    expect((await init(['--json'])).json().file).toBe('config/sync.yaml')
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

  test('says so where it cannot write', async () => {
    mkdirSync(join(folder.path, 'folder.yaml'))
    writeFileSync(join(folder.path, 'file'), '')
    for (const path of ['folder.yaml', 'file/sync.yaml']) {
      const result = await init(['--force', '--config', path])
      expect([result.code, result.stderr]).toEqual([2, expect.stringContaining(`${path}: cannot be written`)])
    }
  })
})
