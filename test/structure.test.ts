import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'

/* The house: imports point one way only. */

const src = fileURLToPath(new URL('../src', import.meta.url))
const ORDER = ['core', 'source', 'streams', 'warehouse', 'ledger', 'sync', 'queue', 'schedule', 'web', 'cli', 'main']

const files = readdirSync(src, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => ({ name, text: readFileSync(join(src, name), 'utf8') }))

function roomOf(name: string): string {
  return name === 'main.ts' || name === 'index.ts' ? 'main' : name.split('/')[0]!
}

function importsOf(name: string, text: string): string[] {
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, path]) =>
    relative(src, resolve(src, dirname(name), path!)),
  )
}

/** Null where an import is allowed, otherwise why it is not. */
function judge(from: string, to: string): string | null {
  const [room, other] = [roomOf(from), roomOf(to)]
  if (room === other) return null
  if (room === 'reference') {
    const allowed = other === 'core' || to === 'source/requests.ts' || to === 'source/items.ts'
    return allowed ? null : `${from} imports ${to}: the reference service may use only core and the schemas of source`
  }
  // The reference service stands beside the others; only what people start may use it.
  if (other === 'reference')
    return ORDER.indexOf(room) >= ORDER.indexOf('cli') ? null : `${from} imports ${to}: only the commands may`
  if (!ORDER.includes(room) || !ORDER.includes(other))
    return `${from} imports ${to}: a room that the order does not name`
  return ORDER.indexOf(other) < ORDER.indexOf(room) ? null : `${from} imports ${to}: imports point the other way`
}

test('every import points in the direction core, source, streams, warehouse, ledger, sync, queue, schedule, web, cli, main', () => {
  const wrong = files
    .flatMap(({ name, text }) => importsOf(name, text).map((to) => judge(name, to)))
    .filter((verdict) => verdict !== null)
  expect(wrong).toEqual([])
  expect(files.flatMap(({ name, text }) => importsOf(name, text)).length).toBeGreaterThan(100)
})

test('the check of directions fails where an import points the wrong way', () => {
  expect(judge('core/day.ts', 'sync/run.ts')).toContain('the other way')
  expect(judge('reference/server.ts', 'source/client.ts')).toContain('may use only')
  expect(judge('sync/run.ts', 'reference/world.ts')).toContain('only the commands')
  expect(judge('cli/open.ts', 'sync/run.ts')).toBeNull()
})

test('only the configuration reads the environment, and only main ends the process', () => {
  const readers = files
    .filter(({ text }) => /process\.env\b/.test(text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, '')))
    .map(({ name }) => name)
  expect(readers.sort()).toEqual(['core/config/load.ts', 'core/config/terminal.ts'])
  const enders = files.filter(({ text }) => /process\.exit\b(?!Code)/.test(text)).map(({ name }) => name)
  expect(enders).toEqual(['main.ts'])
})

test('no file names a package registry, and none is long', () => {
  for (const { name, text } of files) {
    expect(text).not.toMatch(/registry\.npm/)
    expect({ name, lines: text.split('\n').length }).toEqual({ name, lines: expect.any(Number) })
    expect(text.split('\n').length).toBeLessThan(400)
  }
  expect(readFileSync(join(src, '../package-lock.json'), 'utf8')).not.toContain(['"resolved"', '"http'].join(': '))
})
