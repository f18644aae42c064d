import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../../core/package-files.ts'
import type { Warehouse } from '../connect.ts'
import { fillIn } from './sql-files.ts'

/* The numbered files in sql/migrations, and what they make. Each is run once, in their order. Forward only. */

export type Migration = ReturnType<typeof readMigrations>[number]

export function readMigrations() {
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

export interface MadeObject {
  kind: 'table' | 'sequence' | 'view' | 'function' | 'trigger'
  schema: string
  name: string
  table?: string
  sql: string
}

/** As people read it. No two objects have the same. */
export function nameOf({ kind, schema, name, table }: MadeObject): string {
  return table === undefined ? `${kind} ${schema}.${name}` : `${kind} ${name} of ${schema}.${table}`
}

const STATEMENT =
  /^(create|drop|alter|comment on|insert into) (?:(?:or replace|unlogged|unique) )?(?:(table|sequence|view|function|trigger|index) (?:(\w+) (?:[^"]* )?on )?)?"(\w+)"\.(\w+)/

/** Objects that the migrations created and did not drop, in the order of their creation. */
export function madeByMigrations(warehouse: Warehouse): MadeObject[] {
  let made: MadeObject[] = []
  const drop = (name: string) => {
    made = made.filter((object) => nameOf(object) !== name)
  }
  for (const sql of readMigrations().flatMap(({ text }) => statementsOf(fillIn(text, warehouse)))) {
    // Blocks drop tables only if nobody made a view of them.
    if (sql.startsWith('do $$'))
      for (const [, schema, name] of sql.matchAll(/'drop table "(\w+)"\.(\w+)'/g)) drop(`table ${schema}.${name}`)
    const { verb, object } = changeOf(sql) ?? {}
    if (object === undefined) continue
    const known = made.find((other) => nameOf(other) === nameOf(object))
    if (verb === 'drop') drop(nameOf(object))
    else if (known === undefined) made.push(...(verb === 'create' ? [object] : []))
    else if (verb === 'create') known.sql = sql
    else {
      known.sql += sql
      known.schema = / set schema "(\w+)"/.exec(sql)?.[1] ?? known.schema
    }
  }
  return made
}

/** The object that a statement makes or changes. An index belongs to its table. */
function changeOf(sql: string): { verb: string; object: MadeObject } | undefined {
  const [, verb, kind = 'table', own, schema, relation] = STATEMENT.exec(sql) ?? []
  if (verb === undefined) return undefined
  if (kind === 'index') return { verb: 'alter', object: { kind: 'table', schema, name: relation, sql } as MadeObject }
  const named = kind === 'trigger' ? { name: own, table: relation } : { name: relation }
  return { verb, object: { kind, schema, ...named, sql } as MadeObject }
}

/** At semicolons that end a line, outside of the bodies of functions. */
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
