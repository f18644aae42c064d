// Changes src in small ways, one at a time, and lists the changes that no test notices:
// npm run test:mutants -- [--seed N] [--count N] [--jobs N] [--seconds N] [--list] [PATH[:LINE] ...]
// With --seconds, only the nearest test files run that take so long without a mutant. What they do not kill, others may.
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { API } from 'typescript/unstable/sync'
import { limits, readCoverage, testsOf } from './mutants/coverage.mjs'
import { runTests } from './mutants/jest.mjs'
import { mutantsOf } from './mutants/mutants-of.mjs'

const DEFAULT_PATHS = [
  ...[
    'src/sync',
    'src/ledger',
    'src/warehouse/load',
    'src/source',
    'src/rows',
    'src/queue',
    'src/create',
    'src/schedule',
  ],
  ...['src/core/day.ts', 'src/core/redactor.ts'],
]
const { values, positionals } = parseArgs({
  options: {
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    count: { type: 'string', default: '100' },
    jobs: { type: 'string', default: '1' },
    seconds: { type: 'string', default: 'Infinity' },
    list: { type: 'boolean', default: false },
  },
  allowPositionals: true,
})
// So that what runs is ended, and copies are removed.
for (const name of ['SIGINT', 'SIGTERM']) process.on(name, () => process.exit(1))
const root = process.cwd()
const CACHE = join(root, '.mutants')
const compiler = openCompiler()
const mutants = (positionals.length > 0 ? positionals : DEFAULT_PATHS).flatMap(mutantsIn)
if (values.list) for (const mutant of mutants) console.log(nameOf(mutant))
else await run(draw(mutants, Number(values.seed), Number(values.count)))

function openCompiler() {
  const changed = new Map()
  const api = new API({ cwd: root, fs: { readFile: (path) => changed.get(path) } })
  const update = (change) => api.updateSnapshot(change).getProjects()[0].program
  let program = update({ openProjects: [join(root, 'tsconfig.json')] })
  return {
    sourceOf: (path) => program.getSourceFile(join(root, path)),
    accepts(path, text) {
      const file = join(root, path)
      changed.set(file, text)
      program = update({ fileChanges: { changed: [file] } })
      const faults = [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)]
      changed.delete(file)
      program = update({ fileChanges: { changed: [file] } })
      return faults.length === 0
    },
    close: () => api.close(),
  }
}

/** The mutants of a folder, a file, or a line of a file. */
function mutantsIn(place) {
  const [path, only] = place.split(':')
  const files = path.endsWith('.ts')
    ? [path]
    : readdirSync(join(root, path), { recursive: true })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => join(path, name))
        .sort()
  return files.flatMap((file) => {
    const source = compiler.sourceOf(file)
    const all = mutantsOf(source).map((mutant) => ({
      ...mutant,
      file,
      line:
        source.text.slice(0, mutant.start).split('\n').length +
        /^\s*/.exec(source.text.slice(mutant.start, mutant.end))[0].split('\n').length -
        1,
      text: source.text,
    }))
    return only === undefined ? all : all.filter(({ line }) => line === Number(only))
  })
}

function changed({ text, start, end, replacement }) {
  return text.slice(0, start) + replacement + text.slice(end)
}

function nameOf({ file, line, text, start, end, replacement }) {
  const short = (code) => {
    const words = code.trim().replaceAll(/\s+/g, ' ')
    return words.length > 70 ? `${words.slice(0, 69)}…` : words
  }
  return `${file}:${line}  ${short(text.slice(start, end))}  →  ${short(replacement) || 'nothing'}`
}

/** Some of the mutants that the compiler accepts, by a seed. */
function draw(all, seed, count) {
  const pool = [...all]
  const drawn = []
  let state = seed
  while (pool.length > 0 && drawn.length < count) {
    // The generator of Park and Miller. The second step spreads seeds that are close to each other.
    state = ((state + 1) * 48_271) % 2_147_483_647
    const [mutant] = pool.splice(Math.floor((((state * 48_271) % 2_147_483_647) / 2_147_483_647) * pool.length), 1)
    if (compiler.accepts(mutant.file, changed(mutant))) drawn.push(mutant)
  }
  return drawn
}

async function run(drawn) {
  compiler.close()
  const copies = Array.from({ length: Number(values.jobs) }, copyOfCheckout)
  console.log(`${drawn.length} mutants of ${mutants.length}, seed ${values.seed}`)
  const sources = [...new Set(drawn.map(({ file }) => file))]
  const coverage = await readCoverage({ root, sources, copies, cache: CACHE, each, report: console.log })
  const limitOf = limits(coverage)
  const results = []
  await each(drawn, copies, async (mutant, copy) => {
    const began = performance.now()
    const tests = nearest(testsOf(coverage, mutant.file, mutant.line), Number(values.seconds) * 1000)
    const result = tests.length === 0 ? { kind: 'not covered' } : await test(mutant, copy, tests, limitOf)
    results.push({ mutant, ...result })
    const seconds = Math.round((performance.now() - began) / 1000)
    const by = result.by === undefined ? `${tests.length} files` : result.by
    console.log(`${results.length}/${drawn.length}  ${result.kind}  ${nameOf(mutant)}  [${by}, ${seconds} s]`)
  })
  const left = results.filter(({ kind }) => kind === 'survived' || kind === 'not covered')
  console.log(
    `\n${drawn.length - left.length} of ${drawn.length} mutants were killed.${left.length > 0 ? ' The others:' : ''}`,
  )
  for (const { kind, mutant } of left) console.log(`${nameOf(mutant)}  (${kind})`)
}

/** The first of these test files, as many as take so long together; at least one. */
function nearest(tests, limitMs) {
  let ms = 0
  const near = tests.filter((test, at) => {
    ms += test.ms
    return ms <= limitMs || at === 0
  })
  return near.map(({ file }) => file)
}

async function test(mutant, copy, tests, limitOf) {
  const file = join(copy, mutant.file)
  writeFileSync(file, changed(mutant))
  const result = (await runTests(copy, tests, { limitOf })) ?? { kind: 'survived' }
  writeFileSync(file, mutant.text)
  // Not by the mutant, if it happens without.
  if (result.kind === 'crashed' && (await runTests(copy, tests.slice(0, 1), { limitOf }))?.kind === 'crashed')
    throw new Error(`the tests cannot be run: ${result.by}`)
  return result
}

/** Works on items, one in each copy at a time. */
async function each(items, copies, work) {
  const left = [...items]
  const serve = async (copy) => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item, copy)
  }
  await Promise.all(copies.map(serve))
}

/** The files of the checkout as they are, without those that git ignores. */
function copyOfCheckout(_, number) {
  const copy = join(CACHE, `copy-${process.pid}-${number}`)
  const remove = () => rmSync(copy, { recursive: true, force: true })
  process.on('exit', remove)
  const list = execFileSync('git', ['ls-files', '-z', '-co', '--exclude-standard'], { cwd: root, encoding: 'utf8' })
  for (const name of list.split('\0').filter((path) => path !== '' && existsSync(join(root, path))))
    cpSync(join(root, name), join(copy, name))
  for (const name of ['.git', 'node_modules', 'dist']) symlinkSync(join(root, name), join(copy, name))
  return copy
}
