import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'
import { temporaryFolder } from './support/cli.ts'

const SCRIPT = fileURLToPath(new URL('../scripts/mutants.mjs', import.meta.url))

/** The mutants of a text, as "line: before → after". */
function mutantsOf(text: string): string[] {
  const { path } = temporaryFolder()
  mkdirSync(join(path, 'src'))
  writeFileSync(join(path, 'tsconfig.json'), '{ "include": ["src"] }')
  writeFileSync(join(path, 'src/a.ts'), text)
  const output = execFileSync(process.execPath, [SCRIPT, '--list', 'src'], { cwd: path, encoding: 'utf8' })
  return output.split('\n').flatMap((line) => (line === '' ? [] : [line.replace(/^src\/a\.ts:(\d+) {2}/, '$1: ')]))
}

const of = (text: string) => mutantsOf(text).map((line) => line.replace(/^\d+: /, ''))

test('conditions are negated, and operators, constants, statements and arguments are changed', () => {
  expect(
    mutantsOf(`function f(a: number, b: boolean) {
  if (b) g(1)
  return a < 2 && a !== 5 ? -1 : g(a, b)
}
`),
  ).toEqual([
    '2: if (b) g(1)  →  ;',
    '2: b  →  !(b)',
    '2: 1  →  nothing',
    '2: 1  →  2',
    '3: a < 2 && a !== 5  →  !(a < 2 && a !== 5)',
    '3: <  →  <=',
    '3: 2  →  3',
    '3: &&  →  ||',
    '3: !==  →  ===',
    '3: 5  →  6',
    '3: 1  →  2',
    '3: , b  →  nothing',
  ])
})

test('types, comments and messages are left as they are', () => {
  expect(
    of(`import { z } from 'z'
type A = { a: 1 | 2; b: true }
// if (a < 1) b()
const a = 'not < 1 and < 2' as unknown as Record<1, true>
log.info({ rows: 1 }, 'loaded')
const e = () => new TypeError(a === b ? 'one' : 'two')
`),
  ).toEqual([])
})

test('comparisons, terms of conditions and constants change inside SQL, and not in its comments, texts and assignments', () => {
  const sql = (text: string) => of(`const s = ${text}\n`)
  expect(
    sql("`update t set a = $1 where b <= 2 and (c between $2 and $3 or d is null) -- and e = 1\n and f = 'x and y'`"),
  ).toEqual([
    'b <= 2  →  true',
    '<=  →  <',
    '2  →  3',
    'and  →  or',
    'and (c between $2 and $3 or d is null) -- and e = 1  →  nothing',
    'or  →  and',
    'is  →  is not',
    'and  →  or',
    "and f = 'x and y'  →  nothing",
    '=  →  <>',
  ])
  expect(sql('sql`${a} and ${b === c}`')).toEqual(['and  →  or', 'and ${b === c}  →  nothing', '===  →  !=='])
  expect(sql("db.where('a', '<', b)")).toEqual([".where('a', '<', b)  →  nothing", "'<'  →  '<='", ', b  →  nothing'])
})
