import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
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
