import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { realStack } from '../src/core/errors.ts'
import { runCli, temporaryFolder } from './support/cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
beforeAll(() => writeFileSync(join(folder.path, 'sync.yaml'), 'reports: [{ name: my_own_report, dimensions: [date] }]'))

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
  expect(await offered('sup')).toEqual(['support-bundle'])
  expect(await offered('quarantine', '')).toEqual(['list', 'show', 'retry', 'dismiss'])
  expect(await offered('backfill', '--mi')).toEqual(['--missing'])
  expect(await offered('sync', '--stream', 'my')).toEqual(['my_own_report'])
  writeFileSync(join(folder.path, 'sync.yaml'), 'a: [')
  expect(await offered('sync', '--stream', 'brand_daily_by_m')).toEqual(['brand_daily_by_model'])
})

test('there is a script for each of three shells, and another shell is refused', async () => {
  for (const shell of ['bash', 'zsh', 'fish']) {
    const { code, stdout } = await runCli(['completion', shell])
    expect([code, stdout]).toEqual([0, expect.stringContaining('visibility-sync complete --')])
  }
  const { code, stderr } = await runCli(['completion', 'bsh'])
  expect([code, stderr]).toEqual([2, expect.stringContaining('Allowed choices are bash, zsh, fish')])
})

/* The command is bundled for a quick start. Nobody should notice. */

const FOLDER = fileURLToPath(new URL('../dist/command/', import.meta.url))

test('a stack names the places in the sources, not in the bundle', () => {
  const file = readdirSync(FOLDER).find(
    (name) => name.endsWith('.cjs') && readFileSync(FOLDER + name, 'utf8').includes('function refuseOld('),
  )!
  const lines = readFileSync(FOLDER + file, 'utf8').split('\n')
  const row = lines.findIndex((line) => line.includes('function refuseOld(')) + 1
  const column = lines[row - 1]!.indexOf('function refuseOld(') + 'function '.length + 1
  const address = pathToFileURL(FOLDER + file).href
  const stack = `Error: the database is too old\n    at refuseOld (${address}:${row}:${column})\n    at node:internal/main:1:1`
  const source = readFileSync(new URL('../src/warehouse/connect.ts', import.meta.url), 'utf8').split('\n')
  const place = source.findIndex((line) => line.includes('function refuseOld(')) + 1
  expect(realStack(stack)).toMatch(
    new RegExp(
      `^Error: the database is too old\n    at refuseOld \\(src/warehouse/connect\\.ts:${place}:\\d+\\)\n    at node:`,
    ),
  )
  expect(realStack(`at work (file:///nowhere/else.js:1:2)`)).toBe('at work (file:///nowhere/else.js:1:2)')
})

test('the licences of the packages in the bundle are shipped with it', () => {
  const text = readFileSync(`${FOLDER}LICENSES.txt`, 'utf8')
  for (const name of ['zod', 'kysely', 'pg', 'got', 'commander', 'fastify'])
    expect(text).toMatch(new RegExp(`^${name} \\d`, 'm'))
})
