import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runTests } from './jest.mjs'

const START_MS = 120_000
const RECORD_MS = 900_000

/**
 * The lines of src that each test file runs, and how long it takes: `{ file, ms, lines: { 'src/x.ts': [1, 2] } }`. It is recorded once,
 * and again after the test file, or one of the `sources` that it runs, has changed.
 */
export async function readCoverage({ root, sources, copies, cache, each, report }) {
  mkdirSync(cache, { recursive: true })
  const hashes = Object.fromEntries(filesIn(root, 'src').map((name) => [name, hashOf(root, [name])]))
  const support = filesIn(root, 'test/support')
  const found = []
  const missing = []
  for (const file of filesIn(root, 'test').filter((name) => name.endsWith('.test.ts'))) {
    const path = join(cache, `${file.replaceAll('/', '_')}.json`)
    const key = hashOf(root, [...support, file])
    const stored = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {}
    const isCurrent = (name) => stored.hashes[name] === hashes[name] || (stored.hashes[name] && !stored.lines[name])
    if (stored.key === key && sources.every(isCurrent)) found.push(stored)
    else missing.push({ file, path, key })
  }
  let done = 0
  await each(missing, copies, async ({ file, path, key }, copy) => {
    const recorded = { key, hashes, file, ...(await record(copy, file)) }
    // What fails without a mutant is tried again next time.
    if (recorded.failure === undefined) writeFileSync(path, JSON.stringify(recorded))
    found.push(recorded)
    report(
      `coverage ${++done}/${missing.length}  ${file}  ${recorded.failure ?? `${Math.round(recorded.ms / 1000)} s`}`,
    )
  })
  return found
}

function filesIn(root, folder) {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(join(root, '/').length))
    .sort()
}

function hashOf(root, names) {
  const hash = createHash('sha256')
  for (const name of names) hash.update(name).update(readFileSync(join(root, name)))
  return hash.digest('hex').slice(0, 16)
}

async function record(copy, file) {
  const folder = join(copy, 'coverage')
  const args = ['--coverage', '--coverageReporters', 'json', '--coverageDirectory', folder]
  const began = performance.now()
  const failure = await runTests(copy, [file], { args, limitOf: () => RECORD_MS })
  if (failure !== undefined) return { failure: failure.by, ms: 0, lines: {} }
  const ms = Math.round(performance.now() - began)
  const report = JSON.parse(readFileSync(join(folder, 'coverage-final.json'), 'utf8'))
  rmSync(folder, { recursive: true })
  const lines = Object.entries(report).map(([path, one]) => [path.slice(join(copy, '/').length), linesOf(one)])
  return { ms, lines: Object.fromEntries(lines.filter(([, covered]) => covered.length > 0)) }
}

/** The lines whose innermost statement was run. A file that was only imported has none, unless it has no functions. */
function linesOf({ statementMap, s, fnMap, f }) {
  const functions = Object.keys(fnMap)
  if (functions.length > 0 && !functions.some((id) => f[id] > 0)) return []
  const innermost = new Map()
  for (const [id, { start, end }] of Object.entries(statementMap)) {
    for (let line = start.line; line <= end.line; line++) {
      const size = end.line - start.line
      const known = innermost.get(line)
      if (known === undefined || size < known.size) innermost.set(line, { size, isRun: s[id] > 0 })
      else if (size === known.size) known.isRun ||= s[id] > 0
    }
  }
  return [...innermost].filter(([, { isRun }]) => isRun).map(([line]) => line)
}

/** The test files that run a line: those that import its file, then the narrow and cheap ones. */
export function testsOf(coverage, file, line) {
  const importers = new Set(coverage.filter((test) => readFileSync(test.file, 'utf8').includes(`/${file}'`)))
  const breadth = ({ lines }) => Object.values(lines).reduce((sum, of) => sum + of.length, 0)
  const cost = (test) => (importers.has(test) ? 0 : test.ms * breadth(test))
  return coverage.filter(({ lines }) => lines[file]?.includes(line)).sort((a, b) => cost(a) - cost(b) || a.ms - b.ms)
}

/** How long a file may take with a mutant: several times as long as without. */
export function limits(coverage) {
  const known = new Map(coverage.map(({ file, ms }) => [file, ms]))
  return (name) => (known.has(name) ? 30_000 + 3 * known.get(name) : START_MS)
}
