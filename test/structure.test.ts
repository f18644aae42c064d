import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'

/* Imports point one way only. */

const src = fileURLToPath(new URL('../src', import.meta.url))
const ORDER = [
  ...['core', 'source', 'streams', 'rows', 'warehouse', 'ledger', 'sync', 'audit', 'create', 'queue', 'app'],
  ...['observe', 'schedule', 'web', 'mcp', 'packs', 'cli', 'main'],
]

const files = readdirSync(src, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => ({ name, text: readFileSync(join(src, name), 'utf8') }))

function folderOf(name: string): string {
  return name === 'main.ts' || name === 'index.ts' ? 'main' : name.split('/')[0]!
}

function importsOf(name: string, text: string): string[] {
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, path]) =>
    relative(src, resolve(src, dirname(name), path!)),
  )
}

/** Null where an import is allowed, otherwise why it is not. */
function judge(from: string, to: string): string | null {
  const [folder, other] = [folderOf(from), folderOf(to)]
  if (folder === other) return null
  if (folder === 'reference') {
    const allowed = other === 'core' || to === 'source/requests.ts'
    return allowed ? null : `${from} imports ${to}: the reference service may use only core and the schemas of source`
  }
  // The reference service stands beside the others; only what people start may use it.
  if (other === 'reference')
    return ['app', 'cli'].includes(folder) ? null : `${from} imports ${to}: only the app or a command may`
  if (!ORDER.includes(folder) || !ORDER.includes(other))
    return `${from} imports ${to}: a folder that the order does not name`
  return ORDER.indexOf(other) < ORDER.indexOf(folder) ? null : `${from} imports ${to}: imports point the other way`
}

/** The groups of files that can reach each other. */
function circlesIn(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const reach = (start: string) => {
    const seen = new Set<string>()
    const left = [...(graph.get(start) ?? [])]
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      if (seen.has(next)) continue
      seen.add(next)
      left.push(...(graph.get(next) ?? []))
    }
    return seen
  }
  const reached = new Map([...graph.keys()].map((name) => [name, reach(name)]))
  const circles = new Map<string, string[]>()
  for (const [name, others] of reached) {
    if (!others.has(name)) continue
    const circle = [...others].filter((other) => reached.get(other)?.has(name)).sort()
    circles.set(circle.join(), circle)
  }
  return [...circles.values()]
}

test('every import points in the one direction that the map names', () => {
  const wrong = files
    .flatMap(({ name, text }) => importsOf(name, text).map((to) => judge(name, to)))
    .filter((verdict) => verdict !== null)
  expect(wrong).toEqual([])
  expect(files.flatMap(({ name, text }) => importsOf(name, text)).length).toBeGreaterThan(100)
})

test('no files import each other in a circle, in a folder or across folders', () => {
  const graph = new Map(files.map(({ name, text }) => [name, importsOf(name, text)]))
  expect(circlesIn(graph)).toEqual([])
  const knot = new Map([
    ['a.ts', ['b.ts']],
    ['b.ts', ['c.ts']],
    ['c.ts', ['a.ts']],
    ['d.ts', ['a.ts']],
  ])
  expect(circlesIn(knot)).toEqual([['a.ts', 'b.ts', 'c.ts']])
})

test('the map names every folder', () => {
  const map = readFileSync(join(src, 'README.md'), 'utf8')
  for (const folder of ORDER.filter((name) => name !== 'main')) expect(map).toContain(`| \`${folder}\` |`)
})

test('the check of directions fails for an import in the wrong direction', () => {
  expect(judge('core/day.ts', 'sync/run/run-sync.ts')).toContain('the other way')
  expect(judge('reference/server.ts', 'source/client.ts')).toContain('may use only')
  expect(judge('sync/run/run-sync.ts', 'reference/world.ts')).toContain('only the app')
  expect(judge('app/open-services.ts', 'sync/run/run-sync.ts')).toBeNull()
})

test('scripts and benchmarks import files that are there', () => {
  const root = join(src, '..')
  const gone = ['bench', 'scripts', 'test/acceptance'].flatMap((folder) =>
    readdirSync(join(root, folder))
      .filter((name) => name.endsWith('.mjs'))
      .flatMap((name) => {
        const text = readFileSync(join(root, folder, name), 'utf8')
        const paths = [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, path]) => path!)
        // dist is made of src.
        return paths
          .map((path) => resolve(root, folder, path).replace(/\/dist\/(.*)\.js$/, '/src/$1.ts'))
          .filter((path) => !existsSync(path))
      }),
  )
  expect(gone).toEqual([])
})

test('one file writes the state of a day, and names its columns', () => {
  const isOfOther = ({ name }: (typeof files)[number]) => name !== 'ledger/days.ts' && name !== 'warehouse/database.ts'
  const naming = files.filter(({ text }) => /\b(read_order|held_since|reconciled_at)\b/.test(text)).filter(isOfOther)
  expect(naming.map(({ name }) => name)).toEqual([])
  // The tables of a stream that are made anew lose their days with their rows.
  const writes =
    /(?:insert into|update) (?:ops\.coverage\b|\$\{(?:COVERAGE\b|[^}]*'ops\.coverage'))|(?:insertInto|updateTable)\('ops\.coverage'/
  expect(files.filter(({ text }) => writes.test(text)).map(({ name }) => name)).toEqual(['ledger/days.ts'])
})

test('only the configuration reads the environment, and only main ends the process', () => {
  const readers = files
    .filter(({ text }) => /process\.env\b/.test(text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, '')))
    .map(({ name }) => name)
  expect(readers.sort()).toEqual(['core/config/load.ts', 'core/config/variables.ts'])
  const enders = files.filter(({ text }) => /process\.exit\b(?!Code)/.test(text)).map(({ name }) => name)
  expect(enders).toEqual(['main.ts'])
})

test('no file names a package registry, and none is long', () => {
  for (const { text } of files) expect(text).not.toMatch(/registry\.npm/)
  const long = files.filter(({ text }) => text.split('\n').length >= 600)
  expect(long.map(({ name }) => name)).toEqual([])
  expect(readFileSync(join(src, '../package-lock.json'), 'utf8')).not.toContain(['"resolved"', '"http'].join(': '))
})

test('statements go through Kysely, but for COPY, sessions and pg-boss', () => {
  const asking = files.filter(({ text }) => /\b(?:pool|client|session)\.query[(<]/.test(text)).map(({ name }) => name)
  expect(asking.sort()).toEqual([
    'queue/boss.ts',
    'warehouse/connect.ts',
    'warehouse/database.ts',
    'warehouse/embedded/server.ts',
    'warehouse/load/stage.ts',
    'warehouse/transaction.ts',
  ])
})
