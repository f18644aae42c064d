import { execFileSync, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { runCli, temporaryFolder } from './support/cli.ts'

/* The scripts by which shells complete, in real shells. */

const folder = temporaryFolder()
afterAll(() => folder.remove())
const scripts: Record<string, string> = {}

beforeAll(async () => {
  writeFileSync(join(folder.path, 'sync.yaml'), 'reports: [{ name: my_own_report, dimensions: [date] }]')
  for (const shell of ['bash', 'zsh', 'fish']) {
    const result = await runCli(['completion', shell, '--config', 'sync.yaml'], { cwd: folder.path })
    expect([result.code, result.stderr]).toEqual([0, ''])
    scripts[shell] = join(folder.path, `completion.${shell}`)
    writeFileSync(scripts[shell]!, result.stdout)
  }
})

/** The shell where it is installed; otherwise it is said that nothing was checked. */
function installed(shell: string): boolean {
  if (spawnSync(shell, ['-c', 'exit 0']).status === 0) return true
  process.stderr.write(`${shell} is not installed: its completion was not checked\n`)
  return false
}

/** What bash offers for the last of the words. */
function offered(...words: string[]): string[] {
  const program =
    'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _visibility_sync; printf "%s\\n" "${COMPREPLY[@]}"'
  const output = execFileSync('bash', ['-c', program, scripts.bash!, 'visibility-sync', ...words], {
    cwd: folder.path,
    encoding: 'utf8',
  })
  return output.trim() === '' ? [] : output.trim().split('\n')
}

describe('bash', () => {
  test('completes commands, subcommands and options', async () => {
    const help = (await runCli(['--help'])).stdout
    const commands = [...help.slice(help.indexOf('Commands:')).matchAll(/^ {2}([a-z-]+)/gm)].map(([, name]) => name!)
    expect(commands.length).toBeGreaterThan(12)
    expect(offered('')).toEqual(expect.arrayContaining([...commands, '--help', '--config']))
    expect(offered('s').sort()).toEqual(commands.filter((name) => name.startsWith('s')).sort())
    expect(offered('quarantine', '')).toEqual(expect.arrayContaining(['list', 'show', 'retry', '--help']))
    expect(offered('backfill', '--mi')).toEqual(['--missing'])
    expect(offered('--config', 'sync', 'quarantine', 'list', '--al')).toEqual(['--all'])
  })

  test('completes values: streams of the configuration, colours, shells and files', () => {
    expect(offered('sync', '--stream', 'my')).toEqual(['my_own_report'])
    expect(offered('sync', '--stream', '=', 'cha')).toEqual(['chats'])
    expect(offered('create', 'topic', '--country', 'D')).toEqual(['DE', 'DK', 'DO'])
    expect(offered('completion', 'z')).toEqual(['zsh'])
    expect(offered('sync', '--config', 'completion.')).toEqual(expect.arrayContaining(['completion.bash']))
    expect(offered('backfill', '--from', '')).toEqual([])
  })
})

test('zsh takes the script without complaint', () => {
  if (!installed('zsh')) return
  expect(spawnSync('zsh', ['-n', scripts.zsh!], { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' })
})

test('fish completes from its script', () => {
  if (!installed('fish')) return
  const program = `source ${scripts.fish}; complete -C 'visibility-sync sync --stream my'`
  const result = spawnSync('fish', ['--no-config', '-c', program], { encoding: 'utf8' })
  expect(result).toMatchObject({ status: 0, stdout: expect.stringContaining('my_own_report') })
})

test('a configuration that cannot be read leaves the streams that there are without one', async () => {
  writeFileSync(join(folder.path, 'broken.yaml'), 'a: [')
  const result = await runCli(['completion', 'bash', '--config', 'broken.yaml'], { cwd: folder.path })
  expect([result.code, result.stdout]).toEqual([0, expect.stringContaining('brand_daily_by_model')])
})

test('another shell is refused, with the one that was probably meant', async () => {
  const result = await runCli(['completion', 'bsh'])
  expect([result.code, result.stderr]).toEqual([2, expect.stringContaining('bash, zsh, fish; did you mean "bash"?')])
})
