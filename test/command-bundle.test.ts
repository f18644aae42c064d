import { execFile, execFileSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { realStack } from '../src/core/real-stack.ts'
import { temporaryFolder } from './support/cli.ts'
import { type Setup, setUp } from './support/setup.ts'

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

test('the bundle imports nothing while it runs, because what V8 kept of a script cannot', () => {
  expect(readFileSync(`${FOLDER}main.cjs`, 'utf8')).not.toMatch(/\bimport\(/)
})

test('the licences of the packages in the bundle are shipped with it', () => {
  const text = readFileSync(`${FOLDER}LICENSES.txt`, 'utf8')
  for (const name of ['zod', 'kysely', 'pg', 'got', 'commander']) expect(text).toMatch(new RegExp(`^${name} \\d`, 'm'))
})

test('the version and the help open no package, and say what the program itself says', () => {
  const bin = fileURLToPath(new URL('../bin/visibility-sync.js', import.meta.url))
  const outputOf = (script: string, option: string) =>
    execFileSync(process.execPath, [script, option], { encoding: 'utf8' })
  for (const option of ['--version', '--help']) {
    const trace = execFileSync(process.execPath, ['--input-type=module', '-e', HOOK, bin, option], { encoding: 'utf8' })
    const loaded = trace.split('\n').filter((line) => line.startsWith('loaded '))
    expect(loaded.length).toBe(1)
    expect(outputOf(bin, option)).toBe(outputOf(`${FOLDER}main.cjs`, option))
  }
})

describe('what V8 compiled of the command', () => {
  let setup: Setup
  const folder = temporaryFolder()
  const compiled = join(folder.path, 'dist/compiled')
  beforeAll(async () => {
    setup = await setUp({ world: { projects: 1, prompts: 3, models: 1, brands: 2 }, config: { streams: ['prompts'] } })
    const root = fileURLToPath(new URL('..', import.meta.url))
    for (const name of ['bin', 'dist/command', 'sql', 'package.json'])
      cpSync(join(root, name), join(folder.path, name), { recursive: true })
    symlinkSync(join(root, 'node_modules'), join(folder.path, 'node_modules'))
    writeFileSync(join(folder.path, 'sync.json'), JSON.stringify(setup.fileConfig))
  })
  afterAll(async () => {
    folder.remove()
    await setup.close()
  })

  /** Runs a copy of the command, and gives what it printed. */
  const run = (...words: string[]) => runWith([], ...words)
  const runWith = async (flags: string[], ...words: string[]) => {
    const env = { PATH: process.env.PATH, ...setup.env, VISIBILITY_CONFIG: join(folder.path, 'sync.json') }
    const bin = join(folder.path, 'bin/visibility-sync.js')
    return (await promisify(execFile)(process.execPath, [...flags, '--require', SPY, bin, ...words], { env })).stdout
  }
  const SPY = join(folder.path, 'spy.cjs')
  const inode = () => readdirSync(compiled).map((name) => statSync(join(compiled, name)).ino)

  test('is kept by the first sync that ends well, and used by those after it', async () => {
    writeFileSync(SPY, TELL_OF_CACHE)
    expect(await run('plan', '--json')).toContain('cache: none')
    const refused = await run('sync', '--stream', 'nonsense').catch(({ code }) => code)
    expect(refused).toBe(2)
    expect(existsSync(compiled)).toBe(false)
    expect(await run('sync', '--json')).toContain('cache: none')
    const [kept] = inode()
    expect(await run('sync', '--json')).toContain('cache: accepted')
    expect(await run('status', '--json')).toContain('cache: accepted')
    expect(inode()).toEqual([kept])
  })

  test('is compiled and kept anew if it is damaged or of another build', async () => {
    const file = join(compiled, readdirSync(compiled)[0]!)
    // V8 itself would end the process because of such a byte.
    writeFileSync(file, readFileSync(file).fill(7, 1_000_000, 1_001_000))
    expect(await run('plan', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: accepted')
    truncateSync(file, 900_000)
    expect(await run('sync', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: accepted')
    const bundle = join(folder.path, 'dist/command/main.cjs')
    writeFileSync(bundle, readFileSync(bundle, 'latin1').replace('=main.cjs.map', '=more.cjs.map'), 'latin1')
    expect(await run('sync', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: accepted')
  })

  test('is not used if someone else could have put it there, and made anew', async () => {
    const file = join(compiled, readdirSync(compiled)[0]!)
    chmodSync(file, 0o664)
    expect(await run('plan', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: accepted')
    rmSync(file)
    // Whoever opens a pipe to read it waits until someone writes.
    execFileSync('mkfifo', [file])
    expect(await run('plan', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: none')
    expect(await run('sync', '--json')).toContain('cache: accepted')
  })

  test('is kept for a few combinations of flags, and what a killed process left of it goes', async () => {
    for (let number = 0; number < 5; number++) {
      const left = join(compiled, `command-old-${number}`)
      writeFileSync(left, 'half of it')
      utimesSync(left, 1, number)
    }
    expect(await run('sync', '--json')).toContain('cache: accepted')
    expect(await runWith(['--max-old-space-size=300'], 'sync', '--json')).toContain('cache: none')
    expect(await runWith(['--max-old-space-size=300'], 'sync', '--json')).toContain('cache: accepted')
    const names = readdirSync(compiled)
    expect(names).toHaveLength(4)
    expect(names.filter((name) => name.startsWith('command-old'))).toEqual(['command-old-3', 'command-old-4'])
  })

  test('is not kept where the package was removed while the command ran', async () => {
    const dist = join(folder.path, 'dist')
    const copy = join(folder.path, 'copy')
    const remover = join(folder.path, 'remover.cjs')
    writeFileSync(
      remover,
      `process.on('exit', () => require('fs').rmSync(${JSON.stringify(dist)}, { recursive: true }))`,
    )
    rmSync(compiled, { recursive: true })
    cpSync(dist, copy, { recursive: true })
    expect(await runWith(['--require', remover], 'sync', '--json')).toContain('"outcome": "complete"')
    expect(existsSync(dist)).toBe(false)
    renameSync(copy, dist)
  })

  test('is not kept where the folder cannot be written, and nobody notices', async () => {
    rmSync(compiled, { recursive: true, force: true })
    writeFileSync(compiled, 'a file, not a folder')
    expect(await run('sync', '--json')).toContain('"outcome": "complete"')
    expect(readFileSync(compiled, 'utf8')).toBe('a file, not a folder')
  })
})

/** Says on standard output whether there was a cache for the bundle, and whether V8 took it. */
const TELL_OF_CACHE = `
const vm = require('node:vm')
const { Script } = vm
vm.Script = class extends Script {
  constructor(source, options) {
    super(source, options)
    const fate = options.cachedData === undefined ? 'none' : this.cachedDataRejected ? 'rejected' : 'accepted'
    process.on('exit', () => console.log('cache: ' + fate))
  }
}
`

const HOOK = `
import { register } from 'node:module'
register('data:text/javascript,' + encodeURIComponent(\`
import { writeSync } from 'node:fs'
export async function load(url, context, next) {
  if (!url.startsWith('node:')) writeSync(1, 'loaded ' + url + '\\\\n')
  return next(url, context)
}\`))

await import(process.argv[1])
`
