// npm run test:alone [-- --seed N] [--count N] [FILE…]: runs every test by itself, in a shuffled order, and lists those that fail.
// A test that fails only here needs what another one left.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const { values, positionals } = parseArgs({
  options: { seed: { type: 'string', default: String(Date.now() % 1e6) }, count: { type: 'string' } },
  allowPositionals: true,
})
const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-alone-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

/** Runs Jest, and gives the results of its tests. */
function jest(...words) {
  const output = join(folder, 'results.json')
  const flags = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', 'node_modules/jest/bin/jest.js']
  const all = [...flags, '--json', `--outputFile=${output}`, '--silent', ...words]
  spawnSync(process.execPath, all, { cwd: root, stdio: 'ignore' })
  const { testResults } = JSON.parse(readFileSync(output, 'utf8'))
  return testResults.flatMap(({ name, message, assertionResults }) =>
    assertionResults.length === 0
      ? [{ file: name, status: 'failed', fullName: message }]
      : // It could not be loaded.
        assertionResults.map((result) => ({ file: name, ...result })),
  )
}

/** Sorted by what looks like chance, and is the same for a seed. */
function shuffled(items, seed) {
  const place = ({ file, fullName }) => createHash('sha256').update(`${seed} ${file} ${fullName}`).digest('hex')
  return items.toSorted((one, other) => (place(one) < place(other) ? -1 : 1))
}

const NOTHING = 'a^'
const found = jest('-t', NOTHING, ...positionals).filter(({ status }) => status !== 'todo')
const tests = shuffled(found, values.seed).slice(0, Number(values.count ?? found.length))
console.log(`${tests.length} of ${found.length} tests, seed ${values.seed}`)
const failed = []
for (const [index, { file, fullName }] of tests.entries()) {
  const name = fullName.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&')
  const ran = jest(file, '-t', `^${name}$`).filter(({ status }) => status !== 'pending')
  const isGreen = ran.length > 0 && ran.every(({ status }) => status === 'passed')
  if (isGreen) continue
  failed.push(`${relative(root, file)} › ${fullName}`)
  console.log(
    `${index + 1}: fails alone: ${failed.at(-1)}\n${ran[0]?.failureMessages?.[0]?.slice(0, 600) ?? 'did not run'}`,
  )
}
console.log(`${tests.length - failed.length} pass alone, ${failed.length} fail`)
process.exitCode = failed.length === 0 && tests.length > 0 ? 0 : 1
