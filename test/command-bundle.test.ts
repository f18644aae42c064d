import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { expect, test } from '@jest/globals'
import { realStack } from '../src/core/errors.ts'

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
