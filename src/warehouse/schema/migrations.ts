import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { quote } from '../../core/identifier.ts'
import { packageFile } from '../../core/package-files.ts'
import type { Warehouse } from '../connect.ts'

/* The numbered files in sql/migrations, and what they make. Each is run once, in their order. Forward only. */

export interface Migration {
  version: number
  name: string
  text: string
  checksum: string
}

export function readMigrations(): Migration[] {
  const folder = packageFile('sql/migrations/')
  return readdirSync(fileURLToPath(folder))
    .filter((name) => /^\d{4}_\w+\.sql$/.test(name))
    .sort()
    .map((name) => {
      const text = readFileSync(new URL(name, folder), 'utf8')
      const checksum = createHash('sha256').update(text).digest('hex')
      return { version: Number(name.slice(0, 4)), name, text, checksum }
    })
}

/** The text of a migration with the names of the schemas. */
export function withSchemas(text: string, { schema, opsSchema }: Warehouse): string {
  return text.replaceAll('{schema}', quote(schema)).replaceAll('{ops}', quote(opsSchema))
}

export interface MadeObject {
  kind: 'table' | 'sequence' | 'view' | 'function' | 'trigger'
  schema: 'schema' | 'ops'
  name: string
  /** The table of a trigger. */
  table: string | undefined
  /** The statements that make it as it is now. */
  sql: string
}

const OBJECT =
  /^(create|drop|alter|comment on|insert into) (?:(?:or replace|unlogged|unique) )?(?:(table|sequence|view|function|trigger|index) (?:(\w+) (?:[^{]* )?on )?)?\{(schema|ops)\}\.(\w+)/

/** Objects that the migrations created and did not drop, in the order of their creation. */
export function madeByMigrations(): MadeObject[] {
  let made = new Map<string, MadeObject>()
  for (const sql of readMigrations().flatMap(({ text }) => statementsOf(text))) {
    // Blocks drop tables only if nobody made a view of them.
    if (sql.startsWith('do $$'))
      for (const [, place, name] of sql.matchAll(/'drop table \{(\w+)\}\.(\w+)'/g))
        made.delete(`table ${place}.${name}.`)
    const { verb, isIndex, object } = changeOf(sql) ?? {}
    if (object === undefined) continue
    const key = keyOf(object)
    const known = made.get(key)
    const moved = / set schema \{(schema|ops)\}/.exec(sql)?.[1] as MadeObject['schema'] | undefined
    if (verb === 'drop' && !isIndex) made.delete(key)
    else if (verb === 'create' && !isIndex) made.set(key, Object.assign(known ?? {}, object))
    else if (known !== undefined) known.sql += sql
    if (known === undefined || moved === undefined) continue
    known.schema = moved
    made = new Map([...made].map(([name, one]) => [one === known ? keyOf(known) : name, one]))
  }
  return [...made.values()]
}

function keyOf({ kind, schema, name, table }: MadeObject): string {
  return kind === 'trigger' ? `${kind} ${schema}.${table}.${name}` : `${kind} ${schema}.${name}.`
}

/** The object that a statement makes or changes. An index belongs to its table. */
function changeOf(sql: string): { verb: string; isIndex: boolean; object: MadeObject } | undefined {
  const [, verb, word = 'table', own, schema, relation] = OBJECT.exec(sql) ?? []
  if (verb === undefined) return undefined
  const isIndex = word === 'index'
  const named = word === 'trigger' ? { name: own, table: relation } : { name: relation, table: undefined }
  return { verb, isIndex, object: { kind: isIndex ? 'table' : word, schema, ...named, sql } as MadeObject }
}

/** Splits at semicolons that end a line, outside of the bodies of functions. */
function statementsOf(text: string): string[] {
  const statements: string[] = []
  let statement = ''
  let isInBody = false
  for (const line of text.split('\n')) {
    if (statement === '' && (line === '' || line.startsWith('--'))) continue
    statement += `${line}\n`
    if (line.split('$$').length === 2 || line === 'begin atomic') isInBody = !isInBody
    else if (line === 'end;') isInBody = false
    if (!line.endsWith(';') || isInBody) continue
    statements.push(statement)
    statement = ''
  }
  return statements
}
